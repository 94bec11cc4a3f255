#include "nn/cpu/kernels.h"
#include "runtime/x86_features.h"

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
        const X86Features& has = x86_features();
        const bool avx2 = has.avx2 && has.fma && has.f16c;
        if (avx2 && has.avx512f && has.avx512bw && has.avx512dq && has.avx512vl && has.avx512_vnni)
            variants.push_back(&kernels_avx512);
        if (avx2) variants.push_back(&kernels_avx2);
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
