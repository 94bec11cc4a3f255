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

// out = [history, snake(x)]; history may be missing.
void snake_operator(ggml_tensor* out, int ith, int nth, void*) {
    const ggml_tensor* x = out->src[0];
    const ggml_tensor* alpha = out->src[1];
    const ggml_tensor* history = out->src[2];
    const auto* a = static_cast<const float*>(alpha->data);
    const int64_t channels = out->ne[0];
    const int64_t before = history ? history->ne[1] : 0;
    thread_local std::vector<float> inverse;
    inverse.resize(static_cast<size_t>(channels));
    for (int64_t c = 0; c < channels; ++c) inverse[static_cast<size_t>(c)] = 1.0F / (a[c] + kSnakeEpsilon);
    const CpuKernels& kernels = *cpu_kernels().front();
    const RowRange rows = share(out->ne[1], ith, nth);
    for (int64_t row = rows.first; row < rows.last; ++row) {
        float* to = const_cast<float*>(column(out, row));
        if (row < before)
            std::copy_n(column(history, row), channels, to);
        else
            kernels.snake(column(x, row - before), a, inverse.data(), to, channels);
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

ggml_tensor* snake(GraphBuilder& g, ggml_tensor* x, ggml_tensor* alpha, ggml_tensor* history) {
    if (g.on_cpu) {
        ggml_tensor* sources[] = {x, alpha, history};
        const int64_t columns = x->ne[1] + (history ? history->ne[1] : 0);
        return GraphBuilder::label("snake", ggml_custom_4d(g.context, GGML_TYPE_F32, x->ne[0], columns, 1, 1, sources,
                                                           history ? 3 : 2, snake_operator, GGML_N_TASKS_MAX, nullptr));
    }
    ggml_tensor* s = ggml_sqr(g.context, ggml_sin(g.context, ggml_mul(g.context, x, alpha)));
    ggml_tensor* divisor = ggml_scale_bias(g.context, alpha, 1.0F, kSnakeEpsilon);
    ggml_tensor* y = ggml_add(g.context, x, ggml_div(g.context, s, divisor));
    return history ? ggml_concat(g.context, history, y, 1) : y;
}

ggml_tensor* last_columns(GraphBuilder& g, ggml_tensor* x, int64_t n) {
    return ggml_view_2d(g.context, x, x->ne[0], n, x->nb[1], static_cast<size_t>(x->ne[1] - n) * x->nb[1]);
}

}  // namespace dualar::nn
