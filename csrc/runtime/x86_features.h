// What an x86-64 processor can do, and the system lets programs use.
//
// By CPUID and XGETBV themselves (Intel, Software Developer's Manual, volume 2, CPUID; volume 1, 13.3), because the
// compilers' __builtin_cpu_supports is filled in by a runtime library that not all of them bring: under zig it says no
// to everything.
#pragma once

#if defined(__x86_64__)

namespace dualar {

struct X86Features {
    bool sse3 = false;
    bool ssse3 = false;
    bool avx = false;
    bool avx2 = false;
    bool fma = false;
    bool f16c = false;
    bool bmi2 = false;
    bool avx512f = false;
    bool avx512bw = false;
    bool avx512dq = false;
    bool avx512vl = false;
    bool avx512_vbmi = false;
    bool avx512_vnni = false;
    bool avx512_bf16 = false;
};

// Of the processor that this runs on.
const X86Features& x86_features();

}  // namespace dualar

#endif
