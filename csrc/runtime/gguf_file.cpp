#include "runtime/gguf_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "runtime/error.h"
#include "runtime/log.h"

namespace dualar {

namespace {

// Tensors are used where they lie, so each must start where vector loads may read it.
constexpr size_t kTensorAlignment = 32;

const char* type_of(const MetadataValue& value) {
    static const char* const names[] = {"bool",          "integer",     "integer",    "float",       "string",
                                        "integer array", "float array", "bool array", "string array"};
    return names[value.index()];
}

template <class T>
std::vector<int64_t> as_integers(const void* data, size_t n) {
    const T* values = static_cast<const T*>(data);
    return std::vector<int64_t>(values, values + n);
}

MetadataValue read_array(const gguf_context* gguf, int64_t id, const std::string& key) {
    const gguf_type type = gguf_get_arr_type(gguf, id);
    const size_t n = gguf_get_arr_n(gguf, id);
    if (type == GGUF_TYPE_STRING) {
        std::vector<std::string> values;
        for (size_t i = 0; i < n; ++i) values.emplace_back(gguf_get_arr_str(gguf, id, i));
        return values;
    }
    const void* data = gguf_get_arr_data(gguf, id);
    switch (type) {
        case GGUF_TYPE_UINT8:
            return as_integers<uint8_t>(data, n);
        case GGUF_TYPE_INT8:
            return as_integers<int8_t>(data, n);
        case GGUF_TYPE_UINT16:
            return as_integers<uint16_t>(data, n);
        case GGUF_TYPE_INT16:
            return as_integers<int16_t>(data, n);
        case GGUF_TYPE_UINT32:
            return as_integers<uint32_t>(data, n);
        case GGUF_TYPE_INT32:
            return as_integers<int32_t>(data, n);
        case GGUF_TYPE_UINT64:
        case GGUF_TYPE_INT64:
            return as_integers<int64_t>(data, n);
        case GGUF_TYPE_FLOAT32: {
            const float* values = static_cast<const float*>(data);
            return std::vector<double>(values, values + n);
        }
        case GGUF_TYPE_FLOAT64: {
            const double* values = static_cast<const double*>(data);
            return std::vector<double>(values, values + n);
        }
        case GGUF_TYPE_BOOL: {
            const int8_t* values = static_cast<const int8_t*>(data);
            std::vector<bool> bools;
            for (size_t i = 0; i < n; ++i) bools.push_back(values[i] != 0);
            return bools;
        }
        default:
            throw ModelError(text("[", key, "] expected a known array type, got type ", static_cast<int>(type)));
    }
}

MetadataValue read_value(const gguf_context* gguf, int64_t id, const std::string& key) {
    switch (gguf_get_kv_type(gguf, id)) {
        case GGUF_TYPE_UINT8:
            return int64_t{gguf_get_val_u8(gguf, id)};
        case GGUF_TYPE_INT8:
            return int64_t{gguf_get_val_i8(gguf, id)};
        case GGUF_TYPE_UINT16:
            return int64_t{gguf_get_val_u16(gguf, id)};
        case GGUF_TYPE_INT16:
            return int64_t{gguf_get_val_i16(gguf, id)};
        case GGUF_TYPE_UINT32:
            return int64_t{gguf_get_val_u32(gguf, id)};
        case GGUF_TYPE_INT32:
            return int64_t{gguf_get_val_i32(gguf, id)};
        case GGUF_TYPE_INT64:
            return int64_t{gguf_get_val_i64(gguf, id)};
        case GGUF_TYPE_UINT64:
            return uint64_t{gguf_get_val_u64(gguf, id)};
        case GGUF_TYPE_FLOAT32:
            return double{gguf_get_val_f32(gguf, id)};
        case GGUF_TYPE_FLOAT64:
            return double{gguf_get_val_f64(gguf, id)};
        case GGUF_TYPE_BOOL:
            return gguf_get_val_bool(gguf, id);
        case GGUF_TYPE_STRING:
            return std::string(gguf_get_val_str(gguf, id));
        case GGUF_TYPE_ARRAY:
            return read_array(gguf, id, key);
        default:
            throw ModelError(text("[", key, "] expected a known type"));
    }
}

}  // namespace

void GgufFile::map() {
    const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) throw ModelError(text("[", path_, "] expected a readable model file: ", std::strerror(errno)));
    struct stat status{};
    const bool known = fstat(file, &status) == 0;
    if (!known || !S_ISREG(status.st_mode)) {
        close(file);
        throw ModelError(text("[", path_, "] expected a model file, got ",
                              known && S_ISDIR(status.st_mode) ? "a folder" : "something that is not a file"));
    }
    size_ = static_cast<size_t>(status.st_size);
    if (size_ == 0) {
        close(file);
        throw ModelError(text("[", path_, "] expected a GGUF file, got an empty file"));
    }
    mapping_ = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    const int reason = errno;
    close(file);
    if (mapping_ == MAP_FAILED) {
        mapping_ = nullptr;
        throw ModelError(text("[", path_, "] could not be mapped: ", std::strerror(reason)));
    }
}

GgufFile::GgufFile(const std::string& path) : path_(path) {
    map();
    try {
        const LogCapture log;
        ggml_context* shapes = nullptr;
        const gguf_init_params params{/*no_alloc=*/true, /*ctx=*/&shapes};
        const gguf_context_ptr gguf(gguf_init_from_buffer(mapping_, size_, params));
        const ggml_context_ptr owner(shapes);
        if (!gguf) throw ModelError(text("[", path_, "] expected a GGUF file of version 2 or 3: ", log.text()));
        read_metadata(gguf.get());
        read_tensors(gguf.get(), shapes);
    } catch (...) {
        munmap(mapping_, size_);
        throw;
    }
}

