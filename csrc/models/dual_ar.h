// A dual-AR model and the sessions that run it: Slow-AR and Fast-AR put together, every argument checked here.
// DualAr is immutable after loading; a Session owns all that changes, and belongs to one thread at a time.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "models/batch_row.h"
#include "models/fast_ar.h"
#include "models/slow_ar.h"

namespace dualar {

class Session;

class DualAr : public BatchModel, public std::enable_shared_from_this<DualAr> {
  public:
    // Throws ModelError listing what is wrong with the file.
    DualAr(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend, int64_t im_end);

    // Bring the weights to the device, once. session() and fast_decode() do it where it has not been done.
    void load() const;

    const SlowAr& slow() const override { return *slow_; }
    const std::shared_ptr<Backend>& backend() const override { return backend_; }
    bool has_fast_ar() const override { return fast_ != nullptr; }
    const char* fast_name() const override { return FastAr::kName; }
    int fast_layers() const override { return fast_->config.layers; }
    int fast_graph(int book) const override { return book == 1 ? 0 : 1; }
    void build_fast(GraphBuilder& g, int book, int64_t rows, const nn::AttentionInputs& inputs) const override;
    void set_fast(Graph& graph, int book, int64_t rows, const float* hidden, const int32_t* codes,
                  BatchScratch& scratch) const override;
    std::vector<int32_t> main_ids() const { return slow_->main_ids(); }
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
    std::shared_ptr<const SlowAr> slow_;
    std::shared_ptr<const FastAr> fast_;
    mutable std::mutex oracle_mutex_;
    mutable std::unique_ptr<FastState> oracle_;  // graphs of fast_decode()
};

class Session : public BatchRow {
  public:
    Session(std::shared_ptr<const DualAr> model, int64_t max_positions, ggml_type kv_type);

    // columns int32 [1 + N, count] row-major.
    SlowOutput feed(const std::vector<int32_t>& columns, int64_t count, bool all_positions, bool full_vocab);
    std::vector<float> fast_begin(const std::vector<float>& hidden, int64_t code);
    std::vector<float> fast_step(int64_t code);
    std::vector<float> fast_decode(const std::vector<float>& hidden, const std::vector<int32_t>& prefix);

    const DualAr& model() const { return *model_; }
    const BatchModel& batch_model() const override { return *model_; }
    OneThread& turn() override { return one_thread_; }
    SlowState& slow() override { return slow_; }
    void check_column(const int32_t* column) const override { check_columns(column, 1); }
    void embed(const int32_t* column, float* out, std::vector<float>& scratch) const override {
        model_->slow_->embed(column, 1, 1, out, scratch);
    }
    const nn::KvCache& fast_cache() const override { return fast_->cache(); }
    int64_t fast_position() const override { return fast_->position(); }
    void set_fast_position(int64_t position) override { fast_->set_position(position); }
    std::vector<float> fast_alone(const float* hidden, int32_t code) override {
        return hidden != nullptr ? fast_->begin(hidden, code) : fast_->step(code);
    }
    std::vector<float> fast_recompute(const float* hidden, const int32_t* prefix, int64_t count) override {
        return fast_->decode(hidden, prefix, count);
    }
    int64_t position() const { return slow_.position(); }
    int64_t max_positions() const { return slow_.max_positions(); }
    size_t nbytes() const { return slow_.nbytes() + (fast_ ? fast_->nbytes() : 0); }
    int graph_builds() const { return slow_.graph_builds() + (fast_ ? fast_->graph_builds() : 0); }
    void reset();
    void truncate(int64_t positions);
    int64_t attention_rows(int64_t positions) const;
    const char* kv_type() const { return slow_.kv_type() == GGML_TYPE_F32 ? "f32" : "f16"; }
    // What the positions so far left behind, for sessions that shall begin with them.
    SlowPrefix snapshot();
    void restore(const SlowPrefix& prefix);
    void keep_probes(bool keep);
    std::map<std::string, std::vector<float>> probes() const { return slow_.probes(); }

  private:
    void check_columns(const int32_t* columns, int64_t count) const;
    FastState& fast();

    std::shared_ptr<const DualAr> model_;
    SlowState slow_;
    std::unique_ptr<FastState> fast_;
    OneThread one_thread_;
};

}  // namespace dualar
