#include "nn/windowed_transformer.h"

namespace dualar::nn {

// A run writes its positions before it reads any, and its first query still needs window - 1 positions before its own.
WindowedState::WindowedState(const Backend& backend, const WindowedTransformer& weights, int64_t max_positions,
                             std::string name)
    : weights_(weights),
      name_(std::move(name)),
      cache_(backend, static_cast<int>(weights.blocks.size()), weights.config.kv_heads, weights.config.head_dim,
             weights.window - 1 + max_positions, GGML_TYPE_F32) {}

ggml_tensor* WindowedState::build(GraphBuilder& g, ggml_tensor* x) const {
    const AttentionInputs inputs = make_attention_inputs(g, name_, x->ne[1], cache_.rows(), /*cached=*/true);
    x = transformer(g, x, weights_.blocks, weights_.config, inputs, &cache_, name_.c_str());
    return g.probe(name_, weights_.norm ? rms_norm(g, x, weights_.norm, weights_.config.eps) : x);
}

void WindowedState::set(Graph& graph, int64_t count) {
    feed_.windowed(position_, count, cache_.rows(), weights_.window);
    feed_.set(graph, name_, /*cached=*/true);
}

}  // namespace dualar::nn
