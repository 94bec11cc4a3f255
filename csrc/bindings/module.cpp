// The module dualar._core: exceptions, then one bind_* per topic. No behaviour here.
#include <filesystem>

#include "bindings/arrays.h"
#include "runtime/backend.h"
#include "runtime/error.h"

namespace py = pybind11;

PYBIND11_MODULE(_core, m) {
    m.doc() = "The compiled core of dualar. Private: use what `dualar` exports.";
    py::register_exception<dualar::ModelError>(m, "ModelError", PyExc_RuntimeError);
    py::register_exception<dualar::BackendError>(m, "BackendError", PyExc_RuntimeError);
    for (const char* name : {"ModelError", "BackendError"}) m.attr(name).attr("__module__") = "dualar";
    m.attr("ggml_version") = ggml_version();
    const auto file = m.attr("__spec__").attr("origin").cast<std::string>();
    dualar::load_backend_modules(std::filesystem::path(file).parent_path().string());
    dualar::bindings::bind_runtime(m);
    dualar::bindings::bind_dual_ar(m);
    dualar::bindings::bind_codec(m);
    dualar::bindings::bind_wavenet(m);
    dualar::bindings::bind_testing(m);
    dualar::bindings::bind_layers(m);
}
