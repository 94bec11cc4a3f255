#include "runtime/gguf_header.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/error.h"

namespace dualar {

namespace {

// Far above any model's; they bound what the tables cost a reader.
constexpr uint64_t kMaxEntries = 16384;
constexpr uint64_t kMaxNameLength = 1024;

// Tensors are used where they lie, so each must start where vector loads may read it.
constexpr uint64_t kTensorAlignment = 32;

constexpr const char* kAlignmentKey = GGUF_KEY_GENERAL_ALIGNMENT;

// Bytes of one value; 0 for strings, whose size is in the file, and for what is no type.
size_t size_of(gguf_type type) {
    switch (type) {
        case GGUF_TYPE_UINT8:
        case GGUF_TYPE_INT8:
        case GGUF_TYPE_BOOL:
            return 1;
        case GGUF_TYPE_UINT16:
        case GGUF_TYPE_INT16:
            return 2;
        case GGUF_TYPE_UINT32:
        case GGUF_TYPE_INT32:
        case GGUF_TYPE_FLOAT32:
            return 4;
        case GGUF_TYPE_UINT64:
        case GGUF_TYPE_INT64:
        case GGUF_TYPE_FLOAT64:
            return 8;
        default:
            return 0;
    }
}

// The length of the UTF-8 sequence at `at`, 0 where there is none.
size_t sequence_length(std::string_view text, size_t at) {
    const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    const unsigned lead = byte(at);
    const size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    for (size_t i = 1; i < length; ++i)
        if ((byte(at + i) & 0xC0) != 0x80) return 0;
    const unsigned second = byte(at + 1);
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F)) return 0;  // overlong; surrogates
    if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) return 0;  // overlong; past U+10FFFF
    return length;
}

// Where `text` stops being UTF-8; its size where it is.
size_t utf8_end(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        const size_t length = sequence_length(text, at);
        if (length == 0) break;
        at += length;
    }
    return at;
}

bool is_name(std::string_view text) {
    const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
    return utf8_end(text) == text.size() && std::none_of(text.begin(), text.end(), control);
}

// Never wraps: the largest number stands for all that are too large.
uint64_t product(uint64_t a, uint64_t b) {
    constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
    return b != 0 && a > kMost / b ? kMost : a * b;
}

class Reader {
  public:
    Reader(const std::string& path, const char* data, uint64_t size) : path_(path), data_(data), size_(size) {}

    GgufHeader read() {
        expect_magic();
        const auto version = number<uint32_t>("the version");
        if (version != 2 && version != 3) {
            const bool swapped = (version & 0xFFFF) == 0;
            fail(message("expected GGUF version 2 or 3, got ", version, swapped ? ": is it a big-endian file?" : ""));
        }
        const uint64_t tensors = count("tensors");
        const uint64_t keys = count("metadata keys");
        for (uint64_t i = 0; i < keys; ++i) read_key(i);
        read_alignment();
        for (uint64_t i = 0; i < tensors; ++i) read_tensor(i);
        place_tensors();
        return std::move(header_);
    }

  private:
    [[noreturn]] void fail(const std::string& what) const { throw ModelError(message("[", path_, "] ", what)); }

    const char* take(uint64_t n, const std::string& what) {
        if (n > size_ - at_)
            fail(message("expected ", what, " (", n, " bytes) at byte ", at_, ", the file ends at ", size_,
                         ": is it truncated?"));
        const char* taken = data_ + at_;
        at_ += n;
        return taken;
    }

    template <class T>
    T number(const std::string& what) {
        T value;
        std::memcpy(&value, take(sizeof(T), what), sizeof(T));
        return value;
    }

    std::string_view string(const std::string& what) {
        const auto length = number<uint64_t>("the length of " + what);
        return {take(length, what), static_cast<size_t>(length)};
    }

    void expect_magic() {
        const std::string_view found(data_, static_cast<size_t>(std::min<uint64_t>(size_, 4)));
        if (found != GGUF_MAGIC) fail(message("expected a GGUF file, which begins with \"GGUF\", got ", quoted(found)));
        at_ = 4;
    }

    uint64_t count(const char* what) {
        const auto n = number<uint64_t>(message("the number of ", what));
        if (n > kMaxEntries) fail(message("expected at most ", kMaxEntries, " ", what, ", got ", n));
        return n;
    }

    std::string name(const std::string& what) {
        const std::string_view found = string(what);
        if (found.empty() || found.size() > kMaxNameLength || !is_name(found))
            fail(message("expected ", what, " as 1 to ", kMaxNameLength, " bytes of printable UTF-8, got ",
                         quoted(found), " (", found.size(), " bytes)"));
        return std::string(found);
    }

