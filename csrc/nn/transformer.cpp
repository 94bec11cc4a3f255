#include "nn/transformer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/error.h"

namespace dualar::nn {

namespace {

// x [head_dim, heads, T]: norm per head, then rotation by position.
ggml_tensor* norm_and_rope(GraphBuilder& g, ggml_tensor* x, ggml_tensor* norm, const BlockConfig& c,
                           const AttentionInputs& inputs) {
    if (norm != nullptr) x = rms_norm(g, x, norm, c.eps);
    return ggml_rope_ext(g.context, x, inputs.positions, c.rope_factors, c.head_dim,
                         c.rope_neox ? GGML_ROPE_TYPE_NEOX : 0,
                         /*n_ctx_orig=*/0, c.rope_base, /*freq_scale=*/1.0F, /*ext_factor=*/0.0F,
                         /*attn_factor=*/1.0F, /*beta_fast=*/0.0F, /*beta_slow=*/0.0F);
}

AttentionRows rows_of(const ggml_tensor* t) { return {t->data, t->nb[2], t->nb[1]}; }

// The attention of one position over rows 0 to count - 1 of keys and values [head_dim, rows, kv_heads].
AttentionStep make_step(const BlockConfig& c, const ggml_tensor* keys, const ggml_tensor* values, int64_t count) {
    AttentionStep step;
    step.keys = rows_of(keys);
    step.values = rows_of(values);
    step.half = keys->type == GGML_TYPE_F16;
    step.count = count;
    step.heads = c.heads;
    step.kv_heads = c.kv_heads;
    step.head_dim = c.head_dim;
    step.scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
    return step;
}

struct StepOperator {
    BlockConfig config;
    int64_t keys;
};

void step_operator(ggml_tensor* out, int ith, int nth, void* userdata) {
    const auto& op = *static_cast<const StepOperator*>(userdata);
    AttentionStep step = make_step(op.config, out->src[1], out->src[2], op.keys);
    const auto* mask = static_cast<const uint16_t*>(out->src[3]->data);
    for (int64_t t = 0; t < out->ne[1]; ++t) {
        step.q = static_cast<const float*>(out->src[0]->data) + t * op.config.q_dim();
        step.mask = mask + t * op.keys;
        step.out = static_cast<float*>(out->data) + t * op.config.q_dim();
        cpu_kernels().front()->attention(step, ith, nth);
    }
}

// Up to so many positions at once are attended one by one by our own kernel: a step, and a frame of the Fast-AR. Each
// then has the bits it has alone, so that a frame computed anew gives what the cached one does.
constexpr int64_t kStepPositions = 32;

// q [head_dim, heads, T] over keys and values [head_dim, keys, kv_heads] -> [heads * head_dim, T].
ggml_tensor* step_attention(GraphBuilder& g, ggml_tensor* q, ggml_tensor* keys, ggml_tensor* values,
                            const BlockConfig& c, const AttentionInputs& inputs) {
    ggml_tensor* sources[] = {q, keys, values, inputs.mask};
    return GraphBuilder::label(
        "attention", ggml_custom_4d(g.context, GGML_TYPE_F32, c.q_dim(), q->ne[2], 1, 1, sources, 4, step_operator,
                                    GGML_N_TASKS_MAX, g.own(StepOperator{c, inputs.keys})));
}

struct ColumnsOperator {
    BlockConfig config;
    const CacheColumns* columns;
    int layer;
};

// k [head_dim, kv_heads, T] and v to each column's own cache. The result has no values: it orders what reads them.
void store_operator(ggml_tensor* out, int ith, int nth, void* userdata) {
    const auto& op = *static_cast<const ColumnsOperator*>(userdata);
    const int64_t kv_heads = op.config.kv_heads;
    const int64_t tasks = static_cast<int64_t>(op.columns->columns.size()) * kv_heads;
    for (int64_t task = ith; task < tasks; task += nth) {
        const CacheColumns::Column& column = op.columns->columns[static_cast<size_t>(task / kv_heads)];
        const KvCache::Layer& layer = column.cache->layer(op.layer);
        for (const auto& [from, to] : {std::pair{out->src[0], layer.keys}, std::pair{out->src[1], layer.values}}) {
            const auto* x = reinterpret_cast<const float*>(static_cast<const char*>(from->data) +
                                                           static_cast<size_t>(task % kv_heads) * from->nb[1] +
                                                           static_cast<size_t>(task / kv_heads) * from->nb[2]);
            void* row = static_cast<char*>(to->data) + static_cast<size_t>(task % kv_heads) * to->nb[2] +
                        static_cast<size_t>(column.position) * to->nb[1];
            if (to->type == GGML_TYPE_F16)
                ggml_fp32_to_fp16_row(x, static_cast<ggml_fp16_t*>(row), op.config.head_dim);
            else
                std::copy_n(x, op.config.head_dim, static_cast<float*>(row));
        }
    }
}

void columns_operator(ggml_tensor* out, int ith, int nth, void* userdata) {
    const auto& op = *static_cast<const ColumnsOperator*>(userdata);
    for (size_t t = 0; t < op.columns->columns.size(); ++t) {
        const CacheColumns::Column& column = op.columns->columns[t];
        const KvCache::Layer& layer = column.cache->layer(op.layer);
        AttentionStep step = make_step(op.config, layer.keys, layer.values, column.position + 1);
        const int64_t offset = static_cast<int64_t>(t) * op.config.q_dim();
        step.q = static_cast<const float*>(out->src[0]->data) + offset;
        step.mask = op.columns->seen.data();
        step.out = static_cast<float*>(out->data) + offset;
        cpu_kernels().front()->attention(step, ith, nth);
    }
}

// q, k, v [head_dim, heads, T], a cache for each column -> [heads * head_dim, T].
ggml_tensor* columns_attention(GraphBuilder& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, const BlockConfig& c,
                               const CacheColumns& columns, int layer) {
    auto* op = g.own(ColumnsOperator{c, &columns, layer});
    ggml_tensor* both[] = {k, v};
    ggml_tensor* stored =
        ggml_custom_4d(g.context, GGML_TYPE_F32, 1, 1, 1, 1, both, 2, store_operator, GGML_N_TASKS_MAX, op);
    ggml_tensor* sources[] = {q, stored};
    return GraphBuilder::label("attention", ggml_custom_4d(g.context, GGML_TYPE_F32, c.q_dim(), q->ne[2], 1, 1, sources,
                                                           2, columns_operator, GGML_N_TASKS_MAX, op));
}

ggml_tensor* attention(GraphBuilder& g, ggml_tensor* x, const BlockWeights& w, const BlockConfig& c,
                       const AttentionInputs& inputs, const KvCache::Layer* cache, int index) {
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
    if (inputs.query_layers != nullptr &&
        std::binary_search(inputs.query_layers->begin(), inputs.query_layers->end(), index))
        g.output(query_output(index), q);

    ggml_tensor* v = ggml_view_3d(ctx, qkv, c.head_dim, c.kv_heads, positions, head_bytes, qkv->nb[1], v_offset);
    if (inputs.columns != nullptr) return linear(g, w.wo, columns_attention(g, q, k, v, c, *inputs.columns, index));
    // [head_dim, positions, kv_heads], without a copy.
    ggml_tensor* keys = ggml_permute(ctx, k, 0, 2, 1, 3);
    ggml_tensor* values = ggml_permute(ctx, v, 0, 2, 1, 3);
    if (cache != nullptr) {
        const auto seen = [&](ggml_tensor* all) {
            return ggml_view_3d(ctx, all, c.head_dim, inputs.keys, c.kv_heads, all->nb[1], all->nb[2], 0);
        };
        keys = seen(ggml_set_rows(ctx, cache->keys, keys, inputs.rows));
        values = seen(ggml_set_rows(ctx, cache->values, values, inputs.rows));
    }
    if (g.on_cpu && positions <= kStepPositions) return linear(g, w.wo, step_attention(g, q, keys, values, c, inputs));
    const float scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
    ggml_tensor* out = ggml_flash_attn_ext(ctx, ggml_permute(ctx, q, 0, 2, 1, 3), keys, values, inputs.mask, scale,
                                           /*max_bias=*/0.0F, /*logit_softcap=*/0.0F);
    ggml_flash_attn_ext_set_prec(out, GGML_PREC_F32);
    return linear(g, w.wo, ggml_reshape_2d(ctx, out, c.q_dim(), positions));
}

ggml_tensor* scaled(GraphBuilder& g, ggml_tensor* branch, ggml_tensor* scale) {
    return scale ? ggml_mul(g.context, branch, scale) : branch;
}

ggml_tensor* norm(GraphBuilder& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, float eps) {
    return bias ? layer_norm(g, x, weight, bias, eps) : rms_norm(g, x, weight, eps);
}

ggml_tensor* feed_forward(GraphBuilder& g, ggml_tensor* x, const BlockWeights& w) {
    ggml_tensor* first = linear(g, w.w1, x);
    const bool gated = w.w3.weight != nullptr || w.w3.packed != nullptr;
    return linear(g, w.w2,
                  gated ? ggml_swiglu_split(g.context, first, linear(g, w.w3, x)) : ggml_gelu_erf(g.context, first));
}

}  // namespace

ggml_tensor* transformer_block(GraphBuilder& g, ggml_tensor* x, const BlockWeights& w, const BlockConfig& c,
                               const AttentionInputs& inputs, const KvCache::Layer* cache, int index) {
    ggml_tensor* h = norm(g, x, w.attention_norm, w.attention_norm_bias, c.eps);
    x = ggml_add(g.context, x, scaled(g, attention(g, h, w, c, inputs, cache, index), w.attention_scale));
    h = norm(g, x, w.ffn_norm, w.ffn_norm_bias, c.eps);
    return ggml_add(g.context, x, scaled(g, feed_forward(g, h, w), w.ffn_scale));
}

ggml_tensor* transformer(GraphBuilder& g, ggml_tensor* x, const std::vector<BlockWeights>& layers,
                         const BlockConfig& config, const AttentionInputs& inputs, const KvCache* cache,
                         const char* name) {
    for (size_t i = 0; i < layers.size(); ++i) {
        const int index = static_cast<int>(i);
        const KvCache::Layer* layer = cache ? &cache->layer(index) : nullptr;
        x = g.probe(message(name, ".", i), transformer_block(g, x, layers[i], config, inputs, layer, index));
    }
    return x;
}

}  // namespace dualar::nn
