// For the tests of this project only: ggml's quantizers, single operators, the table of names.
#include <pybind11/stl.h>

#include <cmath>
#include <cstring>
#include <map>

#include "bindings/arrays.h"
#include "bindings/without_gil.h"
#include "nn/packed_matrix.h"
#include "nn/sampling.h"
#include "runtime/cpu_topology.h"
#include "runtime/error.h"
#include "runtime/graph.h"
#include "runtime/log.h"
#include "runtime/short_turns.h"
#include "runtime/thread_governor.h"
#include "runtime/weights.h"

namespace dualar::bindings {

namespace {

py::array_t<float> dequantize(const py::array_t<uint8_t, py::array::c_style>& data, const std::string& type_name,
                              int64_t rows, int64_t columns) {
    const ggml_type type = supported_type(type_name);
    if (rows < 1 || columns < 1 || columns % ggml_blck_size(type) != 0 ||
        static_cast<size_t>(data.size()) != static_cast<size_t>(rows) * ggml_row_size(type, columns))
        throw std::invalid_argument("[data] expected rows * the row size of the type");
    std::vector<float> out(static_cast<size_t>(rows * columns));
    to_float(data.data(), type, out.data(), rows * columns);
    return to_numpy(std::move(out), {rows, columns});
}

const nn::CpuKernels& kernels_named(const std::string& name) {
    for (const nn::CpuKernels* kernels : nn::cpu_kernels())
        if (name == kernels->name) return *kernels;
    throw std::invalid_argument(message("[variant] expected one that this CPU runs, got ", name));
}

py::array_t<float> snake(const py::array& x, const py::array& alpha, const std::string& variant) {
    const std::vector<float> values = floats(x, "x");
    const std::vector<float> a = floats(alpha, "alpha");
    if (a.size() != values.size()) throw std::invalid_argument("[alpha] expected one value per x");
    std::vector<float> inverse;
    for (const float v : a) inverse.push_back(1.0F / (v + 1e-9F));
    std::vector<float> out(values.size());
    kernels_named(variant).snake(values.data(), a.data(), inverse.data(), out.data(),
                                 static_cast<int64_t>(values.size()));
    return to_numpy(std::move(out));
}

py::array_t<float> gate(const py::array& a, const py::array& b, const std::string& variant) {
    const std::vector<float> first = floats(a, "a");
    const std::vector<float> second = floats(b, "b");
    if (first.size() != second.size()) throw std::invalid_argument("[b] expected one value per a");
    std::vector<float> out(first.size());
    kernels_named(variant).gate(first.data(), second.data(), out.data(), static_cast<int64_t>(out.size()));
    return to_numpy(std::move(out));
}

py::array_t<float> elu(const py::array& x, const std::string& variant) {
    const std::vector<float> values = floats(x, "x");
    std::vector<float> out(values.size());
    kernels_named(variant).elu(values.data(), out.data(), static_cast<int64_t>(values.size()));
    return to_numpy(std::move(out));
}

py::array_t<float> exponential(const py::array& x, const std::string& variant) {
    std::vector<float> values = floats(x, "x");
    kernels_named(variant).exponential(values.data(), static_cast<int64_t>(values.size()));
    return to_numpy(std::move(values));
}

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

// x [columns, channels], weights [n, taps * channels], bias [period], residual [rows, n] or None -> [rows, n].
// split: how many taps are computed first, as sums that the others go on from.
py::array_t<float> product(const Floats& x, const Floats& weights, int64_t taps, int64_t stride, int64_t dilation,
                           const Floats& bias, const std::optional<Floats>& residual, bool half, int threads,
                           int64_t split, const std::string& variant) {
    const int64_t channels = x.shape(1);
    const int64_t rows = (x.shape(0) - (taps - 1) * dilation - 1) / stride + 1;
    std::vector<ggml_fp16_t> halves(static_cast<size_t>(weights.size()));
    ggml_fp32_to_fp16_row(weights.data(), halves.data(), weights.size());
    const void* values = half ? static_cast<const void*>(halves.data()) : weights.data();
    const nn::PackedMatrix matrix(values, half ? GGML_TYPE_F16 : GGML_TYPE_F32, weights.shape(0), weights.shape(1),
                                  threads, kernels_named(variant));
    nn::PackedProduct p;
    matrix.describe(p);
    p.x = x.data();
    p.rows = rows;
    p.row_stride = stride * channels;
    p.taps = taps;
    p.tap_stride = dilation * channels;
    p.channels = channels;
    p.bias = bias.data();
    p.bias_period = bias.size();
    p.residual = residual ? residual->data() : nullptr;
    std::vector<float> out(static_cast<size_t>(rows * matrix.n()), NAN);
    p.out = out.data();
    std::vector<float> sums(out.size(), NAN);
    if (split > 0) {
        nn::PackedProduct first = p;
        first.taps = split;
        first.bias = first.residual = nullptr;
        first.out = sums.data();
        for (int ith = 0; ith < threads; ++ith) matrix.kernels().product(first, ith, threads);
        p.x += split * p.tap_stride;
        p.taps -= split;
        p.start = sums.data();
        p.skipped = split * channels;
    }
    for (int ith = 0; ith < threads; ++ith) matrix.kernels().product(p, ith, threads);
    return to_numpy(std::move(out), {rows, matrix.n()});
}

// x [columns, depth], rows of ggml blocks -> [columns, n].
py::array_t<float> quantized_product(const Floats& x, const py::array_t<uint8_t, py::array::c_style>& rows,
                                     const std::string& type_name, int threads, const std::string& variant) {
    const nn::CpuKernels& kernels = kernels_named(variant);
    const ggml_type type = supported_type(type_name);
    const int64_t depth = x.shape(1);
    const size_t row_bytes = ggml_row_size(type, depth);
    const nn::PackedMatrix matrix(rows.data(), type, rows.size() / static_cast<py::ssize_t>(row_bytes), depth, threads,
                                  kernels);
    std::vector<char> columns(static_cast<size_t>(x.shape(0)) * nn::quantized_bytes(depth));
    for (int64_t t = 0; t < x.shape(0); ++t)
        kernels.quantize(x.data() + t * depth, depth,
                         columns.data() + static_cast<size_t>(t) * nn::quantized_bytes(depth));
    nn::QuantizedProduct p;
    matrix.describe(p);
    p.x = columns.data();
    p.columns = x.shape(0);
    std::vector<float> out(static_cast<size_t>(p.columns * p.n), NAN);
    p.out = out.data();
    for (int ith = 0; ith < threads; ++ith) kernels.quantized_product(*matrix.quantized(), p, ith, threads);
    return to_numpy(std::move(out), {p.columns, p.n});
}

// q [heads, head_dim], keys and values [kv_heads, rows, head_dim] (to F16 where `half`), seen [rows] -> as q.
py::array_t<float> attention(const Floats& q, const Floats& keys, const Floats& values, const std::vector<bool>& seen,
                             bool half, int threads, const std::string& variant) {
    std::vector<ggml_fp16_t> half_keys(static_cast<size_t>(keys.size()));
    std::vector<ggml_fp16_t> half_values(half_keys.size());
    ggml_fp32_to_fp16_row(keys.data(), half_keys.data(), keys.size());
    ggml_fp32_to_fp16_row(values.data(), half_values.data(), values.size());
    std::vector<ggml_fp16_t> mask;
    for (const bool row : seen) mask.push_back(ggml_fp32_to_fp16(row ? 0.0F : -INFINITY));
    nn::AttentionStep step;
    step.q = q.data();
    const size_t row_bytes = static_cast<size_t>(keys.shape(2)) * (half ? sizeof(ggml_fp16_t) : sizeof(float));
    const size_t head_bytes = static_cast<size_t>(keys.shape(1)) * row_bytes;
    step.keys = {half ? static_cast<const void*>(half_keys.data()) : keys.data(), head_bytes, row_bytes};
    step.values = {half ? static_cast<const void*>(half_values.data()) : values.data(), head_bytes, row_bytes};
    step.half = half;
    step.mask = mask.data();
    step.count = keys.shape(1);
    step.heads = static_cast<int>(q.shape(0));
    step.kv_heads = static_cast<int>(keys.shape(0));
    step.head_dim = static_cast<int>(q.shape(1));
    step.scale = 1.0F / std::sqrt(static_cast<float>(step.head_dim));
    std::vector<float> out(static_cast<size_t>(q.size()), NAN);
    step.out = out.data();
    for (int ith = 0; ith < threads; ++ith) kernels_named(variant).attention(step, ith, threads);
    return to_numpy(std::move(out), {q.shape(0), q.shape(1)});
}

// ggml's own mul_mat with one column, on the named matrices as they lie in the file: what a benchmark compares with.
class GgmlProducts {
  public:
    GgmlProducts(std::shared_ptr<GgufFile> file, std::shared_ptr<Backend> backend,
                 const std::vector<std::string>& names)
        : weights_(std::move(file), backend) {
        std::vector<ggml_tensor*> matrices;
        for (const std::string& name : names) {
            const FileTensor* source = weights_.file().find(name);
            if (source == nullptr || source->shape.size() != 2)
                throw std::invalid_argument(message("[names] expected matrices of the file, got ", name));
            matrices.push_back(weights_.matrix(name, source->shape[0], source->shape[1]));
        }
        check_tensors(weights_.file().path(), weights_.problems());
        weights_.load();
        graph_ = std::make_unique<Graph>(backend, 4 * names.size() + 64, [&](GraphBuilder& g) {
            std::map<int64_t, ggml_tensor*> inputs;
            for (ggml_tensor* matrix : matrices) {
                ggml_tensor*& x = inputs[matrix->ne[0]];
                if (x == nullptr) x = g.input("x" + std::to_string(matrix->ne[0]), GGML_TYPE_F32, matrix->ne[0]);
                g.output(matrix->name, ggml_mul_mat(g.context, matrix, x));
            }
        });
    }

