#include "runtime/host_table.h"

#include <cstring>

namespace dualar {

void to_float(const void* data, ggml_type type, float* out, int64_t n) {
    if (type == GGML_TYPE_F32)
        std::memcpy(out, data, static_cast<size_t>(n) * sizeof(float));
    else
        ggml_get_type_traits(type)->to_float(data, out, n);
}

HostTable::HostTable(const void* data, ggml_type type, int64_t rows, int64_t columns)
    : data_(static_cast<const char*>(data)), type_(type), rows_(rows), columns_(columns) {}

void HostTable::read(int64_t row, float* out) const {
    to_float(data_ + static_cast<size_t>(row) * ggml_row_size(type_, columns_), type_, out, columns_);
}

void HostTable::add(int64_t row, float* out, std::vector<float>& scratch) const {
    scratch.resize(static_cast<size_t>(columns_));
    read(row, scratch.data());
    for (int64_t i = 0; i < columns_; ++i) out[i] += scratch[static_cast<size_t>(i)];
}

}  // namespace dualar
