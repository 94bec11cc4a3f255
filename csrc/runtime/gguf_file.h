// One GGUF file, memory-mapped read-only: its metadata with checked types, and where each tensor's bytes lie.
// Opening checks that every tensor lies inside the file; what a tensor should look like is up to the reader.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/gguf_header.h"

namespace dualar {

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
    const std::vector<FileTensor>& tensors() const { return header_.tensors; }
    const FileTensor* find(const std::string& name) const;  // nullptr when absent
    // The tensor's pages need not stay in memory: they come back from the file when they are read again.
    void forget(const FileTensor& tensor) const;

    const std::map<std::string, MetadataEntry>& metadata() const { return header_.metadata; }
    bool has(const std::string& key) const { return metadata().count(key) != 0; }

    // The value of `key`; ModelError names the key when it is absent, of another type or out of range.
    // Any integer type serves as an integer.
    int64_t integer(const std::string& key, int64_t low, int64_t high) const;
    double real(const std::string& key, double low, double high) const;
    bool boolean(const std::string& key, bool absent) const;
    std::string string(const std::string& key) const;
    std::vector<int64_t> integers(const std::string& key, int64_t low, int64_t high) const;

  private:
    const MetadataEntry& entry(const std::string& key, const char* expected) const;
    template <class T>
    T value(const std::string& key, const char* expected) const;
    void map();

    std::string path_;
    void* mapping_ = nullptr;
    size_t size_ = 0;
    GgufHeader header_;
    std::map<std::string, size_t> index_;
};

}  // namespace dualar
