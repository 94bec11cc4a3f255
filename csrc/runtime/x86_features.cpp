#include "runtime/x86_features.h"

#if defined(__x86_64__)

#include <cpuid.h>

#include <cstdint>

namespace dualar {

namespace {

struct Leaf {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
};

// All zeros for a leaf that the processor does not have.
Leaf leaf(unsigned number, unsigned sub) {
    Leaf found;
    __get_cpuid_count(number, sub, &found.a, &found.b, &found.c, &found.d);
    return found;
}

bool bit(unsigned word, int number) { return ((word >> number) & 1U) != 0; }

// XCR0: which registers the system keeps for a program when another one runs.
uint64_t kept_registers() {
    unsigned low = 0;
    unsigned high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (static_cast<uint64_t>(high) << 32) | low;
}

X86Features find() {
    X86Features has;
    const Leaf one = leaf(1, 0);
    const Leaf seven = leaf(7, 0);
    const Leaf more = leaf(7, 1);
    const bool asks = bit(one.c, 27);  // OSXSAVE: XGETBV may be used
    const uint64_t kept = asks ? kept_registers() : 0;
    const bool ymm = (kept & 0x06) == 0x06;
    const bool zmm = (kept & 0xe6) == 0xe6;
    has.sse3 = bit(one.c, 0);
    has.ssse3 = bit(one.c, 9);
    has.avx = ymm && bit(one.c, 28);
    has.fma = ymm && bit(one.c, 12);
    has.f16c = ymm && bit(one.c, 29);
    has.avx2 = ymm && bit(seven.b, 5);
    has.bmi2 = bit(seven.b, 8);
    has.avx512f = zmm && bit(seven.b, 16);
    has.avx512dq = zmm && bit(seven.b, 17);
    has.avx512bw = zmm && bit(seven.b, 30);
    has.avx512vl = zmm && bit(seven.b, 31);
    has.avx512_vbmi = zmm && bit(seven.c, 1);
    has.avx512_vnni = zmm && bit(seven.c, 11);
    has.avx512_bf16 = zmm && bit(more.a, 5);
    return has;
}

}  // namespace

const X86Features& x86_features() {
    static const X86Features found = find();
    return found;
}

}  // namespace dualar

#endif
