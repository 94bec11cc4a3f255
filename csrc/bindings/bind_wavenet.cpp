// WaveNet, its states, and for the tests the causal convolution by itself.
#include <pybind11/stl.h>

#include <algorithm>

#include "bindings/arrays.h"
#include "bindings/without_gil.h"
#include "models/wavenet/state.h"
#include "runtime/error.h"

namespace dualar::bindings {

namespace {

using Shape = std::vector<py::ssize_t>;

std::string describe(const py::array& array) {
    return message(std::string(py::str(py::object(array.dtype()))), " ",
                   to_text({array.shape(), array.shape() + array.ndim()}));
}

template <class Value>
std::vector<Value> reals(const py::array& array, const char* where, const Shape& shape) {
    if (array.dtype().kind() != 'f' || Shape(array.shape(), array.shape() + array.ndim()) != shape)
        throw std::invalid_argument(message("[", where, "] expected floats ", to_text({shape.begin(), shape.end()}),
                                            ", got ", describe(array)));
    const auto values = py::array_t<Value, py::array::c_style | py::array::forcecast>::ensure(array);
    if (!values) throw py::error_already_set();
    return {values.data(), values.data() + values.size()};
}

// The state, if it belongs to this model and a batch of this size.
WaveNetState& checked(const std::shared_ptr<WaveNet>& net, WaveNetState& state, int64_t batch) {
    if (state.model() != net)
        throw std::invalid_argument("[state] expected one that this model's initial_state made, got another model's");
    if (state.batch() != batch)
        throw std::invalid_argument(
            message("[state] expected one of ", batch, " sequence(s), as the classes are, got one of ", state.batch()));
    return state;
}

py::array_t<int32_t> to_numpy(const std::vector<int32_t>& values, const Shape& shape) {
    py::array_t<int32_t> out(shape);
    std::copy(values.begin(), values.end(), out.mutable_data());
    return out;
}

py::array_t<float> forward(const WaveNet& net, const py::array& classes, const py::array& condition) {
    const IntegerArray c = integers(classes, "classes", 2);
    const py::ssize_t batch = c.shape[0];
    const py::ssize_t samples = c.shape[1];
    const py::ssize_t width = net.config.condition_channels;
    const std::vector<float> h = reals<float>(condition, "condition", {batch, width, samples});
    net.check_classes(c.values);
    WaveNet::check_condition(h);
    std::vector<float> logits(static_cast<size_t>(batch * net.config.levels * samples));
    {
        const WithoutGil without_gil;
        for (py::ssize_t b = 0; b < batch; ++b)
            net.run(c.values.data() + b * samples, h.data() + b * width * samples, samples, nullptr,
                    logits.data() + b * net.config.levels * samples);
    }
    return bindings::to_numpy(std::move(logits), {batch, net.config.levels, samples});
}

py::array_t<float> step(const std::shared_ptr<WaveNet>& net, const py::array& classes, const py::array& condition,
                        WaveNetState& state) {
    const IntegerArray c = integers(classes, "classes", 1);
    const std::vector<float> h = reals<float>(condition, "condition", {c.shape[0], net->config.condition_channels});
    checked(net, state, c.shape[0]);
    std::vector<float> logits(static_cast<size_t>(c.shape[0] * net->config.levels));
    {
        const WithoutGil without_gil;
        state.step(c.values, h, logits.data());
    }
    return bindings::to_numpy(std::move(logits), {c.shape[0], net->config.levels});
}

void prime(const std::shared_ptr<WaveNet>& net, const py::array& classes, const py::array& condition,
           WaveNetState& state) {
    const IntegerArray c = integers(classes, "classes", 2);
    const std::vector<float> h =
        reals<float>(condition, "condition", {c.shape[0], net->config.condition_channels, c.shape[1]});
    checked(net, state, c.shape[0]);
    const WithoutGil without_gil;
    state.prime(c.values, h);
}

py::array_t<int32_t> generate(const std::shared_ptr<WaveNet>& net, const py::array& first, const py::array& condition,
                              WaveNetState& state, double temperature, const std::optional<py::array>& uniforms) {
    const IntegerArray c = integers(first, "first", 1);
    const py::ssize_t count = condition.ndim() == 3 ? condition.shape(2) : 0;
    const std::vector<float> h =
        reals<float>(condition, "condition", {c.shape[0], net->config.condition_channels, count});
    if (!uniforms && temperature != 0)
        throw std::invalid_argument(message("[uniforms] expected them at temperature ", temperature, ", got None"));
    const std::vector<double> u =
        uniforms ? reals<double>(*uniforms, "uniforms", {c.shape[0], count}) : std::vector<double>();
    checked(net, state, c.shape[0]);
    std::vector<int32_t> classes;
    {
        const WithoutGil without_gil;
        classes = state.generate(c.values, h, count, temperature, u);
    }
    return to_numpy(classes, {c.shape[0], count});
}

// For tests: x [T, in], weight [out, in, taps] as published, bias [out], queue [(taps - 1) * dilation, in], the oldest
// first -> (out [T, out], the queue afterwards), in one run of the graph or step by step from a ring.
py::tuple causal_conv(const py::array& x, const py::array& weight, const py::array& bias, const py::array& queue,
                      int dilation, bool by_step) {
    nn::Conv conv;
    conv.out = weight.shape(0);
    conv.in = weight.shape(1);
    conv.taps = static_cast<int>(weight.shape(2));
    conv.dilation = dilation;
    const int64_t samples = x.shape(0);
    const std::vector<float> values = reals<float>(x, "x", {samples, conv.in});
    const std::vector<float> published = reals<float>(weight, "weight", {conv.out, conv.in, conv.taps});
    const std::vector<float> biases = reals<float>(bias, "bias", {conv.out});
    std::vector<float> history = reals<float>(queue, "queue", {conv.history(), conv.in});
    std::vector<float> rows(published.size());
    nn::arrange_conv(published.data(), conv.in, conv.taps, {0, conv.out}, rows.data());
    conv.packed = std::make_shared<nn::PackedMatrix>(rows.data(), GGML_TYPE_F32, conv.out, conv.in * conv.taps, 1);

    const auto backend = std::make_shared<Backend>("cpu", 1);
    const ggml_context_ptr context(ggml_init({ggml_tensor_overhead(), nullptr, true}));
    conv.bias = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, conv.out);
    const ggml_backend_buffer_ptr buffer = backend->allocate(context.get(), "a bias");
    ggml_backend_tensor_set(conv.bias, biases.data(), 0, biases.size() * sizeof(float));

