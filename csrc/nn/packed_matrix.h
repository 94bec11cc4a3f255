// A weight matrix in the panels that nn/cpu_kernels computes with, packed once at load. F16 weights stay F16: they are
// widened on the way into a product, and activations never narrow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "nn/cpu_kernels.h"

namespace dualar::nn {

class PackedMatrix {
  public:
    PackedMatrix() = default;
    // rows: n rows of `depth` values, row-major. half: keep them as F16 (the caller knows that this loses nothing).
    PackedMatrix(const float* rows, int64_t n, int64_t depth, bool half,
                 const CpuKernels& kernels = *cpu_kernels().front());

    int64_t n() const { return n_; }
    int64_t depth() const { return depth_; }
    size_t nbytes() const { return nbytes_; }
    const CpuKernels& kernels() const { return *kernels_; }

    // The weights' part of a product.
    void describe(PackedProduct& product) const;

  private:
    struct Free {
        void operator()(void* memory) const;
    };
    // So few rows that panels would be mostly empty: kept as rows instead, for dot products.
    bool narrow() const { return n_ <= 2; }
    int64_t panels() const { return (n_ + kernels_->width - 1) / kernels_->width; }

    const CpuKernels* kernels_ = nullptr;
    int64_t n_ = 0;
    int64_t depth_ = 0;
    bool half_ = false;
    size_t nbytes_ = 0;
    std::unique_ptr<void, Free> data_;
};

}  // namespace dualar::nn
