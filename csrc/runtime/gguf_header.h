// The header of a GGUF file, read by hand from its mapped bytes: where each metadata value lies, and the tensor table.
// Whoever wrote the file is not trusted: every number is checked against the bytes that are there before it is used,
// and nothing but names is copied. ggml's own reader copies all metadata (arrays of strings at several times their
// size), compares names in quadratic time and drops leading dimensions of 1.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ggml.h"
#include "gguf.h"

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

// A metadata value where it lies in the file: `count` values of `type`, one after the other.
struct MetadataEntry {
    gguf_type type;
    bool is_array;
    uint64_t count;
    const char* data;
};

struct GgufHeader {
    std::map<std::string, MetadataEntry> metadata;
    std::vector<FileTensor> tensors;
};

// `data` outlives the result. ModelError, naming `path`, for the first thing that is wrong.
GgufHeader read_gguf_header(const std::string& path, const char* data, size_t size);

// ModelError, naming the key, for text that is not UTF-8.
MetadataValue read_value(const std::string& key, const MetadataEntry& entry);
// The value as the file has it: its type, of an array also the elements' type and their number, then their bytes.
std::string encoded_value(const MetadataEntry& entry);
const char* type_name(const MetadataEntry& entry);

// Text of a file for an error: in quotes, cut where it is long, anything but printable ASCII escaped.
std::string quoted(std::string_view text);

}  // namespace dualar
