#include "runtime/program_exit.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace dualar {

namespace {

// Of the process, like the threads that it counts. Atomics without a destructor: there to the very end, and a child of
// fork() finds no lock held by a thread that it does not have.
std::atomic<int> computing{0};  // use this library now
std::atomic<int> away{0};       // those, and the ones on their way back to their callers
std::atomic<bool> exiting{false};
std::atomic<std::thread::id> exiting_thread{};

void wait_for_none(const std::atomic<int>& count) {
    while (count > 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

void refuse_others() {
    exiting_thread = std::this_thread::get_id();
    exiting = true;
}

// The other threads are not in the child, and so neither are their computations.
void forget_all() {
    computing = 0;
    away = 0;
}

void prepare_for_fork() {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, forget_all); });
}

}  // namespace

ProgramExit::ProgramExit()
    : std::runtime_error(
          "[exit] the program ends: what its other threads compute is broken off, and they may compute no more") {}

Computation::Computation() {
    prepare_for_fork();
    ++away;
    ++computing;
    if (!is_exiting()) return;
    --computing;
    --away;
    throw ProgramExit();
}

Computation::~Computation() {
    finish();
    --away;
}

void Computation::finish() noexcept {
    if (!finished_) --computing;
    finished_ = true;
}

bool is_exiting() noexcept { return exiting && exiting_thread.load() != std::this_thread::get_id(); }

void check_exit() {
    if (is_exiting()) throw ProgramExit();
}

void end_computations() {
    refuse_others();
    wait_for_none(away);
}

void end_computations_at_exit() {
    std::atexit([] {
        refuse_others();
        wait_for_none(computing);
    });
}

}  // namespace dualar