    void read_key(uint64_t index) {
        std::string key = name(message("the name of metadata key ", index));
        MetadataEntry entry{static_cast<gguf_type>(0), false, 1, nullptr};
        auto type = number<uint32_t>("the type of " + key);
        if (type == GGUF_TYPE_ARRAY) {
            entry.is_array = true;
            type = number<uint32_t>("the element type of " + key);
            entry.count = number<uint64_t>("the length of " + key);
        }
        if (type >= GGUF_TYPE_COUNT || type == GGUF_TYPE_ARRAY)
            fail(message(key, ": expected a known type", entry.is_array ? " of array elements" : "", ", got type ",
                         type));
        entry.type = static_cast<gguf_type>(type);
        entry.data = data_ + at_;
        if (entry.type == GGUF_TYPE_STRING) {
            const std::string what = "a string of " + key;
            for (uint64_t i = 0; i < entry.count; ++i) string(what);
        } else {
            take(product(entry.count, size_of(entry.type)), "the value of " + key);
        }
        const auto [known, fresh] = header_.metadata.emplace(std::move(key), entry);
        if (!fresh) fail(message("expected each metadata key once, got ", known->first, " again"));
    }

    void read_alignment() {
        const auto found = header_.metadata.find(kAlignmentKey);
        if (found == header_.metadata.end()) return;
        const MetadataEntry& entry = found->second;
        if (entry.type != GGUF_TYPE_UINT32 || entry.is_array)
            fail(message(kAlignmentKey, ": expected a uint32, got a value of type ", type_name(entry)));
        uint32_t value = 0;
        std::memcpy(&value, entry.data, sizeof(value));
        if (value == 0 || (value & (value - 1)) != 0)
            fail(message(kAlignmentKey, ": expected a power of 2, got ", value));
        alignment_ = value;
    }

    void read_tensor(uint64_t index) {
        FileTensor tensor;
        tensor.name = name(message("the name of tensor ", index));
        const std::string what = "the description of " + tensor.name;
        const auto dimensions = number<uint32_t>(what);
        if (dimensions > GGML_MAX_DIMS)
            fail(message(tensor.name, ": expected at most ", GGML_MAX_DIMS, " dimensions, got ", dimensions));
        tensor.shape.resize(dimensions);
        for (uint32_t d = 0; d < dimensions; ++d) {
            const auto n = number<int64_t>(what);
            if (n < 1) fail(message(tensor.name, ": expected dimensions of at least 1, got ", n));
            tensor.shape[dimensions - 1 - d] = n;  // the file has the fastest first
        }
        const auto type = number<uint32_t>(what);
        tensor.type = static_cast<ggml_type>(std::min<uint32_t>(type, GGML_TYPE_COUNT));
        const int64_t block = type < GGML_TYPE_COUNT ? ggml_blck_size(tensor.type) : 0;
        if (block < 1 || ggml_type_size(tensor.type) == 0)
            fail(message(tensor.name, ": expected a known ggml type, got type ", type));
        const int64_t columns = dimensions == 0 ? 1 : tensor.shape.back();
        if (columns % block != 0)
            fail(message(tensor.name, ": expected rows of a multiple of ", block, " values, a block of ",
                         ggml_type_name(tensor.type), ", got ", columns));
        uint64_t nbytes = product(static_cast<uint64_t>(columns / block), ggml_type_size(tensor.type));
        for (size_t d = 0; d + 1 < tensor.shape.size(); ++d)
            nbytes = product(nbytes, static_cast<uint64_t>(tensor.shape[d]));
        tensor.nbytes = static_cast<size_t>(nbytes);
        offsets_.push_back(number<uint64_t>(what));
        header_.tensors.push_back(std::move(tensor));
    }

    // Data starts at the next aligned byte. Tensors must lie inside the file, and none on another: what a reader
    // allocates for all of them is then bounded by the file's size.
    void place_tensors() {
        std::vector<FileTensor>& tensors = header_.tensors;
        if (tensors.empty()) return;
        const uint64_t start = (at_ + alignment_ - 1) / alignment_ * alignment_;
        std::vector<size_t> order(tensors.size());
        for (size_t i = 0; i < tensors.size(); ++i) {
            FileTensor& tensor = tensors[i];
            const uint64_t offset = offsets_[i];
            if (start > size_ || offset > size_ - start || tensor.nbytes > size_ - start - offset)
                fail(message("expected ", tensor.name, " to end within the file's ", size_, " bytes, it needs ",
                             tensor.nbytes, " bytes at ", start, " + ", offset, ": is it truncated?"));
            if ((start + offset) % kTensorAlignment != 0)
                fail(message(tensor.name, ": expected data aligned to ", kTensorAlignment, " bytes, got offset ",
                             start + offset, " (", kAlignmentKey, " is ", alignment_, ")"));
            tensor.data = data_ + start + offset;
            order[i] = i;
        }
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return offsets_[a] < offsets_[b]; });
        for (size_t i = 1; i < order.size(); ++i) {
            const FileTensor& before = tensors[order[i - 1]];
            if (offsets_[order[i]] - offsets_[order[i - 1]] < before.nbytes)
                fail(message("expected tensors that do not overlap, got ", tensors[order[i]].name, " within ",
                             before.name));
        }
    }

    const std::string& path_;
    const char* data_;
    uint64_t size_;
    uint64_t at_ = 0;
    uint64_t alignment_ = GGUF_DEFAULT_ALIGNMENT;
    std::vector<uint64_t> offsets_;
    GgufHeader header_;
};

