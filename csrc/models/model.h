// A dual-autoregressive model: one file's weights, and the sessions that run them, whatever the family (its recipe says
// what differs). Immutable after loading.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "models/recipe.h"

namespace dualar {

class Session;

class Model : public std::enable_shared_from_this<Model> {
  public:
    // The family is the one that the file's architecture names. end_id: for families whose files do not say which id
    // ends speech. ModelError lists what is wrong with the file.
    Model(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend, std::optional<int64_t> end_id);

    virtual ~Model() = default;
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    // Bring the weights to the device, once. session() and fast_decode() do it where it has not been done.
    void load() const;

    const Recipe& recipe() const { return *recipe_; }
    const DecoderConfig& config() const { return recipe_->decoder().config; }
    const std::shared_ptr<Backend>& backend() const { return backend_; }
    bool has_fast_ar() const { return recipe_->fast() != nullptr; }
    std::vector<std::string> unused_tensors() const;
    size_t kv_bytes(int64_t max_positions, const std::string& kv_type) const;

    std::unique_ptr<Session> session(int64_t max_positions, const std::string& kv_type) const;
    // Stateless: logits [C] of codebook prefix.size(). Checks its arguments.
    std::vector<float> fast_decode(const std::vector<float>& hidden, const std::vector<int32_t>& prefix) const;

  private:
    friend class Session;
    void check_fast_arguments(const std::vector<float>& hidden, const std::vector<int32_t>& prefix) const;

    std::shared_ptr<Backend> backend_;
    mutable Weights weights_;
    mutable std::once_flag loaded_;
    std::unique_ptr<const Recipe> recipe_;
    mutable std::mutex oracle_mutex_;
    mutable std::unique_ptr<FrameState> oracle_;  // graphs of fast_decode()
};

}  // namespace dualar
