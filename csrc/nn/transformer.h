// The one transformer block: Slow-AR, Fast-AR and the codec's transformers differ only in the fields below.
// Pre-norm: attention with rope and grouped queries, then SwiGLU or, where there is no gate, a layer with exact GELU.
// Knows no file and no tensor name.
#pragma once

#include <vector>

#include "nn/kv_cache.h"
#include "nn/ops.h"

namespace dualar::nn {

struct BlockConfig {
    int heads = 0;
    int kv_heads = 0;  // query head i reads kv head i / (heads / kv_heads)
    int head_dim = 0;
    float rope_base = 0.0F;
    bool rope_neox = false;               // halves instead of interleaved pairs
    ggml_tensor* rope_factors = nullptr;  // [head_dim / 2], what each pair's frequency is divided by
    float eps = 0.0F;                     // of every norm in the block

    int64_t q_dim() const { return int64_t{heads} * head_dim; }
    int64_t kv_dim() const { return int64_t{kv_heads} * head_dim; }
    int64_t qkv_dim() const { return q_dim() + 2 * kv_dim(); }
};

// Tensors that a model has not are nullptr.
struct BlockWeights {
    ggml_tensor* attention_norm = nullptr;
    ggml_tensor* attention_norm_bias = nullptr;  // with it a LayerNorm, without it an RMSNorm
    Linear wqkv;                                 // rows q, k, v
    Linear wo;
    ggml_tensor* q_norm = nullptr;  // per head, before rope
    ggml_tensor* k_norm = nullptr;
    ggml_tensor* ffn_norm = nullptr;
    ggml_tensor* ffn_norm_bias = nullptr;    // as the other
    Linear w1;                               // gate; up where there is no gate
    Linear w2;                               // down
    Linear w3;                               // up; empty where there is no gate
    ggml_tensor* attention_scale = nullptr;  // layer scale of each branch, per channel
    ggml_tensor* ffn_scale = nullptr;
};

// x [D, T] -> [D, T]. With a cache, k and v are written to it first and attention reads its rows 0 .. inputs.keys - 1;
// without one, inputs.keys is T. Where inputs.columns names a cache for each column, it is their layer `index`.
ggml_tensor* transformer_block(GraphBuilder& g, ggml_tensor* x, const BlockWeights& weights, const BlockConfig& config,
                               const AttentionInputs& inputs, const KvCache::Layer* cache, int index);

// A stack of blocks; probes "<name>.<i>" after each. cache may be nullptr.
ggml_tensor* transformer(GraphBuilder& g, ggml_tensor* x, const std::vector<BlockWeights>& layers,
                         const BlockConfig& config, const AttentionInputs& inputs, const KvCache* cache,
                         const char* name);

// An upper bound on the nodes that transformer() creates.
constexpr size_t kNodesPerBlock = 48;

}  // namespace dualar::nn
