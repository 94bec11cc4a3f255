// The interpreter's lock, released while the core computes, and what may happen to the interpreter meanwhile.
#pragma once

#include <Python.h>

#include "runtime/program_exit.h"

namespace dualar::bindings {

// While it lives, this thread computes without the GIL, and the interpreter does not go away before it has the GIL
// back. Construct it with the GIL held, after the arguments were converted; use it wherever the core may compute for
// long, load, or wait for another thread. Throws ProgramExit where the program ends.
class WithoutGil {
  public:
    WithoutGil() : thread_(PyEval_SaveThread()) {}
    ~WithoutGil();
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;

  private:
    Computation computation_;
    PyThreadState* thread_;
};

// The GIL for a thread of any kind, with it or without. While it waits for it or has it, its computations do not count:
// a thread that ends the program may have the GIL, and keep it.
class WithGil {
  public:
    WithGil() : state_(PyGILState_Ensure()) {}
    ~WithGil() { PyGILState_Release(state_); }
    WithGil(const WithGil&) = delete;
    WithGil& operator=(const WithGil&) = delete;

  private:
    Pause pause_;
    PyGILState_STATE state_;
};

// For Python's atexit: see end_computations().
void end_computations_without_gil();

}  // namespace dualar::bindings
