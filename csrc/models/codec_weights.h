// Reads the layers that codecs are made of: convolutions rearranged for nn/causal_conv, ConvNeXt blocks, transformers.
// Products are float32 in activations and sums, whatever the file holds: F16 operands would overflow on activations
// above 65504 and lose the precision that the codec promises. On the CPU the weights are packed for nn/packed_matrix.
#pragma once

#include <string>
#include <vector>

#include "nn/causal_conv.h"
#include "nn/convnext.h"
#include "nn/rvq.h"
#include "nn/windowed_transformer.h"
#include "runtime/weights.h"

namespace dualar {

// `name` stands before ".weight" and, where there is one, ".bias". numpy [out, in, taps].
nn::Conv read_conv(Weights& weights, const std::string& name, int64_t in, int64_t out, int taps, int dilation,
                   int stride = 1, bool bias = true);
// numpy [channels, 1, taps].
nn::Conv read_depthwise(Weights& weights, const std::string& name, int64_t channels, int taps);
// numpy [in, out, kernel], kernel a multiple of the stride.
nn::Conv read_transposed(Weights& weights, const std::string& name, int64_t in, int64_t out, int kernel, int stride);
// numpy [channels, 1, kernel], each channel for itself, without a bias; kept as a whole matrix, mostly of zeros.
nn::Conv read_depthwise_transposed(Weights& weights, const std::string& name, int64_t channels, int kernel, int stride);
// A dense layer's weight, numpy [rows, columns]; `name` is the whole name.
nn::Linear read_codec_linear(Weights& weights, const std::string& name, int64_t rows, int64_t columns);
nn::ConvNext read_convnext(Weights& weights, const std::string& prefix, int64_t channels);

// What codecs are made of: activation, dilated convolution, activation, 1x1 convolution, plus the input.
struct ResidualUnit {
    nn::Activation in;
    nn::Conv dilated;
    nn::Activation out;
    nn::Conv pointwise;
};
inline constexpr int kUnitDilations[3] = {1, 3, 9};  // three in a row
// `prefix` ends in ".block.".
ResidualUnit read_residual_unit(Weights& weights, const std::string& prefix, int64_t channels, int dilation);
// The same with ELU in the place of the snakes, and half the channels between its two convolutions, of 3 taps and 1.
ResidualUnit read_elu_unit(Weights& weights, const std::string& prefix, int64_t channels);

// The vectors of codes: the first codebook has a projection of its own, all others share one.
struct SplitRvqNames {
    const char* codebook;
    const char* semantic_out_proj;
    const char* acoustic_out_proj;
};
nn::Rvq read_split_rvq(Weights& weights, const SplitRvqNames& names, int num_codebooks, int64_t codebook_size,
                       int64_t codebook_dim, int64_t dim);

// Limits on a codec's geometry. Some codecs have 8000 samples a frame; what a frame needs in memory grows with them.
inline constexpr int64_t kMaxCodecDim = 1 << 20;
inline constexpr int64_t kMaxSamplesPerFrame = 1 << 16;

// 1 to 16 numbers from 1 to 4096.
std::vector<int64_t> read_rates(const GgufFile& file, const char* key);
// Of such numbers; stays above any limit once there, instead of wrapping.
int64_t product(const std::vector<int64_t>& rates);
// The window of a transformer under `prefix` + …; no larger than what a stream of this file may reasonably keep.
int64_t read_window(const GgufFile& file, const std::string& prefix, const nn::BlockConfig& block, int layers);
// The fields of a codec transformer under the keys `prefix` + ….
nn::BlockConfig read_transformer(const GgufFile& file, const std::string& prefix, int64_t heads);
// Its sizes, where the file says them all under `prefix` + ….
struct CodecTransformer {
    nn::BlockConfig block;
    int64_t dim = 0;
    int64_t feed_forward = 0;
    int layers = 0;
};
// With rope in halves.
CodecTransformer read_codec_transformer(const GgufFile& file, const std::string& prefix);
// Its tensors; `prefix` ends in a dot.
nn::WindowedTransformer read_windowed(Weights& weights, const std::string& prefix, const nn::BlockConfig& config,
                                      int64_t dim, int64_t feed_forward, int layers, int64_t window);
// The tensors of one with LayerNorms, exact GELU and no last norm.
nn::WindowedTransformer read_plain_windowed(Weights& weights, const std::string& prefix, const CodecTransformer& sizes,
                                            int64_t window);

// The graph's side of a stack of convolutions: each with the next state, in the order in which they are built.
class ConvSequence {
  public:
    ConvSequence(GraphBuilder& g, const nn::ConvState& state) : g_(g), state_(state) {}
    ggml_tensor* operator()(ggml_tensor* x, const nn::Conv& conv, const nn::ConvExtras& extras = {});
    ggml_tensor* operator()(ggml_tensor* x, const nn::ConvNext& block);
    ggml_tensor* operator()(ggml_tensor* x, const ResidualUnit& unit);

  private:
    GraphBuilder& g_;
    const nn::ConvState& state_;
    size_t next_ = 0;
};
// How many frames a push of a stream may hold: 1 to 4096, else std::invalid_argument.
int64_t checked_frames(int64_t max_frames);

// An upper bound on the nodes that one convolution and what goes with it take.
inline constexpr size_t kNodesPerConv = 64;
// The states that the sequence takes, for layers listed in that order.
void add_state(std::vector<nn::ConvState::Size>& sizes, const nn::Conv& conv);
void add_state(std::vector<nn::ConvState::Size>& sizes, const ResidualUnit& unit);

}  // namespace dualar
