#include "models/session.h"

#include <algorithm>

#include "models/ar_checks.h"
#include "runtime/error.h"

namespace dualar {

Session::Session(std::shared_ptr<const Model> model, int64_t max_positions, ggml_type kv_type)
    : model_(std::move(model)), decoder_(model_->recipe().shared_decoder(), model_->backend(), max_positions, kv_type) {
    if (model_->has_fast_ar()) frame_ = std::make_unique<FrameState>(model_->recipe().fast(), model_->backend());
}

DecoderOutput Session::prefill(const Prompt& prompt, bool all_positions, bool full_vocab) {
    const OneThread::Use use(one_thread_, "session");
    const Recipe& recipe = model_->recipe();
    if (prompt.count < 1) throw std::invalid_argument("[prompt] expected at least one column, got none");
    check_room(prompt.count, position(), max_positions());
    recipe.check_prompt(prompt);
    model_->backend()->check_process();
    TextVectors text = recipe.text_vectors(prompt, model_->backend(), text_builds_);
    const auto embed = [&](int64_t first, int64_t count, float* out) {
        recipe.embed_prompt(prompt, text.prompt.data(), first, count, out, scratch_);
    };
    DecoderOutput out = decoder_.feed(embed, prompt.count, all_positions, full_vocab);
    trailing_ = std::move(text.trailing);
    prompt_end_ = position();
    return out;
}

void Session::check_column(const int32_t* column) const {
    if (model_->recipe().text_vocab() > 0 && (prompt_end_ == 0 || frames() < 0))
        throw std::invalid_argument(
            message("[step] expected a prompt first, got none that ends by position ", position()));
    check_room(1, position(), max_positions());
    model_->recipe().check_column(column);
}

void Session::embed(const int32_t* column, float* out, std::vector<float>& scratch) const {
    const int64_t dim = model_->config().dim;
    const int64_t rows = static_cast<int64_t>(trailing_.size()) / dim;
    const float* under = rows == 0 ? nullptr : trailing_.data() + std::min(frames(), rows - 1) * dim;
    model_->recipe().embed_column(column, under, out, scratch);
}

DecoderOutput Session::step(const std::vector<int32_t>& column, bool full_vocab) {
    const OneThread::Use use(one_thread_, "session");
    check_column(column.data());
    const auto input = [&](int64_t, int64_t, float* out) { embed(column.data(), out, scratch_); };
    return decoder_.feed(input, 1, false, full_vocab);
}

FrameState& Session::checked_frame() {
    if (!frame_) throw std::invalid_argument("[fast_ar] expected a model with a Fast-AR, this one has none");
    return *frame_;
}

std::vector<float> Session::fast_begin(const std::vector<float>& hidden, int64_t code) {
    const OneThread::Use use(one_thread_, "session");
    FrameState& frame = checked_frame();
    check_hidden(hidden, model_->config().dim);
    check_code(code, model_->config().codebook_size);
    if (model_->config().num_codebooks < 2)
        throw std::invalid_argument("[fast_begin] expected a model with residual codebooks, this one has none");
    return frame.begin(hidden.data(), static_cast<int32_t>(code));
}

std::vector<float> Session::fast_step(int64_t code) {
    const OneThread::Use use(one_thread_, "session");
    FrameState& frame = checked_frame();
    check_code(code, model_->config().codebook_size);
    check_fast_step(frame.position(), model_->config().num_codebooks);
    return frame.step(static_cast<int32_t>(code));
}

std::vector<float> Session::fast_decode(const std::vector<float>& hidden, const std::vector<int32_t>& prefix) {
    const OneThread::Use use(one_thread_, "session");
    model_->check_fast_arguments(hidden, prefix);
    return frame_->decode(hidden.data(), prefix.data(), static_cast<int64_t>(prefix.size()));
}

void Session::truncate(int64_t positions) {
    const OneThread::Use use(one_thread_, "session");
    check_truncate(positions, position());
    decoder_.truncate(positions);
    if (positions == 0 && frame_) frame_->reset();
}

int64_t Session::attention_rows(int64_t positions) const {
    if (positions < 1 || positions > max_positions())
        throw std::invalid_argument(
            message("[attention_rows] expected 1 to ", max_positions(), " positions, got ", positions));
    return decoder_.attention_rows(positions);
}

DecoderPrefix Session::snapshot() {
    const OneThread::Use use(one_thread_, "session");
    if (position() == 0) throw std::invalid_argument("[snapshot] expected a session with positions, got one at 0");
    return decoder_.snapshot();
}

void Session::restore(const DecoderPrefix& prefix) {
    const OneThread::Use use(one_thread_, "session");
    if (prefix.model != model_->recipe().shared_decoder())
        throw std::invalid_argument("[restore] expected a prefix of this session's model, got another model's");
    if (prefix.type != decoder_.kv_type())
        throw std::invalid_argument(
            message("[restore] expected a prefix in ", kv_type(), ", got ", ggml_type_name(prefix.type)));
    if (position() != 0)
        throw std::invalid_argument(message("[restore] expected a session at position 0, got one at ", position()));
    if (prefix.positions > max_positions())
        throw std::invalid_argument(
            message("[restore] expected at most ", max_positions(), " positions, got ", prefix.positions));
    decoder_.restore(prefix);
    prompt_end_ = 0;
}

void Session::watch(int64_t first, int64_t last) {
    const OneThread::Use use(one_thread_, "session");
    if (model_->config().alignment_heads.empty())
        throw std::invalid_argument("[watch] expected a model whose file names alignment heads, this one names none");
    if (first < 0 || first >= last || last > max_positions())
        throw std::invalid_argument(
            message("[watch] expected positions within 0 to ", max_positions(), ", got ", first, " to ", last));
    decoder_.watch(first, last);
}

std::vector<float> Session::alignment() {
    const OneThread::Use use(one_thread_, "session");
    if (decoder_.alignment().empty())
        throw std::invalid_argument("[alignment] expected positions that are watched, and one computed after them");
    return decoder_.alignment();
}

void Session::keep_probes(bool keep) {
    const OneThread::Use use(one_thread_, "session");
    decoder_.keep_probes(keep);
}

}  // namespace dualar
