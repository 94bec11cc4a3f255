// Attention of one new position over a cache, compiled once for each form beside cpu_kernels_form.cpp.
// Softmax is taken online over blocks of positions (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018). A key or value is read once for all the queries that share it.
#include "nn/cpu_vectors.h"

namespace dualar::nn::DUALAR_ATTENTION {

// For the table of kernels in cpu_kernels_form.cpp.
void step(const AttentionStep& step, int ith, int nth);

namespace {

constexpr int64_t kBlock = 64;        // positions
constexpr int kQueries = 4;           // at most so many share a pass over the keys
constexpr uint16_t kHidden = 0xFC00;  // -inf as F16

using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

inline float sum_lanes(Vector v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
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

template <class Value>
const Value* row(const void* rows, const AttentionStep& s, int64_t position, int kv_head) {
    return reinterpret_cast<const Value*>(static_cast<const char*>(rows) +
                                          static_cast<size_t>(kv_head) * s.head_bytes) +
           position * s.head_dim;
}

// `Queries` heads from `head` on, which share one kv head.
template <int Queries, class Value>
void heads(const AttentionStep& s, int head, int kv_head) {
    const int64_t dim = s.head_dim;
    const int64_t whole = dim / kLanes * kLanes;
    const float* q = s.q + head * dim;
    float* out = s.out + head * dim;
    memset(out, 0, static_cast<size_t>(Queries * dim) * sizeof(float));
    float highest[Queries];
    float total[Queries] = {};
    bool broken = false;
    for (int r = 0; r < Queries; ++r) highest[r] = -__builtin_inff();

    for (int64_t first = 0; first < s.count; first += kBlock) {
        const int64_t length = s.count - first < kBlock ? s.count - first : kBlock;
        float weights[Queries][kBlock];
        int64_t visible[kBlock];  // rows that are hidden are not read: they may hold anything
        int64_t count = 0;
        for (int64_t i = 0; i < kBlock; ++i) {
            if (i >= length || s.mask[first + i] == kHidden) {
                for (int r = 0; r < Queries; ++r) weights[r][i] = -__builtin_inff();
                continue;
            }
            visible[count++] = i;
            const Value* key = row<Value>(s.keys, s, first + i, kv_head);
            Vector sums[Queries] = {};
            for (int64_t d = 0; d < whole; d += kLanes) {
                const Vector k = load(key + d);
                for (int r = 0; r < Queries; ++r) sums[r] += load(q + r * dim + d) * k;
            }
            for (int r = 0; r < Queries; ++r) {
                float score = sum_lanes(sums[r]);
                for (int64_t d = whole; d < dim; ++d) score += q[r * dim + d] * widen(key[d]);
                score *= s.scale;
                broken |= score != score;
                weights[r][i] = score;
            }
        }
        if (count == 0) continue;
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
        for (int64_t d = 0; d < whole; d += kLanes) {
            Vector sums[Queries];
            for (int r = 0; r < Queries; ++r) sums[r] = load(out + r * dim + d);
            for (int64_t j = 0; j < count; ++j) {
                const int64_t i = visible[j];
                const Vector v = load(row<Value>(s.values, s, first + i, kv_head) + d);
                for (int r = 0; r < Queries; ++r) sums[r] += v * weights[r][i];
            }
            for (int r = 0; r < Queries; ++r) store(out + r * dim + d, sums[r]);
        }
        for (int64_t d = whole; d < dim; ++d)
            for (int64_t j = 0; j < count; ++j)
                for (int r = 0; r < Queries; ++r)
                    out[r * dim + d] +=
                        weights[r][visible[j]] * widen(row<Value>(s.values, s, first + visible[j], kv_head)[d]);
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

void step(const AttentionStep& s, int ith, int nth) {
    if (s.half)
        run<ggml_fp16_t>(s, ith, nth);
    else
        run<float>(s, ith, nth);
}

}  // namespace dualar::nn::DUALAR_ATTENTION