    std::vector<float> out(static_cast<size_t>(samples * conv.out));
    if (by_step) {
        nn::ConvRing ring(conv, 1);
        ring.write(0, history.data());
        std::vector<float> seen(static_cast<size_t>(conv.taps * conv.in));
        for (int64_t t = 0; t < samples; ++t)
            nn::causal_conv_step(conv, ring, values.data() + t * conv.in, conv.in, nullptr, seen.data(),
                                 out.data() + t * conv.out);
        ring.read(0, history.data());
    } else {
        const nn::ConvState state(*backend, {{conv.in, conv.history()}});
        Graph graph(backend, 64, [&](GraphBuilder& g) {
            ggml_tensor* input = g.input("x", GGML_TYPE_F32, conv.in, samples);
            g.output("y", nn::causal_conv(g, input, conv, state.tensor(0)));
        });
        const size_t bytes = history.size() * sizeof(float);
        if (bytes > 0) ggml_backend_tensor_set(state.tensor(0), history.data(), 0, bytes);
        graph.set("x", values.data(), values.size() * sizeof(float));
        graph.compute();
        out = graph.get("y");
        if (bytes > 0) ggml_backend_tensor_get(state.tensor(0), history.data(), 0, bytes);
    }
    return py::make_tuple(bindings::to_numpy(std::move(out), {samples, conv.out}),
                          bindings::to_numpy(std::move(history), {conv.history(), conv.in}));
}

}  // namespace

void bind_wavenet(py::module_& m) {
    py::class_<WaveNetState>(m, "WaveNetState", R"(What a batch of sequences has seen; one thread at a time.

Made by `WaveNet.initial_state` and `WaveNet.prime`. For each block a ring of its last (K - 1) * dilation inputs, zeros
at the start. States never see each other.)")
        .def_property_readonly("batch_size", &WaveNetState::batch, "Sequences that go forward together, B.")
        .def_property_readonly("position", &WaveNetState::position, "Samples fed so far.")
        .def_property_readonly("nbytes", &WaveNetState::nbytes, "Bytes of the rings: 4 B C sum((K - 1) dilation).")
        .def("copy", &WaveNetState::copy, "A state that goes on from here on its own.")
        .def("reset", &WaveNetState::reset, "Back to the start of a clip: zeros in every ring.");

    py::class_<WaveNet, std::shared_ptr<WaveNet>>(m, "WaveNet", "The weights of a WaveNet file.")
        .def(py::init([](std::shared_ptr<GgufFile> file, std::shared_ptr<Backend> runtime) {
                 const WithoutGil without_gil;
                 return std::make_shared<WaveNet>(std::move(file), std::move(runtime));
             }),
             py::arg("file"), py::arg("runtime"))
        .def_property_readonly("channels", [](const WaveNet& w) { return w.config.channels; })
        .def_property_readonly("condition_channels", [](const WaveNet& w) { return w.config.condition_channels; })
        .def_property_readonly("skip_channels", [](const WaveNet& w) { return w.config.skip_channels; })
        .def_property_readonly("quantization_levels", [](const WaveNet& w) { return w.config.levels; })
        .def_property_readonly("kernel_size", [](const WaveNet& w) { return w.config.kernel_size; })
        .def_property_readonly("dilations", [](const WaveNet& w) { return w.config.dilations; })
        .def_property_readonly("sample_rate", [](const WaveNet& w) { return w.config.sample_rate; })
        .def_property_readonly("receptive_field", [](const WaveNet& w) { return w.config.receptive_field(); })
        .def_property_readonly("unused_tensors", &WaveNet::unused_tensors)
        .def("forward", &forward, py::arg("classes"), py::arg("condition"))
        .def(
            "initial_state",
            [](std::shared_ptr<WaveNet> net, int64_t batch) {
                return std::make_unique<WaveNetState>(std::move(net), batch);
            },
            py::arg("batch"))
        .def("step", &step, py::arg("classes"), py::arg("condition"), py::arg("state"))
        .def("prime", &prime, py::arg("classes"), py::arg("condition"), py::arg("state"))
        .def("generate", &generate, py::arg("first"), py::arg("condition"), py::arg("state"), py::kw_only(),
             py::arg("temperature"), py::arg("uniforms"));

    m.def("_causal_conv", &causal_conv, py::arg("x"), py::arg("weight"), py::arg("bias"), py::arg("queue"),
          py::kw_only(), py::arg("dilation"), py::arg("by_step"));
}

}  // namespace dualar::bindings