    void compute() { graph_->compute(); }

  private:
    Weights weights_;
    std::unique_ptr<Graph> graph_;
};

// A graph that fails while it is profiled, and is then computed as ever: 2 * 3.
float compute_after_failed_profile(const std::shared_ptr<Backend>& backend) {
    Graph graph(backend, 16,
                [](GraphBuilder& g) { g.output("y", ggml_scale(g.context, g.input("x", GGML_TYPE_F32, 1), 2.0F)); });
    const float x = 3.0F;
    graph.set("x", &x, sizeof(x));
    ggml_backend_t cpu = backend->all().back();
    const auto set_abort = reinterpret_cast<ggml_backend_set_abort_callback_t>(ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(ggml_backend_get_device(cpu)), "ggml_backend_set_abort_callback"));
    set_abort(cpu, [](void*) { return true; }, nullptr);
    try {
        graph.profile();
    } catch (const BackendError&) {
        set_abort(cpu, nullptr, nullptr);
        graph.set("x", &x, sizeof(x));
        graph.compute();
        return graph.get("y").front();
    }
    throw std::logic_error("[testing] expected a computation that was told to abort to fail");
}

}  // namespace

void bind_testing(py::module_& m) {
    m.def("dequantize", &dequantize, py::arg("data"), py::arg("type_name"), py::arg("rows"), py::arg("cols"));
    m.def("quantized_product", &quantized_product, py::arg("x"), py::arg("rows"), py::arg("type_name"), py::kw_only(),
          py::arg("threads") = 1, py::arg("variant"));
    py::class_<GgmlProducts>(m, "GgmlProducts")
        .def(py::init<std::shared_ptr<GgufFile>, std::shared_ptr<Backend>, const std::vector<std::string>&>(),
             py::arg("file"), py::arg("runtime"), py::arg("names"))
        .def("compute", &GgmlProducts::compute, py::call_guard<WithoutGil>());
    m.def("fast_cores", py::overload_cast<const std::vector<int>&, const std::string&>(&fast_cores), py::arg("cpus"),
          py::arg("devices"));
    m.def("log_line", &log_line, py::arg("level"), py::arg("line"));
    m.def("compute_after_failed_profile", &compute_after_failed_profile, py::arg("runtime"));
    m.def("attention", &attention, py::arg("q"), py::arg("keys"), py::arg("values"), py::arg("seen"), py::kw_only(),
          py::arg("half") = false, py::arg("threads") = 1, py::arg("variant"));
    m.def("variants", [] {
        std::vector<std::string> names;
        for (const nn::CpuKernels* kernels : nn::cpu_kernels()) names.emplace_back(kernels->name);
        return names;
    });
    m.def("log", [](const std::string& line) { log_line(20, line); }, py::arg("line"), py::call_guard<WithoutGil>());
    m.def("snake", &snake, py::arg("x"), py::arg("alpha"), py::arg("variant"));
    m.def("elu", &elu, py::arg("x"), py::arg("variant"));
    m.def("gate", &gate, py::arg("a"), py::arg("b"), py::arg("variant"));
    m.def("exponential", &exponential, py::arg("x"), py::arg("variant"));
    m.def("product", &product, py::arg("x"), py::arg("weights"), py::kw_only(), py::arg("taps") = 1,
          py::arg("stride") = 1, py::arg("dilation") = 1, py::arg("bias"), py::arg("residual") = py::none(),
          py::arg("half") = false, py::arg("threads") = 1, py::arg("split") = 0, py::arg("variant"));

    py::class_<ShortTurns>(m, "ShortTurns", "One thread's wish for short turns on a busy CPU.")
        .def(py::init<>())
        .def("ask", &ShortTurns::ask, py::arg("thread"))
        .def("take_back", &ShortTurns::take_back, py::arg("thread"));

    py::class_<ThreadGovernor> governor(m, "ThreadGovernor", "Chooses the number of threads that graphs run on.");
    py::class_<ThreadGovernor::Work>(governor, "Work", "What is known of one graph.")
        .def(py::init<int>(), py::arg("most"));
    governor.def(py::init<int>(), py::arg("threads"))
        .def("threads", &ThreadGovernor::threads, py::arg("work"))
        .def("ran", &ThreadGovernor::ran, py::arg("work"), py::arg("seconds"), py::arg("now"))
        .def_property_readonly("limit", &ThreadGovernor::limit)
        .def_property_readonly("held_up", &ThreadGovernor::held_up);
}

}  // namespace dualar::bindings
