#include "nn/growing_transformer.h"

#include <vector>

namespace dualar::nn {

namespace {

constexpr int64_t kBucket = 256;  // positions; attention reads the whole cache, so it grows by little

void copy_rows(const ggml_tensor* from, ggml_tensor* to, int64_t rows) {
    std::vector<char> values(static_cast<size_t>(rows) * from->nb[1]);
    for (int64_t head = 0; head < from->ne[2]; ++head) {
        ggml_backend_tensor_get(from, values.data(), static_cast<size_t>(head) * from->nb[2], values.size());
        ggml_backend_tensor_set(to, values.data(), static_cast<size_t>(head) * to->nb[2], values.size());
    }
}

}  // namespace

GrowingState::GrowingState(const Backend& backend, const WindowedTransformer& weights, std::string name)
    : backend_(backend), weights_(weights), name_(std::move(name)), cache_(make_cache(kBucket)) {}

std::unique_ptr<KvCache> GrowingState::make_cache(int64_t rows) const {
    return std::make_unique<KvCache>(backend_, static_cast<int>(weights_.blocks.size()), weights_.config.kv_heads,
                                     weights_.config.head_dim, rows, GGML_TYPE_F32);
}

bool GrowingState::reserve(int64_t count) {
    const int64_t needed = position_ + count;
    if (needed <= cache_->rows()) return false;
    std::unique_ptr<KvCache> larger = make_cache((needed + kBucket - 1) / kBucket * kBucket);
    if (position_ > 0)
        for (size_t i = 0; i < weights_.blocks.size(); ++i) {
            const KvCache::Layer& from = cache_->layer(static_cast<int>(i));
            const KvCache::Layer& to = larger->layer(static_cast<int>(i));
            copy_rows(from.keys, to.keys, position_);
            copy_rows(from.values, to.values, position_);
        }
    cache_ = std::move(larger);
    return true;
}

ggml_tensor* GrowingState::build(GraphBuilder& g, ggml_tensor* x) const {
    const AttentionInputs inputs = make_attention_inputs(g, name_, x->ne[1], cache_->rows(), /*cached=*/true);
    x = transformer(g, x, weights_.blocks, weights_.config, inputs, cache_.get(), name_.c_str());
    return weights_.norm ? rms_norm(g, x, weights_.norm, weights_.config.eps) : x;
}

void GrowingState::set(Graph& graph, int64_t count) {
    if (weights_.window > 0)
        feed_.windowed(position_, count, cache_->rows(), weights_.window);
    else
        feed_.linear(position_, count, cache_->rows());
    feed_.set(graph, name_, /*cached=*/true);
}

}  // namespace dualar::nn
