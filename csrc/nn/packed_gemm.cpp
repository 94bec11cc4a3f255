#include "nn/packed_gemm.h"

#include <algorithm>
#include <cstring>
#include <new>

#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "ggml.h"

namespace dualar::nn {

namespace {

// The compiler's own vectors: one source for AVX-512, AVX2, NEON and whatever else there is.
#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kRows = 12;  // rows of a tile: 12 x 2 sums, 2 weights and 1 activation in 32 registers
#elif defined(__AVX__)
constexpr int kLanes = 8;
constexpr int kRows = 6;  // of 16 registers
#elif defined(__aarch64__)
constexpr int kLanes = 4;
constexpr int kRows = 12;  // of 32 registers
#else
constexpr int kLanes = 4;
constexpr int kRows = 4;
#endif
constexpr int kVectors = 2;
constexpr int kWidth = kVectors * kLanes;
constexpr size_t kAlignment = 64;

using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));

inline Vector load(const float* from) {
    Vector v;
    std::memcpy(&v, from, sizeof(v));
    return v;
}

inline Vector load(const ggml_fp16_t* from) {
#if defined(__AVX512F__)
    return (Vector)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
    return (Vector)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__ARM_NEON) && defined(__aarch64__)
    return (Vector)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#else
    Vector v;
    for (int i = 0; i < kLanes; ++i) v[i] = ggml_fp16_to_fp32(from[i]);
    return v;
#endif
}

inline Vector broadcast(float value) { return value - Vector{}; }

inline void store(float* to, Vector v) { std::memcpy(to, &v, sizeof(v)); }

// `Rows` rows of the result by one panel, `width` columns of which exist.
template <int Rows, class Weight>
void tile(const PackedProduct& p, int64_t row, int64_t panel) {
    Vector sum[Rows][kVectors] = {};
    const auto* w = static_cast<const Weight*>(p.weights->panel(panel));
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
    const int64_t first = panel * kWidth;
    const int64_t n = p.weights->n();
    const int64_t width = std::min<int64_t>(kWidth, n - first);
    float bias[kWidth] = {};
    if (p.bias != nullptr)
        for (int64_t i = 0; i < width; ++i) bias[i] = p.bias[(first + i) % p.bias_period];
    for (int r = 0; r < Rows; ++r) {
        float* out = p.out + (row + r) * n + first;
        const float* residual = p.residual ? p.residual + (row + r) * n + first : nullptr;
        if (width == kWidth) {
            for (int v = 0; v < kVectors; ++v) {
                Vector y = sum[r][v] + load(bias + v * kLanes);
                if (residual != nullptr) y += load(residual + v * kLanes);
                store(out + v * kLanes, y);
            }
        } else {
            float partial[kWidth];
            for (int v = 0; v < kVectors; ++v) store(partial + v * kLanes, sum[r][v]);
            for (int64_t i = 0; i < width; ++i) out[i] = partial[i] + bias[i] + (residual ? residual[i] : 0.0F);
        }
    }
}

using Tile = void (*)(const PackedProduct&, int64_t row, int64_t panel);

// tiles<Weight>()[r]: the tile of r rows, 1 <= r <= kRows.
template <class Weight, int Rows = kRows>
void fill(Tile* table) {
    table[Rows] = &tile<Rows, Weight>;
    if constexpr (Rows > 1) fill<Weight, Rows - 1>(table);
}

template <class Weight>
const Tile* tiles() {
    static const auto table = [] {
        std::vector<Tile> t(kRows + 1);
        fill<Weight>(t.data());
        return t;
    }();
    return table.data();
}

struct Range {
    int64_t first;
    int64_t last;
};

Range share(int64_t count, int ith, int nth) { return {count * ith / nth, count * (ith + 1) / nth}; }

// Weights up to this size stay in the second-level cache while rows pass by; larger ones are passed over once.
constexpr size_t kCachedBytes = 768 * 1024;

// Up to so many results per row, dot products along the weights' rows.
constexpr int64_t kNarrow = 2;

