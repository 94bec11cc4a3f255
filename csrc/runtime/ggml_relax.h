/* Force-included into ggml's thread pool (see CMakeLists.txt): how its threads wait for one another.
 *
 * ggml spins without end. That is right while each thread has a core, and also beside one busy process: a thread that
 * sleeps or yields there loses its turn to that process for a whole time slice, at every one of the hundreds of waits
 * in a frame. It is wrong where there are more spinning threads than cores, as with two pools at once: each wait then
 * lasts as many time slices as there are threads. So a wait spins for longer than a time slice, and then takes naps.
 * benchmarks/bench_busy.py measures a frame beside busy processes.
 *
 * ggml defines `static inline void ggml_thread_cpu_relax(void)` and calls `ggml_thread_cpu_relax()` once a turn. The
 * macro below gives its definition another name and sends its calls here; it adds nothing where the names differ. */
#ifndef DUALAR_GGML_RELAX_H
#define DUALAR_GGML_RELAX_H

#if defined(__linux__) || defined(__APPLE__)

#include <stdint.h>
#include <time.h>

enum {
    DUALAR_SPIN_NS = 10000000, /* spin this long, some time slices, */
    DUALAR_NAP_NS = 100000,    /* then nap this long at a time */
    DUALAR_GAP_NS = 5000,      /* turns further apart than this belong to different waits, */
    DUALAR_SLICE_NS = 1000000, /* but this far apart the thread had lost its core in the middle of one */
    DUALAR_TURNS = 16          /* look at the clock once in so many turns */
};

static inline int64_t dualar_now(void) {
    struct timespec clock;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    return (int64_t)clock.tv_sec * 1000000000 + clock.tv_nsec;
}

static inline void dualar_relax(void) {
    static _Thread_local unsigned turns;
    static _Thread_local int64_t spun; /* in this wait */
    static _Thread_local int64_t seen;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
    if (++turns % DUALAR_TURNS != 0) return;
    const int64_t now = dualar_now();
    const int64_t gap = now - seen;
    seen = now;
    if (gap <= DUALAR_GAP_NS)
        spun += gap;
    else if (gap < DUALAR_SLICE_NS)
        spun = 0;
    if (spun < DUALAR_SPIN_NS) return;
    const struct timespec nap = {0, DUALAR_NAP_NS};
    nanosleep(&nap, 0);
    turns = DUALAR_TURNS - 1; /* look again at once */
    seen = dualar_now();
}

#define ggml_thread_cpu_relax(argument) DUALAR_RELAX_##argument
#define DUALAR_RELAX_void dualar_unused_relax(void)
#define DUALAR_RELAX_ dualar_relax()

#endif
#endif
