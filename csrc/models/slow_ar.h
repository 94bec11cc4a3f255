// The Slow-AR of the S2 family: one semantic token per audio frame from text and past frames.
// SlowAr holds the weights; SlowState one request's KV cache, position and graphs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "models/block_weights.h"
#include "nn/transformer.h"
#include "runtime/weights.h"

namespace dualar {

struct SlowConfig {
    int64_t context_length = 0;
    int64_t vocab_size = 0;
    int64_t dim = 0;
    int64_t feed_forward = 0;
    int layers = 0;
    int num_codebooks = 0;
    int64_t codebook_size = 0;
    int64_t semantic_begin = 0;
    int64_t semantic_end = 0;  // inclusive
    int64_t im_end = 0;
    bool scale_codebook_embeddings = false;
    bool norm_fast_input = true;
    bool tied = true;
    nn::BlockConfig block;

    bool is_semantic(int64_t token) const { return token >= semantic_begin && token <= semantic_end; }
    int64_t semantic_count() const { return semantic_end - semantic_begin + 1; }
};

class SlowAr {
  public:
    static constexpr const char* kName = "slow";  // of its inputs and probes in a graph

    SlowAr(Weights& weights, int64_t im_end);
    // The stack and its head alone, by their names, for a family that makes the inputs itself and never calls embed().
    SlowAr(Weights& weights, const SlowConfig& config, const BlockTensors& tensors, const char* layer,
           const char* norm_name, const char* head_name);

    // Token id of each sliced logit: the semantic ids ascending, then im_end.
    std::vector<int32_t> main_ids() const;
    // "f32", "f16", or "auto": f32 when the weights are F32, else f16.
    ggml_type kv_type(const std::string& name) const;
    void check_positions(int64_t max_positions) const;
    // columns int32 [1 + N, T], row-major, checked by the caller -> out [T, D].
    void embed(const int32_t* columns, int64_t count, int64_t stride, float* out, std::vector<float>& scratch) const;
    // From the input "x" [D, count] to the outputs that read() reads, of the last column or of all.
    void build(GraphBuilder& g, int64_t count, const nn::AttentionInputs& inputs, const nn::KvCache* cache, bool all,
               bool full_vocab) const;
    // logits [count, width] and hidden [count, D] of the last run.
    void read(const Graph& graph, int64_t count, bool full_vocab, float* logits, float* hidden) const;
    int64_t width(bool full_vocab) const { return full_vocab ? config.vocab_size : config.semantic_count() + 1; }

    SlowConfig config;
    std::vector<nn::BlockWeights> blocks;
    ggml_tensor* norm = nullptr;
    ggml_tensor* head = nullptr;  // ggml [D, V]
    // The head's rows of the ids that can be emitted: semantic ids ascending, then im_end. Empty where they are read
    // from `head` itself.
    std::shared_ptr<const nn::PackedMatrix> sliced_head;
    // All rows of a small head. Empty where they are read from `head` itself, whose product
    // with F16 rows cannot take a hidden state beyond 65504.
    std::shared_ptr<const nn::PackedMatrix> whole_head;
    ggml_type matrix_type = GGML_TYPE_F32;  // of the layers' matrices in the file

  private:
    SlowAr(Weights& weights, const SlowConfig& config);

    HostTable embeddings_;
    HostTable codebook_embeddings_;
};

struct SlowOutput {
    std::vector<float> logits;  // [positions, width]
    std::vector<float> hidden;  // [positions, D]
    int64_t positions = 0;
    int64_t width = 0;
};

// What a session's first positions left in its cache, on the host. Immutable; sessions of the same model and type of
// cache can go on from it.
struct SlowPrefix {
    std::shared_ptr<const SlowAr> model;
    ggml_type type;
    int64_t positions;
    std::vector<char> rows;
};

class SlowState {
  public:
    // Longer prompts are fed in pieces of this size: memory for intermediates stays bounded, larger ones are no
    // quicker, and where other requests wait for a prompt, they do for a piece. Pieces have the bits of the prompt at
    // once.
    static constexpr int64_t kPrefillPiece = 64;

    SlowState(std::shared_ptr<const SlowAr> model, std::shared_ptr<Backend> backend, int64_t max_positions,
              ggml_type kv_type);

    // columns int32 [1 + N, count], row-major and checked by the caller. Appends `count` positions.
    SlowOutput feed(const int32_t* columns, int64_t count, bool all_positions, bool full_vocab);
    // The same for inputs of any kind: embed(first, n, out [n, D]) makes those of positions first .. first + n - 1.
    using Embed = std::function<void(int64_t first, int64_t n, float* out)>;
    SlowOutput feed(const Embed& embed, int64_t count, bool all_positions, bool full_vocab);

    int64_t position() const { return position_; }
    int64_t max_positions() const { return max_positions_; }
    void truncate(int64_t positions) { position_ = positions; }
    // For a graph that runs several requests: it writes the next position there, then says that it has.
    const nn::KvCache& cache() const { return cache_; }
    void advance() { ++position_; }
    // Rows of the cache that attention runs over when a feed ends at so many positions: the bits of what it computes
    // may depend on them.
    int64_t attention_rows(int64_t positions) const;
    ggml_type kv_type() const { return kv_type_; }
    SlowPrefix snapshot() const;
    // Checked by the caller: the prefix fits, and the state is at its beginning.
    void restore(const SlowPrefix& prefix);
    size_t nbytes() const { return cache_.nbytes(); }
    int graph_builds() const { return graph_builds_; }
    // Keep every block's output of graphs built from now on; read them with probes().
    void keep_probes(bool keep);
    std::map<std::string, std::vector<float>> probes() const;

  private:
    Graph& step_graph(int64_t keys, bool full_vocab);
    std::unique_ptr<Graph> make_graph(int64_t count, int64_t keys, bool all_positions, bool full_vocab);
    void run(Graph& graph, const Embed& embed, int64_t first, int64_t count, int64_t keys);

    std::shared_ptr<const SlowAr> model_;
    std::shared_ptr<Backend> backend_;
    int64_t max_positions_;
    int64_t position_ = 0;
    ggml_type kv_type_;
    nn::KvCache cache_;
    nn::AttentionFeed feed_;
    std::vector<float> embedded_;
    std::vector<float> scratch_;
    // One-position graphs of the current KV bucket, [0] sliced head, [1] all-vocabulary head.
    std::unique_ptr<Graph> step_[2];
    int64_t step_keys_[2] = {0, 0};
    int graph_builds_ = 0;
    bool keep_probes_ = false;
    std::map<std::string, std::vector<float>> probes_;
};

}  // namespace dualar
