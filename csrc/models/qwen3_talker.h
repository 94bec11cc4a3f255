// The talker of Qwen3-TTS: one main code per audio frame, from text and past frames that are added to one another.
// Talker holds the weights; the stack of blocks, its cache and its head are the Slow-AR's (models/slow_ar.h), which
// differs only in how a position's input is made. Every position is the sum of a text side (a text id through a
// two-layer MLP) and a codec side (an id of the talker's vocabulary, and the further codes of a frame).
#pragma once

#include <memory>
#include <vector>

#include "models/slow_ar.h"

namespace dualar {

// What the talker and the code predictor read alike: a block's sizes by their keys, and a layer with its bias.
nn::BlockConfig read_qwen3_block(const GgufFile& file, const char* heads, const char* kv_heads, const char* head_dim,
                                 const char* rope_base, const char* eps);
nn::Linear read_with_bias(Weights& weights, const char* name, int64_t rows, int64_t columns);

struct TalkerConfig {
    int64_t text_vocab = 0;
    int64_t text_dim = 0;
    int64_t tts_pad = 0;  // the text id that stands under frames once the text is through
};

// What a request begins with.
struct TalkerPrompt {
    std::vector<int32_t>
        columns;  // [1 + N, count] row-major: a text id; an id of the vocabulary, N - 1 codes; -1: none
    int64_t count = 0;
    std::vector<int32_t> trailing;  // text ids, one for each frame to come; tts_pad after the last
    std::vector<float> speaker;     // [D], added at speaker_column; empty: none
    int64_t speaker_column = 0;
};

class Talker {
  public:
    explicit Talker(Weights& weights);

    // Throws std::invalid_argument naming what is out of range.
    void check(const TalkerPrompt& prompt) const;
    // Adds the codec side of a column (`stride` apart: an id of the vocabulary or -1, N - 1 codes or -1) to out [D].
    void add_codes(const int32_t* codes, int64_t stride, float* out, std::vector<float>& scratch) const;
    // Adds the vector of one code of codebook `book` to out [D].
    void add_code(int64_t book, int32_t code, float* out, std::vector<float>& scratch) const;

    TalkerConfig config;
    std::shared_ptr<const SlowAr> decoder;

  private:
    friend class TalkerState;
    HostTable text_embeddings_;  // [Vt, Dt]
    nn::Linear text_in_;         // Dt -> Dt
    nn::Linear text_out_;        // Dt -> D
    HostTable embeddings_;       // [V, D]: main codes and control ids
    HostTable code_embeddings_;  // [(N - 1) * C, D]: the code predictor's tables
};

class TalkerState {
  public:
    TalkerState(std::shared_ptr<const Talker> model, std::shared_ptr<Backend> backend, int64_t max_positions,
                ggml_type kv_type);

    // Arguments are checked by the caller.
    SlowOutput prefill(const TalkerPrompt& prompt, bool all_positions, bool full_vocab);
    // codes [N] of the frame just made.
    SlowOutput step(const int32_t* codes, bool full_vocab);
    // That step's input, [D].
    void embed(const int32_t* codes, float* out, std::vector<float>& scratch) const;

    // Frames that step() was given since the prompt; negative once truncate() cut into it.
    int64_t frame() const { return decoder_.position() - prompt_end_; }
    bool has_prompt() const { return prompt_end_ > 0 && frame() >= 0; }
    const SlowState& decoder() const { return decoder_; }
    SlowState& decoder() { return decoder_; }
    int graph_builds() const { return decoder_.graph_builds() + graph_builds_; }

  private:
    // T(id) = out(silu(in(embedding[id]))) of each id, [ids, D].
    std::vector<float> project(const std::vector<int32_t>& ids);

    std::shared_ptr<const Talker> model_;
    std::shared_ptr<Backend> backend_;
    SlowState decoder_;
    int64_t prompt_end_ = 0;
    std::vector<float> trailing_;  // [M + 1, D]: text vectors of the frames to come, then tts_pad's
    std::vector<float> scratch_;
    int graph_builds_ = 0;
};

}  // namespace dualar
