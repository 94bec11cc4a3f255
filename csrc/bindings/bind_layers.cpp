// For the tests of this project only: single layers as streams, so that chunk invariance is shown for each kind.
#include <pybind11/stl.h>

#include <map>
#include <memory>

#include "bindings/arrays.h"
#include "nn/convnext.h"
#include "nn/windowed_transformer.h"
#include "runtime/error.h"

namespace dualar::bindings {

namespace {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

// Small weights of a test's own, on the device.
class TensorSet {
  public:
    explicit TensorSet(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {
        const ggml_init_params params{256 * ggml_tensor_overhead(), nullptr, true};
        context_.reset(ggml_init(params));
    }

    // ggml [ne0, ne1]
    ggml_tensor* add(std::vector<float> values, int64_t ne0, int64_t ne1 = 1) {
        ggml_tensor* tensor = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, ne0, ne1);
        values_.emplace_back(tensor, std::move(values));
        return tensor;
    }

    ggml_tensor* add(const Floats& array) {  // a matrix or a vector, numpy order
        const int64_t ne0 = array.shape(array.ndim() - 1);
        return add({array.data(), array.data() + array.size()}, ne0, array.size() / ne0);
    }

    void load() {
        buffer_ = backend_->allocate(context_.get(), "test weights");
        for (const auto& [tensor, values] : values_)
            ggml_backend_tensor_set(tensor, values.data(), 0, values.size() * sizeof(float));
    }

  private:
    std::shared_ptr<Backend> backend_;
    ggml_context_ptr context_;
    ggml_backend_buffer_ptr buffer_;
    std::vector<std::pair<ggml_tensor*, std::vector<float>>> values_;
};

// A layer that is pushed columns: x [T, channels] -> y [T', channels'].
class LayerStream {
  public:
    explicit LayerStream(std::shared_ptr<Backend> backend) : backend_(backend), tensors_(std::move(backend)) {}
    virtual ~LayerStream() = default;

    py::array_t<float> push(const Floats& x) {
        const int64_t columns = x.shape(0);
        const int64_t channels = x.shape(1);
        Graph graph(backend_, 512, [&](GraphBuilder& g) {
            ggml_tensor* y = build(g, g.input("x", GGML_TYPE_F32, channels, columns));
            shape_ = {y->ne[1], y->ne[0]};
            g.output("y", y);
        });
        graph.set("x", x.data(), static_cast<size_t>(x.size()) * sizeof(float));
        before(graph, columns);
        graph.compute();
        after(columns);
        return to_numpy(graph.get("y"), shape_);
    }

  protected:
    virtual ggml_tensor* build(GraphBuilder& g, ggml_tensor* x) = 0;
    virtual void before(Graph&, int64_t) {}
    virtual void after(int64_t) {}

    std::shared_ptr<Backend> backend_;
    TensorSet tensors_;

