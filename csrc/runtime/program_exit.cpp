#include "runtime/program_exit.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#if defined(DUALAR_KEEP_STATICS)
extern "C" int __real___cxa_atexit(void (*function)(void*), void* argument, void* library);
extern "C" void* __dso_handle;
#endif

namespace dualar {

namespace {

// Of the process, like the threads that it counts. Atomics without a destructor: there to the very end, and a child of
// fork() finds no lock held by a thread that it does not have.
std::atomic<int> calls{0};
std::atomic<int> computations{0};
std::atomic<bool> exiting{false};
std::atomic<bool> exiting_natively{false};  // by exit(), where threads may not get back to their callers
std::atomic<std::thread::id> exiting_thread{};
// Of these, the thread's own: it does not wait for itself, where it ends the program from within a call.
thread_local int own_calls = 0;
thread_local int own_computations = 0;

void count(std::atomic<int>& all, int& own, int change) noexcept {
    all += change;
    own += change;
}

void wait_until_only(const std::atomic<int>& all, int own) {
    while (all > own) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

void refuse_others() {
    exiting_thread = std::this_thread::get_id();
    exiting = true;
}

void end_natively() {
    exiting_natively = true;
    refuse_others();
    wait_until_only(computations, own_computations);
}

// The other threads are not in the child, and so neither are their computations.
void forget_others() {
    calls = own_calls;
    computations = own_computations;
}

void prepare_for_fork() {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, forget_others); });
}

}  // namespace

Call::Call() noexcept {
    prepare_for_fork();
    count(calls, own_calls, 1);
    allowed_ = !is_exiting();
}

Call::~Call() { count(calls, own_calls, -1); }

Computation::Computation() {
    prepare_for_fork();
    count(computations, own_computations, 1);
    if (!is_exiting()) return;
    finish();
    throw ProgramExit();
}

Computation::~Computation() { finish(); }

void Computation::finish() noexcept {
    if (!finished_) count(computations, own_computations, -1);
    finished_ = true;
}

Pause::Pause() noexcept { computations -= own_computations; }

Pause::~Pause() {
    computations += own_computations;  // before the question, so that whoever ends the program sees it or is seen
    if (!exiting_natively || !is_exiting()) return;
    computations -= own_computations;
    wait_for_the_end();
}

bool is_exiting() noexcept { return exiting && exiting_thread.load() != std::this_thread::get_id(); }

void check_exit() {
    if (is_exiting()) throw ProgramExit();
}

void wait_for_the_end() noexcept {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

void end_computations() {
    refuse_others();
    wait_until_only(calls, own_calls);
}

void end_computations_at_exit() {
#if defined(DUALAR_KEEP_STATICS)
    __real___cxa_atexit([](void*) { end_natively(); }, nullptr, &__dso_handle);
#else
    std::atexit(end_natively);
#endif
}

}  // namespace dualar
