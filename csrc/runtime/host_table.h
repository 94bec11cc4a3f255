// A matrix that is read row by row on the host, straight from where its bytes lie: an embedding table, a codebook.
#pragma once

#include <cstdint>
#include <vector>

#include "ggml.h"

namespace dualar {

class HostTable {
  public:
    HostTable() = default;
    // The bytes are the caller's and must outlive the table.
    HostTable(const void* data, ggml_type type, int64_t rows, int64_t columns);

    int64_t rows() const { return rows_; }
    int64_t columns() const { return columns_; }

    // out[columns] = row, or += row; `scratch` is resized as needed.
    void read(int64_t row, float* out) const;
    void add(int64_t row, float* out, std::vector<float>& scratch) const;

  private:
    const char* data_ = nullptr;
    ggml_type type_ = GGML_TYPE_F32;
    int64_t rows_ = 0;
    int64_t columns_ = 0;
};

// n values of a ggml type that has a float form (n a multiple of its block) as float32.
void to_float(const void* data, ggml_type type, float* out, int64_t n);

}  // namespace dualar