float dot(const float* a, const float* b, int64_t n) {
    Vector sum = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) sum += load(a + i) * load(b + i);
    float total = 0.0F;
    for (int lane = 0; lane < kLanes; ++lane) total += sum[lane];
    for (; i < n; ++i) total += a[i] * b[i];
    return total;
}

void compute_narrow(const PackedProduct& p, int ith, int nth) {
    const Range rows = share(p.rows, ith, nth);
    const int64_t n = p.weights->n();
    for (int64_t row = rows.first; row < rows.last; ++row)
        for (int64_t o = 0; o < n; ++o) {
            const float* w = static_cast<const float*>(p.weights->panel(0)) + o * p.weights->depth();
            const float* x = p.x + row * p.row_stride;
            float sum = p.bias ? p.bias[o % p.bias_period] : 0.0F;
            for (int64_t tap = 0; tap < p.taps; ++tap)
                sum += dot(x + tap * p.tap_stride, w + tap * p.channels, p.channels);
            p.out[row * n + o] = sum + (p.residual ? p.residual[row * n + o] : 0.0F);
        }
}

}  // namespace

int64_t panel_width() { return kWidth; }

void PackedMatrix::Free::operator()(void* memory) const { ::operator delete(memory, std::align_val_t{kAlignment}); }

PackedMatrix::PackedMatrix(const float* rows, int64_t n, int64_t depth, bool half)
    : n_(n), depth_(depth), half_(half && n > kNarrow) {
    const auto count = static_cast<size_t>((narrow() ? n : panels() * kWidth) * depth);
    nbytes_ = count * (half_ ? sizeof(ggml_fp16_t) : sizeof(float));
    data_.reset(::operator new(nbytes_, std::align_val_t{kAlignment}));
    if (narrow()) {
        std::memcpy(data_.get(), rows, nbytes_);
        return;
    }
    std::memset(data_.get(), 0, nbytes_);
    auto* floats = static_cast<float*>(data_.get());
    auto* halves = static_cast<ggml_fp16_t*>(data_.get());
    for (int64_t o = 0; o < n; ++o)
        for (int64_t d = 0; d < depth; ++d) {
            const int64_t at = ((o / kWidth) * depth + d) * kWidth + o % kWidth;
            const float value = rows[o * depth + d];
            if (half_)
                halves[at] = ggml_fp32_to_fp16(value);
            else
                floats[at] = value;
        }
}

bool PackedMatrix::narrow() const { return n_ <= kNarrow; }

int64_t PackedMatrix::panels() const { return (n_ + kWidth - 1) / kWidth; }

const void* PackedMatrix::panel(int64_t index) const {
    return static_cast<const char*>(data_.get()) + nbytes_ / static_cast<size_t>(panels()) * static_cast<size_t>(index);
}

void compute(const PackedProduct& p, int ith, int nth) {
    if (p.weights->narrow()) {
        compute_narrow(p, ith, nth);
        return;
    }
    const Tile* table = p.weights->half() ? tiles<ggml_fp16_t>() : tiles<float>();
    const int64_t panels = p.weights->panels();
    const int64_t blocks = (p.rows + kRows - 1) / kRows;
    const bool by_panel = panels >= 2 * nth || blocks < nth;
    const Range panel = by_panel ? share(panels, ith, nth) : Range{0, panels};
    const Range block = by_panel ? Range{0, blocks} : share(blocks, ith, nth);
    const auto run = [&](int64_t b, int64_t q) {
        // Rows are spread evenly, so that no tile is left with one row of a dozen.
        const Range rows = share(p.rows, static_cast<int>(b), static_cast<int>(blocks));
        table[rows.last - rows.first](p, rows.first, q);
    };
    if (p.weights->nbytes() / static_cast<size_t>(by_panel ? nth : 1) <= kCachedBytes) {
        for (int64_t b = block.first; b < block.last; ++b)
            for (int64_t q = panel.first; q < panel.last; ++q) run(b, q);
    } else {
        for (int64_t q = panel.first; q < panel.last; ++q)
            for (int64_t b = block.first; b < block.last; ++b) run(b, q);
    }
}

}  // namespace dualar::nn
