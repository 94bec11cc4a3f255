#include "models/model.h"

#include "models/ar_checks.h"
#include "models/registry.h"
#include "models/session.h"
#include "runtime/error.h"

namespace dualar {

Model::Model(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend, std::optional<int64_t> end_id)
    : backend_(std::move(backend)), weights_(std::move(file), backend_) {
    recipe_ = family_of(weights_.file()).recipe(weights_, end_id);
    check_tensors(weights_.file().path(), weights_.problems());
}

void Model::load() const {
    backend_->check_process();  // a fork may have come in the middle of a load, which never ends in the child
    std::call_once(loaded_, [this] { weights_.load(); });
}

std::vector<std::string> Model::unused_tensors() const {
    std::vector<std::string> found;
    for (const std::string& name : weights_.unused())
        if (!recipe_->is_others(name)) found.push_back(name);
    return found;
}

size_t Model::kv_bytes(int64_t max_positions, const std::string& kv_type) const {
    const Decoder& decoder = recipe_->decoder();
    decoder.check_positions(max_positions);
    const ggml_type type = decoder.kv_type(kv_type);
    const size_t bytes = nn::KvCache::nbytes(config().layers, config().block.kv_dim(), max_positions, type);
    return has_fast_ar() ? bytes + FrameState::nbytes(recipe_->fast()->config) : bytes;
}

std::unique_ptr<Session> Model::session(int64_t max_positions, const std::string& kv_type) const {
    const Decoder& decoder = recipe_->decoder();
    decoder.check_positions(max_positions);
    backend_->check_process();
    load();
    return std::make_unique<Session>(shared_from_this(), max_positions, decoder.kv_type(kv_type));
}

void Model::check_fast_arguments(const std::vector<float>& hidden, const std::vector<int32_t>& prefix) const {
    if (!has_fast_ar()) throw std::invalid_argument("[fast_decode] expected a model with a Fast-AR, this one has none");
    check_hidden(hidden, config().dim);
    check_prefix(prefix, config().num_codebooks, config().codebook_size);
}

std::vector<float> Model::fast_decode(const std::vector<float>& hidden, const std::vector<int32_t>& prefix) const {
    check_fast_arguments(hidden, prefix);
    load();
    const std::lock_guard<std::mutex> lock(oracle_mutex_);
    if (!oracle_) oracle_ = std::make_unique<FrameState>(recipe_->fast(), backend_);
    return oracle_->decode(hidden.data(), prefix.data(), static_cast<int64_t>(prefix.size()));
}

}  // namespace dualar
