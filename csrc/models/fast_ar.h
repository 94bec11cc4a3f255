// The Fast-AR of the S2 family: the residual codes of one frame, from the Slow-AR's hidden state.
// FastAr holds the weights; FastState the cache and graphs of one session. Two paths give the same logits: cached
// (begin, then one position a step) and stateless recompute of the whole window (decode), which is its oracle.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nn/transformer.h"
#include "runtime/weights.h"

namespace dualar {

struct FastConfig {
    int64_t slow_dim = 0;  // of the hidden state that comes in
    int64_t dim = 0;
    int64_t feed_forward = 0;
    int layers = 0;
    int num_codebooks = 0;  // N: positions 0 .. N - 1 are the hidden state and codes 0 .. N - 2
    int64_t codebook_size = 0;
    nn::BlockConfig block;
};

class FastAr {
  public:
    // Only for files that have a Fast-AR: see present().
    FastAr(Weights& weights, int64_t slow_dim, int num_codebooks, int64_t codebook_size);
    static bool present(const GgufFile& file);

    static constexpr const char* kName = "fast";  // of its inputs and probes in a graph

    // Inputs "hidden" [slow D, hiddens], unless there are none, and "x" [Df, codes], in this order the columns; output
    // "logits" [C, rows] of the last `rows` of them.
    void build(GraphBuilder& g, int64_t hiddens, int64_t codes, int64_t rows, const nn::AttentionInputs& inputs,
               const nn::KvCache* cache) const;
    // codes [count] -> out [count, Df].
    void embed(const int32_t* codes, int64_t count, float* out) const;

    FastConfig config;
    std::vector<nn::BlockWeights> blocks;
    std::optional<nn::Linear> project_in;  // where the widths differ
    ggml_tensor* norm = nullptr;
    nn::Linear head;       // [Df] -> [C]
    HostTable embeddings;  // [C, Df]
};

class FastState {
  public:
    FastState(std::shared_ptr<const FastAr> model, std::shared_ptr<Backend> backend);

    // Arguments are checked by the caller. Each returns logits [C] of the next codebook, there until the next call.
    const std::vector<float>& begin(const float* hidden, int32_t code);
    const std::vector<float>& step(int32_t code);
    const std::vector<float>& decode(const float* hidden, const int32_t* prefix, int64_t count);

    // Positions in the cache: 0 before begin(), at most N.
    int64_t position() const { return position_; }
    void reset() { position_ = 0; }
    // For a graph that runs several requests: it writes positions there, then says how many there are now.
    const nn::KvCache& cache() const { return cache_; }
    void set_position(int64_t position) { position_ = position; }
    size_t nbytes() const { return cache_.nbytes(); }
    static size_t nbytes(const FastConfig& config);
    int graph_builds() const { return graph_builds_; }

  private:
    enum class Kind { kBegin, kStep, kDecode };
    std::unique_ptr<Graph> make_graph(Kind kind, int64_t codes);
    const std::vector<float>& run(Graph& graph, Kind kind, const float* hidden, const int32_t* codes, int64_t count);

    std::shared_ptr<const FastAr> model_;
    std::shared_ptr<Backend> backend_;
    nn::KvCache cache_;
    nn::AttentionFeed feed_;
    std::vector<float> embedded_;
    std::vector<float> logits_;
    int64_t position_ = 0;
    std::unique_ptr<Graph> begin_;
    std::unique_ptr<Graph> step_;
    std::vector<std::unique_ptr<Graph>> decode_;  // by the number of codes in the window
    int graph_builds_ = 0;
};

}  // namespace dualar
