#include "models/dual_ar.h"

#include "models/ar_checks.h"
#include "models/names.h"
#include "runtime/error.h"

namespace dualar {

DualAr::DualAr(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend, int64_t im_end)
    : backend_(std::move(backend)), weights_(std::move(file), backend_) {
    check_architecture(weights_.file(), names::kArchitecture);
    auto slow = std::make_shared<SlowAr>(weights_, im_end);
    std::shared_ptr<FastAr> fast;
    if (FastAr::present(weights_.file()))
        fast = std::make_shared<FastAr>(weights_, slow->config.dim, slow->config.num_codebooks,
                                        slow->config.codebook_size);
    check_tensors(weights_.file().path(), weights_.problems());
    slow_ = std::move(slow);
    fast_ = std::move(fast);
}

void DualAr::load() const {
    std::call_once(loaded_, [this] { weights_.load(); });
}

std::vector<std::string> DualAr::unused_tensors() const {
    std::vector<std::string> found;
    for (const std::string& name : weights_.unused())
        if (name.rfind("c.", 0) != 0) found.push_back(name);  // the codec's are its own affair
    return found;
}

size_t DualAr::kv_bytes(int64_t max_positions, const std::string& kv_type_name) const {
    slow_->check_positions(max_positions);
    const ggml_type type = slow_->kv_type(kv_type_name);
    const size_t bytes = nn::KvCache::nbytes(config().layers, config().block.kv_dim(), max_positions, type);
    return fast_ ? bytes + FastState::nbytes(fast_->config) : bytes;
}

std::unique_ptr<Session> DualAr::session(int64_t max_positions, const std::string& kv_type_name) const {
    slow_->check_positions(max_positions);
    backend_->check_process();
    load();
    return std::make_unique<Session>(shared_from_this(), max_positions, slow_->kv_type(kv_type_name));
}

void DualAr::check_fast_arguments(const std::vector<float>& hidden, const std::vector<int32_t>& prefix) const {
    if (!fast_) throw std::invalid_argument("[fast_decode] expected a model with a Fast-AR, this one has none");
    check_hidden(hidden, config().dim);
    check_prefix(prefix, config().num_codebooks, config().codebook_size);
}

std::vector<float> DualAr::fast_decode(const std::vector<float>& hidden, const std::vector<int32_t>& prefix) const {
    check_fast_arguments(hidden, prefix);
    load();
    const std::lock_guard<std::mutex> lock(oracle_mutex_);
    if (!oracle_) oracle_ = std::make_unique<FastState>(fast_, backend_);
    return oracle_->decode(hidden.data(), prefix.data(), static_cast<int64_t>(prefix.size()));
}

void DualAr::build_fast(GraphBuilder& g, int book, int64_t rows, const nn::AttentionInputs& inputs) const {
    fast_->build(g, book == 1 ? rows : 0, rows, rows, inputs, nullptr);
}

void DualAr::set_fast(Graph& graph, int book, int64_t rows, const float* hidden, const int32_t* codes,
                      BatchScratch& scratch) const {
    scratch.input.resize(static_cast<size_t>(rows * fast_->config.dim));
    fast_->embed(codes, rows, scratch.input.data());
    graph.set("x", scratch.input.data(), scratch.input.size() * sizeof(float));
    if (book == 1) graph.set("hidden", hidden, static_cast<size_t>(rows * fast_->config.slow_dim) * sizeof(float));
}

Session::Session(std::shared_ptr<const DualAr> model, int64_t max_positions, ggml_type kv_type)
    : model_(std::move(model)), slow_(model_->slow_, model_->backend_, max_positions, kv_type) {
    if (model_->fast_) fast_ = std::make_unique<FastState>(model_->fast_, model_->backend_);
}

// columns int32 [1 + N, count] row-major: may they be fed?
void Session::check_columns(const int32_t* columns, int64_t count) const {
    const SlowConfig& c = model_->config();
    if (count < 1) throw std::invalid_argument("[prompt] expected at least one column, got none");
    check_room(count, position(), max_positions());
    for (int64_t t = 0; t < count; ++t) {
        const int32_t token = columns[t];
        if (token < 0 || token >= c.vocab_size)
            throw std::invalid_argument(
                text("[prompt] expected ids from 0 to ", c.vocab_size - 1, " in row 0, got ", token, " in column ", t));
        for (int64_t i = 1; i <= c.num_codebooks; ++i) {
            const int32_t code = columns[i * count + t];
            if (code < 0 || code >= c.codebook_size)
                throw std::invalid_argument(text("[prompt] expected codes from 0 to ", c.codebook_size - 1, " in row ",
                                                 i, ", got ", code, " in column ", t));
        }
    }
}

SlowOutput Session::feed(const std::vector<int32_t>& columns, int64_t count, bool all_positions, bool full_vocab) {
    const OneThread::Use use(one_thread_, "session");
    check_columns(columns.data(), count);
    return slow_.feed(columns.data(), count, all_positions, full_vocab);
}

FastState& Session::fast() {
    if (!fast_) throw std::invalid_argument("[fast_ar] expected a model with a Fast-AR, this one has none");
    return *fast_;
}

std::vector<float> Session::fast_begin(const std::vector<float>& hidden, int64_t code) {
    const OneThread::Use use(one_thread_, "session");
    FastState& state = fast();
    check_hidden(hidden, model_->config().dim);
    check_code(code, model_->config().codebook_size);
    if (model_->config().num_codebooks < 2)
        throw std::invalid_argument("[fast_begin] expected a model with residual codebooks, this one has none");
    return state.begin(hidden.data(), static_cast<int32_t>(code));
}

std::vector<float> Session::fast_step(int64_t code) {
    const OneThread::Use use(one_thread_, "session");
    FastState& state = fast();
    check_code(code, model_->config().codebook_size);
    check_fast_step(state.position(), model_->config().num_codebooks);
    return state.step(static_cast<int32_t>(code));
}

std::vector<float> Session::fast_decode(const std::vector<float>& hidden, const std::vector<int32_t>& prefix) {
    const OneThread::Use use(one_thread_, "session");
    model_->check_fast_arguments(hidden, prefix);
    return fast_->decode(hidden.data(), prefix.data(), static_cast<int64_t>(prefix.size()));
}

void Session::reset() {
    const OneThread::Use use(one_thread_, "session");
    slow_.truncate(0);
    if (fast_) fast_->reset();
}

void Session::truncate(int64_t positions) {
    const OneThread::Use use(one_thread_, "session");
    check_truncate(positions, position());
    slow_.truncate(positions);
}

int64_t Session::attention_rows(int64_t positions) const {
    if (positions < 1 || positions > max_positions())
        throw std::invalid_argument(
            text("[attention_rows] expected 1 to ", max_positions(), " positions, got ", positions));
    return slow_.attention_rows(positions);
}

SlowPrefix Session::snapshot() {
    const OneThread::Use use(one_thread_, "session");
    if (position() == 0) throw std::invalid_argument("[snapshot] expected a session with positions, got one at 0");
    return slow_.snapshot();
}

void Session::restore(const SlowPrefix& prefix) {
    const OneThread::Use use(one_thread_, "session");
    if (prefix.model != model_->slow_)
        throw std::invalid_argument("[restore] expected a prefix of this session's model, got another model's");
    if (prefix.type != slow_.kv_type())
        throw std::invalid_argument(
            text("[restore] expected a prefix in ", kv_type(), ", got ", ggml_type_name(prefix.type)));
    if (position() != 0)
        throw std::invalid_argument(text("[restore] expected a session at position 0, got one at ", position()));
    if (prefix.positions > max_positions())
        throw std::invalid_argument(
            text("[restore] expected at most ", max_positions(), " positions, got ", prefix.positions));
    slow_.restore(prefix);
}

void Session::keep_probes(bool keep) {
    const OneThread::Use use(one_thread_, "session");
    slow_.keep_probes(keep);
}

}  // namespace dualar
