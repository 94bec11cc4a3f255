/* Force-included into ggml's thread pool (see CMakeLists.txt): how its threads wait for one another.
 *
 * ggml spins. A thread that spins while another process holds the core its partner needs makes every wait last a whole
 * time slice of that process: a frame beside one busy process takes tens of times as long. A thread that sleeps instead
 * leaves its core to the partner. So a wait spins for a moment, longer than any wait of an undisturbed frame, and then
 * takes naps.
 *
 * ggml defines `static inline void ggml_thread_cpu_relax(void)` and calls `ggml_thread_cpu_relax()` once a turn. The
 * macro below gives its definition another name and sends its calls here; it adds nothing where the names differ. */
#ifndef DUALAR_GGML_RELAX_H
#define DUALAR_GGML_RELAX_H

#if defined(__linux__) || defined(__APPLE__)

#include <stdint.h>
#include <time.h>

enum {
    DUALAR_SPIN_NS = 100000, /* spin this long, */
    DUALAR_NAP_NS = 20000,   /* then nap this long at a time */
    DUALAR_GAP_NS = 5000,    /* turns further apart than this belong to different waits */
    DUALAR_TURNS = 16        /* look at the clock once in so many turns */
};

static inline void dualar_relax(void) {
    static _Thread_local unsigned turns;
    static _Thread_local int64_t began;
    static _Thread_local int64_t seen;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
    if (++turns % DUALAR_TURNS != 0) return;
    struct timespec clock;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    int64_t now = (int64_t)clock.tv_sec * 1000000000 + clock.tv_nsec;
    if (now - seen > DUALAR_GAP_NS) began = now;
    if (now - began > DUALAR_SPIN_NS) {
        const struct timespec nap = {0, DUALAR_NAP_NS};
        nanosleep(&nap, 0);
        turns = DUALAR_TURNS - 1; /* look again at once */
        clock_gettime(CLOCK_MONOTONIC, &clock);
        now = (int64_t)clock.tv_sec * 1000000000 + clock.tv_nsec;
    }
    seen = now;
}

#define ggml_thread_cpu_relax(argument) DUALAR_RELAX_##argument
#define DUALAR_RELAX_void dualar_unused_relax(void)
#define DUALAR_RELAX_ dualar_relax()

#endif
#endif
