// Attention of one new position over a cache. A key or value is read once for all the queries that share it.
// Softmax is taken online over blocks of positions (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018): with m the highest score so far, s = sum of e^(score - m) and o = sum of e^(score - m) value, a
// block with a higher m' first scales both by e^(m - m') and then adds its own terms; the result is o / s.
#include "nn/cpu/vectors.h"

namespace dualar::nn::DUALAR_VARIANT_NAMESPACE {

namespace {

constexpr int64_t kBlock = 64;  // positions
constexpr int kQueries = 4;     // at most so many share a pass over the keys
constexpr int kRegisters = kLanes == 4 || kLanes == 16 ? 32 : 16;
constexpr int64_t kLine = 64;         // bytes of a cache line
constexpr uint16_t kHidden = 0xFC00;  // -inf as F16

using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

inline float sum_lanes(Vector v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#elif defined(__AVX__)
    __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
#elif defined(__aarch64__)
    return vaddvq_f32((float32x4_t)v);
#else
    float total = 0.0F;
    for (int lane = 0; lane < kLanes; ++lane) total += v[lane];
    return total;
#endif
}

inline float widen(float value) { return value; }
inline float widen(ggml_fp16_t value) { return ggml_fp16_to_fp32(value); }

// e^x for x <= 0, and exactly 0 below -87: about one unit in the last place.
inline Vector exp_negative(Vector x) {
    constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const Ints seen = x > broadcast(-87.0F);
    const Vector y = (Vector)((Ints)x & seen);
    const Vector shifted = y * 1.44269504F + kRound;
    const Vector n = shifted - kRound;
    const Vector r = (y - n * 0.693359375F) - n * -2.12194440e-4F;
    Vector p = broadcast(1.0F / 5040.0F);
    p = p * r + 1.0F / 720.0F;
    p = p * r + 1.0F / 120.0F;
    p = p * r + 1.0F / 24.0F;
    p = p * r + 1.0F / 6.0F;
    p = p * r + 0.5F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    return (Vector)(((Ints)p + ((Ints)shifted << 23)) & seen);
}

inline float exp_negative(float x) {
    float lanes[kLanes];
    store(lanes, exp_negative(broadcast(x)));
    return lanes[0];
}

// A head's rows from one position on, `stride` values apart.
template <class Value>
struct HeadRows {
    const Value* first;
    int64_t stride;

    HeadRows(const AttentionRows& rows, int kv_head)
        : first(reinterpret_cast<const Value*>(static_cast<const char*>(rows.data) +
                                               static_cast<size_t>(kv_head) * rows.head_bytes)),
          stride(static_cast<int64_t>(rows.row_bytes / sizeof(Value))) {}

