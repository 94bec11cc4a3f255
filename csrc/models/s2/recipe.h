// The S2 family: a Slow-AR whose vocabulary holds text and semantic tokens alike, and a Fast-AR that draws all further
// codes from one table through one head.
#pragma once

#include <optional>

#include "models/recipe.h"

namespace dualar {

class S2Recipe : public Recipe {
  public:
    // end_id: the id that ends speech, which the tokenizer knows and the file does not say.
    S2Recipe(Weights& weights, std::optional<int64_t> end_id);

    bool is_others(const std::string& tensor) const override;
    // columns: a token id, then N codes, which count where the id is a semantic one.
    void check_prompt(const Prompt& prompt) const override;
    void check_column(const int32_t* column) const override { check_columns(column, 1); }
    void embed_prompt(const Prompt& prompt, const float* text, int64_t first, int64_t count, float* out,
                      std::vector<float>& scratch) const override;
    void embed_column(const int32_t* column, const float* text, float* out, std::vector<float>& scratch) const override;

  private:
    void check_columns(const int32_t* columns, int64_t count) const;
    // A column, whose rows are `stride` apart.
    void embed(const int32_t* column, int64_t stride, float* out, std::vector<float>& scratch) const;

    HostTable embeddings_;  // [V, D]
    CodeTables code_embeddings_;
    bool scale_ = false;  // divide a frame's sum by sqrt(N + 1)?
};

}  // namespace dualar
