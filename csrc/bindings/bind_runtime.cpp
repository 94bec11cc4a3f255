// Devices, logging, the thread pool, model files.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "bindings/arrays.h"
#include "bindings/without_gil.h"
#include "nn/packed_matrix.h"
#include "runtime/backend.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/weights.h"

namespace dualar::bindings {

namespace {

py::object to_python(const std::string& key, const MetadataEntry& entry) {
    return std::visit([](const auto& v) -> py::object { return py::cast(v); }, read_value(key, entry));
}

// Paths are bytes to the system: those that are no UTF-8 come and go as Python's own functions spell them.
py::object path_to_python(const std::string& path) {
    return py::reinterpret_steal<py::object>(
        PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<py::ssize_t>(path.size())));
}

// Called from any thread, with or without the GIL. The function is leaked on purpose: ggml may log at exit. Lines that
// other threads log while the program ends are dropped.
void set_sink(const py::object& sink) {
    if (sink.is_none()) {
        set_log_sink({});
        return;
    }
    PyObject* function = py::object(sink).release().ptr();
    set_log_sink([function](int level, const std::string& line) {
        if (!Py_IsInitialized() || is_exiting()) return;
        const WithGil gil;
        PyObject* returned = PyObject_CallFunction(function, "is", level, line.c_str());
        if (returned == nullptr) PyErr_WriteUnraisable(function);
        Py_XDECREF(returned);
    });
}

// values [rows, columns] as the type keeps them (ggml_quantize_chunk).
py::array_t<uint8_t> quantize(const py::array_t<float, py::array::c_style | py::array::forcecast>& values,
                              const std::string& type_name) {
    const ggml_type type = supported_type(type_name);
    if (values.ndim() != 2 || values.shape(1) % ggml_blck_size(type) != 0)
        throw std::invalid_argument(message("[values] expected [rows, columns], columns a multiple of ",
                                            ggml_blck_size(type), ", the block of ", ggml_type_name(type)));
    const int64_t rows = values.shape(0);
    const int64_t columns = values.shape(1);
    py::array_t<uint8_t> out(static_cast<py::ssize_t>(static_cast<size_t>(rows) * ggml_row_size(type, columns)));
    const float* from = values.data();
    uint8_t* to = out.mutable_data();
    const int64_t piece = std::max<int64_t>(1, (1 << 20) / std::max<int64_t>(1, columns));
    const WithoutGil without_gil;
    for (int64_t row = 0; row < rows; row += piece) {
        check_exit();
        ggml_quantize_chunk(type, from, to, row * columns, std::min(piece, rows - row), columns, nullptr);
    }
    return out;
}

// Some rows (indices of its first axis) of a tensor of a file. ModelError where there is no such tensor,
// std::invalid_argument for rows that it does not have.
struct TensorRows {
    const FileTensor* tensor;
    int64_t values;  // in all of the rows
    const char* data;
    size_t nbytes;

    TensorRows(const GgufFile& file, const std::string& name, int64_t first, int64_t last) : tensor(file.find(name)) {
        if (tensor == nullptr) throw ModelError(message("[", name, "] expected such a tensor in ", file.path()));
        const int64_t rows = tensor->shape.empty() ? 1 : tensor->shape.front();
        if (first < 0 || first > last || last > rows)
            throw std::invalid_argument(
                message("[", name, "] expected rows within 0 to ", rows, ", got ", first, " to ", last));
        int64_t row = 1;
        for (size_t d = 1; d < tensor->shape.size(); ++d) row *= tensor->shape[d];
        const size_t row_bytes = tensor->nbytes / static_cast<size_t>(rows);
        values = (last - first) * row;
        data = static_cast<const char*>(tensor->data) + static_cast<size_t>(first) * row_bytes;
        nbytes = static_cast<size_t>(last - first) * row_bytes;
    }
};

py::array_t<float> read_rows(const GgufFile& file, const std::string& name, Whole first, Whole last) {
    const TensorRows rows(file, name, first, last);
    if (!is_supported(rows.tensor->type) || rows.tensor->shape.size() < 2)
        throw std::invalid_argument(message("[", name, "] expected a matrix of a type that weights may have, got ",
                                            ggml_type_name(rows.tensor->type)));
    std::vector<py::ssize_t> shape{rows.tensor->shape.begin(), rows.tensor->shape.end()};
    shape.front() = static_cast<py::ssize_t>(last - first);
    std::vector<float> out(static_cast<size_t>(rows.values));
    to_float(rows.data, rows.tensor->type, out.data(), rows.values);
    return to_numpy(std::move(out), std::move(shape));
}

py::array_t<uint8_t> read_bytes(const GgufFile& file, const std::string& name, Whole first, Whole last) {
    const TensorRows rows(file, name, first, last);
    return py::array_t<uint8_t>(static_cast<py::ssize_t>(rows.nbytes), reinterpret_cast<const uint8_t*>(rows.data));
}

void forget(const GgufFile& file, const std::string& name) {
    if (const FileTensor* tensor = file.find(name)) file.forget(*tensor);
}

}  // namespace

