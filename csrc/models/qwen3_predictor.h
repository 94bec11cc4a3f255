// The code predictor of Qwen3-TTS: the further codes of one frame, from the talker's hidden state and main code.
// Predictor holds the weights; PredictorState the cache and graphs of one session. As with the S2 family's Fast-AR two
// paths give the same logits, cached and stateless; here each codebook has a table and a head of its own, and every
// input comes in the talker's width.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "models/qwen3_talker.h"

namespace dualar {

struct PredictorConfig {
    int64_t talker_dim = 0;
    int64_t dim = 0;
    int64_t feed_forward = 0;
    int layers = 0;
    int num_codebooks = 0;  // N: positions 0 .. N - 1 are the hidden state and codes 0 .. N - 2
    int64_t codebook_size = 0;
    nn::BlockConfig block;
};

class Predictor {
  public:
    Predictor(Weights& weights, std::shared_ptr<const Talker> talker);

    static constexpr const char* kName = "predictor";  // of its inputs in a graph

    // From the input "x" [talker D, positions] to the output "logits" [C, rows], of codebook `book`, 1 <= book < N, and
    // of the last `rows` positions.
    void build(GraphBuilder& g, int64_t positions, int64_t rows, int book, const nn::AttentionInputs& inputs,
               const nn::KvCache* cache) const;
    // hidden [count, talker D], or nullptr, then the vectors of codes [count] of codebook `book` -> x, as build() has
    // it.
    void embed(const float* hidden, const int32_t* codes, int64_t count, int book, std::vector<float>& x,
               std::vector<float>& scratch) const;
    const Talker& talker() const { return *talker_; }

    PredictorConfig config;
    std::vector<nn::BlockWeights> blocks;
    std::optional<nn::Linear> project_in;  // where the widths differ
    ggml_tensor* norm = nullptr;

  private:
    ggml_tensor* head(GraphBuilder& g, ggml_tensor* h, int book) const;

    std::shared_ptr<const Talker> talker_;  // whose tables its inputs are from
    ggml_tensor* heads_ = nullptr;          // ggml [dim, (N - 1) * C], or packed one by one
    std::vector<std::shared_ptr<nn::PackedMatrix>> packed_heads_;
};

class PredictorState {
  public:
    PredictorState(std::shared_ptr<const Predictor> model, std::shared_ptr<Backend> backend);

    // Arguments are checked by the caller. Each returns logits [C] of the next codebook.
    std::vector<float> begin(const float* hidden, int32_t code);
    std::vector<float> step(int32_t code);
    std::vector<float> decode(const float* hidden, const int32_t* prefix, int64_t count);

    // Positions in the cache: 0 before begin(), at most N.
    int64_t position() const { return position_; }
    void reset() { position_ = 0; }
    // For a graph that runs several requests: it writes positions there, then says how many there are now.
    const nn::KvCache& cache() const { return cache_; }
    void set_position(int64_t position) { position_ = position; }
    size_t nbytes() const { return cache_.nbytes(); }
    static size_t nbytes(const PredictorConfig& config);
    int graph_builds() const { return graph_builds_; }

  private:
    std::unique_ptr<Graph> make_graph(int64_t positions, int book, bool cached);
    // The hidden state (nullptr: none) and codes of codebooks first_book on, at positions from `first` on.
    std::vector<float> run(std::unique_ptr<Graph>& graph, const float* hidden, const int32_t* codes, int64_t count,
                           int first_book, int64_t first, bool cached);

    std::shared_ptr<const Predictor> model_;
    std::shared_ptr<Backend> backend_;
    nn::KvCache cache_;
    nn::AttentionFeed feed_;
    std::vector<float> input_;
    std::vector<float> scratch_;
    int64_t position_ = 0;
    // By the codebook whose head they have.
    std::vector<std::unique_ptr<Graph>> cached_;
    std::vector<std::unique_ptr<Graph>> stateless_;
    int graph_builds_ = 0;
};

}  // namespace dualar
