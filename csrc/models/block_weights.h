// Reads a transformer block's sizes and tensors. The tensors' names are the same in the files of all families.
#pragma once

#include <functional>
#include <string>

#include "nn/transformer.h"
#include "runtime/weights.h"

namespace dualar {

struct BlockTensors {
    int64_t dim = 0;
    int64_t feed_forward = 0;
    bool qk_norm = false;
    bool qkv_bias = false;
    bool o_bias = false;
    bool layer_scale = false;
    bool layer_norm = false;  // with biases, in the place of RMSNorm
    bool gated = true;        // w3 is there
    // How a matrix is read (the whole name, numpy [rows, columns]); by default by read_linear().
    std::function<nn::Linear(Weights&, const std::string&, int64_t, int64_t)> read_matrix;
};

// Limits on what a file may say.
inline constexpr int64_t kMaxDim = 1 << 20;
inline constexpr int64_t kMaxCount = (int64_t{1} << 31) - 1;
inline constexpr int64_t kMaxContext = int64_t{1} << 24;  // float32 positions are exact up to here
inline constexpr int64_t kMaxLayers = 1024;

// The keys of a block's sizes. Without one for head_dim, that is left to the caller.
struct BlockKeys {
    const char* heads;
    const char* kv_heads;
    const char* head_dim;
    const char* rope_base;
    const char* eps;
};
nn::BlockConfig read_block_config(const GgufFile& file, const BlockKeys& keys);

// A matrix as it lies in the file; on the CPU packed where nn/packed_matrix takes its type.
nn::Linear read_linear(Weights& weights, const std::string& name, int64_t rows, int64_t columns);
// The same with a bias: `name` stands before ".weight" and ".bias".
nn::Linear read_biased(Weights& weights, const std::string& name, int64_t rows, int64_t columns);

// `prefix` ends in a dot: "layers.3.". Problems are noted in `weights`.
nn::BlockWeights read_block(Weights& weights, const std::string& prefix, const nn::BlockConfig& config,
                            const BlockTensors& tensors);

}  // namespace dualar
