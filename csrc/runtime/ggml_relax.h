/* Force-included into ggml's thread pool (see CMakeLists.txt): how its threads wait for one another.
 *
 * ggml spins without end. That is best while each thread has a core: most waits last some microseconds, and a thread
 * that sleeps is back late. Beside other busy processes it is not: a thread that spins while the one it waits for has
 * lost its core uses up its own turn on nothing, and then loses its core just when the other one is back. So a wait
 * spins, and past some limit it naps, which leaves the core to others, until the other thread is there. The limit is
 * long at first, because long waits of a quiet machine end soon, and short for a while after a wait that was longer
 * than any of a quiet machine's. benchmarks/bench_busy.py measures models beside busy processes.
 *
 * ggml defines `static inline void ggml_thread_cpu_relax(void)` and calls `ggml_thread_cpu_relax()` once a turn, in its
 * barrier and where a thread waits for the next graph. The macro below gives its definition another name and sends its
 * calls here; it adds nothing where the names differ. In the barrier there is a variable `n_passed`, another number at
 * each wait; elsewhere the name means the constant below. */
#ifndef DUALAR_GGML_RELAX_H
#define DUALAR_GGML_RELAX_H

#if defined(__linux__) || defined(__APPLE__)

#include <stdint.h>
#include <time.h>

enum {
    DUALAR_SPIN_NS = 1000000,       /* a wait in a barrier spins this long, */
    DUALAR_SHORT_SPIN_NS = 100000,  /* or this long on a busy machine, */
    DUALAR_BUSY_NS = 200000000,     /* which it is taken to be so long after a wait that did not end while spinning; */
    DUALAR_NAP_NS = 50000,          /* then it naps this long at a time */
    DUALAR_IDLE_SPIN_NS = 10000000, /* the same limit where no graph runs */
    DUALAR_GAP_NS = 5000,           /* turns further apart than this: */
    DUALAR_SLICE_NS = 1000000,      /* other waits where no graph runs; the thread had lost its core beyond this */
    DUALAR_TURNS = 16               /* look at the clock once in so many turns */
};

static const int n_passed = -1; /* no barrier */

static inline int64_t dualar_now(void) {
    struct timespec clock;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    return (int64_t)clock.tv_sec * 1000000000 + clock.tv_nsec;
}

static inline void dualar_relax(int wait) {
    static _Thread_local unsigned turns;
    static _Thread_local int last_wait = -1;
    static _Thread_local int64_t spun; /* in this wait */
    static _Thread_local int64_t seen;
    static _Thread_local int64_t busy_until;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
    if (wait != last_wait) {
        last_wait = wait;
        turns = 0;
        spun = 0;
        seen = 0;
    }
    if (++turns % DUALAR_TURNS != 0) return;
    const int64_t now = dualar_now();
    const int64_t gap = now - seen;
    seen = now;
    if (gap <= DUALAR_GAP_NS)
        spun += gap;
    else if (wait == -1 && gap < DUALAR_SLICE_NS)
        spun = 0;
    if (wait == -1) {
        if (spun < DUALAR_IDLE_SPIN_NS) return;
    } else {
        if (spun < (now < busy_until ? DUALAR_SHORT_SPIN_NS : DUALAR_SPIN_NS)) return;
        busy_until = now + DUALAR_BUSY_NS;
    }
    const struct timespec nap = {0, DUALAR_NAP_NS};
    nanosleep(&nap, 0);
    turns = DUALAR_TURNS - 1; /* look again at once */
    seen = dualar_now();
}

#define ggml_thread_cpu_relax(argument) DUALAR_RELAX_##argument
#define DUALAR_RELAX_void dualar_unused_relax(void)
#define DUALAR_RELAX_ dualar_relax(n_passed)

#endif
#endif
