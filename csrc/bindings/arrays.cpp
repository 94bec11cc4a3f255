#include "bindings/arrays.h"

#include <cstdint>
#include <memory>

#include "bindings/without_gil.h"
#include "runtime/error.h"

namespace dualar::bindings {

namespace {

std::string describe(const py::array& array) {
    std::string shape = "(";
    for (py::ssize_t d = 0; d < array.ndim(); ++d) shape += (d ? ", " : "") + std::to_string(array.shape(d));
    return message(std::string(py::str(py::object(array.dtype()))), " of shape ", shape, ")");
}

}  // namespace

IntegerArray integers(const py::array& array, const char* where, int dims) {
    const char kind = array.dtype().kind();
    if ((kind != 'i' && kind != 'u') || array.ndim() != dims)
        throw std::invalid_argument(
            message("[", where, "] expected integers in ", dims, " dimension(s), got ", describe(array)));
    const auto wide = py::array_t<int64_t, py::array::c_style | py::array::forcecast>::ensure(array);
    if (!wide) throw py::error_already_set();
    IntegerArray out;
    out.shape.assign(wide.shape(), wide.shape() + wide.ndim());
    out.values.reserve(static_cast<size_t>(wide.size()));
    const int64_t* data = wide.data();
    for (py::ssize_t i = 0; i < wide.size(); ++i) {
        if (data[i] < INT32_MIN || data[i] > INT32_MAX)
            throw std::invalid_argument(message("[", where, "] expected 32-bit values, got ", data[i]));
        out.values.push_back(static_cast<int32_t>(data[i]));
    }
    return out;
}

std::vector<float> floats(const py::array& array, const char* where) {
    if (array.dtype().kind() != 'f' || array.ndim() != 1)
        throw std::invalid_argument(message("[", where, "] expected floats in one dimension, got ", describe(array)));
    const auto values = py::array_t<float, py::array::c_style | py::array::forcecast>::ensure(array);
    if (!values) throw py::error_already_set();
    return {values.data(), values.data() + values.size()};
}

py::array_t<float> to_numpy(std::vector<float> values, std::vector<py::ssize_t> shape) {
    auto owner = std::make_unique<std::vector<float>>(std::move(values));
    float* data = owner->data();
    const py::capsule free(owner.release(), [](void* vector) { delete static_cast<std::vector<float>*>(vector); });
    return py::array_t<float>(std::move(shape), data, free);
}

}  // namespace dualar::bindings
