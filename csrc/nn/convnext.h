// A causal ConvNeXt block: depthwise convolution, LayerNorm, a two-layer MLP with exact GELU, layer scale, residual.
#pragma once

#include "nn/causal_conv.h"

namespace dualar::nn {

struct ConvNext {
    Conv depthwise;
    ggml_tensor* norm_weight = nullptr;
    ggml_tensor* norm_bias = nullptr;
    Linear expand;   // [C] -> [4 C]
    Linear project;  // [4 C] -> [C]
    ggml_tensor* gamma = nullptr;
    float eps = 1e-6F;  // LayerNorm's, as the published ConvNeXt has it
};

// x [C, T] -> [C, T]; `state` is the depthwise convolution's.
ggml_tensor* convnext(GraphBuilder& g, ggml_tensor* x, const ConvNext& block, ggml_tensor* state);

}  // namespace dualar::nn