  private:
    std::vector<py::ssize_t> shape_;
};

class ConvStream : public LayerStream {
  public:
    // weight: the published layout, numpy [out, in, taps], [channels, 1, taps] or, transposed, [in, out, kernel].
    // activation: of the input first; alpha and beta are snake's.
    ConvStream(std::shared_ptr<Backend> backend, const std::string& kind, const Floats& weight,
               const std::optional<Floats>& bias, int stride, int dilation, bool packed, const std::string& activation,
               const std::optional<Floats>& alpha, const std::optional<Floats>& beta, bool residual, bool replicate)
        : LayerStream(std::move(backend)), residual_(residual) {
        const int64_t a = weight.shape(0);
        const int64_t b = weight.shape(1);
        const int64_t taps = weight.shape(2);
        std::vector<float> rows(static_cast<size_t>(weight.size()));
        conv_.dilation = dilation;
        conv_.replicate = replicate;
        if (bias) conv_.bias = tensors_.add(*bias);
        int64_t n = a;
        if (kind == "transposed") {
            conv_.in = a;
            conv_.out = b;
            conv_.taps = static_cast<int>(taps) / stride;
            conv_.upsample = stride;
            n = b * stride;
            nn::arrange_transposed(weight.data(), a, b, taps, stride, {0, n}, rows.data());
        } else {
            conv_.out = a;
            conv_.in = kind == "depthwise" ? a : b;
            conv_.taps = static_cast<int>(taps);
            conv_.stride = stride;
            conv_.depthwise = kind == "depthwise";
            if (conv_.depthwise) {
                for (int64_t c = 0; c < a; ++c)
                    for (int64_t tap = 0; tap < taps; ++tap)
                        rows[static_cast<size_t>(tap * a + c)] = weight.data()[c * taps + tap];
            } else {
                nn::arrange_conv(weight.data(), b, taps, {0, a}, rows.data());
            }
        }
        if (conv_.depthwise)
            conv_.weight = tensors_.add(rows, a, taps);
        else if (packed)
            conv_.packed = std::make_shared<nn::PackedMatrix>(rows.data(), GGML_TYPE_F32, n, conv_.in * conv_.taps, 1);
        else
            conv_.weight = tensors_.add(rows, conv_.in * conv_.taps, n);
        if (activation == "snake") activation_ = nn::Activation::snake(tensors_.add(*alpha), tensors_.add(*beta));
        if (activation == "elu") activation_ = nn::Activation::elu();
        tensors_.load();
        state_ =
            std::make_unique<nn::ConvState>(*backend_, std::vector<nn::ConvState::Size>{{conv_.in, conv_.history()}});
    }

  protected:
    ggml_tensor* build(GraphBuilder& g, ggml_tensor* x) override {
        return nn::causal_conv(g, x, conv_, state_->tensor(0), {activation_, residual_ ? x : nullptr, first_});
    }
    void after(int64_t) override { first_ = false; }

  private:
    nn::Conv conv_;
    nn::Activation activation_;
    bool residual_;
    bool first_ = true;
    std::unique_ptr<nn::ConvState> state_;
};

class ConvNextStream : public LayerStream {
  public:
    // The published names, without the block's prefix: "dwconv.conv.weight", "pwconv1.weight", "gamma", …
    ConvNextStream(std::shared_ptr<Backend> backend, const std::map<std::string, Floats>& weights)
        : LayerStream(std::move(backend)) {
        const Floats& depthwise = weights.at("dwconv.conv.weight");
        const int64_t channels = depthwise.shape(0);
        const int64_t taps = depthwise.shape(2);
        std::vector<float> rows(static_cast<size_t>(depthwise.size()));
        for (int64_t c = 0; c < channels; ++c)
            for (int64_t tap = 0; tap < taps; ++tap)
                rows[static_cast<size_t>(tap * channels + c)] = depthwise.data()[c * taps + tap];
        block_.depthwise.in = block_.depthwise.out = channels;
        block_.depthwise.taps = static_cast<int>(taps);
        block_.depthwise.depthwise = true;
        block_.depthwise.weight = tensors_.add(rows, channels, taps);
        block_.depthwise.bias = tensors_.add(weights.at("dwconv.conv.bias"));
        block_.norm_weight = tensors_.add(weights.at("norm.weight"));
        block_.norm_bias = tensors_.add(weights.at("norm.bias"));
        block_.expand = {tensors_.add(weights.at("pwconv1.weight")), tensors_.add(weights.at("pwconv1.bias")), nullptr};
        block_.project = {tensors_.add(weights.at("pwconv2.weight")), tensors_.add(weights.at("pwconv2.bias")),
                          nullptr};
        block_.gamma = tensors_.add(weights.at("gamma"));
        tensors_.load();
        state_ = std::make_unique<nn::ConvState>(
            *backend_, std::vector<nn::ConvState::Size>{{channels, block_.depthwise.history()}});
    }

  protected:
    ggml_tensor* build(GraphBuilder& g, ggml_tensor* x) override {
        return nn::convnext(g, x, block_, state_->tensor(0));
    }

