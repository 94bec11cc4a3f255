// Products with quantized weights (QuantizedProduct in kernels.h), and the packing of those.
// A panel holds one row in each lane of a vector, so a product needs no sum across lanes: all scales come first, then
// the values, four of a row (as one lane's 32 bits) after the other.
#include "nn/cpu/vectors.h"

namespace dualar::nn::DUALAR_VARIANT_NAMESPACE {

namespace {

using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

inline Ints load_ints(const void* from) {
    Ints v;
    memcpy(&v, from, sizeof(v));
    return v;
}

inline Ints splat(int32_t value) { return value - Ints{}; }

inline int32_t four(const int8_t* from) {
    int32_t v;
    memcpy(&v, from, sizeof(v));
    return v;
}

inline Vector to_float(Ints v) { return __builtin_convertvector(v, Vector); }

// VNNI multiplies unsigned by signed bytes, so 8-bit weights q are kept as u = q + 128 there (q with its sign bit
// flipped, as two's complement has it). A block's sum of products is then corrected once:
//     sum of q_i x_i = sum of u_i x_i - 128 * sum of x_i, and the sums of x_i are made with the column (Column::sums).
#if defined(__AVX512VNNI__)
constexpr int32_t kOffset = 128;
#else
constexpr int32_t kOffset = 0;
#endif

// sum[lane] += the four products of a lane's bytes in `w` (unsigned 0 to 15, or 8-bit as above) and those of `x`.
inline Ints dot_small(Ints sum, Ints w, int32_t x) {
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, _mm512_set1_epi32(x));
#elif defined(__AVX2__)
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)w, _mm256_set1_epi32(x));
    return sum + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif defined(__ARM_FEATURE_DOTPROD)
    return (Ints)vdotq_s32((int32x4_t)sum, (int8x16_t)w, vreinterpretq_s8_s32(vdupq_n_s32(x)));
#else
    for (int lane = 0; lane < kLanes; ++lane)
        for (int i = 0; i < 4; ++i)
            sum[lane] += static_cast<int8_t>(w[lane] >> (8 * i)) * static_cast<int8_t>(x >> (8 * i));
    return sum;
#endif
}

inline Ints dot_full(Ints sum, Ints w, int32_t x) {
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
    // maddubs multiplies unsigned by signed bytes: w x = |w| * (sign(w) x). It adds pairs in 16 bits, which hold them:
    // 2 * 128 * 127 = 32512 <= 32767.
    const __m256i sign = _mm256_sign_epi8(_mm256_set1_epi32(x), (__m256i)w);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)w), sign);
    return sum + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
    return dot_small(sum, w, x);
#endif
}

inline Vector load_bytes(const uint8_t* from) {  // kLanes unsigned bytes
    uint8_t v __attribute__((vector_size(kLanes)));
    memcpy(&v, from, sizeof(v));
    return __builtin_convertvector(v, Vector);
}

// One column of activations.
struct Column {
    const int8_t* values;
    const float* scales;
    const int32_t* sums;
};

inline Column column(const QuantizedProduct& p, int64_t index) {
    const char* at = static_cast<const char*>(p.x) + static_cast<size_t>(index) * quantized_bytes(p.depth);
    const char* scales = at + p.depth;
    return {reinterpret_cast<const int8_t*>(at), reinterpret_cast<const float*>(scales),
            reinterpret_cast<const int32_t*>(scales + p.depth / kQuantBlock * 4)};
}

constexpr size_t kValuesAlign = 64;

constexpr size_t aligned(size_t bytes) { return (bytes + kValuesAlign - 1) / kValuesAlign * kValuesAlign; }

// Bytes before the values: an F16 scale per block of 32; for Q4_K, per 256, two F16 and eight pairs of bytes.
constexpr size_t scales_bytes(Quantized type, int64_t depth) {
    const int64_t lane = type == Quantized::q4_k ? depth / 256 * 20 : depth / kQuantBlock * 2;
    return aligned(static_cast<size_t>(lane * kLanes));
}

constexpr int64_t kWord = 4 * kLanes;  // bytes of one vector of values: four of each row

