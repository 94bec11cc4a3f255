// For the tests of this project only: ggml's quantizers, single operators, the table of names.
#include <cstring>

#include "bindings/arrays.h"
#include "nn/ops.h"
#include "runtime/error.h"
#include "runtime/weights.h"

namespace dualar::bindings {

namespace {

ggml_type type_named(const std::string& name) {
    for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
        const auto type = static_cast<ggml_type>(i);
        const char* known = ggml_type_name(type);
        if (known != nullptr && is_supported(type) && strcasecmp(known, name.c_str()) == 0) return type;
    }
    throw std::invalid_argument(text("[type] expected a supported ggml type, got ", name));
}

py::array_t<uint8_t> quantize(const py::array_t<float, py::array::c_style | py::array::forcecast>& values,
                              const std::string& type_name) {
    const ggml_type type = type_named(type_name);
    if (values.ndim() != 2 || values.shape(1) % ggml_blck_size(type) != 0)
        throw std::invalid_argument("[values] expected [rows, columns], columns a multiple of the block");
    const int64_t rows = values.shape(0);
    const int64_t columns = values.shape(1);
    py::array_t<uint8_t> out(static_cast<py::ssize_t>(static_cast<size_t>(rows) * ggml_row_size(type, columns)));
    ggml_quantize_chunk(type, values.data(), out.mutable_data(), 0, rows, columns, nullptr);
    return out;
}

py::array_t<float> dequantize(const py::array_t<uint8_t, py::array::c_style>& data, const std::string& type_name,
                              int64_t rows, int64_t columns) {
    const ggml_type type = type_named(type_name);
    if (rows < 1 || columns < 1 || columns % ggml_blck_size(type) != 0 ||
        static_cast<size_t>(data.size()) != static_cast<size_t>(rows) * ggml_row_size(type, columns))
        throw std::invalid_argument("[data] expected rows * the row size of the type");
    std::vector<float> out(static_cast<size_t>(rows * columns));
    to_float(data.data(), type, out.data(), rows * columns);
    return to_numpy(std::move(out), {rows, columns});
}

py::array_t<float> snake(const py::array& x, const py::array& alpha) {
    const std::vector<float> values = floats(x, "x");
    const std::vector<float> a = floats(alpha, "alpha");
    if (a.size() != values.size()) throw std::invalid_argument("[alpha] expected one value per x");
    std::vector<float> inverse;
    for (const float v : a) inverse.push_back(1.0F / (v + 1e-9F));
    std::vector<float> out(values.size());
    nn::snake_row(values.data(), a.data(), inverse.data(), out.data(), static_cast<int64_t>(values.size()));
    return to_numpy(std::move(out));
}

}  // namespace

void bind_testing(py::module_& m) {
    m.def("_quantize", &quantize, py::arg("values"), py::arg("type_name"));
    m.def("_dequantize", &dequantize, py::arg("data"), py::arg("type_name"), py::arg("rows"), py::arg("cols"));
    m.def("_snake", &snake, py::arg("x"), py::arg("alpha"));
}

}  // namespace dualar::bindings
