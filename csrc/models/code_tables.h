// The vectors that stand for codes: for each codebook, where its rows begin in which table.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/host_table.h"

namespace dualar {

class CodeTables {
  public:
    // The next codebook's rows: code c is row first_row + c.
    void add_book(const HostTable& table, int64_t first_row) { books_.emplace_back(table, first_row); }

    // out[width] = the vector of a code, or += it; `scratch` is resized as needed.
    void read(int64_t book, int32_t code, float* out) const {
        const auto& [table, first] = books_[static_cast<size_t>(book)];
        table.read(first + code, out);
    }
    void add(int64_t book, int32_t code, float* out, std::vector<float>& scratch) const {
        const auto& [table, first] = books_[static_cast<size_t>(book)];
        table.add(first + code, out, scratch);
    }

  private:
    std::vector<std::pair<HostTable, int64_t>> books_;
};

}  // namespace dualar
