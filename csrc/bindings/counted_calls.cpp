#include "bindings/counted_calls.h"

#include "runtime/program_exit.h"

namespace dualar::bindings {

namespace py = pybind11;

namespace {

// pybind11 keeps one function for all that it binds, whose arguments depend on pybind11's version.
struct Bound : py::cpp_function {
    static constexpr auto dispatch = &Bound::dispatcher;

    static PyCFunction as_method(PyObject* (*function)(PyObject*, PyObject*, PyObject*)) {
        return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
    }
    static PyCFunction as_method(PyObject* (*function)(PyObject*, PyObject* const*, size_t, PyObject*)) {
        return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
    }
};

// No object of this frame needs the GIL when it goes.
template <class... Arguments>
PyObject* counted(Arguments... arguments) {
    const Call call;
    if (call.is_allowed()) return Bound::dispatch(arguments...);
    PyErr_SetString(PyExc_SystemExit, ProgramExit::message);
    return nullptr;
}

template <class... Arguments>
PyCFunction counted_method(PyObject* (*)(Arguments...)) {
    return Bound::as_method(&counted<Arguments...>);
}

void count_function(PyObject* object) {
    if (PyInstanceMethod_Check(object)) object = PyInstanceMethod_GET_FUNCTION(object);
    if (!PyCFunction_Check(object)) return;
    PyMethodDef* method = reinterpret_cast<PyCFunctionObject*>(object)->m_ml;
    if (method->ml_meth == Bound::as_method(Bound::dispatch)) method->ml_meth = counted_method(Bound::dispatch);
}

void count_members(const py::handle& scope, const py::str& module_name) {
    for (const auto& [name, value] : py::dict(scope.attr("__dict__"))) {
        if (PyModule_Check(value.ptr())) {
            count_members(value, module_name);
        } else if (PyType_Check(value.ptr())) {
            if (value.attr("__module__").attr("startswith")(module_name).cast<bool>())
                count_members(value, module_name);
        } else if (py::isinstance(value, reinterpret_cast<PyObject*>(&PyProperty_Type))) {
            for (const char* accessor : {"fget", "fset"}) count_function(value.attr(accessor).ptr());
        } else if (py::isinstance<py::staticmethod>(value)) {
            count_function(value.attr("__func__").ptr());
        } else {
            count_function(value.ptr());
        }
    }
}

}  // namespace

void count_calls(const py::module_& module) { count_members(module, module.attr("__name__")); }

}  // namespace dualar::bindings
