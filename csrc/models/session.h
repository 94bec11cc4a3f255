// The state of one request: KV caches, position, and the text that goes on under its frames. Every argument is checked
// here. It belongs to one thread at a time, and dies without touching the model.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "runtime/one_thread.h"

namespace dualar {

class Session {
  public:
    Session(std::shared_ptr<const Model> model, int64_t max_positions, ggml_type kv_type);

    // Appends the prompt's columns; the next one that is given to step() may follow.
    DecoderOutput prefill(const Prompt& prompt, bool all_positions, bool full_vocab);
    // column [1 + N].
    DecoderOutput step(const std::vector<int32_t>& column, bool full_vocab);
    std::vector<float> fast_begin(const std::vector<float>& hidden, int64_t code);
    std::vector<float> fast_step(int64_t code);
    std::vector<float> fast_decode(const std::vector<float>& hidden, const std::vector<int32_t>& prefix);

    const Model& model() const { return *model_; }
    int64_t position() const { return decoder_.position(); }
    int64_t max_positions() const { return decoder_.max_positions(); }
    size_t nbytes() const { return decoder_.nbytes() + (frame_ ? frame_->nbytes() : 0); }
    int graph_builds() const { return decoder_.graph_builds() + text_builds_ + (frame_ ? frame_->graph_builds() : 0); }
    void reset() { truncate(0); }
    void truncate(int64_t positions);
    int64_t attention_rows(int64_t positions) const;
    const char* kv_type() const { return decoder_.kv_type() == GGML_TYPE_F32 ? "f32" : "f16"; }
    // What the positions so far left behind, for sessions that shall begin with them.
    DecoderPrefix snapshot();
    void restore(const DecoderPrefix& prefix);
    // Watch how the model's alignment heads attend to positions first .. last - 1: DecoderState::watch().
    void watch(int64_t first, int64_t last);
    std::vector<float> alignment();
    void keep_probes(bool keep);
    std::map<std::string, std::vector<float>> probes() const { return decoder_.probes(); }

    // For a batch (models/batch.h), which holds turn() meanwhile and checks what it asks for.
    OneThread& turn() { return one_thread_; }
    DecoderState& decoder() { return decoder_; }
    FrameState& frame() { return *frame_; }
    // column [1 + N]: may the next step take it? Else std::invalid_argument.
    void check_column(const int32_t* column) const;
    // The next step's input, [D], of a column that may be taken.
    void embed(const int32_t* column, float* out, std::vector<float>& scratch) const;

  private:
    // Frames that step() was given since the prompt; negative once truncate() cut into it.
    int64_t frames() const { return position() - prompt_end_; }
    FrameState& checked_frame();

    std::shared_ptr<const Model> model_;
    DecoderState decoder_;
    std::unique_ptr<FrameState> frame_;  // nullptr without a Fast-AR
    int64_t prompt_end_ = 0;
    std::vector<float> trailing_;  // TextVectors::trailing of the prompt
    int text_builds_ = 0;
    std::vector<float> scratch_;
    OneThread one_thread_;
};

}  // namespace dualar
