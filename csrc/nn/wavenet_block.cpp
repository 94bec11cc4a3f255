#include "nn/wavenet_block.h"

#include <algorithm>

namespace dualar::nn {

namespace {

// [2 C, T] -> [C, T]
void gate_operator(ggml_tensor* out, int ith, int nth, void*) {
    const ggml_tensor* x = out->src[0];
    const CpuKernels& kernels = *cpu_kernels().front();
    const int64_t channels = out->ne[0];
    const int64_t each = (out->ne[1] + nth - 1) / nth;
    for (int64_t t = each * ith; t < std::min(out->ne[1], each * (ith + 1)); ++t) {
        const auto* from =
            reinterpret_cast<const float*>(static_cast<const char*>(x->data) + static_cast<size_t>(t) * x->nb[1]);
        auto* to = reinterpret_cast<float*>(static_cast<char*>(out->data) + static_cast<size_t>(t) * out->nb[1]);
        kernels.gate(from, from + channels, to, channels);
    }
}

// The first `channels` of each column, as a view.
ggml_tensor* top(GraphBuilder& g, ggml_tensor* x, int64_t channels) {
    return ggml_view_2d(g.context, x, channels, x->ne[1], x->nb[1], 0);
}

}  // namespace

ggml_tensor* wavenet_block(GraphBuilder& g, ggml_tensor* sums, ggml_tensor* condition, const WaveNetBlock& block,
                           ggml_tensor* state) {
    ConvExtras extras;
    extras.residual = linear(g, block.condition, condition);
    ggml_tensor* gates = causal_conv(g, top(g, sums, block.channels()), block.conv, state, extras);
    ggml_tensor* sources[] = {gates};
    ggml_tensor* gated = ggml_custom_4d(g.context, GGML_TYPE_F32, block.channels(), gates->ne[1], 1, 1, sources, 1,
                                        gate_operator, GGML_N_TASKS_MAX, nullptr);
    return packed_product(g, gated, block.project.packed, {}, gated->ne[1], block.project.bias, sums);
}

void linear_rows(const Linear& layer, const float* x, int64_t rows, const float* residual, float* out) {
    PackedProduct product;
    layer.packed->describe(product);
    product.x = x;
    product.rows = rows;
    product.row_stride = product.channels = layer.packed->depth();
    if (layer.bias != nullptr) {
        product.bias = static_cast<const float*>(layer.bias->data);
        product.bias_period = layer.packed->n();
    }
    product.residual = residual;
    product.out = out;
    layer.packed->kernels().product(product, 0, 1);
}

WaveNetSteps::WaveNetSteps(const WaveNetBlock& block, int64_t batch, int64_t most)
    : block_(&block),
      ring_(block.conv, batch),
      seen_(static_cast<size_t>(most * batch * block.conv.taps * block.conv.in)),
      conditions_(static_cast<size_t>(most * batch * block.conv.out)),
      older_(conditions_.size()),
      gates_(static_cast<size_t>(batch * block.conv.out)),
      gated_(static_cast<size_t>(batch * block.channels())) {}

void WaveNetSteps::begin(const float* condition, int64_t steps) {
    next_ = 0;
    linear_rows(block_->condition, condition, steps * ring_.batch(), nullptr, conditions_.data());
    ahead_ = steps > 1 && can_go_ahead(block_->conv, steps);
    if (ahead_) causal_conv_ahead(block_->conv, ring_, steps, seen_.data(), older_.data());
}

void WaveNetSteps::step(float* sums) {
    const int64_t batch = ring_.batch();
    const int64_t channels = block_->channels();
    const int64_t width = block_->project.packed->n();
    const int64_t begun = next_++ * batch * block_->conv.out;
    if (ahead_)
        causal_conv_finish(block_->conv, ring_, sums, width, conditions_.data() + begun, older_.data() + begun,
                           gates_.data());
    else
        causal_conv_step(block_->conv, ring_, sums, width, conditions_.data() + begun, seen_.data(), gates_.data());
    for (int64_t b = 0; b < batch; ++b)
        block_->conv.packed->kernels().gate(gates_.data() + b * 2 * channels, gates_.data() + (2 * b + 1) * channels,
                                            gated_.data() + b * channels, channels);
    linear_rows(block_->project, gated_.data(), batch, sums, sums);
}

}  // namespace dualar::nn
