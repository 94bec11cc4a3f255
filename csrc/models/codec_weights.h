// Reading the codec's layers: convolutions rearranged for nn/causal_conv, ConvNeXt blocks, transformers.
// Products are float32 in activations and sums, whatever the file holds: F16 operands would overflow on activations
// above 65504 and lose the precision that the codec promises. On the CPU the weights are packed for nn/packed_gemm.
#pragma once

#include <string>
#include <vector>

#include "nn/causal_conv.h"
#include "nn/convnext.h"
#include "nn/transformer.h"
#include "runtime/weights.h"

namespace dualar {

// `name` stands before ".weight" and ".bias". numpy [out, in, taps].
nn::Conv read_conv(Weights& weights, const std::string& name, int64_t in, int64_t out, int taps, int dilation);
// numpy [channels, 1, taps].
nn::Conv read_depthwise(Weights& weights, const std::string& name, int64_t channels, int taps);
// numpy [in, out, kernel], kernel a multiple of the stride.
nn::Conv read_transposed(Weights& weights, const std::string& name, int64_t in, int64_t out, int kernel, int stride);
// A dense layer's weight, numpy [rows, columns]; `name` is the whole name.
nn::Linear read_codec_linear(Weights& weights, const std::string& name, int64_t rows, int64_t columns);
nn::ConvNext read_convnext(Weights& weights, const std::string& prefix, int64_t channels);

// The fields of a codec transformer under the keys `prefix` + ….
nn::BlockConfig read_transformer(const GgufFile& file, const std::string& prefix, int64_t heads);
std::vector<nn::BlockWeights> read_codec_blocks(Weights& weights, const std::string& prefix,
                                                const nn::BlockConfig& config, int64_t dim, int64_t feed_forward,
                                                int layers);

}  // namespace dualar
