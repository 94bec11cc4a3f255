// A causal transformer that sees a window of past positions, run in pieces: its keys and values lie in a ring.
// Knows no file and no tensor name.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "nn/transformer.h"

namespace dualar::nn {

struct WindowedTransformer {
    std::vector<BlockWeights> blocks;
    BlockConfig config;
    ggml_tensor* norm = nullptr;  // after the last block; nullptr where there is none
    int64_t window = 0;           // positions seen, the query's own included
};

class WindowedState {
  public:
    // `weights` must outlive the state. max_positions: how many one run may hold. `name` tells its inputs in a graph.
    WindowedState(const Backend& backend, const WindowedTransformer& weights, int64_t max_positions, std::string name);

    // x [D, T], T <= max_positions -> [D, T].
    ggml_tensor* build(GraphBuilder& g, ggml_tensor* x) const;
    // Before a run of a graph with `count` positions; after it.
    void set(Graph& graph, int64_t count);
    void advance(int64_t count) { position_ += count; }
    void reset() { position_ = 0; }  // rows of the ring past the position are never read
    size_t nbytes() const { return cache_.nbytes(); }
    int64_t position() const { return position_; }
    // What the cache holds of the positions so far, copied to the host, and back to a state of the same size.
    std::vector<char> read() const { return cache_.read(std::min(position_, cache_.rows())); }
    void write(int64_t position, const std::vector<char>& rows) {
        position_ = position;
        cache_.write(std::min(position_, cache_.rows()), rows);
    }

  private:
    const WindowedTransformer& weights_;
    std::string name_;
    KvCache cache_;
    AttentionFeed feed_;
    int64_t position_ = 0;
};

}  // namespace dualar::nn
