#include "nn/convnext.h"

namespace dualar::nn {

ggml_tensor* convnext(GraphBuilder& g, ggml_tensor* x, const ConvNext& block, ggml_tensor* state) {
    ggml_tensor* y = causal_conv(g, x, block.depthwise, state);
    y = layer_norm(g, y, block.norm_weight, block.norm_bias, block.eps);
    y = ggml_gelu_erf(g.context, linear(g, block.expand, y));
    y = ggml_mul(g.context, linear(g, block.project, y), block.gamma);
    return ggml_add(g.context, x, y);
}

}  // namespace dualar::nn
