// The Qwen3-TTS family: a talker, whose every input is the sum of a text side (a text id through a two-layer MLP) and a
// codec side (an id of the talker's vocabulary and the further codes of a frame), and a code predictor with a table and
// a head for each codebook.
#pragma once

#include <optional>

#include "models/recipe.h"

namespace dualar {

class Qwen3Recipe : public Recipe {
  public:
    // end_id: none, the file says it.
    Qwen3Recipe(Weights& weights, std::optional<int64_t> end_id);

    int64_t text_vocab() const override { return text_vocab_; }
    bool is_others(const std::string& tensor) const override;
    // columns: a text id; an id of the vocabulary, N - 1 codes; -1 where there is none. trailing: tts_pad follows it.
    void check_prompt(const Prompt& prompt) const override;
    // column: the main id just drawn, then the frame's N codes, of which it is the first.
    void check_column(const int32_t* column) const override;
    TextVectors text_vectors(const Prompt& prompt, const std::shared_ptr<Backend>& backend,
                             int& graph_builds) const override;
    void embed_prompt(const Prompt& prompt, const float* text, int64_t first, int64_t count, float* out,
                      std::vector<float>& scratch) const override;
    void embed_column(const int32_t* column, const float* text, float* out, std::vector<float>& scratch) const override;

  private:
    void read_talker(Weights& weights, const DecoderConfig& config);
    std::shared_ptr<const FastAr> read_predictor(Weights& weights) const;
    // Adds the codec side of a column, `stride` apart, to out [D].
    void add_codes(const int32_t* codes, int64_t stride, float* out, std::vector<float>& scratch) const;
    // T(id) = out(silu(in(embedding[id]))) of each id, [ids, D].
    std::vector<float> project(const std::vector<int32_t>& ids, const std::shared_ptr<Backend>& backend,
                               int& graph_builds) const;

    int64_t text_vocab_ = 0;
    int64_t text_dim_ = 0;
    int64_t tts_pad_ = 0;        // the text id that stands under frames once the text is through
    HostTable text_embeddings_;  // [Vt, Dt]
    nn::Linear text_in_;         // Dt -> Dt
    nn::Linear text_out_;        // Dt -> D
    CodeTables codes_;           // of the talker's width: main codes and control ids, then the predictor's tables
};

}  // namespace dualar
