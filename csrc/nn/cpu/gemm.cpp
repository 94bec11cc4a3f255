// Products of float32 activations with float32 or F16 weights (PackedProduct in kernels.h).
#include "nn/cpu/vectors.h"

namespace dualar::nn::DUALAR_VARIANT_NAMESPACE {

namespace {

// A panel holds kWidth = kVectors * kLanes columns of the result: its value [k * kWidth + j] is W[j][k], where k counts
// (tap, channel) pairs. One step of k multiplies one broadcast x[t][k] into kVectors vectors of sums for each of the
// tile's rows t, so that every weight that is loaded serves kRows rows and no sum crosses lanes:
//     y[t][j] = bias[j] + sum over k of x[t][k] * W[j][k].
//
// Rows of a tile: with two vectors of sums each, two of weights and one of activations they fill the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kRows = 12;  // of 32 registers
#elif defined(__AVX__)
constexpr int kRows = 6;  // of 16
#else
constexpr int kRows = 4;
#endif

struct PanelBias {
    float values[kWidth] = {};

    PanelBias(const PackedProduct& p, int64_t panel) {
        if (p.bias == nullptr) return;
        const int64_t left = p.n - panel * kWidth;
        for (int64_t i = 0, from = panel * kWidth % p.bias_period; i < (left < kWidth ? left : kWidth); ++i) {
            values[i] = p.bias[from];
            if (++from == p.bias_period) from = 0;
        }
    }
};

// The sums of one row and panel, to the result.
inline void write_row(const PackedProduct& p, int64_t row, int64_t panel, const PanelBias& bias, const Vector* sum) {
    const int64_t first = panel * kWidth;
    const int64_t left = p.n - first;
    const int64_t width = left < kWidth ? left : kWidth;
    float* out = p.out + row * p.n + first;
    const float* residual = p.residual ? p.residual + row * p.n + first : nullptr;
    float y[kWidth];
    for (int v = 0; v < kVectors; ++v) store(y + v * kLanes, sum[v] + load(bias.values + v * kLanes));
    if (residual != nullptr)
        for (int64_t i = 0; i < width; ++i) y[i] += residual[i];
    if (width == kWidth)
        memcpy(out, y, sizeof(y));
    else
        memcpy(out, y, static_cast<size_t>(width) * sizeof(float));
}

template <class Weight>
const Weight* panel_weights(const PackedProduct& p, int64_t panel) {
    return reinterpret_cast<const Weight*>(static_cast<const char*>(p.weights) +
                                           static_cast<size_t>(panel) * p.panel_bytes) +
           p.skipped * kWidth;
}

// The sums that `start` has for one row and panel.
inline void read_sums(const PackedProduct& p, int64_t row, int64_t panel, Vector* sum) {
    const int64_t first = panel * kWidth;
    const int64_t left = p.n - first;
    float values[kWidth] = {};
    memcpy(values, p.start + row * p.n + first, static_cast<size_t>(left < kWidth ? left : kWidth) * sizeof(float));
    for (int v = 0; v < kVectors; ++v) sum[v] = load(values + v * kLanes);
}

// `Rows` rows of the result by one panel.
template <int Rows, class Weight>
void tile(const PackedProduct& p, int64_t row, int64_t panel) {
    Vector sum[Rows][kVectors] = {};
    const Weight* w = panel_weights<Weight>(p, panel);
    if (p.start != nullptr)
        for (int r = 0; r < Rows; ++r) read_sums(p, row + r, panel, sum[r]);
    const float* x = p.x + row * p.row_stride;
    for (int64_t tap = 0; tap < p.taps; ++tap) {
        const float* a = x + tap * p.tap_stride;
        for (int64_t c = 0; c < p.channels; ++c, w += kWidth) {
            const Vector w0 = load(w);
            const Vector w1 = load(w + kLanes);
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
                const Vector value = broadcast(a[r * p.row_stride + c]);
                sum[r][0] += value * w0;
                sum[r][1] += value * w1;
            }
        }
    }
    const PanelBias bias(p, panel);
    for (int r = 0; r < Rows; ++r) write_row(p, row + r, panel, bias, sum[r]);
}

// One row by `Panels` panels: with one alone, each sum would wait for the one before it.
template <int Panels, class Weight>
void row_tile(const PackedProduct& p, int64_t row, int64_t panel) {
    Vector sum[Panels][kVectors] = {};
    const Weight* w[Panels];
    for (int q = 0; q < Panels; ++q) {
        w[q] = panel_weights<Weight>(p, panel + q);
        if (p.start != nullptr) read_sums(p, row, panel + q, sum[q]);
    }
    const float* a = p.x + row * p.row_stride;
    int64_t at = 0;
    for (int64_t tap = 0; tap < p.taps; ++tap, a += p.tap_stride)
        for (int64_t c = 0; c < p.channels; ++c, at += kWidth) {
            const Vector value = broadcast(a[c]);
#pragma GCC unroll 8
            for (int q = 0; q < Panels; ++q)
#pragma GCC unroll 2
                for (int v = 0; v < kVectors; ++v) sum[q][v] += value * load(w[q] + at + v * kLanes);
        }
    for (int q = 0; q < Panels; ++q) write_row(p, row, panel + q, PanelBias(p, panel + q), sum[q]);
}

// The row by panels first to last - 1.
template <class Weight>
void run_row(const PackedProduct& p, int64_t row, int64_t first, int64_t last) {
    for (; last - first >= 4; first += 4) row_tile<4, Weight>(p, row, first);
    if (last - first >= 2) {
        row_tile<2, Weight>(p, row, first);
        first += 2;
    }
    if (first < last) row_tile<1, Weight>(p, row, first);
}

// The tile of `rows` rows, 1 <= rows <= Rows.
template <class Weight, int Rows = kRows>
void run_tile(int64_t rows, const PackedProduct& p, int64_t row, int64_t panel) {
    if constexpr (Rows > 1)
        if (rows < Rows) return run_tile<Weight, Rows - 1>(rows, p, row, panel);
    tile<Rows, Weight>(p, row, panel);
}

// The sums of `Rows` rows and one panel go on over `count` channels. Meanwhile the memory from `ahead` on is asked for,
// `pace` weights a channel.
template <int Rows, class Weight>
void add_part(const float* x, int64_t row_stride, const Weight* w, int64_t count, const Weight* ahead, int64_t pace,
              float* sums) {
    Vector sum[Rows][kVectors];
    for (int r = 0; r < Rows; ++r)
        for (int v = 0; v < kVectors; ++v) sum[r][v] = load(sums + (r * kVectors + v) * kLanes);
    for (int64_t c = 0; c < count; ++c, w += kWidth, ahead += pace) {
        __builtin_prefetch(ahead);
        const Vector w0 = load(w);
        const Vector w1 = load(w + kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
            const Vector value = broadcast(x[r * row_stride + c]);
            sum[r][0] += value * w0;
            sum[r][1] += value * w1;
        }
    }
    for (int r = 0; r < Rows; ++r)
        for (int v = 0; v < kVectors; ++v) store(sums + (r * kVectors + v) * kLanes, sum[r][v]);
}

template <class Weight, int Rows = kRows>
void run_part(int64_t rows, const float* x, int64_t row_stride, const Weight* w, int64_t count, const Weight* ahead,
              int64_t pace, float* sums) {
    if constexpr (Rows > 1)
        if (rows < Rows) return run_part<Weight, Rows - 1>(rows, x, row_stride, w, count, ahead, pace, sums);
    add_part<Rows>(x, row_stride, w, count, ahead, pace, sums);
}

constexpr int64_t kFewBlocks = 4;  // of kRows rows
constexpr int64_t kPart = 128;     // channels

// A few rows: each part of a panel is read from memory once and used for all of them while it is in the cache, and the
// next part is on its way meanwhile.
template <class Weight>
void few_rows(const PackedProduct& p, int64_t first, int64_t last, int64_t blocks) {
    float sums[kFewBlocks * kRows * kWidth];
    for (int64_t q = first; q < last; ++q) {
        const Weight* w = panel_weights<Weight>(p, q);
        memset(sums, 0, static_cast<size_t>(p.rows * kWidth) * sizeof(float));
        if (p.start != nullptr)
            for (int64_t r = 0; r < p.rows; ++r) {
                Vector sum[kVectors];
                read_sums(p, r, q, sum);
                for (int v = 0; v < kVectors; ++v) store(sums + (r * kVectors + v) * kLanes, sum[v]);
            }
        for (int64_t c = 0; c < p.channels; c += kPart) {
            const int64_t count = p.channels - c < kPart ? p.channels - c : kPart;
            for (int64_t b = 0; b < blocks; ++b) {
                const Range rows = share(p.rows, b, blocks);
                run_part<Weight>(rows.last - rows.first, p.x + rows.first * p.row_stride + c, p.row_stride,
                                 w + c * kWidth, count, w + (c + kPart) * kWidth + b * count * kWidth / blocks,
                                 kWidth / blocks, sums + rows.first * kWidth);
            }
        }
        const PanelBias bias(p, q);
        for (int64_t r = 0; r < p.rows; ++r) {
            Vector sum[kVectors];
            for (int v = 0; v < kVectors; ++v) sum[v] = load(sums + (r * kVectors + v) * kLanes);
            write_row(p, r, q, bias, sum);
        }
    }
}

// Weights up to this size stay in the second-level cache while rows pass by; larger ones are passed over once.
constexpr int64_t kCachedBytes = 768 * 1024;

template <class Weight>
void product_panels(const PackedProduct& p, int ith, int nth) {
    const int64_t panels = (p.n + kWidth - 1) / kWidth;
    if (p.rows == 1) {
        const Range mine = share(panels, ith, nth);
        return run_row<Weight>(p, 0, mine.first, mine.last);
    }
    const int64_t blocks = (p.rows + kRows - 1) / kRows;
    if (blocks <= kFewBlocks && p.taps == 1) {
        const Range mine = share(panels, ith, nth);
        return few_rows<Weight>(p, mine.first, mine.last, blocks);
    }
    const bool by_panel = panels >= 2 * nth || blocks < nth;
    const Range panel = by_panel ? share(panels, ith, nth) : Range{0, panels};
    const Range block = by_panel ? Range{0, blocks} : share(blocks, ith, nth);
    const auto run = [&](int64_t b, int64_t q) {
        // Rows are spread evenly, so that no tile is left with one row of a dozen.
        const Range rows = share(p.rows, b, blocks);
        run_tile<Weight>(rows.last - rows.first, p, rows.first, q);
    };
    if ((panel.last - panel.first) * static_cast<int64_t>(p.panel_bytes) <= kCachedBytes) {
        for (int64_t b = block.first; b < block.last; ++b)
            for (int64_t q = panel.first; q < panel.last; ++q) run(b, q);
    } else {
        for (int64_t q = panel.first; q < panel.last; ++q)
            for (int64_t b = block.first; b < block.last; ++b) run(b, q);
    }
}

float dot(const float* a, const float* b, int64_t n) {
    Vector sum = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) sum += load(a + i) * load(b + i);
    float total = 0.0F;
    for (int lane = 0; lane < kLanes; ++lane) total += sum[lane];
    for (; i < n; ++i) total += a[i] * b[i];
    return total;
}

void product_narrow(const PackedProduct& p, int ith, int nth) {
    const Range rows = share(p.rows, ith, nth);
    for (int64_t row = rows.first; row < rows.last; ++row)
        for (int64_t o = 0; o < p.n; ++o) {
            const float* w = static_cast<const float*>(p.weights) + o * p.taps * p.channels;
            const float* x = p.x + row * p.row_stride;
            float sum = p.bias ? p.bias[o % p.bias_period] : 0.0F;
            for (int64_t tap = 0; tap < p.taps; ++tap)
                sum += dot(x + tap * p.tap_stride, w + tap * p.channels, p.channels);
            p.out[row * p.n + o] = sum + (p.residual ? p.residual[row * p.n + o] : 0.0F);
        }
}

}  // namespace

void product(const PackedProduct& p, int ith, int nth) {
    if (p.narrow)
        product_narrow(p, ith, nth);
    else if (p.half)
        product_panels<ggml_fp16_t>(p, ith, nth);
    else
        product_panels<float>(p, ith, nth);
}

}  // namespace dualar::nn::DUALAR_VARIANT_NAMESPACE
