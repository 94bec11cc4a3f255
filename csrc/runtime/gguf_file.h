// One GGUF file, memory-mapped read-only: its metadata with checked types, and where each tensor's bytes lie.
// Opening checks that every tensor lies inside the file; what a tensor should look like is up to the reader.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "ggml-cpp.h"

namespace dualar {

struct FileTensor {
    std::string name;
    ggml_type type;
    std::vector<int64_t> shape;  // numpy order: the last index moves fastest
    const void* data;            // inside the mapping
    size_t nbytes;
};

using MetadataValue = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<int64_t>,
                                   std::vector<double>, std::vector<bool>, std::vector<std::string>>;

class GgufFile {
  public:
    // Throws ModelError for whatever is wrong with the file, a missing one included.
    explicit GgufFile(const std::string& path);
    ~GgufFile();
    GgufFile(const GgufFile&) = delete;
    GgufFile& operator=(const GgufFile&) = delete;

    const std::string& path() const { return path_; }
    size_t nbytes() const { return size_; }
    void* mapping() const { return mapping_; }
    const std::vector<FileTensor>& tensors() const { return tensors_; }
    const FileTensor* find(const std::string& name) const;  // nullptr when absent
    // The tensor's pages need not stay in memory: they come back from the file when they are read again.
    void forget(const FileTensor& tensor) const;

    const std::map<std::string, MetadataValue>& metadata() const { return metadata_; }
    bool has(const std::string& key) const { return metadata_.count(key) != 0; }

    // The value of `key`; ModelError names the key when it is absent, of another type or out of range.
    // Any integer type serves as an integer.
    int64_t integer(const std::string& key, int64_t low, int64_t high) const;
    double real(const std::string& key, double low, double high) const;
    bool boolean(const std::string& key, bool absent) const;
    std::string string(const std::string& key) const;
    std::vector<int64_t> integers(const std::string& key, int64_t low, int64_t high) const;

  private:
    const MetadataValue& value(const std::string& key, const char* expected) const;
    void map();
    void read_metadata(const gguf_context* gguf);
    void read_tensors(const gguf_context* gguf, const ggml_context* shapes);

    std::string path_;
    void* mapping_ = nullptr;
    size_t size_ = 0;
    std::map<std::string, MetadataValue> metadata_;
    std::vector<FileTensor> tensors_;
    std::map<std::string, size_t> index_;
};

}  // namespace dualar
