// How computations end when the program does: they are counted, broken off, and waited for, so that none runs while the
// interpreter or a device's driver goes away. (This library's own statics stay: see kept_statics.c.) Knows no Python;
// the bindings say when the program ends.
#pragma once

#include <stdexcept>

namespace dualar {

// Leaves a computation that the end of the program breaks off. SystemExit in Python, which ends a thread quietly and is
// no error that a loop would try again after. Never a BackendError: those may be answered with numbers.
struct ProgramExit : std::runtime_error {
    static constexpr const char* message =
        "[exit] the program ends: what its other threads compute is broken off, and they may compute no more";
    ProgramExit() : std::runtime_error(message) {}
};

// One call into this library, counted until it has returned to its caller.
class Call {
  public:
    Call() noexcept;
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // False where the program ends: such a call must return at once.
    bool is_allowed() const noexcept { return allowed_; }

  private:
    bool allowed_;
};

// One computation within a call, counted from its construction until nothing of this library is used any more.
class Computation {
  public:
    // ProgramExit where no further ones may begin.
    Computation();
    ~Computation();
    Computation(const Computation&) = delete;
    Computation& operator=(const Computation&) = delete;

    void finish() noexcept;

  private:
    bool finished_ = false;
};

// While it lives, this thread's computations, if it has any, do not count: for a wait that may take until the end of
// the program, like the one for a lock of the caller's. Where the program has ended meanwhile, the thread stays in the
// destructor for good.
class Pause {
  public:
    Pause() noexcept;
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
};

// Whether this thread's computation is to end now. Cheap enough to be asked between any two steps.
bool is_exiting() noexcept;
// ProgramExit if it is. Long loops call it between their steps; a graph asks is_exiting() after each of its nodes.
void check_exit();

// Keeps the calling thread for as long as the process lives.
[[noreturn]] void wait_for_the_end() noexcept;

// Break off what other threads compute, refuse to them anything further, and return once their calls have returned. The
// calling thread, which ends the program, may still compute.
void end_computations();

// Register the same with exit(), for a program that native code ends without the interpreter: there, wait only until
// nothing computes, because a call may not get back to a caller whose lock the ending thread holds.
void end_computations_at_exit();

}  // namespace dualar
