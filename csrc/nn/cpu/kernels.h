// The loops that this project writes for the CPU itself, in one variant for each family of vector instructions.
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
    // A product in two parts, not for `narrow`: sums to go on from, [rows][n], and how many (tap, channel) pairs of the
    // weights they stand for. In this order the sums have the same bits as in one part.
    const float* start = nullptr;
    int64_t skipped = 0;
    float* out = nullptr;
};

// Quantized weight types that can be packed. Their bits are kept as they are, only their order changes.
enum class Quantized { q8_0, q4_0, q4_k };

// Weights per scale of the activations, which are rounded to 8 bits: block x[32] -> round(x / s), s = max |x| / 127.
constexpr int64_t kQuantBlock = 32;

// out[t][o] = sum over d of x[t][d] * weights[o][d].
struct QuantizedProduct {
    const void* weights = nullptr;  // panels of `quantized_width` rows
    size_t panel_bytes = 0;
    int64_t n = 0;
    int64_t depth = 0;
    const void* x = nullptr;  // columns made by quantize(), quantized_bytes(depth) apart
    int64_t columns = 0;
    float* out = nullptr;  // [columns][n]
};

// depth int8 values, then depth / 32 scales (float32), then depth / 32 sums of a block's values (int32).
constexpr size_t quantized_bytes(int64_t depth) { return static_cast<size_t>(depth + depth / kQuantBlock * 8); }

// Keys or values [kv_heads][rows][head_dim], float32 or F16; a row's head_dim lie side by side.
struct AttentionRows {
    const void* data = nullptr;
    size_t head_bytes = 0;  // from one kv head to the next
    size_t row_bytes = 0;   // from one row to the next
};

// Attention of one position over `count` rows. Head h reads kv head h / (heads / kv_heads).
struct AttentionStep {
    const float* q = nullptr;  // [heads][head_dim]
    AttentionRows keys;
    AttentionRows values;
    bool half = false;               // F16 keys and values
    const uint16_t* mask = nullptr;  // [count] F16: -inf hides a row, anything else shows it
    int64_t count = 0;
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    float scale = 1.0F;
    float* out = nullptr;  // [heads][head_dim]
};

struct CpuKernels {
    const char* name;  // "avx512", "avx2", "neon_dot", "neon", "plain"
    int width;         // columns of a panel of float32 or F16 weights
    // The part that thread `ith` of `nth` computes; together they compute it all.
    void (*product)(const PackedProduct& product, int ith, int nth);
    // out[i] = x[i] + sin^2(alpha[i] x[i]) * inverse[i].
    void (*snake)(const float* x, const float* alpha, const float* inverse, float* out, int64_t n);
    // out[i] = x[i] where x[i] > 0, else exp(x[i]) - 1; |error| about 1e-7.
    void (*elu)(const float* x, float* out, int64_t n);
    // out[i] = tanh(a[i]) / (1 + exp(-b[i])), the gated activation of PixelCNN and WaveNet; |error| about 2e-7.
    void (*gate)(const float* a, const float* b, float* out, int64_t n);
    // x[i] <- exp(x[i]) for x <= 0, relative error about 2e-7; next to nothing below -87.
    void (*exponential)(float* x, int64_t n);
    int quantized_width;  // rows of a panel of quantized weights
    // `depth` values -> quantized_bytes(depth). A block with a value that is not finite gets a scale that is NaN.
    void (*quantize)(const float* x, int64_t depth, void* out);
    size_t (*panel_bytes)(Quantized type, int64_t depth);
    // `count` rows of ggml blocks, `row_bytes` apart -> one panel; rows past `count` are zero.
    void (*pack)(Quantized type, const void* rows, size_t row_bytes, int64_t count, int64_t depth, void* panel);
    void (*quantized_product)(Quantized type, const QuantizedProduct& product, int ith, int nth);
    // The heads that thread `ith` of `nth` computes. The same bits for any number of threads.
    void (*attention)(const AttentionStep& step, int ith, int nth);
};

// Those that this machine can run, the best first.
const std::vector<const CpuKernels*>& cpu_kernels();

}  // namespace dualar::nn
