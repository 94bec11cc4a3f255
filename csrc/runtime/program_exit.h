// How computations end when the program does: they are counted, broken off, and waited for, so that none runs while the
// interpreter or the statics of this library go away. Knows no Python; the bindings say when the program ends.
#pragma once

#include <stdexcept>

namespace dualar {

// Leaves a computation that the end of the program breaks off. SystemExit in Python, which ends a thread quietly and is
// no error that a loop would try again after. Never a BackendError: those may be answered with numbers.
struct ProgramExit : std::runtime_error {
    ProgramExit();
};

// One computation, counted from its construction until its thread is back with its caller.
class Computation {
  public:
    // ProgramExit where no further ones may begin.
    Computation();
    ~Computation();
    Computation(const Computation&) = delete;
    Computation& operator=(const Computation&) = delete;

    // Nothing of this library is used any more; the thread still has to come back to its caller.
    void finish() noexcept;

  private:
    bool finished_ = false;
};

// Whether this thread's computation is to end now. Cheap enough to be asked between any two steps.
bool is_exiting() noexcept;
// ProgramExit if it is. Long loops call it between their steps; a graph asks is_exiting() after each of its nodes.
void check_exit();

// Break off what other threads compute, refuse to them anything further, and return once they are all back with their
// callers. The calling thread, which ends the program, may still compute.
void end_computations();

// Register the same with exit(), for a program that native code ends without the interpreter: there, wait only until
// nothing computes, because a thread may not get back to a caller whose lock the ending thread holds.
// Call it after everything that computations use was made, so that it runs before that is destroyed.
void end_computations_at_exit();

}  // namespace dualar