GgufFile::~GgufFile() {
    if (mapping_ != nullptr) munmap(mapping_, size_);
}

void GgufFile::read_metadata(const gguf_context* gguf) {
    for (int64_t id = 0; id < gguf_get_n_kv(gguf); ++id) {
        const std::string key = gguf_get_key(gguf, id);
        metadata_.emplace(key, read_value(gguf, id, key));
    }
}

void GgufFile::read_tensors(const gguf_context* gguf, const ggml_context* shapes) {
    const size_t start = gguf_get_data_offset(gguf);
    for (int64_t id = 0; id < gguf_get_n_tensors(gguf); ++id) {
        FileTensor tensor;
        tensor.name = gguf_get_tensor_name(gguf, id);
        const ggml_tensor* shape = ggml_get_tensor(const_cast<ggml_context*>(shapes), tensor.name.c_str());
        if (shape == nullptr) throw ModelError(text("[", tensor.name, "] expected a tensor, the file lists none"));
        tensor.type = shape->type;
        for (int d = ggml_n_dims(shape); d-- > 0;) tensor.shape.push_back(shape->ne[d]);
        for (const int64_t n : tensor.shape)
            if (n <= 0) throw ModelError(text("[", tensor.name, "] expected dimensions of at least 1, got ", n));
        const size_t offset = gguf_get_tensor_offset(gguf, id);
        tensor.nbytes = gguf_get_tensor_size(gguf, id);
        if (offset > size_ || start > size_ - offset || tensor.nbytes > size_ - offset - start)
            throw ModelError(text("[", path_, "] expected ", tensor.name, " to end within the file's ", size_,
                                  " bytes, it needs ", tensor.nbytes, " bytes at ", start + offset,
                                  ": is it truncated?"));
        if ((start + offset) % kTensorAlignment != 0)
            throw ModelError(text("[", tensor.name, "] expected data aligned to ", kTensorAlignment,
                                  " bytes, got offset ", start + offset, " (general.alignment is ",
                                  gguf_get_alignment(gguf), ")"));
        tensor.data = static_cast<const char*>(mapping_) + start + offset;
        index_.emplace(tensor.name, tensors_.size());
        tensors_.push_back(std::move(tensor));
    }
}

const FileTensor* GgufFile::find(const std::string& name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &tensors_[found->second];
}

void GgufFile::forget(const FileTensor& tensor) const {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<uintptr_t>(tensor.data) + page - 1) / page * page;
    const auto end = (reinterpret_cast<uintptr_t>(tensor.data) + tensor.nbytes) / page * page;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

const MetadataValue& GgufFile::value(const std::string& key, const char* expected) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end())
        throw ModelError(text("[", key, "] expected ", expected, ", the file has no such key"));
    return found->second;
}

int64_t GgufFile::integer(const std::string& key, int64_t low, int64_t high) const {
    const MetadataValue& found = value(key, "an integer");
    int64_t number = 0;
    if (const auto* signed_value = std::get_if<int64_t>(&found)) {
        number = *signed_value;
    } else if (const auto* unsigned_value = std::get_if<uint64_t>(&found)) {
        if (*unsigned_value > static_cast<uint64_t>(INT64_MAX))
            throw ModelError(text("[", key, "] expected ", low, " to ", high, ", got ", *unsigned_value));
        number = static_cast<int64_t>(*unsigned_value);
    } else {
        throw ModelError(text("[", key, "] expected an integer, got a value of type ", type_of(found)));
    }
    if (number < low || number > high)
        throw ModelError(text("[", key, "] expected ", low, " to ", high, ", got ", number));
    return number;
}

double GgufFile::real(const std::string& key, double low, double high) const {
    const MetadataValue& found = value(key, "a float");
    const auto* number = std::get_if<double>(&found);
    if (number == nullptr) throw ModelError(text("[", key, "] expected a float, got a value of type ", type_of(found)));
    if (!(*number >= low && *number <= high))
        throw ModelError(text("[", key, "] expected ", low, " to ", high, ", got ", *number));
    return *number;
}

bool GgufFile::boolean(const std::string& key, bool absent) const {
    if (!has(key)) return absent;
    const MetadataValue& found = value(key, "a bool");
    const auto* flag = std::get_if<bool>(&found);
    if (flag == nullptr) throw ModelError(text("[", key, "] expected a bool, got a value of type ", type_of(found)));
    return *flag;
}

std::string GgufFile::string(const std::string& key) const {
    const MetadataValue& found = value(key, "a string");
    const auto* characters = std::get_if<std::string>(&found);
    if (characters == nullptr)
        throw ModelError(text("[", key, "] expected a string, got a value of type ", type_of(found)));
    return *characters;
}

std::vector<int64_t> GgufFile::integers(const std::string& key, int64_t low, int64_t high) const {
    const MetadataValue& found = value(key, "an integer array");
    const auto* numbers = std::get_if<std::vector<int64_t>>(&found);
    if (numbers == nullptr)
        throw ModelError(text("[", key, "] expected an integer array, got a value of type ", type_of(found)));
    for (const int64_t number : *numbers)
        if (number < low || number > high)
            throw ModelError(text("[", key, "] expected values from ", low, " to ", high, ", got ", number));
    return *numbers;
}

}  // namespace dualar
