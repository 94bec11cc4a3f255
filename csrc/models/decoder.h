// The transformer that gives one token per audio frame (the Slow-AR), of any family: a stack of blocks, a norm and a
// head. Decoder holds the weights; DecoderState one request's KV cache, position and graphs. What its inputs are made
// of is the recipe's affair (models/recipe.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "models/block_weights.h"
#include "nn/transformer.h"
#include "runtime/weights.h"

namespace dualar {

struct DecoderConfig {
    int64_t context_length = 0;
    int64_t vocab_size = 0;
    int64_t dim = 0;
    int64_t feed_forward = 0;
    int layers = 0;
    int num_codebooks = 0;
    int64_t codebook_size = 0;
    // The ids that can be emitted: those of the frames' first codes, and the one that ends speech.
    int64_t semantic_begin = 0;
    int64_t semantic_end = 0;         // inclusive
    int64_t end_id = 0;               // -1 where none does, but a frame of nothing but end_code
    std::optional<int32_t> end_code;  // the code that fills the frame that ends speech, where no id does
    bool hidden_normed = true;        // is the hidden state that is given back the one behind the last norm?
    nn::BlockConfig block;
    // Heads whose attention is on the text that is being spoken. Empty where the file names none.
    struct Head {
        int layer;
        int head;
    };
    std::vector<Head> alignment_heads;

    bool is_semantic(int64_t token) const { return token >= semantic_begin && token <= semantic_end; }
    int64_t semantic_count() const { return semantic_end - semantic_begin + 1; }
    // How many ids can be emitted.
    int64_t main_count() const { return semantic_count() + (end_id >= 0 ? 1 : 0); }
};

class Decoder {
  public:
    static constexpr const char* kName = "decoder";  // of its inputs and probes in a graph

    // The names: what a layer's tensors begin with ("layers."), the last norm, the head [V, D].
    Decoder(Weights& weights, const DecoderConfig& config, const BlockTensors& tensors, const char* layer,
            const char* norm_name, const char* head_name);

    // Token id of each sliced logit: the semantic ids ascending, then end_id where there is one.
    std::vector<int32_t> main_ids() const;
    // "f32", "f16", or "auto": f32 when the weights are F32, else f16.
    ggml_type kv_type(const std::string& name) const;
    void check_positions(int64_t max_positions) const;
    // From the input "x" [D, count] to the outputs that read() reads, of the last column or of all.
    void build(GraphBuilder& g, int64_t count, const nn::AttentionInputs& inputs, const nn::KvCache* cache, bool all,
               bool full_vocab) const;
    // logits [count, width] and hidden [count, D] of the last run.
    void read(const Graph& graph, int64_t count, bool full_vocab, float* logits, float* hidden) const;
    // The rotated query [head_dim] of one of the alignment heads, at a column of the last run.
    void read_query(const Graph& graph, const DecoderConfig::Head& head, int64_t column, float* out) const;
    int64_t width(bool full_vocab) const { return full_vocab ? config.vocab_size : config.main_count(); }

    DecoderConfig config;
    std::vector<nn::BlockWeights> blocks;
    ggml_tensor* norm = nullptr;
    ggml_tensor* head = nullptr;  // ggml [D, V]
    // The head's rows of the ids that can be emitted: semantic ids ascending, then end_id. Empty where they are read
    // from `head` itself.
    std::shared_ptr<const nn::PackedMatrix> sliced_head;
    // All rows of a small head. Empty where they are read from `head` itself, whose product
    // with F16 rows cannot take a hidden state beyond 65504.
    std::shared_ptr<const nn::PackedMatrix> whole_head;
    ggml_type matrix_type = GGML_TYPE_F32;  // of the layers' matrices in the file
    std::vector<int> query_layers;          // those of the alignment heads, ascending
};

struct DecoderOutput {
    std::vector<float> logits;  // [positions, width]
    std::vector<float> hidden;  // [positions, D]
    int64_t positions = 0;
    int64_t width = 0;
};

// What a session's first positions left in its cache, on the host. Immutable; sessions of the same model and type of
// cache can go on from it.
struct DecoderPrefix {
    std::shared_ptr<const Decoder> model;
    ggml_type type;
    int64_t positions;
    std::vector<char> rows;
};

class DecoderState {
  public:
    // Longer prompts are fed in pieces of this size: memory for intermediates stays bounded, larger ones are no
    // quicker, and where other requests wait for a prompt, they do for a piece. Pieces have the bits of the prompt at
    // once.
    static constexpr int64_t kPrefillPiece = 64;

    DecoderState(std::shared_ptr<const Decoder> model, std::shared_ptr<Backend> backend, int64_t max_positions,
                 ggml_type kv_type);

    // Appends `count` positions; embed(first, n, out [n, D]) makes the inputs of positions first .. first + n - 1.
    using Embed = std::function<void(int64_t first, int64_t n, float* out)>;
    DecoderOutput feed(const Embed& embed, int64_t count, bool all_positions, bool full_vocab);

    int64_t position() const { return position_; }
    int64_t max_positions() const { return max_positions_; }
    void truncate(int64_t positions);
    // For a batch, whose graph writes the next position to the cache and which then calls advance().
    const nn::KvCache& cache() const { return cache_; }
    void advance() { ++position_; }
    // How many rows of the cache attention runs over when a feed ends at `positions` positions. The bits of what it
    // computes may depend on that number.
    int64_t attention_rows(int64_t positions) const;
    ggml_type kv_type() const { return kv_type_; }
    DecoderPrefix snapshot() const;
    // Checked by the caller: the prefix fits, and the state is at its beginning.
    void restore(const DecoderPrefix& prefix);
    size_t nbytes() const { return cache_.nbytes(); }
    int graph_builds() const { return graph_builds_; }
    // From now on keep how the alignment heads attend to positions first .. last - 1. Nothing else changes by it.
    void watch(int64_t first, int64_t last);
    // A softmax over these positions alone, [heads, last - first], of the column that was computed last; empty where
    // that came before them, or nothing is watched.
    const std::vector<float>& alignment() const { return alignment_; }
    // Sets alignment() from the graph that computed this state's last position as its column `column`.
    void align(const Graph& graph, int64_t column);
    // Keep every block's output of graphs built from now on; read them with probes().
    void keep_probes(bool keep);
    std::map<std::string, std::vector<float>> probes() const;

  private:
    Graph& step_graph(int64_t keys, bool full_vocab);
    std::unique_ptr<Graph> make_graph(int64_t count, int64_t keys, bool all_positions, bool full_vocab);
    void run(Graph& graph, const Embed& embed, int64_t first, int64_t count, int64_t keys);

    std::shared_ptr<const Decoder> model_;
    std::shared_ptr<Backend> backend_;
    int64_t max_positions_;
    int64_t position_ = 0;
    ggml_type kv_type_;
    nn::KvCache cache_;
    nn::AttentionFeed feed_;
    std::vector<float> embedded_;
    // One-position graphs of the current KV bucket, [0] sliced head, [1] all-vocabulary head.
    std::unique_ptr<Graph> step_[2];
    int64_t step_keys_[2] = {0, 0};
    int graph_builds_ = 0;
    int64_t watched_first_ = 0;
    int64_t watched_last_ = 0;
    std::vector<float> watched_keys_;  // [heads, last - first, head_dim], once they are in the cache
    std::vector<float> alignment_;
    std::vector<float> query_;
    bool keep_probes_ = false;
    std::map<std::string, std::vector<float>> probes_;
};

}  // namespace dualar
