#include "models/block_weights.h"

#include "models/names.h"
#include "runtime/error.h"

namespace dualar {

nn::BlockConfig read_block_config(const GgufFile& file, const BlockKeys& keys) {
    nn::BlockConfig c;
    c.heads = static_cast<int>(file.integer(keys.heads, 1, kMaxDim));
    c.kv_heads = static_cast<int>(file.integer(keys.kv_heads, 1, c.heads));
    if (c.heads % c.kv_heads != 0)
        throw ModelError(
            message("[", keys.kv_heads, "] expected a divisor of the ", c.heads, " heads, got ", c.kv_heads));
    if (keys.head_dim != nullptr) {
        c.head_dim = static_cast<int>(file.integer(keys.head_dim, 2, kMaxDim));
        if (c.head_dim % 2 != 0)
            throw ModelError(message("[", keys.head_dim, "] expected an even number, got ", c.head_dim));
    }
    c.rope_base = static_cast<float>(file.real(keys.rope_base, 1.0, 1e12));
    c.eps = static_cast<float>(file.real(keys.eps, 0.0, 1.0));
    return c;
}

nn::Linear read_linear(Weights& weights, const std::string& name, int64_t rows, int64_t columns) {
    const FileTensor* source = weights.file().find(name);
    if (source == nullptr || !weights.on_cpu() || !nn::PackedMatrix::can_pack(source->type))
        return {weights.matrix(name, rows, columns), nullptr, nullptr};
    source = weights.require(name, {rows, columns});
    if (source == nullptr) return {};
    auto packed = std::make_shared<nn::PackedMatrix>();
    weights.on_load([=, &file = weights.file(), threads = weights.threads()] {
        *packed = nn::PackedMatrix(source->data, source->type, rows, columns, threads);
        file.forget(*source);
    });
    return {nullptr, nullptr, packed};
}

nn::Linear read_biased(Weights& weights, const std::string& name, int64_t rows, int64_t columns) {
    nn::Linear layer = read_linear(weights, name + ".weight", rows, columns);
    layer.bias = weights.vector(name + ".bias", rows);
    return layer;
}

nn::BlockWeights read_block(Weights& weights, const std::string& prefix, const nn::BlockConfig& config,
                            const BlockTensors& t) {
    const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns) {
        return t.read_matrix ? t.read_matrix(weights, name, rows, columns) : read_linear(weights, name, rows, columns);
    };
    const auto linear = [&](const std::string& name, int64_t rows, int64_t columns, bool bias) {
        nn::Linear layer = matrix(name + ".weight", rows, columns);
        if (bias) layer.bias = weights.vector(name + ".bias", rows);
        return layer;
    };
    const auto vector = [&](const char* name, int64_t n) { return weights.vector(prefix + name, n); };
    nn::BlockWeights block;
    block.attention_norm = vector(names::kAttentionNorm, t.dim);
    block.wqkv = linear(prefix + names::kWqkv, config.qkv_dim(), t.dim, t.qkv_bias);
    block.wo = linear(prefix + names::kWo, t.dim, config.q_dim(), t.o_bias);
    if (t.qk_norm) {
        block.q_norm = vector(names::kQNorm, config.head_dim);
        block.k_norm = vector(names::kKNorm, config.head_dim);
    }
    block.ffn_norm = vector(names::kFfnNorm, t.dim);
    block.w1 = matrix(prefix + names::kW1, t.feed_forward, t.dim);
    block.w2 = matrix(prefix + names::kW2, t.dim, t.feed_forward);
    if (t.gated) block.w3 = matrix(prefix + names::kW3, t.feed_forward, t.dim);
    if (t.layer_norm) {
        block.attention_norm_bias = vector(names::kAttentionNormBias, t.dim);
        block.ffn_norm_bias = vector(names::kFfnNormBias, t.dim);
    }
    if (t.layer_scale) {
        block.attention_scale = vector(names::kAttentionScale, t.dim);
        block.ffn_scale = vector(names::kFfnScale, t.dim);
    }
    return block;
}

}  // namespace dualar
