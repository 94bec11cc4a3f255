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

// One block for a batch of sequences that go forward together, a column at a time on the CPU: their rings, and room
// for what lies between the products. A step allocates nothing.
class WaveNetSteps {
  public:
    // `block` must outlive it. most: how many steps begin() may be given.
    WaveNetSteps(const WaveNetBlock& block, int64_t batch, int64_t most);

    // The next `steps` columns' condition [steps, batch, H]: what is known of these columns is computed for all at
    // once, which reads those weights once. Then step() that many times.
    void begin(const float* condition, int64_t steps);
    // sums [batch, C + S], in place.
    void step(float* sums);

    ConvRing& ring() { return ring_; }
    const ConvRing& ring() const { return ring_; }

  private:
    const WaveNetBlock* block_;
    ConvRing ring_;
    int64_t next_ = 0;  // of the steps begun
    bool ahead_ = false;
    std::vector<float> seen_;
    std::vector<float> conditions_;  // [most, batch, 2 C]
    std::vector<float> older_;       // [most, batch, 2 C]: the older taps' sums, where they are known ahead
    std::vector<float> gates_;       // [batch, 2 C]
    std::vector<float> gated_;       // [batch, C]
};

// x [rows, in] -> out [rows, out] of a packed float layer; residual as causal_conv_step's.
void linear_rows(const Linear& layer, const float* x, int64_t rows, const float* residual, float* out);

}  // namespace dualar::nn
