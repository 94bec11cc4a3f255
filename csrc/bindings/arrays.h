// numpy arrays in and out: checked on the way in (ValueError with what came), moved on the way out.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dualar::bindings {

namespace py = pybind11;

// Any integer dtype, values that fit int32, row-major.
struct IntegerArray {
    std::vector<int32_t> values;
    std::vector<py::ssize_t> shape;
};

// `where` names the argument; `dims` is the number of dimensions it must have.
IntegerArray integers(const py::array& array, const char* where, int dims);

// Any float dtype as float32, one dimension.
std::vector<float> floats(const py::array& array, const char* where);

// A whole number of any size: what 64 bits do not hold becomes the largest or smallest they do, which no argument
// allows, so that the check of the range speaks (a ValueError) and not pybind11's of the type.
struct Whole {
    int64_t value = 0;
    operator int64_t() const { return value; }  // NOLINT: it is one
};

// A new array that owns `values`.
py::array_t<float> to_numpy(std::vector<float> values, std::vector<py::ssize_t> shape);
inline py::array_t<float> to_numpy(std::vector<float> values) {
    const auto n = static_cast<py::ssize_t>(values.size());
    return to_numpy(std::move(values), {n});
}

// One function per topic; module.cpp calls them in order.
void bind_runtime(py::module_& m);
void bind_sampling(py::module_& m);
void bind_models(py::module_& m);
void bind_batch(py::module_& m);
void bind_codec(py::module_& m);
void bind_speaker(py::module_& m);
void bind_wavenet(py::module_& m);
void bind_testing(py::module_& m);
void bind_layers(py::module_& m);

}  // namespace dualar::bindings

template <>
struct pybind11::detail::type_caster<dualar::bindings::Whole> {
    PYBIND11_TYPE_CASTER(dualar::bindings::Whole, const_name("int"));

    bool load(handle source, bool) {
        const auto number = reinterpret_steal<object>(PyNumber_Index(source.ptr()));
        if (!number) {
            PyErr_Clear();
            return false;
        }
        int overflow = 0;
        value.value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
        if (overflow != 0) value.value = overflow > 0 ? INT64_MAX : INT64_MIN;
        return true;
    }
};