template <class T>
T value_at(const char* data, uint64_t index) {
    T value;
    std::memcpy(&value, data + index * sizeof(T), sizeof(T));
    return value;
}

template <class T, class To>
std::vector<To> values_of(const MetadataEntry& entry) {
    std::vector<To> values;
    values.reserve(static_cast<size_t>(entry.count));
    for (uint64_t i = 0; i < entry.count; ++i) values.push_back(static_cast<To>(value_at<T>(entry.data, i)));
    return values;
}

template <class T, class To>
MetadataValue numbers(const MetadataEntry& entry) {
    if (entry.is_array) return values_of<T, To>(entry);
    return static_cast<To>(value_at<T>(entry.data, 0));
}

std::vector<std::string> strings(const std::string& key, const MetadataEntry& entry) {
    std::vector<std::string> values;
    const char* at = entry.data;
    for (uint64_t i = 0; i < entry.count; ++i) {
        const auto length = value_at<uint64_t>(at, 0);
        const std::string_view found(at + sizeof(length), static_cast<size_t>(length));
        const size_t end = utf8_end(found);
        if (end != found.size())
            throw ModelError(message("[", key, "] expected UTF-8 text, got byte ",
                                     static_cast<int>(static_cast<unsigned char>(found[end])), " at ", end));
        values.emplace_back(found);
        at += sizeof(length) + found.size();
    }
    return values;
}

}  // namespace

GgufHeader read_gguf_header(const std::string& path, const char* data, size_t size) {
    return Reader(path, data, size).read();
}

MetadataValue read_value(const std::string& key, const MetadataEntry& entry) {
    switch (entry.type) {
        case GGUF_TYPE_UINT8:
            return numbers<uint8_t, int64_t>(entry);
        case GGUF_TYPE_INT8:
            return numbers<int8_t, int64_t>(entry);
        case GGUF_TYPE_UINT16:
            return numbers<uint16_t, int64_t>(entry);
        case GGUF_TYPE_INT16:
            return numbers<int16_t, int64_t>(entry);
        case GGUF_TYPE_UINT32:
            return numbers<uint32_t, int64_t>(entry);
        case GGUF_TYPE_INT32:
            return numbers<int32_t, int64_t>(entry);
        case GGUF_TYPE_INT64:
            return numbers<int64_t, int64_t>(entry);
        case GGUF_TYPE_UINT64:
            if (entry.is_array) return values_of<uint64_t, int64_t>(entry);
            return value_at<uint64_t>(entry.data, 0);
        case GGUF_TYPE_FLOAT32:
            return numbers<float, double>(entry);
        case GGUF_TYPE_FLOAT64:
            return numbers<double, double>(entry);
        case GGUF_TYPE_BOOL:
            if (entry.is_array) return values_of<int8_t, bool>(entry);
            return value_at<int8_t>(entry.data, 0) != 0;
        default:
            if (entry.is_array) return strings(key, entry);
            return std::move(strings(key, entry).front());
    }
}

std::string encoded_value(const MetadataEntry& entry) {
    std::string out;
    const auto add = [&out](auto number) { out.append(reinterpret_cast<const char*>(&number), sizeof(number)); };
    if (entry.is_array) add(static_cast<uint32_t>(GGUF_TYPE_ARRAY));
    add(static_cast<uint32_t>(entry.type));
    if (entry.is_array) add(entry.count);
    const char* end = entry.data;
    if (entry.type == GGUF_TYPE_STRING)
        for (uint64_t i = 0; i < entry.count; ++i) end += sizeof(uint64_t) + value_at<uint64_t>(end, 0);
    else
        end += entry.count * size_of(entry.type);
    return out.append(entry.data, end);
}

const char* type_name(const MetadataEntry& entry) {
    const bool array = entry.is_array;
    switch (entry.type) {
        case GGUF_TYPE_BOOL:
            return array ? "bool array" : "bool";
        case GGUF_TYPE_STRING:
            return array ? "string array" : "string";
        case GGUF_TYPE_FLOAT32:
        case GGUF_TYPE_FLOAT64:
            return array ? "float array" : "float";
        default:
            return array ? "integer array" : "integer";
    }
}

std::string quoted(std::string_view text) {
    constexpr size_t kMost = 64;
    constexpr const char* kDigits = "0123456789abcdef";
    std::string out = "\"";
    for (const char character : text.substr(0, kMost)) {
        const auto byte = static_cast<unsigned char>(character);
        if (byte >= 0x20 && byte < 0x7F)
            out += character;
        else
            out += {'\\', 'x', kDigits[byte >> 4U], kDigits[byte & 15U]};
    }
    return out + (text.size() > kMost ? "...\"" : "\"");
}

}  // namespace dualar
