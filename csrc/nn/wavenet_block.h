// The block of WaveNet (van den Oord et al., arXiv:1609.03499, section 2): a dilated causal convolution plus the
// condition's projection, the gated activation, and two projections of it, one added to the block's input (residual)
// and one to what leads to the head (skip). On the CPU, whole or one column at a time. Knows no file, no tensor name.
#pragma once

#include <vector>

#include "nn/causal_conv.h"

namespace dualar::nn {

// Between blocks there is one array of C + S channels, `sums`: a block's input on top, the sum of all skips below it.
// So the two projections are one product that is added to it. All weights are packed.
struct WaveNetBlock {
    Conv conv;         // [C] -> [2 C]: the tanh's half, then the sigmoid's
    Linear condition;  // [H] -> [2 C]
    Linear project;    // [C] -> [C + S]: residual, then skip

    int64_t channels() const { return conv.in; }
};

// sums [C + S, T], condition [H, T], state as causal_conv's -> sums after the block.
ggml_tensor* wavenet_block(GraphBuilder& g, ggml_tensor* sums, ggml_tensor* condition, const WaveNetBlock& block,
                           ggml_tensor* state);

// Room for what lies between a step's products; grows to the largest block that it was used with.
struct WaveNetScratch {
    std::vector<float> seen;
    std::vector<float> gates;  // [batch, 2 C]
    std::vector<float> gated;  // [batch, C]

    void fit(const WaveNetBlock& block, int64_t batch);
};

// The same for one column of each sequence of the ring's batch, in place: sums [batch, C + S], condition [batch, H].
// Allocates nothing; `scratch` has been fitted.
void wavenet_block_step(const WaveNetBlock& block, ConvRing& ring, const float* condition, float* sums,
                        WaveNetScratch& scratch);

// x [rows, in] -> out [rows, out] of a packed float layer; residual as causal_conv_step's.
void linear_rows(const Linear& layer, const float* x, int64_t rows, const float* residual, float* out);

}  // namespace dualar::nn
