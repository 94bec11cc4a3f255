#include "nn/cpu/kernels.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace dualar::nn {

// One for each variant that CMakeLists.txt compiles the kernels in.
extern const CpuKernels kernels_plain;
#if defined(__x86_64__)
extern const CpuKernels kernels_avx2;
extern const CpuKernels kernels_avx512;
#elif defined(__aarch64__)
extern const CpuKernels kernels_neon;
extern const CpuKernels kernels_neon_dot;
#endif

#if defined(__aarch64__)
namespace {

bool has_dotprod() {
#if defined(__APPLE__)
    return true;  // every Apple silicon has it
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return false;
#endif
}

}  // namespace
#endif

const std::vector<const CpuKernels*>& cpu_kernels() {
    static const auto found = [] {
        std::vector<const CpuKernels*> variants;
#if defined(__x86_64__)
        __builtin_cpu_init();
        const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512vnni"))
            variants.push_back(&kernels_avx512);
        if (avx2) variants.push_back(&kernels_avx2);  // every CPU with AVX2 has F16C
#elif defined(__aarch64__)
        if (has_dotprod()) variants.push_back(&kernels_neon_dot);
        variants.push_back(&kernels_neon);
#endif
        variants.push_back(&kernels_plain);
        return variants;
    }();
    return found;
}

}  // namespace dualar::nn
