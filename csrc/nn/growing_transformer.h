// A causal transformer that sees all positions, or a window of them, of a clip whose length is not known before its
// end, run in pieces: its keys and values lie in a cache that grows. Knows no file and no tensor name.
#pragma once

#include <memory>
#include <string>

#include "nn/windowed_transformer.h"

namespace dualar::nn {

class GrowingState {
  public:
    // `weights` must outlive the state; a window of 0 sees all positions. `name` tells its inputs in a graph.
    GrowingState(const Backend& backend, const WindowedTransformer& weights, std::string name);

    // Room for `count` more positions. True where the cache is another one now: graphs with the old one are void.
    bool reserve(int64_t count);
    // x [D, T], T <= what was reserved -> [D, T].
    ggml_tensor* build(GraphBuilder& g, ggml_tensor* x) const;
    // Before a run of a graph with `count` positions; after it.
    void set(Graph& graph, int64_t count);
    void advance(int64_t count) { position_ += count; }
    void reset() { position_ = 0; }  // rows past the position are never read
    size_t nbytes() const { return cache_->nbytes(); }

  private:
    std::unique_ptr<KvCache> make_cache(int64_t rows) const;

    const Backend& backend_;
    const WindowedTransformer& weights_;
    std::string name_;
    std::unique_ptr<KvCache> cache_;
    AttentionFeed feed_;
    int64_t position_ = 0;
};

}  // namespace dualar::nn
