// Makes every function, method and property of the module a counted call, which the end of the program waits for.
#pragma once

#include <pybind11/pybind11.h>

namespace dualar::bindings {

// To be called once everything is bound. Whatever a function does then happens inside a Call, the conversion of its
// arguments and of its result included, where numpy may release the GIL; and at the end of the program it raises
// SystemExit before anything else. Before CPython 3.14 a thread that asks for the GIL of an interpreter that is gone
// ends by unwinding its stack, through C++ frames whose destructors need that GIL.
void count_calls(const pybind11::module_& module);

}  // namespace dualar::bindings
