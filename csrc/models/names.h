// The GGUF keys and tensor names that all families share: the file's own, and a transformer block's parts.
// python/dualar/gguf/ holds the same lists; a test compares them.
#pragma once

#include <string>

namespace dualar::names {

inline constexpr const char* kArchitectureKey = "general.architecture";
inline constexpr const char* kTokenizer = "tokenizer.huggingface.json";

// The keys of a codec's transformers, behind a prefix that each codec has its own of.
inline constexpr const char* kLocalHeads = "n_local_heads";
inline constexpr const char* kHeadDim = "head_dim";
inline constexpr const char* kTransformerRopeBase = "rope_freq_base";
inline constexpr const char* kTransformerEpsilon = "layer_norm_rms_eps";
inline constexpr const char* kWindowSize = "window_size";
inline constexpr const char* kLayers = "n_layer";
inline constexpr const char* kHeads = "n_head";
inline constexpr const char* kDim = "dim";
inline constexpr const char* kTransformerFeedForward = "feed_forward_length";

// A transformer's tensors: its last norm, its layers, and behind a layer's prefix ("layers.3.") its parts.
inline constexpr const char* kNorm = "norm.weight";
inline constexpr const char* kLayer = "layers.";
inline constexpr const char* kAttentionNorm = "attention_norm.weight";
inline constexpr const char* kAttentionNormBias = "attention_norm.bias";
inline constexpr const char* kWqkv = "attention.wqkv";
inline constexpr const char* kWo = "attention.wo";
inline constexpr const char* kQNorm = "attention.q_norm.weight";
inline constexpr const char* kKNorm = "attention.k_norm.weight";
inline constexpr const char* kFfnNorm = "ffn_norm.weight";
inline constexpr const char* kFfnNormBias = "ffn_norm.bias";
inline constexpr const char* kW1 = "feed_forward.w1.weight";
inline constexpr const char* kW2 = "feed_forward.w2.weight";
inline constexpr const char* kW3 = "feed_forward.w3.weight";
inline constexpr const char* kAttentionScale = "attention_layer_scale.gamma";
inline constexpr const char* kFfnScale = "ffn_layer_scale.gamma";

// `prefix` + "3.": that of layer 3.
inline std::string indexed(const char* prefix, int index) { return prefix + std::to_string(index) + "."; }

}  // namespace dualar::names
