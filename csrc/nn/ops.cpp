#include "nn/ops.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace dualar::nn {

namespace {

constexpr float kSnakeEpsilon = 1e-9F;

struct RowRange {
    int64_t first;
    int64_t last;
};

RowRange share(int64_t rows, int ith, int nth) {
    const int64_t each = (rows + nth - 1) / nth;
    const int64_t first = std::min(rows, each * ith);
    return {first, std::min(rows, first + each)};
}

const float* column(const ggml_tensor* tensor, int64_t index) {
    return reinterpret_cast<const float*>(static_cast<const char*>(tensor->data) +
                                          static_cast<size_t>(index) * tensor->nb[1]);
}

struct ActivationOperator {
    Activation::Kind kind;
    int history = 0;  // which source it is; 0 for none
};

// out = [history, f(x)]; snake's alpha and beta are sources 1 and 2.
void activation_operator(ggml_tensor* out, int ith, int nth, void* userdata) {
    const auto& op = *static_cast<const ActivationOperator*>(userdata);
    const bool snake = op.kind == Activation::Kind::snake;
    const ggml_tensor* x = out->src[0];
    const ggml_tensor* history = op.history != 0 ? out->src[op.history] : nullptr;
    const int64_t channels = out->ne[0];
    const int64_t before = history ? history->ne[1] : 0;
    const float* alpha = snake ? column(out->src[1], 0) : nullptr;
    thread_local std::vector<float> inverse;
    if (snake) {
        const float* beta = column(out->src[2], 0);
        inverse.resize(static_cast<size_t>(channels));
        for (int64_t c = 0; c < channels; ++c) inverse[static_cast<size_t>(c)] = 1.0F / (beta[c] + kSnakeEpsilon);
    }
    const CpuKernels& kernels = *cpu_kernels().front();
    const RowRange rows = share(out->ne[1], ith, nth);
    for (int64_t row = rows.first; row < rows.last; ++row) {
        float* to = const_cast<float*>(column(out, row));
        if (row < before)
            std::copy_n(column(history, row), channels, to);
        else if (snake)
            kernels.snake(column(x, row - before), alpha, inverse.data(), to, channels);
        else
            kernels.elu(column(x, row - before), to, channels);
    }
}

struct ProductOperator {
    std::shared_ptr<const PackedMatrix> weights;
    Windows windows;
    int bias = 0;  // which source it is; 0 for none
    int residual = 0;
};

void product_operator(ggml_tensor* out, int ith, int nth, void* userdata) {
    const auto& op = *static_cast<const ProductOperator*>(userdata);
    const ggml_tensor* x = out->src[0];
    const auto stride = static_cast<int64_t>(x->nb[1] / sizeof(float));
    PackedProduct product;
    op.weights->describe(product);
    product.x = column(x, 0);
    product.rows = out->ne[1];
    product.row_stride = op.windows.stride * stride;
    product.taps = op.windows.taps;
    product.tap_stride = op.windows.dilation * stride;
    product.channels = x->ne[0];
    if (op.bias != 0) {
        product.bias = column(out->src[op.bias], 0);
        product.bias_period = out->src[op.bias]->ne[0];
    }
    if (op.residual != 0) product.residual = column(out->src[op.residual], 0);
    product.out = static_cast<float*>(out->data);
    op.weights->kernels().product(product, ith, nth);
}

}  // namespace

namespace {

void quantize_operator(ggml_tensor* out, int ith, int nth, void*) {
    const ggml_tensor* x = out->src[0];
    const CpuKernels& kernels = *cpu_kernels().front();
    const RowRange rows = share(out->ne[1], ith, nth);
    for (int64_t row = rows.first; row < rows.last; ++row)
        kernels.quantize(column(x, row), x->ne[0],
                         static_cast<char*>(out->data) + static_cast<size_t>(row) * out->nb[1]);
}

// x [K, T] rounded to 8 bits, as the kernels take it.
ggml_tensor* quantized_input(GraphBuilder& g, ggml_tensor* x) {
    return g.derived(x, [&] {
        ggml_tensor* sources[] = {x};
        return GraphBuilder::label(
            "quantize", ggml_custom_4d(g.context, GGML_TYPE_I8, static_cast<int64_t>(quantized_bytes(x->ne[0])),
                                       x->ne[1], 1, 1, sources, 1, quantize_operator, GGML_N_TASKS_MAX, nullptr));
    });
}

void quantized_operator(ggml_tensor* out, int ith, int nth, void* userdata) {
    const auto& weights = **static_cast<const std::shared_ptr<const PackedMatrix>*>(userdata);
    QuantizedProduct product;
    weights.describe(product);
    product.x = out->src[0]->data;
    product.columns = out->ne[1];
    product.out = static_cast<float*>(out->data);
    weights.kernels().quantized_product(*weights.quantized(), product, ith, nth);
}

}  // namespace

