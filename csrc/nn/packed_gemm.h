// The codec's matrix product on the CPU: float32 activations against weights packed once into panels.
// Rows of the left side may overlap, as the windows of a convolution do, so nothing is unrolled; the bias and a
// residual are added before a result leaves its registers. Weights are kept as F16 where the file has them so: they are
// widened on the way into the product, activations never narrow. Knows no graph and no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace dualar::nn {

// Weights [n, depth] in panels of panel_width() columns of the result, each [depth][panel_width()].
class PackedMatrix {
  public:
    PackedMatrix() = default;
    // rows: n rows of `depth` values, row-major. half: keep them as F16 (the caller knows that this loses nothing).
    PackedMatrix(const float* rows, int64_t n, int64_t depth, bool half);

    int64_t n() const { return n_; }
    int64_t depth() const { return depth_; }
    size_t nbytes() const { return nbytes_; }
    bool half() const { return half_; }
    // So few rows that panels would be mostly empty: kept as float32 rows instead, for dot products.
    bool narrow() const;
    const void* panel(int64_t index) const;
    int64_t panels() const;

  private:
    struct Free {
        void operator()(void* memory) const;
    };
    int64_t n_ = 0;
    int64_t depth_ = 0;
    bool half_ = false;
    size_t nbytes_ = 0;
    std::unique_ptr<void, Free> data_;
};

// One product: out[t][o] = bias[o] + residual[t][o] + sum over taps j and channels c of
// x[t * row_stride + j * tap_stride + c] * weights[o][j * channels + c].
struct PackedProduct {
    const PackedMatrix* weights = nullptr;
    const float* x = nullptr;
    int64_t rows = 0;        // t
    int64_t row_stride = 0;  // in floats
    int64_t taps = 1;
    int64_t tap_stride = 0;
    int64_t channels = 0;
    const float* bias = nullptr;  // bias_period values, repeated along o; or nullptr
    int64_t bias_period = 0;
    const float* residual = nullptr;  // [rows][n] like out, or nullptr
    float* out = nullptr;             // [rows][n]
};

// The part of the product that thread `ith` of `nth` computes; together they compute it all.
void compute(const PackedProduct& product, int ith, int nth);

// Columns of the result that one panel holds: two vectors of this CPU.
int64_t panel_width();

}  // namespace dualar::nn
