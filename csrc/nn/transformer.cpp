#include "nn/transformer.h"

#include <cmath>

#include "runtime/error.h"

namespace dualar::nn {

namespace {

// x [head_dim, heads, T]: norm per head, then rotation by position.
ggml_tensor* norm_and_rope(GraphBuilder& g, ggml_tensor* x, ggml_tensor* norm, const BlockConfig& c,
                           const AttentionInputs& inputs) {
    if (norm != nullptr) x = rms_norm(g, x, norm, c.eps);
    return ggml_rope_ext(g.context, x, inputs.positions, nullptr, c.head_dim, c.rope_neox ? GGML_ROPE_TYPE_NEOX : 0,
                         /*n_ctx_orig=*/0, c.rope_base, /*freq_scale=*/1.0F, /*ext_factor=*/0.0F,
                         /*attn_factor=*/1.0F, /*beta_fast=*/0.0F, /*beta_slow=*/0.0F);
}

struct StepOperator {
    BlockConfig config;
    int64_t keys;
};

void step_operator(ggml_tensor* out, int ith, int nth, void* userdata) {
    const auto& op = *static_cast<const StepOperator*>(userdata);
    const ggml_tensor* keys = out->src[1];
    AttentionStep step;
    step.q = static_cast<const float*>(out->src[0]->data);
    step.keys = keys->data;
    step.values = out->src[2]->data;
    step.head_bytes = keys->nb[2];
    step.half = keys->type == GGML_TYPE_F16;
    step.mask = static_cast<const uint16_t*>(out->src[3]->data);
    step.count = op.keys;
    step.heads = op.config.heads;
    step.kv_heads = op.config.kv_heads;
    step.head_dim = op.config.head_dim;
    step.scale = 1.0F / std::sqrt(static_cast<float>(op.config.head_dim));
    step.out = static_cast<float*>(out->data);
    cpu_kernels().front()->attention(step, ith, nth);
}

// q [head_dim, heads, 1] over the cache's rows -> [heads * head_dim, 1].
ggml_tensor* step_attention(GraphBuilder& g, ggml_tensor* q, ggml_tensor* keys, ggml_tensor* values,
                            const BlockConfig& c, const AttentionInputs& inputs) {
    ggml_tensor* sources[] = {q, keys, values, inputs.mask};
    return GraphBuilder::label("attention",
                               ggml_custom_4d(g.context, GGML_TYPE_F32, c.q_dim(), 1, 1, 1, sources, 4, step_operator,
                                              GGML_N_TASKS_MAX, g.own(StepOperator{c, inputs.keys})));
}

ggml_tensor* attention(GraphBuilder& g, ggml_tensor* x, const BlockWeights& w, const BlockConfig& c,
                       const AttentionInputs& inputs, const KvCache::Layer* cache) {
    ggml_context* ctx = g.context;
    const int64_t positions = x->ne[1];
    ggml_tensor* qkv = linear(g, w.wqkv, x);
    const size_t head_bytes = static_cast<size_t>(c.head_dim) * sizeof(float);
    const size_t k_offset = static_cast<size_t>(c.q_dim()) * sizeof(float);
    const size_t v_offset = k_offset + static_cast<size_t>(c.kv_dim()) * sizeof(float);
    ggml_tensor* q = ggml_view_3d(ctx, qkv, c.head_dim, c.heads, positions, head_bytes, qkv->nb[1], 0);
    ggml_tensor* k = ggml_view_3d(ctx, qkv, c.head_dim, c.kv_heads, positions, head_bytes, qkv->nb[1], k_offset);
    q = norm_and_rope(g, q, w.q_norm, c, inputs);
    k = norm_and_rope(g, k, w.k_norm, c, inputs);

    ggml_tensor* v = ggml_view_3d(ctx, qkv, c.head_dim, c.kv_heads, positions, head_bytes, qkv->nb[1], v_offset);
    // [head_dim, positions, kv_heads], without a copy.
    ggml_tensor* keys = ggml_permute(ctx, k, 0, 2, 1, 3);
    ggml_tensor* values = ggml_permute(ctx, v, 0, 2, 1, 3);
    if (cache != nullptr) {
        const auto seen = [&](ggml_tensor* all) {
            return ggml_view_3d(ctx, all, c.head_dim, inputs.keys, c.kv_heads, all->nb[1], all->nb[2], 0);
        };
        keys = seen(ggml_set_rows(ctx, cache->keys, keys, inputs.rows));
        values = seen(ggml_set_rows(ctx, cache->values, values, inputs.rows));
        if (g.on_cpu && positions == 1) return linear(g, w.wo, step_attention(g, q, keys, values, c, inputs));
    }
    const float scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
    ggml_tensor* out = ggml_flash_attn_ext(ctx, ggml_permute(ctx, q, 0, 2, 1, 3), keys, values, inputs.mask, scale,
                                           /*max_bias=*/0.0F, /*logit_softcap=*/0.0F);
    ggml_flash_attn_ext_set_prec(out, GGML_PREC_F32);
    return linear(g, w.wo, ggml_reshape_2d(ctx, out, c.q_dim(), positions));
}

ggml_tensor* scaled(GraphBuilder& g, ggml_tensor* branch, ggml_tensor* scale) {
    return scale ? ggml_mul(g.context, branch, scale) : branch;
}

}  // namespace

ggml_tensor* transformer_block(GraphBuilder& g, ggml_tensor* x, const BlockWeights& w, const BlockConfig& c,
                               const AttentionInputs& inputs, const KvCache::Layer* cache) {
    ggml_tensor* branch = attention(g, rms_norm(g, x, w.attention_norm, c.eps), w, c, inputs, cache);
    x = ggml_add(g.context, x, scaled(g, branch, w.attention_scale));
    ggml_tensor* h = rms_norm(g, x, w.ffn_norm, c.eps);
    ggml_tensor* gated = ggml_swiglu_split(g.context, linear(g, w.w1, h), linear(g, w.w3, h));
    return ggml_add(g.context, x, scaled(g, linear(g, w.w2, gated), w.ffn_scale));
}

ggml_tensor* transformer(GraphBuilder& g, ggml_tensor* x, const std::vector<BlockWeights>& layers,
                         const BlockConfig& config, const AttentionInputs& inputs, const KvCache* cache,
                         const char* name) {
    for (size_t i = 0; i < layers.size(); ++i) {
        const KvCache::Layer* layer = cache ? &cache->layer(static_cast<int>(i)) : nullptr;
        x = g.probe(text(name, ".", i), transformer_block(g, x, layers[i], config, inputs, layer));
    }
    return x;
}

}  // namespace dualar::nn