void bind_runtime(py::module_& m) {
    py::class_<DeviceInfo>(m, "DeviceInfo", "One device that this build can use.")
        .def_readonly("name", &DeviceInfo::name, "What `device=` takes: cpu, cuda, cuda1, metal, vulkan.")
        .def_readonly("kind", &DeviceInfo::kind, "cpu, gpu, igpu or accel.")
        .def_readonly("description", &DeviceInfo::description, "The hardware's name.")
        .def_readonly("memory_total", &DeviceInfo::memory_total, "Bytes; 0 where the backend does not say.")
        .def_readonly("memory_free", &DeviceInfo::memory_free, "Bytes; 0 where the backend does not say.")
        .def("__repr__", [](const DeviceInfo& d) {
            return "DeviceInfo(name='" + d.name + "', kind='" + d.kind + "', description='" + d.description + "')";
        });
    m.def("devices", &devices);
    m.def("default_threads", &default_threads);
    m.def("cpu_kernels", [] { return std::string(nn::cpu_kernels().front()->name); });
    m.def("usable_cpus", &usable_cpus);
    m.def("set_log_sink", &set_sink, py::arg("sink"));

    py::class_<Backend, std::shared_ptr<Backend>>(m, "Runtime", "A device and its thread pool.")
        .def(py::init([](const std::string& device, const std::optional<int>& threads, bool exactly) {
                 if (threads && *threads == 0) return std::make_shared<Backend>(device, -1);
                 return std::make_shared<Backend>(device, threads.value_or(0), exactly);
             }),
             py::kw_only(), py::arg("device") = "cpu", py::arg("threads") = py::none(), py::arg("_exactly") = false)
        .def_property_readonly("device", &Backend::device)
        .def_property_readonly("threads", &Backend::threads);

    py::class_<GgufFile, std::shared_ptr<GgufFile>>(m, "ModelFile", "One GGUF file, memory-mapped.")
        .def(py::init([](const std::string& path) {
                 const WithoutGil without_gil;
                 return std::make_shared<GgufFile>(path);
             }),
             py::arg("path"))
        .def_property_readonly("path", [](const GgufFile& f) { return path_to_python(f.path()); })
        .def_property_readonly("nbytes", &GgufFile::nbytes)
        .def_property_readonly("architecture", [](const GgufFile& f) { return f.string("general.architecture"); })
        .def_property_readonly("metadata",
                               [](const GgufFile& f) {
                                   py::dict all;
                                   for (const auto& [key, entry] : f.metadata())
                                       all[py::cast(key)] = to_python(key, entry);
                                   return all;
                               })
        .def(
            "get",
            [](const GgufFile& f, const std::string& key) -> py::object {
                const auto found = f.metadata().find(key);
                return found == f.metadata().end() ? py::none() : to_python(key, found->second);
            },
            py::arg("key"))
        .def("tensors",
             [](const GgufFile& f) {
                 py::list all;
                 for (const FileTensor& t : f.tensors())
                     all.append(py::make_tuple(t.name, ggml_type_name(t.type), py::tuple(py::cast(t.shape))));
                 return all;
             })
        .def(
            "metadata_bytes",
            [](const GgufFile& f, const std::string& key) {
                const auto found = f.metadata().find(key);
                if (found == f.metadata().end())
                    throw std::invalid_argument(message("[", key, "] expected such a key"));
                return py::bytes(encoded_value(found->second));
            },
            py::arg("key"))
        .def("rows", &read_rows, py::arg("name"), py::arg("first"), py::arg("last"))
        .def("row_bytes", &read_bytes, py::arg("name"), py::arg("first"), py::arg("last"))
        .def("forget", &forget, py::arg("name"));

    m.def("quantize", &quantize, py::arg("values"), py::arg("type_name"));
}

}  // namespace dualar::bindings
