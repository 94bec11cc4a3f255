// The CSM family: a Llama backbone whose inputs are text ids or frames (the sum of the vectors of a frame's codes), and
// a Llama depth decoder with a head for each further codebook. Both take the codes' vectors from one table. No id ends
// speech: a frame of nothing but code 0 does.
#pragma once

#include <optional>

#include "models/recipe.h"

namespace dualar {

class CsmRecipe : public Recipe {
  public:
    // end_id: none, no id ends speech.
    CsmRecipe(Weights& weights, std::optional<int64_t> end_id);

    bool is_others(const std::string& tensor) const override;
    // columns: a text id and no codes (-1), or no text (-1) and a frame's N codes.
    void check_prompt(const Prompt& prompt) const override;
    // column: the frame's first code, then its N codes.
    void check_column(const int32_t* column) const override;
    void embed_prompt(const Prompt& prompt, const float* text, int64_t first, int64_t count, float* out,
                      std::vector<float>& scratch) const override;
    void embed_column(const int32_t* column, const float* text, float* out, std::vector<float>& scratch) const override;

  private:
    // The sum of the vectors of a frame's codes, `stride` apart.
    void embed_frame(const int32_t* codes, int64_t stride, float* out, std::vector<float>& scratch) const;

    int64_t text_vocab_ = 0;
    HostTable text_embeddings_;  // [Vt, D]
    CodeTables codes_;
};

}  // namespace dualar