// Weights come from memory while others are worked on.
inline void prefetch(const uint8_t* w, int64_t bytes) {
    constexpr int64_t kLine = 64;
    constexpr int64_t kAhead = 4096;
    for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(w + kAhead + at);
}

// Eight words of 32 values each, 8 bits apiece.
template <int C>
void tile_q8_0(const uint8_t* panel, int64_t depth, const Column* x, Vector* out) {
    const auto* scales = reinterpret_cast<const ggml_fp16_t*>(panel);
    const uint8_t* w = panel + scales_bytes(Quantized::q8_0, depth);
    Vector total[C] = {};
    for (int64_t b = 0; b < depth / kQuantBlock; ++b, w += 8 * kWord) {
        Ints sum[C];
        prefetch(w, 8 * kWord);
        for (int c = 0; c < C; ++c) sum[c] = splat(-kOffset * x[c].sums[b]);
#pragma GCC unroll 8
        for (int word = 0; word < 8; ++word) {
            const Ints weights = load_ints(w + word * kWord);
            for (int c = 0; c < C; ++c)
                sum[c] = dot_full(sum[c], weights, four(x[c].values + b * kQuantBlock + 4 * word));
        }
        const Vector scale = load(scales + b * kLanes);
        for (int c = 0; c < C; ++c) total[c] += to_float(sum[c]) * scale * x[c].scales[b];
    }
    for (int c = 0; c < C; ++c) out[c] = total[c];
}

// Four words of 32 values: the low halves of the bytes are the first 16, the high halves the others.
template <int C>
inline void dot_nibbles(const uint8_t* w, const Column* x, int64_t b, Ints* sum) {
#pragma GCC unroll 4
    for (int word = 0; word < 4; ++word) {
        const Ints both = load_ints(w + word * kWord);
        const Ints low = both & splat(0x0F0F0F0F);
        const Ints high = (both >> 4) & splat(0x0F0F0F0F);
        for (int c = 0; c < C; ++c) {
            const int8_t* values = x[c].values + b * kQuantBlock + 4 * word;
            sum[c] = dot_small(sum[c], low, four(values));
            sum[c] = dot_small(sum[c], high, four(values + 16));
        }
    }
}

// value = scale * (q - 8), q in 0 .. 15: sum of (q_i - 8) x_i = sum of q_i x_i - 8 * sum of x_i.
template <int C>
void tile_q4_0(const uint8_t* panel, int64_t depth, const Column* x, Vector* out) {
    const auto* scales = reinterpret_cast<const ggml_fp16_t*>(panel);
    const uint8_t* w = panel + scales_bytes(Quantized::q4_0, depth);
    Vector total[C] = {};
    for (int64_t b = 0; b < depth / kQuantBlock; ++b, w += 4 * kWord) {
        Ints sum[C];
        prefetch(w, 4 * kWord);
        for (int c = 0; c < C; ++c) sum[c] = splat(-8 * x[c].sums[b]);
        dot_nibbles<C>(w, x, b, sum);
        const Vector scale = load(scales + b * kLanes);
        for (int c = 0; c < C; ++c) total[c] += to_float(sum[c]) * scale * x[c].scales[b];
    }
    for (int c = 0; c < C; ++c) out[c] = total[c];
}

