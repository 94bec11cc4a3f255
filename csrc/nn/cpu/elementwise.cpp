// Activations, element by element.
#include "nn/cpu/vectors.h"

namespace dualar::nn::DUALAR_VARIANT_NAMESPACE {

namespace {

// Beyond this |alpha x| the reduction below loses its last digits; libm's exact one is used instead.
constexpr float kReductionLimit = 16384.0F;

// sin^2(y), |error| about 1e-7 for |y| <= kReductionLimit. No branch, so that the compiler vectorises the loop.
// sin^2 has period pi: with n = round(y / pi) and r = y - n pi, sin^2(y) = sin^2(r). n pi is subtracted in three parts,
// the first of 9 bits, so that its product with n is exact and r keeps its digits (Cody and Waite). sin(r) is
// r + r z P(z) with z = r^2, Taylor's terms to r^13, whose remainder at pi/2 is under 7e-10.
inline float sin_squared(float y) {
    constexpr float kInversePi = 0.31830988618379067F;
    constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding and subtracting it rounds to an integer
    constexpr float kPiHigh = 3.140625F;   // 9 bits, so that n * kPiHigh is exact; then pi - kPiHigh in two parts
    constexpr float kPiMiddle = 9.67502593994140625e-4F;
    constexpr float kPiLow = 1.509957990978376e-7F;
    const float n = (y * kInversePi + kRound) - kRound;
    const float r = ((y - n * kPiHigh) - n * kPiMiddle) - n * kPiLow;  // in [-pi/2, pi/2]
    const float z = r * r;
    float p = 1.6059043836821613e-10F;
    p = p * z - 2.5052108385441720e-8F;
    p = p * z + 2.7557319223985893e-6F;
    p = p * z - 1.9841269841269841e-4F;
    p = p * z + 8.3333333333333333e-3F;
    p = p * z - 1.6666666666666667e-1F;
    const float s = r + r * z * p;
    return s * s;
}

// exp(x) for |x| <= 87, relative error about 1e-7. NaN stays NaN.
// With n = round(x / ln 2) and r = x - n ln 2, |r| <= ln(2) / 2: exp(x) = 2^n exp(r), exp(r) by Taylor's sum to r^6.
// Adding 1.5 * 2^23 leaves n in the low bits of a float; 127 added and moved 23 bits up, these bits are the float 2^n.
inline float exponential_of(float x) {
    constexpr float kInverseLn2 = 1.4426950408889634F;
    constexpr float kRound = 12582912.0F;     // 1.5 * 2^23: adding and subtracting it rounds to an integer
    constexpr float kLn2High = 0.693359375F;  // 9 bits, so that n * kLn2High is exact
    constexpr float kLn2Low = -2.12194440e-4F;
    const float shifted = x * kInverseLn2 + kRound;
    const float n = shifted - kRound;
    const float r = (x - n * kLn2High) - n * kLn2Low;
    float p = 1.3888888888888889e-3F;
    p = p * r + 8.3333333333333333e-3F;
    p = p * r + 4.1666666666666667e-2F;
    p = p * r + 1.6666666666666667e-1F;
    p = p * r + 0.5F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits + 127U) << 23;
    float power;
    memcpy(&power, &bits, sizeof(power));
    return p * power;
}

// Written so, a NaN passes; the other way round it would become the limit.
inline float limited(float x, float limit) {
    x = x > limit ? limit : x;
    return x < -limit ? -limit : x;
}

}  // namespace

void snake(const float* x, const float* alpha, const float* inverse, float* out, int64_t n) {
    int beyond = 0;  // an integer, so that this loop vectorises too
    for (int64_t i = 0; i < n; ++i) beyond |= __builtin_fabsf(alpha[i] * x[i]) > kReductionLimit ? 1 : 0;
    if (beyond == 0) {
        for (int64_t i = 0; i < n; ++i) out[i] = x[i] + sin_squared(alpha[i] * x[i]) * inverse[i];
    } else {
        for (int64_t i = 0; i < n; ++i) {
            const float s = __builtin_sinf(alpha[i] * x[i]);
            out[i] = x[i] + s * s * inverse[i];
        }
    }
}

// tanh(a) / (1 + exp(-b)) = (e - 1) / ((e + 1) (1 + f)) with e = exp(2 a) and f = exp(-b): one division.
void gate(const float* a, const float* b, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const float e = exponential_of(limited(2.0F * a[i], 30.0F));  // tanh(15) is 1 in float32
        const float f = exponential_of(limited(-b[i], 50.0F));
        out[i] = (e - 1.0F) / ((e + 1.0F) * (1.0F + f));
    }
}

void exponential(float* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] = exponential_of(limited(x[i], 87.0F));
}

void elu(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const float below = exponential_of(limited(x[i], 87.0F)) - 1.0F;
        out[i] = x[i] > 0.0F ? x[i] : below;
    }
}

}  // namespace dualar::nn::DUALAR_VARIANT_NAMESPACE