  private:
    nn::ConvNext block_;
    std::unique_ptr<nn::ConvState> state_;
};

class TransformerStream : public LayerStream {
  public:
    // One block and the final norm, by the published names without a prefix; layer scale, the norms' biases and the
    // gate where they are given.
    TransformerStream(std::shared_ptr<Backend> backend, const std::map<std::string, Floats>& weights, int heads,
                      int kv_heads, int head_dim, float rope_base, bool rope_neox, float eps, int64_t window,
                      int64_t max_positions)
        : LayerStream(std::move(backend)) {
        const auto find = [&](const char* name) {
            const auto found = weights.find(name);
            return found == weights.end() ? nullptr : tensors_.add(found->second);
        };
        nn::BlockWeights block;
        block.attention_norm = find("attention_norm.weight");
        block.attention_norm_bias = find("attention_norm.bias");
        block.wqkv.weight = find("attention.wqkv.weight");
        block.wo.weight = find("attention.wo.weight");
        block.ffn_norm = find("ffn_norm.weight");
        block.ffn_norm_bias = find("ffn_norm.bias");
        block.w1.weight = find("feed_forward.w1.weight");
        block.w2.weight = find("feed_forward.w2.weight");
        block.w3.weight = find("feed_forward.w3.weight");
        block.attention_scale = find("attention_layer_scale.gamma");
        block.ffn_scale = find("ffn_layer_scale.gamma");
        transformer_.norm = find("norm.weight");
        transformer_.blocks.push_back(block);
        transformer_.config.heads = heads;
        transformer_.config.kv_heads = kv_heads;
        transformer_.config.head_dim = head_dim;
        transformer_.config.rope_base = rope_base;
        transformer_.config.rope_neox = rope_neox;
        transformer_.config.eps = eps;
        transformer_.window = window;
        tensors_.load();
        state_ = std::make_unique<nn::WindowedState>(*backend_, transformer_, max_positions, "layer");
    }

  protected:
    ggml_tensor* build(GraphBuilder& g, ggml_tensor* x) override { return state_->build(g, x); }
    void before(Graph& graph, int64_t count) override { state_->set(graph, count); }
    void after(int64_t count) override { state_->advance(count); }

  private:
    nn::WindowedTransformer transformer_;
    std::unique_ptr<nn::WindowedState> state_;
};

}  // namespace

void bind_layers(py::module_& m) {
    py::class_<LayerStream>(m, "LayerStream").def("push", &LayerStream::push, py::arg("x"));
    py::class_<ConvStream, LayerStream>(m, "ConvStream")
        .def(py::init<std::shared_ptr<Backend>, const std::string&, const Floats&, const std::optional<Floats>&, int,
                      int, bool, const std::string&, const std::optional<Floats>&, const std::optional<Floats>&, bool,
                      bool>(),
             py::arg("runtime"), py::arg("kind"), py::arg("weight"), py::arg("bias"), py::kw_only(),
             py::arg("stride") = 1, py::arg("dilation") = 1, py::arg("packed") = true, py::arg("activation") = "",
             py::arg("alpha") = py::none(), py::arg("beta") = py::none(), py::arg("residual") = false,
             py::arg("replicate") = false);
    py::class_<ConvNextStream, LayerStream>(m, "ConvNextStream")
        .def(py::init<std::shared_ptr<Backend>, const std::map<std::string, Floats>&>(), py::arg("runtime"),
             py::arg("weights"));
    py::class_<TransformerStream, LayerStream>(m, "TransformerStream")
        .def(py::init<std::shared_ptr<Backend>, const std::map<std::string, Floats>&, int, int, int, float, bool, float,
                      int64_t, int64_t>(),
             py::arg("runtime"), py::arg("weights"), py::kw_only(), py::arg("heads"), py::arg("kv_heads"),
             py::arg("head_dim"), py::arg("rope_base"), py::arg("rope_neox") = false, py::arg("eps"), py::arg("window"),
             py::arg("max_positions"));
}

}  // namespace dualar::bindings