// value = d * scale * q - dmin * minimum, scale and minimum one byte per 32 values, d and dmin F16 per 256. With a
// column's value x_i = a * v_i (a its block's scale, v_i whole), the sum over a block of 32 is
//     d * scale * a * (sum of q_i v_i) - dmin * minimum * a * (sum of v_i): `products` and `minima` below.
template <int C>
void tile_q4_k(const uint8_t* panel, int64_t depth, const Column* x, Vector* out) {
    const uint8_t* header = panel;
    const uint8_t* w = panel + scales_bytes(Quantized::q4_k, depth);
    Vector total[C] = {};
    for (int64_t s = 0; s < depth / 256; ++s, header += 20 * kLanes) {
        const Vector d = load(reinterpret_cast<const ggml_fp16_t*>(header));
        const Vector dmin = load(reinterpret_cast<const ggml_fp16_t*>(header) + kLanes);
        Vector products[C] = {};
        Vector minima[C] = {};
        for (int64_t i = 0; i < 8; ++i, w += 4 * kWord) {
            const int64_t b = 8 * s + i;
            Ints sum[C] = {};
            prefetch(w, 4 * kWord);
            dot_nibbles<C>(w, x, b, sum);
            const Vector scale = load_bytes(header + (4 + 2 * i) * kLanes);
            const Vector minimum = load_bytes(header + (5 + 2 * i) * kLanes);
            for (int c = 0; c < C; ++c) {
                products[c] += to_float(sum[c]) * scale * x[c].scales[b];
                minima[c] += minimum * (x[c].scales[b] * static_cast<float>(x[c].sums[b]));
            }
        }
        for (int c = 0; c < C; ++c) total[c] += d * products[c] - dmin * minima[c];
    }
    for (int c = 0; c < C; ++c) out[c] = total[c];
}

constexpr int kColumns = 8;  // of a tile, at most

// `C` columns from `first` on by one panel.
template <int C>
void tile(Quantized type, const QuantizedProduct& p, int64_t panel, int64_t first) {
    const auto* weights = static_cast<const uint8_t*>(p.weights) + static_cast<size_t>(panel) * p.panel_bytes;
    Column x[C];
    for (int c = 0; c < C; ++c) x[c] = column(p, first + c);
    Vector out[C];
    if (type == Quantized::q8_0)
        tile_q8_0<C>(weights, p.depth, x, out);
    else if (type == Quantized::q4_0)
        tile_q4_0<C>(weights, p.depth, x, out);
    else
        tile_q4_k<C>(weights, p.depth, x, out);
    const int64_t row = panel * kLanes;
    const int64_t left = p.n - row;
    const size_t bytes = static_cast<size_t>(left < kLanes ? left : kLanes) * sizeof(float);
    for (int c = 0; c < C; ++c) memcpy(p.out + (first + c) * p.n + row, &out[c], bytes);
}

// The tile of `columns` columns, 1 <= columns <= Columns.
template <int Columns = kColumns>
void run_tile(int64_t columns, Quantized type, const QuantizedProduct& p, int64_t panel, int64_t first) {
    if constexpr (Columns > 1)
        if (columns < Columns) return run_tile<Columns - 1>(columns, type, p, panel, first);
    tile<Columns>(type, p, panel, first);
}

}  // namespace

void quantized_product(Quantized type, const QuantizedProduct& p, int ith, int nth) {
    const Range panels = share((p.n + kLanes - 1) / kLanes, ith, nth);
    const int64_t blocks = (p.columns + kColumns - 1) / kColumns;
    for (int64_t panel = panels.first; panel < panels.last; ++panel)
        for (int64_t block = 0; block < blocks; ++block) {
            // Columns are spread evenly, so that no tile is left with one of eight.
            const Range columns = share(p.columns, block, blocks);
            run_tile(columns.last - columns.first, type, p, panel, columns.first);
        }
}

void quantize(const float* x, int64_t depth, void* out) {
    auto* values = static_cast<int8_t*>(out);
    auto* scales = reinterpret_cast<float*>(values + depth);
    auto* sums = reinterpret_cast<int32_t*>(scales + depth / kQuantBlock);
    for (int64_t b = 0; b < depth / kQuantBlock; ++b, x += kQuantBlock, values += kQuantBlock) {
        float largest = 0.0F;
        float trouble = 0.0F;  // NaN if any value is not finite
        for (int i = 0; i < kQuantBlock; ++i) {
            const float size = __builtin_fabsf(x[i]);
            largest = size > largest ? size : largest;
            trouble += x[i] * 0.0F;
        }
        const float inverse = largest > 0.0F ? 127.0F / largest : 0.0F;
        int32_t sum = 0;
        for (int i = 0; i < kQuantBlock; ++i) {
            constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: the addition rounds to an integer, ties to even
            const float rounded = (x[i] * inverse + kRound) - kRound;
            const auto value = static_cast<int32_t>(rounded >= -127.0F ? rounded : -127.0F);  // NaN has no int
            values[i] = static_cast<int8_t>(value);
            sum += value;
        }
        scales[b] = largest / 127.0F + trouble;
        sums[b] = sum;
    }
}

