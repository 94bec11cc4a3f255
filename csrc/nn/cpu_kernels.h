// The loops that this project writes for the CPU itself, in one form for each family of vector instructions.
// The best one that the machine runs is chosen once, at run time; tests compare them all. Knows no graph and no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dualar::nn {

// out[t][o] = bias[o % bias_period] + residual[t][o] + sum over taps j and channels c of
// x[t * row_stride + j * tap_stride + c] * weights[o][j * channels + c].
// Rows of x may overlap, as the windows of a convolution do, so nothing is ever unrolled.
struct PackedProduct {
    // Panels of `width` columns of the result, each [taps * channels][width], float32 or F16, zero past n; or, where
    // `narrow`, n rows of float32.
    const void* weights = nullptr;
    size_t panel_bytes = 0;
    int64_t n = 0;
    bool half = false;
    bool narrow = false;
    const float* x = nullptr;
    int64_t rows = 0;        // t
    int64_t row_stride = 0;  // in floats
    int64_t taps = 1;
    int64_t tap_stride = 0;
    int64_t channels = 0;
    const float* bias = nullptr;
    int64_t bias_period = 1;
    const float* residual = nullptr;  // [rows][n] like out
    float* out = nullptr;
};

struct CpuKernels {
    const char* name;  // "avx512", "avx2", "neon", "plain"
    int width;         // columns of a panel
    // The part that thread `ith` of `nth` computes; together they compute it all.
    void (*product)(const PackedProduct& product, int ith, int nth);
    // out[i] = x[i] + sin^2(alpha[i] x[i]) * inverse[i].
    void (*snake)(const float* x, const float* alpha, const float* inverse, float* out, int64_t n);
};

// Those that this machine can run, the best first.
const std::vector<const CpuKernels*>& cpu_kernels();

}  // namespace dualar::nn
