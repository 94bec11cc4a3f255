#include "runtime/gguf_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/error.h"

namespace dualar {

void GgufFile::map() {
    const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not make us wait
    if (file < 0) throw ModelError(message("[", path_, "] expected a readable model file: ", std::strerror(errno)));
    struct stat status{};
    const bool known = fstat(file, &status) == 0;
    if (!known || !S_ISREG(status.st_mode)) {
        close(file);
        throw ModelError(message("[", path_, "] expected a model file, got ",
                                 known && S_ISDIR(status.st_mode) ? "a folder" : "something that is not a file"));
    }
    size_ = static_cast<size_t>(status.st_size);
    if (size_ == 0) {
        close(file);
        throw ModelError(message("[", path_, "] expected a GGUF file, got an empty file"));
    }
    mapping_ = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    const int reason = errno;
    close(file);
    if (mapping_ == MAP_FAILED) {
        mapping_ = nullptr;
        throw ModelError(message("[", path_, "] could not be mapped: ", std::strerror(reason)));
    }
}

GgufFile::GgufFile(const std::string& path) : path_(path) {
    map();
    try {
        header_ = read_gguf_header(path_, static_cast<const char*>(mapping_), size_);
        for (size_t i = 0; i < tensors().size(); ++i) {
            const std::string& name = tensors()[i].name;
            if (!index_.emplace(name, i).second)
                throw ModelError(message("[", path_, "] expected each tensor once, got ", name, " again"));
        }
    } catch (...) {
        munmap(mapping_, size_);
        throw;
    }
}

GgufFile::~GgufFile() {
    if (mapping_ != nullptr) munmap(mapping_, size_);
}

const FileTensor* GgufFile::find(const std::string& name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &tensors()[found->second];
}

void GgufFile::forget(const FileTensor& tensor) const {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<uintptr_t>(tensor.data) + page - 1) / page * page;
    const auto end = (reinterpret_cast<uintptr_t>(tensor.data) + tensor.nbytes) / page * page;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

const MetadataEntry& GgufFile::entry(const std::string& key, const char* expected) const {
    const auto found = metadata().find(key);
    if (found == metadata().end())
        throw ModelError(message("[", key, "] expected ", expected, ", the file has no such key"));
    return found->second;
}

template <class T>
T GgufFile::value(const std::string& key, const char* expected) const {
    const MetadataEntry& found = entry(key, expected);
    MetadataValue value = read_value(key, found);
    if (T* wanted = std::get_if<T>(&value)) return std::move(*wanted);
    throw ModelError(message("[", key, "] expected ", expected, ", got a value of type ", type_name(found)));
}

int64_t GgufFile::integer(const std::string& key, int64_t low, int64_t high) const {
    const auto checked = [&](auto number, bool fits) {
        if (!fits) throw ModelError(message("[", key, "] expected ", low, " to ", high, ", got ", number));
        return static_cast<int64_t>(number);
    };
    const MetadataEntry& found = entry(key, "an integer");
    if (found.type == GGUF_TYPE_UINT64 && !found.is_array) {
        const auto number = value<uint64_t>(key, "an integer");
        return checked(number, number <= static_cast<uint64_t>(INT64_MAX) && static_cast<int64_t>(number) >= low &&
                                   static_cast<int64_t>(number) <= high);
    }
    const auto number = value<int64_t>(key, "an integer");
    return checked(number, number >= low && number <= high);
}

double GgufFile::real(const std::string& key, double low, double high) const {
    const auto number = value<double>(key, "a float");
    if (!(number >= low && number <= high))
        throw ModelError(message("[", key, "] expected ", low, " to ", high, ", got ", number));
    return number;
}

bool GgufFile::boolean(const std::string& key, bool absent) const {
    return has(key) ? value<bool>(key, "a bool") : absent;
}

std::string GgufFile::string(const std::string& key) const { return value<std::string>(key, "a string"); }

std::vector<int64_t> GgufFile::integers(const std::string& key, int64_t low, int64_t high) const {
    constexpr uint64_t kMost = 4096;
    if (const MetadataEntry& found = entry(key, "an integer array"); found.count > kMost)
        throw ModelError(message("[", key, "] expected at most ", kMost, " values, got ", found.count));
    std::vector<int64_t> numbers = value<std::vector<int64_t>>(key, "an integer array");
    for (const int64_t number : numbers)
        if (number < low || number > high)
            throw ModelError(message("[", key, "] expected values from ", low, " to ", high, ", got ", number));
    return numbers;
}

}  // namespace dualar
