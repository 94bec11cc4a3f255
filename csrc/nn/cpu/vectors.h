// The compiler's vectors for the instructions that a kernel file is compiled for; included by those files only, which
// CMakeLists.txt compiles once for each variant: DUALAR_VARIANT is its name, and the compiler's flags say which
// instructions it may use. One text serves them all.
// Nothing here may call an inline function of the standard library: the linker keeps one copy of those, and it could be
// the one that only a newer CPU runs.
#pragma once

#include <stdint.h>
#include <string.h>

#include "ggml.h"
#include "nn/cpu/kernels.h"

#if defined(__F16C__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own "undefined" vectors
#include <immintrin.h>
#pragma GCC diagnostic pop
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define DUALAR_JOIN_(a, b) a##b
#define DUALAR_JOIN(a, b) DUALAR_JOIN_(a, b)
#define DUALAR_TEXT_(a) #a
#define DUALAR_TEXT(a) DUALAR_TEXT_(a)

// A variant's functions, which its table (table.cpp) lists.
#define DUALAR_VARIANT_NAMESPACE DUALAR_JOIN(cpu_, DUALAR_VARIANT)

namespace dualar::nn::DUALAR_VARIANT_NAMESPACE {

void product(const PackedProduct& product, int ith, int nth);
void snake(const float* x, const float* alpha, const float* inverse, float* out, int64_t n);
void elu(const float* x, float* out, int64_t n);
void gate(const float* a, const float* b, float* out, int64_t n);
void exponential(float* x, int64_t n);
void quantize(const float* x, int64_t depth, void* out);
size_t panel_bytes(Quantized type, int64_t depth);
void pack(Quantized type, const void* rows, size_t row_bytes, int64_t count, int64_t depth, void* panel);
void quantized_product(Quantized type, const QuantizedProduct& product, int ith, int nth);
void attention(const AttentionStep& step, int ith, int nth);

}  // namespace dualar::nn::DUALAR_VARIANT_NAMESPACE

namespace dualar::nn {

namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#elif defined(__aarch64__)
constexpr int kLanes = 4;
#else
constexpr int kLanes = 4;
#endif

using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));

inline Vector load(const float* from) {
    Vector v;
    memcpy(&v, from, sizeof(v));
    return v;
}

inline Vector load(const ggml_fp16_t* from) {
#if defined(__AVX512F__)
    return (Vector)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
    return (Vector)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__aarch64__)
    return (Vector)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#else
    Vector v;
    for (int i = 0; i < kLanes; ++i) v[i] = ggml_fp16_to_fp32(from[i]);
    return v;
#endif
}

inline Vector broadcast(float value) { return value - Vector{}; }

inline void store(float* to, Vector v) { memcpy(to, &v, sizeof(v)); }

// A panel of float weights: so many columns of the result.
constexpr int kVectors = 2;
constexpr int kWidth = kVectors * kLanes;

struct Range {
    int64_t first;
    int64_t last;
};

inline Range share(int64_t count, int64_t index, int64_t parts) {
    return {count * index / parts, count * (index + 1) / parts};
}

}  // namespace

}  // namespace dualar::nn
