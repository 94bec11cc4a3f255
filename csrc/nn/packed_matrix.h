// A weight matrix in the panels that nn/cpu computes with, packed once at load, bit for bit: F16 and quantized
// weights keep their values, only the order changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "ggml.h"
#include "nn/cpu/kernels.h"

namespace dualar::nn {

class PackedMatrix {
  public:
    PackedMatrix() = default;
    // rows: n rows of `depth` values of a type that can_pack(), as ggml has them; packed on `threads` threads.
    PackedMatrix(const void* rows, ggml_type type, int64_t n, int64_t depth, int threads,
                 const CpuKernels& kernels = *cpu_kernels().front());
    // The same of rows that are arranged from another order, a few at a time: fill(first, count, rows) writes them.
    using Fill = std::function<void(int64_t first, int64_t count, void* rows)>;
    PackedMatrix(const Fill& fill, ggml_type type, int64_t n, int64_t depth, int threads,
                 const CpuKernels& kernels = *cpu_kernels().front());
    static bool can_pack(ggml_type type);

    int64_t n() const { return n_; }
    int64_t depth() const { return depth_; }
    size_t nbytes() const { return nbytes_; }
    const CpuKernels& kernels() const { return *kernels_; }
    // Empty for float32 and F16 weights.
    const std::optional<Quantized>& quantized() const { return quantized_; }

    // The weights' part of a product: the first for float32 and F16, the second for quantized weights.
    void describe(PackedProduct& product) const;
    void describe(QuantizedProduct& product) const;

  private:
    struct Free {
        void operator()(void* memory) const;
    };
    void allocate(size_t bytes);
    // rows_of(first, count, room): where these rows are; they may be put into `room`.
    template <class RowsOf>
    void pack(const RowsOf& rows_of, ggml_type type, int threads);
    // So few rows that panels would be mostly empty: kept as rows instead, for dot products.
    bool narrow() const { return n_ <= 2 && !quantized_; }
    int64_t width() const { return quantized_ ? kernels_->quantized_width : kernels_->width; }
    int64_t panels() const { return (n_ + width() - 1) / width(); }
    size_t panel_bytes() const { return nbytes_ / static_cast<size_t>(narrow() ? 1 : panels()); }

    const CpuKernels* kernels_ = nullptr;
    int64_t n_ = 0;
    int64_t depth_ = 0;
    bool half_ = false;
    std::optional<Quantized> quantized_;
    size_t nbytes_ = 0;
    std::unique_ptr<void, Free> data_;
};

}  // namespace dualar::nn
