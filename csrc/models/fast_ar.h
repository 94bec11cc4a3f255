// The small transformer that gives the further codes of one frame (the Fast-AR), of any family, from the decoder's
// hidden state and the frame's first code. FastAr holds the weights; FrameState the cache and graphs of one session.
// Two paths give the same logits: step by step with a cache (begin, step), and a stateless recompute of the whole frame
// (decode), which is its oracle.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "models/code_tables.h"
#include "nn/transformer.h"
#include "runtime/weights.h"

namespace dualar {

struct FastConfig {
    int64_t hidden_dim = 0;  // of the decoder's hidden state
    int64_t dim = 0;
    int64_t feed_forward = 0;
    int layers = 0;
    int num_codebooks = 0;  // N: positions 0 .. N - 1 are the hidden state and codes 0 .. N - 2
    int64_t codebook_size = 0;
    nn::BlockConfig block;
};

// The inputs of one run: hidden states [hiddens, D], then codes [count], one position each in this order. Code i
// belongs to codebook first_book, or to codebook first_book + i where `go_on` is set.
struct FastInputs {
    const float* hidden = nullptr;
    int64_t hiddens = 0;
    const int32_t* codes = nullptr;
    int64_t count = 0;
    int first_book = 0;
    bool go_on = false;
};

struct FastAr {
    static constexpr const char* kName = "fast";  // of its inputs and probes in a graph

    // Graphs differ by codebook where each has a head of its own; else only by whether they begin a frame. The graph
    // that gives the logits of codebook `book`, 1 <= book < N, counted from 0:
    int graph_of(int book) const { return heads_differ() ? book - 1 : (book == 1 ? 0 : 1); }
    int graphs() const { return config.num_codebooks - 1; }

    // The inputs that set() sets, for so many hidden states and codes; output "logits" [C, rows] of codebook `book`, of
    // the last `rows` positions.
    void build(GraphBuilder& g, int64_t hiddens, int64_t codes, int64_t rows, int book,
               const nn::AttentionInputs& inputs, const nn::KvCache* cache) const;
    void set(Graph& graph, const FastInputs& inputs, std::vector<float>& scratch) const;

    FastConfig config;
    std::vector<nn::BlockWeights> blocks;
    std::optional<nn::Linear> project_in;  // D -> dim, of the hidden state
    bool projects_codes = false;           // do the codes' vectors have D values, too, and are projected with it?
    CodeTables tables;                     // of codebooks 0 .. N - 2
    ggml_tensor* norm = nullptr;
    std::vector<nn::Linear> heads;         // one for all codebooks, or one for each but the first
    ggml_tensor* stacked_heads = nullptr;  // in their place, ggml [dim, (N - 1) * C]

  private:
    bool heads_differ() const { return stacked_heads != nullptr || heads.size() > 1; }
    // Has the hidden state an input of its own, being projected alone?
    bool hidden_apart() const { return project_in && !projects_codes; }
    int64_t code_dim() const { return projects_codes ? config.hidden_dim : config.dim; }
    ggml_tensor* head(GraphBuilder& g, ggml_tensor* h, int book) const;
};

// The heads of codebooks 1 .. N - 1, numpy [(N - 1) * C, dim], which lie under one another in the file's tensor.
void read_stacked_heads(Weights& weights, const char* name, FastAr& fast);

class FrameState {
  public:
    FrameState(std::shared_ptr<const FastAr> model, std::shared_ptr<Backend> backend);

    // Arguments are checked by the caller. Each returns logits [C] of the next codebook, there until the next call.
    const std::vector<float>& begin(const float* hidden, int32_t code);
    const std::vector<float>& step(int32_t code);
    const std::vector<float>& decode(const float* hidden, const int32_t* prefix, int64_t count);

    // Positions in the cache: 0 before begin(), at most N.
    int64_t position() const { return position_; }
    void reset() { position_ = 0; }
    // For a batch, whose graph writes positions to the cache and which then sets how many it holds.
    const nn::KvCache& cache() const { return cache_; }
    void set_position(int64_t position) { position_ = position; }
    size_t nbytes() const { return cache_.nbytes(); }
    static size_t nbytes(const FastConfig& config);
    int graph_builds() const { return graph_builds_; }

  private:
    const std::vector<float>& run(std::unique_ptr<Graph>& graph, const FastInputs& inputs, int64_t first, bool cached);

    std::shared_ptr<const FastAr> model_;
    std::shared_ptr<Backend> backend_;
    nn::KvCache cache_;
    nn::AttentionFeed feed_;
    std::vector<float> scratch_;
    std::vector<float> logits_;
    int64_t position_ = 0;
    std::vector<std::unique_ptr<Graph>> cached_;     // by graph_of()
    std::vector<std::unique_ptr<Graph>> stateless_;  // by the number of codes
    int graph_builds_ = 0;
};

}  // namespace dualar
