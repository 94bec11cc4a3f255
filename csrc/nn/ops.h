// Small pieces that every network here uses, as ggml nodes. Activations are ggml [channels, positions]:
// the channels of one position lie side by side. Knows no file and no tensor name.
#pragma once

#include <memory>

#include "nn/packed_matrix.h"
#include "runtime/graph.h"

namespace dualar::nn {

// A dense layer. weight: ggml [in, out], or on the CPU `packed` in its place; bias [out] or nullptr.
struct Linear {
    ggml_tensor* weight = nullptr;
    ggml_tensor* bias = nullptr;
    std::shared_ptr<const PackedMatrix> packed;
};

// x [in, T] -> [out, T].
ggml_tensor* linear(GraphBuilder& g, const Linear& layer, ggml_tensor* x);

// x / sqrt(mean(x^2) + eps) * weight over the first axis.
ggml_tensor* rms_norm(GraphBuilder& g, ggml_tensor* x, ggml_tensor* weight, float eps);

// (x - mean) / sqrt(var + eps) * weight + bias over the first axis.
ggml_tensor* layer_norm(GraphBuilder& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, float eps);

// A function of each value: nothing; x + sin^2(alpha x) / (beta + 1e-9) with alpha and beta [C] of any sign (Snake,
// arXiv:2006.08195, where they are one; BigVGAN, arXiv:2206.04658, has two); or x where x > 0, else exp(x) - 1.
struct Activation {
    enum class Kind { none, snake, elu };
    Kind kind = Kind::none;
    ggml_tensor* alpha = nullptr;
    ggml_tensor* beta = nullptr;

    static Activation snake(ggml_tensor* alpha, ggml_tensor* beta) { return {Kind::snake, alpha, beta}; }
    static Activation snake(ggml_tensor* alpha) { return snake(alpha, alpha); }
    static Activation elu() { return {Kind::elu}; }
};

// One fused, vectorised operator on the CPU; composed of ggml's elsewhere.
// With `history` [C, H], whose columns were through it before, the result is [C, H + T]: those, then x's.
ggml_tensor* activate(GraphBuilder& g, ggml_tensor* x, const Activation& activation, ggml_tensor* history = nullptr);

// The product of packed float weights with windows of x (CPU only): column t of the result is made of the columns
// t * stride + j * dilation of x, j < taps. bias and residual (shaped as the result) may be nullptr.
struct Windows {
    int taps = 1;
    int stride = 1;
    int dilation = 1;
};
ggml_tensor* packed_product(GraphBuilder& g, ggml_tensor* x, const std::shared_ptr<const PackedMatrix>& weights,
                            const Windows& windows, int64_t columns, ggml_tensor* bias, ggml_tensor* residual);

// The last n columns of x, as a view.
ggml_tensor* last_columns(GraphBuilder& g, ggml_tensor* x, int64_t n);

}  // namespace dualar::nn