    const Value* operator[](int64_t row) const { return first + row * stride; }
    void advance(int64_t rows) { first += rows * stride; }
};

// `values` values from `from` on, on their way to the cache while others are worked on.
template <class Value>
inline void prefetch(const Value* from, int64_t values) {
    const char* const first = reinterpret_cast<const char*>(from);
    for (int64_t at = 0; at < values * static_cast<int64_t>(sizeof(Value)); at += kLine) __builtin_prefetch(first + at);
}

// scores[r][visible[j]] = scale * q[r] . key of visible[j], for `Rows` positions; their values are wanted next.
template <int Queries, int Rows, class Value>
inline bool scores_of(const AttentionStep& s, const float* q, const HeadRows<Value>& keys, const int64_t* visible,
                      const HeadRows<Value>& values, float (*scores)[kBlock]) {
    const int64_t dim = s.head_dim;
    const int64_t whole = dim / kLanes * kLanes;
    const Value* key[Rows];
    for (int j = 0; j < Rows; ++j) {
        key[j] = keys[visible[j]];
        prefetch(values[visible[j]], dim);
    }
    Vector sums[Rows][Queries] = {};
    for (int64_t d = 0; d < whole; d += kLanes) {
        Vector query[Queries];
        for (int r = 0; r < Queries; ++r) query[r] = load(q + r * dim + d);
        for (int j = 0; j < Rows; ++j) {
            const Vector k = load(key[j] + d);
            for (int r = 0; r < Queries; ++r) sums[j][r] += query[r] * k;
        }
    }
    bool broken = false;
    for (int j = 0; j < Rows; ++j)
        for (int r = 0; r < Queries; ++r) {
            float score = sum_lanes(sums[j][r]);
            for (int64_t d = whole; d < dim; ++d) score += q[r * dim + d] * widen(key[j][d]);
            score *= s.scale;
            broken |= score != score;
            scores[r][visible[j]] = score;
        }
    return broken;
}

// out[r][d ...] += the sum over the visible rows of weight * value, for `Steps` vectors from d on; the rows of `next`
// are wanted next.
template <int Queries, int Steps, class Value>
inline void add_values(const HeadRows<Value>& values, const HeadRows<Value>& next, int64_t dim, const int64_t* visible,
                       int64_t count, const float (*weights)[kBlock], float* out, int64_t d) {
    Vector sums[Queries][Steps];
    for (int r = 0; r < Queries; ++r)
        for (int v = 0; v < Steps; ++v) sums[r][v] = load(out + r * dim + d + v * kLanes);
    for (int64_t j = 0; j < count; ++j) {
        const Value* value = values[visible[j]] + d;
        prefetch(next[visible[j]] + d, Steps * kLanes);
        Vector read[Steps];
        for (int v = 0; v < Steps; ++v) read[v] = load(value + v * kLanes);
        for (int r = 0; r < Queries; ++r) {
            const float weight = weights[r][visible[j]];
            for (int v = 0; v < Steps; ++v) sums[r][v] += read[v] * weight;
        }
    }
    for (int r = 0; r < Queries; ++r)
        for (int v = 0; v < Steps; ++v) store(out + r * dim + d + v * kLanes, sums[r][v]);
}

// `Queries` heads from `head` on, which share one kv head.
template <int Queries, class Value>
void heads(const AttentionStep& s, int head, int kv_head) {
    // As many sums at once as the registers hold: each waits for its last addition.
    constexpr int kRows = kRegisters >= 8 * Queries ? 4 : 2;
    constexpr int kSteps = kRegisters >= 8 * Queries ? 4 : 2;
    const int64_t dim = s.head_dim;
    const int64_t whole = dim / kLanes * kLanes;
    const float* q = s.q + head * dim;
    float* out = s.out + head * dim;
    memset(out, 0, static_cast<size_t>(Queries * dim) * sizeof(float));
    float highest[Queries];
    float total[Queries] = {};
    bool broken = false;
    for (int r = 0; r < Queries; ++r) highest[r] = -__builtin_inff();

    HeadRows<Value> keys(s.keys, kv_head);
    HeadRows<Value> values(s.values, kv_head);
    for (int64_t first = 0; first < s.count; first += kBlock) {
        const int64_t length = s.count - first < kBlock ? s.count - first : kBlock;
        float weights[Queries][kBlock];
        int64_t visible[kBlock];  // rows that are hidden are not read: they may hold anything
        int64_t count = 0;
        for (int64_t i = 0; i < kBlock; ++i) {
            if (i < length && s.mask[first + i] != kHidden)
                visible[count++] = i;
            else
                for (int r = 0; r < Queries; ++r) weights[r][i] = -__builtin_inff();
        }
        if (count == 0) {
            keys.advance(kBlock);
            values.advance(kBlock);
            continue;
        }
        int64_t j = 0;
        for (; j + kRows <= count; j += kRows)
            broken |= scores_of<Queries, kRows>(s, q, keys, visible + j, values, weights);
        for (; j < count; ++j) broken |= scores_of<Queries, 1>(s, q, keys, visible + j, values, weights);
        for (int r = 0; r < Queries; ++r) {
            float largest = highest[r];
            for (int64_t i = 0; i < kBlock; ++i) largest = weights[r][i] > largest ? weights[r][i] : largest;
            const float shrink = highest[r] == largest ? 1.0F : exp_negative(highest[r] - largest);
            Vector sums = {};
            for (int64_t i = 0; i < kBlock; i += kLanes) {
                const Vector w = exp_negative(load(weights[r] + i) - largest);
                store(weights[r] + i, w);
                sums += w;
            }
            highest[r] = largest;
            total[r] = total[r] * shrink + sum_lanes(sums);
            if (shrink != 1.0F)
                for (int64_t d = 0; d < dim; ++d) out[r * dim + d] *= shrink;
        }
        keys.advance(kBlock);  // past the last block, what lies behind is asked for, which a prefetch may
        int64_t d = 0;
        for (; d + kSteps * kLanes <= whole; d += kSteps * kLanes)
            add_values<Queries, kSteps>(values, keys, dim, visible, count, weights, out, d);
        for (; d < whole; d += kLanes) add_values<Queries, 1>(values, keys, dim, visible, count, weights, out, d);
        for (d = whole; d < dim; ++d)
            for (j = 0; j < count; ++j)
                for (int r = 0; r < Queries; ++r)
                    out[r * dim + d] += weights[r][visible[j]] * widen(values[visible[j]][d]);
        values.advance(kBlock);
    }
    for (int r = 0; r < Queries; ++r) {
        const float inverse = broken ? __builtin_nanf("") : total[r] > 0.0F ? 1.0F / total[r] : 0.0F;
        for (int64_t d = 0; d < dim; ++d) out[r * dim + d] *= inverse;
    }
}

template <class Value>
void run(const AttentionStep& s, int ith, int nth) {
    const int sharing = s.heads / s.kv_heads;
    const int groups = (sharing + kQueries - 1) / kQueries;  // per kv head
    const Range tasks = share(static_cast<int64_t>(s.kv_heads) * groups, ith, nth);
    for (int64_t task = tasks.first; task < tasks.last; ++task) {
        const int kv_head = static_cast<int>(task / groups);
        const Range queries = share(sharing, task % groups, groups);
        const int head = kv_head * sharing + static_cast<int>(queries.first);
        switch (queries.last - queries.first) {
            case 1:
                heads<1, Value>(s, head, kv_head);
                break;
            case 2:
                heads<2, Value>(s, head, kv_head);
                break;
            case 3:
                heads<3, Value>(s, head, kv_head);
                break;
            default:
                heads<4, Value>(s, head, kv_head);
        }
    }
}

}  // namespace

void attention(const AttentionStep& s, int ith, int nth) {
    if (s.half)
        run<ggml_fp16_t>(s, ith, nth);
    else
        run<float>(s, ith, nth);
}

}  // namespace dualar::nn::DUALAR_VARIANT_NAMESPACE
