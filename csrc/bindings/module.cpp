// The module dualar._core: exceptions, then one bind_* per topic. No behaviour here.
#include <filesystem>

#include "bindings/arrays.h"
#include "bindings/counted_calls.h"
#include "bindings/without_gil.h"
#include "ggml.h"
#include "runtime/backend_modules.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/program_exit.h"

namespace py = pybind11;

namespace {

// As py::register_exception, for texts that may quote bytes of a file or a path: what is no UTF-8 is escaped, where
// pybind11 would raise a UnicodeDecodeError in the error's place.
template <class Error>
void register_error(py::module_& m, const char* name) {
    static PyObject* type = nullptr;
    type = py::exception<Error>(m, name, PyExc_RuntimeError).release().ptr();
    py::register_exception_translator([](std::exception_ptr thrown) {
        try {
            if (thrown) std::rethrow_exception(thrown);
        } catch (const Error& error) {
            const std::string text = error.what();
            PyObject* message =
                PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "backslashreplace");
            if (message == nullptr) return;
            PyErr_SetObject(type, message);
            Py_DECREF(message);
        }
    });
}

// SystemExit: Python ends a thread with it quietly.
void register_program_exit() {
    py::register_exception_translator([](std::exception_ptr thrown) {
        try {
            if (thrown) std::rethrow_exception(thrown);
        } catch (const dualar::ProgramExit& error) {
            PyErr_SetString(PyExc_SystemExit, error.what());
        }
    });
}

}  // namespace

PYBIND11_MODULE(_core, m) {
    m.doc() = "The compiled core of dualar. Private: use what `dualar` exports.";
    register_error<dualar::ModelError>(m, "ModelError");
    register_error<dualar::BackendError>(m, "BackendError");
    register_program_exit();
    for (const char* name : {"ModelError", "BackendError"}) m.attr(name).attr("__module__") = "dualar";
    m.attr("ggml_version") = ggml_version();
    const auto file = m.attr("__spec__").attr("origin").cast<std::string>();
    dualar::set_log_sink({});  // before ggml says anything: its own default is to print
    dualar::load_backend_modules(std::filesystem::path(file).parent_path().string());
    if (const std::string missing = dualar::missing_cpu_features(); !missing.empty())
        throw py::import_error("[dualar] expected a CPU with " + missing +
                               ", which this build needs and this machine lacks: install dualar's wheel, or build on "
                               "this machine (pip install --no-binary dualar dualar)");
    py::module_::import("atexit").attr("register")(py::cpp_function(&dualar::bindings::end_computations_without_gil));
    dualar::end_computations_at_exit();
    dualar::bindings::bind_runtime(m);
    dualar::bindings::bind_sampling(m);
    dualar::bindings::bind_models(m);
    dualar::bindings::bind_batch(m);
    dualar::bindings::bind_codec(m);
    dualar::bindings::bind_speaker(m);
    dualar::bindings::bind_wavenet(m);
#if defined(DUALAR_TESTING)
    py::module_ testing = m.def_submodule("testing", "What tests and benchmarks look into the core with.");
    dualar::bindings::bind_testing(testing);
    dualar::bindings::bind_layers(testing);
#endif
    dualar::bindings::count_calls(m);
}
