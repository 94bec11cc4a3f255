#include "models/block_weights.h"

#include "models/names.h"

namespace dualar {

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