size_t panel_bytes(Quantized type, int64_t depth) {
    const int64_t per_block = type == Quantized::q8_0 ? 8 : 4;  // words
    return scales_bytes(type, depth) + aligned(static_cast<size_t>(depth / kQuantBlock * per_block * kWord));
}

namespace {

// The bytes of one ggml block of 32 (or of a part of one of 256), four at a time, to this lane of its words.
inline void place(const uint8_t* bytes, int words, int64_t lane, uint32_t flip, uint8_t* to) {
    for (int word = 0; word < words; ++word) {
        uint32_t four;
        memcpy(&four, bytes + 4 * word, sizeof(four));
        four ^= flip;
        memcpy(to + word * kWord + lane * 4, &four, sizeof(four));
    }
}

// ggml's block_q4_K: d, dmin (F16), 12 bytes with eight 6-bit scales and minima, 128 bytes of pairs.
void pack_q4_k(const uint8_t* block, int64_t lane, uint8_t* header, uint8_t* values) {
    memcpy(header + 2 * lane, block, 2);
    memcpy(header + 2 * (kLanes + lane), block + 2, 2);
    const uint8_t* s = block + 4;
    for (int i = 0; i < 8; ++i) {
        const int scale = i < 4 ? s[i] & 63 : (s[i + 4] & 15) | ((s[i - 4] >> 6) << 4);
        const int minimum = i < 4 ? s[i + 4] & 63 : (s[i + 4] >> 4) | ((s[i] >> 6) << 4);
        header[(4 + 2 * i) * kLanes + lane] = static_cast<uint8_t>(scale);
        header[(5 + 2 * i) * kLanes + lane] = static_cast<uint8_t>(minimum);
        const uint8_t* pairs = block + 16 + 32 * (i / 2);  // the even part in the low halves, the odd in the high ones
        const int shift = 4 * (i % 2);
        uint8_t bytes[16];
        for (int k = 0; k < 16; ++k)
            bytes[k] = static_cast<uint8_t>(((pairs[k] >> shift) & 15) | (((pairs[k + 16] >> shift) & 15) << 4));
        place(bytes, 4, lane, 0, values + i * 4 * kWord);
    }
}

}  // namespace

void pack(Quantized type, const void* rows, size_t row_bytes, int64_t count, int64_t depth, void* panel) {
    auto* scales = static_cast<uint8_t*>(panel);
    uint8_t* values = scales + scales_bytes(type, depth);
    if (count < kLanes) memset(panel, 0, panel_bytes(type, depth));
    // Blocks outside, rows inside: what is written lies side by side.
    const auto block = [&](int64_t lane, int64_t index, int64_t bytes) {
        return static_cast<const uint8_t*>(rows) + static_cast<size_t>(lane) * row_bytes + index * bytes;
    };
    if (type == Quantized::q4_k) {
        for (int64_t s = 0; s < depth / 256; ++s)
            for (int64_t lane = 0; lane < count; ++lane)
                pack_q4_k(block(lane, s, 144), lane, scales + s * 20 * kLanes, values + s * 32 * kWord);
        return;
    }
    // An F16 scale, then 32 bytes or 16.
    const bool whole = type == Quantized::q8_0;
    const int words = whole ? 8 : 4;
    const uint32_t flip = whole && kOffset != 0 ? 0x80808080U : 0;
    for (int64_t b = 0; b < depth / kQuantBlock; ++b)
        for (int64_t lane = 0; lane < count; ++lane) {
            const uint8_t* from = block(lane, b, 2 + 4 * words);
            memcpy(scales + (b * kLanes + lane) * 2, from, 2);
            place(from + 2, words, lane, flip, values + b * words * kWord);
        }
}

}  // namespace dualar::nn::DUALAR_VARIANT_NAMESPACE
