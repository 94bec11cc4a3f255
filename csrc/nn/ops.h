// Small pieces that every network here uses, as ggml nodes. Activations are ggml [channels, positions]:
// the channels of one position lie side by side. Knows no file and no tensor name.
#pragma once

#include "runtime/graph.h"

namespace dualar::nn {

// A dense layer. weight: ggml [in, out]; bias [out] or nullptr.
struct Linear {
    ggml_tensor* weight = nullptr;
    ggml_tensor* bias = nullptr;
};

// x [in, T] -> [out, T].
ggml_tensor* linear(GraphBuilder& g, const Linear& layer, ggml_tensor* x);

// x / sqrt(mean(x^2) + eps) * weight over the first axis.
ggml_tensor* rms_norm(GraphBuilder& g, ggml_tensor* x, ggml_tensor* weight, float eps);

// (x - mean) / sqrt(var + eps) * weight + bias over the first axis.
ggml_tensor* layer_norm(GraphBuilder& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, float eps);

// x + sin^2(alpha x) / (alpha + 1e-9) per channel; alpha [C] of any sign (Snake activation, arXiv:2006.08195).
// One fused, vectorised operator on the CPU; composed of ggml's elsewhere.
ggml_tensor* snake(GraphBuilder& g, ggml_tensor* x, ggml_tensor* alpha);

// The last n columns of x, as a view.
ggml_tensor* last_columns(GraphBuilder& g, ggml_tensor* x, int64_t n);

// The arithmetic of snake() on one row: out[i] = x[i] + sin^2(alpha[i] x[i]) * inverse[i], inverse = 1/(alpha + 1e-9).
void snake_row(const float* x, const float* alpha, const float* inverse, float* out, int64_t n);

}  // namespace dualar::nn