ggml_tensor* packed_product(GraphBuilder& g, ggml_tensor* x, const std::shared_ptr<const PackedMatrix>& weights,
                            const Windows& windows, int64_t columns, ggml_tensor* bias, ggml_tensor* residual) {
    ProductOperator op;
    op.weights = weights;
    op.windows = windows;
    ggml_tensor* sources[3] = {x};
    int count = 1;
    if (bias != nullptr) sources[op.bias = count++] = bias;
    if (residual != nullptr) sources[op.residual = count++] = residual;
    g.count_work(2.0 * static_cast<double>(columns * weights->n() * weights->depth()));
    return ggml_custom_4d(g.context, GGML_TYPE_F32, weights->n(), columns, 1, 1, sources, count, product_operator,
                          GGML_N_TASKS_MAX, g.own(std::move(op)));
}

ggml_tensor* linear(GraphBuilder& g, const Linear& layer, ggml_tensor* x) {
    if (layer.packed && !layer.packed->quantized())
        return GraphBuilder::label("linear", packed_product(g, x, layer.packed, {}, x->ne[1], layer.bias, nullptr));
    ggml_tensor* y = nullptr;
    if (layer.packed) {
        ggml_tensor* sources[] = {quantized_input(g, x)};
        g.count_work(2.0 * static_cast<double>(x->ne[1] * layer.packed->n() * layer.packed->depth()));
        y = ggml_custom_4d(g.context, GGML_TYPE_F32, layer.packed->n(), x->ne[1], 1, 1, sources, 1, quantized_operator,
                           GGML_N_TASKS_MAX, g.own(layer.packed));
        GraphBuilder::label("linear", y);
    } else {
        y = ggml_mul_mat(g.context, layer.weight, x);
    }
    return layer.bias ? ggml_add(g.context, y, layer.bias) : y;
}

ggml_tensor* rms_norm(GraphBuilder& g, ggml_tensor* x, ggml_tensor* weight, float eps) {
    return ggml_mul(g.context, ggml_rms_norm(g.context, x, eps), weight);
}

ggml_tensor* layer_norm(GraphBuilder& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, float eps) {
    return ggml_add(g.context, ggml_mul(g.context, ggml_norm(g.context, x, eps), weight), bias);
}

ggml_tensor* activate(GraphBuilder& g, ggml_tensor* x, const Activation& activation, ggml_tensor* history) {
    const bool snake = activation.kind == Activation::Kind::snake;
    if (g.on_cpu && activation.kind != Activation::Kind::none) {
        ActivationOperator op{activation.kind};
        ggml_tensor* sources[4] = {x};
        int count = 1;
        if (snake) {
            sources[count++] = activation.alpha;
            sources[count++] = activation.beta;
        }
        if (history != nullptr) sources[op.history = count++] = history;
        const int64_t columns = x->ne[1] + (history ? history->ne[1] : 0);
        return GraphBuilder::label(snake ? "snake" : "elu",
                                   ggml_custom_4d(g.context, GGML_TYPE_F32, x->ne[0], columns, 1, 1, sources, count,
                                                  activation_operator, GGML_N_TASKS_MAX, g.own(op)));
    }
    if (snake) {
        ggml_tensor* s = ggml_sqr(g.context, ggml_sin(g.context, ggml_mul(g.context, x, activation.alpha)));
        ggml_tensor* divisor = ggml_scale_bias(g.context, activation.beta, 1.0F, kSnakeEpsilon);
        x = ggml_add(g.context, x, ggml_div(g.context, s, divisor));
    } else if (activation.kind == Activation::Kind::elu) {
        x = ggml_elu(g.context, x);
    }
    return history ? ggml_concat(g.context, history, x, 1) : x;
}

ggml_tensor* last_columns(GraphBuilder& g, ggml_tensor* x, int64_t n) {
    return ggml_view_2d(g.context, x, x->ne[0], n, x->nb[1], static_cast<size_t>(x->ne[1] - n) * x->nb[1]);
}

}  // namespace dualar::nn
