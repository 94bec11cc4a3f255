// A recipe is all that differs between families of models: which weights the two transformers have, how a request's
// columns become their inputs, and what a request may ask for. models/model.h, session.h and batch.h run any recipe. A
// family's recipe lies in a folder of its own, and models/registry.h finds it. It is immutable once it is made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/decoder.h"
#include "models/fast_ar.h"

namespace dualar {

// What a request begins with, of any family. What a family does not take is empty.
struct Prompt {
    std::vector<int32_t> columns;  // [1 + N, count] row-major: what its rows are is the family's affair
    int64_t count = 0;
    std::vector<int32_t> trailing;  // text ids, one for each frame to come
    std::vector<float> speaker;     // [D], added at speaker_column
    int64_t speaker_column = 0;
};

// Vectors of a request's text, one a row [., D], of families that add text to their inputs.
struct TextVectors {
    std::vector<float> prompt;    // of the ids that its columns name, in order
    std::vector<float> trailing;  // under the frames to come; the last one goes on
};

class Recipe {
  public:
    virtual ~Recipe() = default;

    const Decoder& decoder() const { return *decoder_; }
    const std::shared_ptr<const Decoder>& shared_decoder() const { return decoder_; }
    // nullptr for a file without a Fast-AR.
    const std::shared_ptr<const FastAr>& fast() const { return fast_; }

    // Ids of text that prompts may name beside the decoder's own; 0 where text is written in those.
    virtual int64_t text_vocab() const { return 0; }
    // Does a tensor of the file belong to another part of it, by its name?
    virtual bool is_others(const std::string& tensor) const = 0;

    // std::invalid_argument naming what is out of range.
    virtual void check_prompt(const Prompt& prompt) const = 0;
    virtual void check_column(const int32_t* column) const = 0;

    // What follows is given what the checks let through. graph_builds counts graphs that it had to build.
    virtual TextVectors text_vectors(const Prompt&, const std::shared_ptr<Backend>&, int& /*graph_builds*/) const {
        return {};
    }
    // Inputs [count, D] of the prompt's columns first .. first + count - 1. text: TextVectors::prompt.
    virtual void embed_prompt(const Prompt& prompt, const float* text, int64_t first, int64_t count, float* out,
                              std::vector<float>& scratch) const = 0;
    // The input [D] of one further column [1 + N]: a frame's token and codes. text: its row of TextVectors::trailing,
    // or nullptr.
    virtual void embed_column(const int32_t* column, const float* text, float* out,
                              std::vector<float>& scratch) const = 0;

  protected:
    std::shared_ptr<const Decoder> decoder_;
    std::shared_ptr<const FastAr> fast_;
};

}  // namespace dualar
