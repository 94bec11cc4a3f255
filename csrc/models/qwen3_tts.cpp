#include "models/qwen3_tts.h"

#include "models/ar_checks.h"
#include "models/names.h"
#include "models/qwen3_names.h"
#include "runtime/error.h"

namespace dualar {

namespace keys = qwen3_names;

Qwen3Tts::Qwen3Tts(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend)
    : backend_(std::move(backend)), weights_(std::move(file), backend_) {
    check_architecture(weights_.file(), keys::kArchitecture);
    talker_ = std::make_shared<Talker>(weights_);
    predictor_ = std::make_shared<Predictor>(weights_, talker_);
    check_tensors(weights_.file().path(), weights_.problems());
}

void Qwen3Tts::load() const {
    std::call_once(loaded_, [this] { weights_.load(); });
}

std::vector<std::string> Qwen3Tts::unused_tensors() const {
    std::vector<std::string> found;
    for (const std::string& name : weights_.unused())
        if (name.rfind(keys::kCodec, 0) != 0 && name.rfind(keys::kSpeakerEncoder, 0) != 0) found.push_back(name);
    return found;
}

size_t Qwen3Tts::kv_bytes(int64_t max_positions, const std::string& kv_type) const {
    const SlowAr& decoder = *talker_->decoder;
    decoder.check_positions(max_positions);
    return nn::KvCache::nbytes(config().layers, config().block.kv_dim(), max_positions, decoder.kv_type(kv_type)) +
           PredictorState::nbytes(predictor_->config);
}

std::unique_ptr<Qwen3Session> Qwen3Tts::session(int64_t max_positions, const std::string& kv_type) const {
    const SlowAr& decoder = *talker_->decoder;
    decoder.check_positions(max_positions);
    backend_->check_process();
    load();
    return std::make_unique<Qwen3Session>(shared_from_this(), max_positions, decoder.kv_type(kv_type));
}

void Qwen3Tts::check_fast_arguments(const std::vector<float>& hidden, const std::vector<int32_t>& prefix) const {
    check_hidden(hidden, config().dim);
    check_prefix(prefix, config().num_codebooks, config().codebook_size);
}

std::vector<float> Qwen3Tts::fast_decode(const std::vector<float>& hidden, const std::vector<int32_t>& prefix) const {
    check_fast_arguments(hidden, prefix);
    load();
    const std::lock_guard<std::mutex> lock(oracle_mutex_);
    if (!oracle_) oracle_ = std::make_unique<PredictorState>(predictor_, backend_);
    return oracle_->decode(hidden.data(), prefix.data(), static_cast<int64_t>(prefix.size()));
}

void Qwen3Tts::build_fast(GraphBuilder& g, int book, int64_t rows, const nn::AttentionInputs& inputs) const {
    predictor_->build(g, book == 1 ? 2 * rows : rows, rows, book, inputs, nullptr);
}

void Qwen3Tts::set_fast(Graph& graph, int book, int64_t rows, const float* hidden, const int32_t* codes,
                        BatchScratch& scratch) const {
    predictor_->embed(hidden, codes, rows, book - 1, scratch.input, scratch.row);
    graph.set("x", scratch.input.data(), scratch.input.size() * sizeof(float));
}

Qwen3Session::Qwen3Session(std::shared_ptr<const Qwen3Tts> model, int64_t max_positions, ggml_type kv_type)
    : model_(std::move(model)),
      talker_(model_->talker_, model_->backend_, max_positions, kv_type),
      predictor_(model_->predictor_, model_->backend_) {}

SlowOutput Qwen3Session::prefill(const TalkerPrompt& prompt, bool all_positions, bool full_vocab) {
    const OneThread::Use use(one_thread_, "session");
    if (prompt.count < 1) throw std::invalid_argument("[prompt] expected at least one column, got none");
    check_room(prompt.count, position(), max_positions());
    model_->talker_->check(prompt);
    return talker_.prefill(prompt, all_positions, full_vocab);
}

void Qwen3Session::check_column(const int32_t* column) const {
    if (!talker_.has_prompt())
        throw std::invalid_argument(
            text("[step] expected a prompt first, got none that ends by position ", position()));
    check_room(1, position(), max_positions());
    for (int i = 1; i <= model_->config().num_codebooks; ++i) check_code(column[i], model_->config().codebook_size);
    if (column[0] != column[1])
        throw std::invalid_argument(
            text("[step] expected the main id to be the frame's first code, got ", column[0], " and ", column[1]));
}

SlowOutput Qwen3Session::step(const std::vector<int32_t>& column, bool full_vocab) {
    const OneThread::Use use(one_thread_, "session");
    check_column(column.data());
    return talker_.step(column.data() + 1, full_vocab);
}

std::vector<float> Qwen3Session::fast_begin(const std::vector<float>& hidden, int64_t code) {
    const OneThread::Use use(one_thread_, "session");
    check_hidden(hidden, model_->config().dim);
    check_code(code, model_->config().codebook_size);
    return predictor_.begin(hidden.data(), static_cast<int32_t>(code));
}

std::vector<float> Qwen3Session::fast_step(int64_t code) {
    const OneThread::Use use(one_thread_, "session");
    check_code(code, model_->config().codebook_size);
    check_fast_step(predictor_.position(), model_->config().num_codebooks);
    return predictor_.step(static_cast<int32_t>(code));
}

std::vector<float> Qwen3Session::fast_decode(const std::vector<float>& hidden, const std::vector<int32_t>& prefix) {
    const OneThread::Use use(one_thread_, "session");
    model_->check_fast_arguments(hidden, prefix);
    return predictor_.decode(hidden.data(), prefix.data(), static_cast<int64_t>(prefix.size()));
}

void Qwen3Session::truncate(int64_t positions) {
    const OneThread::Use use(one_thread_, "session");
    check_truncate(positions, position());
    talker_.decoder().truncate(positions);
    if (positions == 0) predictor_.reset();
}

void Qwen3Session::keep_probes(bool keep) {
    const OneThread::Use use(one_thread_, "session");
    talker_.decoder().keep_probes(keep);
}

}  // namespace dualar
