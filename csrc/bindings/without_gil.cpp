#include "bindings/without_gil.h"

#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif

namespace dualar::bindings {

namespace {

// Before 3.14, Python ends a thread that asks for the GIL of an interpreter that is gone (pthread_exit), which unwinds
// through C++ frames that allow no exception, and so ends the process. The thread waits here instead, as from 3.14 on.
// Only an interpreter that went without its atexit functions comes to this.
void take_gil(PyThreadState* thread) noexcept {
#if defined(__GLIBCXX__)
    try {
        PyEval_RestoreThread(thread);
    } catch (abi::__forced_unwind&) {
        wait_for_the_end();
    }
#else
    PyEval_RestoreThread(thread);
#endif
}

}  // namespace

WithoutGil::~WithoutGil() {
    computation_.finish();
    take_gil(thread_);
}

void end_computations_without_gil() {
    PyThreadState* thread = PyEval_SaveThread();
    end_computations();
    take_gil(thread);
}

}  // namespace dualar::bindings
