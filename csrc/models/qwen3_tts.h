// A Qwen3-TTS model and the sessions that run it: talker and code predictor put together, every argument checked here.
// The face of DualAr and Session (models/dual_ar.h), so that one loop runs both families.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "models/batch_row.h"
#include "models/qwen3_predictor.h"
#include "models/qwen3_talker.h"

namespace dualar {

class Qwen3Session;

class Qwen3Tts : public BatchModel, public std::enable_shared_from_this<Qwen3Tts> {
  public:
    // Throws ModelError listing what is wrong with the file.
    Qwen3Tts(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend);

    // Bring the weights to the device, once. session() and fast_decode() do it where it has not been done.
    void load() const;

    const SlowAr& slow() const override { return *talker_->decoder; }
    const std::shared_ptr<Backend>& backend() const override { return backend_; }
    bool has_fast_ar() const override { return true; }
    const char* fast_name() const override { return Predictor::kName; }
    int fast_layers() const override { return predictor_->config.layers; }
    int fast_graph(int book) const override { return book - 1; }
    void build_fast(GraphBuilder& g, int book, int64_t rows, const nn::AttentionInputs& inputs) const override;
    void set_fast(Graph& graph, int book, int64_t rows, const float* hidden, const int32_t* codes,
                  BatchScratch& scratch) const override;
    const TalkerConfig& text_config() const { return talker_->config; }
    // Id of each logit: the main codes ascending, then the end of speech.
    std::vector<int32_t> main_ids() const { return talker_->decoder->main_ids(); }
    std::vector<std::string> unused_tensors() const;
    size_t kv_bytes(int64_t max_positions, const std::string& kv_type) const;

    std::unique_ptr<Qwen3Session> session(int64_t max_positions, const std::string& kv_type) const;
    // Stateless: logits [C] of codebook prefix.size(). Checks its arguments.
    std::vector<float> fast_decode(const std::vector<float>& hidden, const std::vector<int32_t>& prefix) const;

  private:
    friend class Qwen3Session;
    void check_fast_arguments(const std::vector<float>& hidden, const std::vector<int32_t>& prefix) const;

    std::shared_ptr<Backend> backend_;
    mutable Weights weights_;
    mutable std::once_flag loaded_;
    std::shared_ptr<const Talker> talker_;
    std::shared_ptr<const Predictor> predictor_;
    mutable std::mutex oracle_mutex_;
    mutable std::unique_ptr<PredictorState> oracle_;  // graphs of fast_decode()
};

class Qwen3Session : public BatchRow {
  public:
    Qwen3Session(std::shared_ptr<const Qwen3Tts> model, int64_t max_positions, ggml_type kv_type);

    SlowOutput prefill(const TalkerPrompt& prompt, bool all_positions, bool full_vocab);
    // column [1 + N]: the main id just drawn, and the frame's N codes.
    SlowOutput step(const std::vector<int32_t>& column, bool full_vocab);
    std::vector<float> fast_begin(const std::vector<float>& hidden, int64_t code);
    std::vector<float> fast_step(int64_t code);
    std::vector<float> fast_decode(const std::vector<float>& hidden, const std::vector<int32_t>& prefix);

    const Qwen3Tts& model() const { return *model_; }
    const BatchModel& batch_model() const override { return *model_; }
    OneThread& turn() override { return one_thread_; }
    SlowState& slow() override { return talker_.decoder(); }
    void check_column(const int32_t* column) const override;
    void embed(const int32_t* column, float* out, std::vector<float>& scratch) const override {
        talker_.embed(column + 1, out, scratch);
    }
    const nn::KvCache& fast_cache() const override { return predictor_.cache(); }
    int64_t fast_position() const override { return predictor_.position(); }
    void set_fast_position(int64_t position) override { predictor_.set_position(position); }
    std::vector<float> fast_alone(const float* hidden, int32_t code) override {
        return hidden != nullptr ? predictor_.begin(hidden, code) : predictor_.step(code);
    }
    std::vector<float> fast_recompute(const float* hidden, const int32_t* prefix, int64_t count) override {
        return predictor_.decode(hidden, prefix, count);
    }
    int64_t position() const { return talker_.decoder().position(); }
    int64_t max_positions() const { return talker_.decoder().max_positions(); }
    size_t nbytes() const { return talker_.decoder().nbytes() + predictor_.nbytes(); }
    int graph_builds() const { return talker_.graph_builds() + predictor_.graph_builds(); }
    void reset() { truncate(0); }
    void truncate(int64_t positions);
    void keep_probes(bool keep);
    std::map<std::string, std::vector<float>> probes() const { return talker_.decoder().probes(); }

  private:
    std::shared_ptr<const Qwen3Tts> model_;
    TalkerState talker_;
    PredictorState predictor_;
    OneThread one_thread_;
};

}  // namespace dualar
