// What a batch (models/batch.h) asks of a model and of its sessions, whatever their family.
#pragma once

#include <memory>
#include <vector>

#include "models/slow_ar.h"
#include "runtime/one_thread.h"

namespace dualar {

// Room for what a graph is given, kept from call to call.
struct BatchScratch {
    std::vector<float> input;
    std::vector<float> row;
};

class BatchModel {
  public:
    virtual ~BatchModel() = default;

    virtual const SlowAr& slow() const = 0;
    virtual const std::shared_ptr<Backend>& backend() const = 0;
    const SlowConfig& config() const { return slow().config; }

    // The further codes of a frame. What follows is only asked where there is such a part, and for codebooks 1 to
    // N - 1: their logits come of the code before, and those of codebook 1 of the hidden state too.
    virtual bool has_fast_ar() const = 0;
    virtual const char* fast_name() const = 0;  // of its inputs in a graph
    virtual int fast_layers() const = 0;
    // Which graph gives the logits of a codebook, counted from 0; the one of codebook 1 gives no others.
    virtual int fast_graph(int book) const = 0;
    // Of `rows` requests: output "logits" [C, rows]. The columns of inputs are the hidden states, where there are
    // some, then the codes.
    virtual void build_fast(GraphBuilder& g, int book, int64_t rows, const nn::AttentionInputs& inputs) const = 0;
    // codes [rows] of the codebook before; hidden [rows, D] for codebook 1, else nullptr.
    virtual void set_fast(Graph& graph, int book, int64_t rows, const float* hidden, const int32_t* codes,
                          BatchScratch& scratch) const = 0;
};

class BatchRow {
  public:
    virtual ~BatchRow() = default;

    virtual const BatchModel& batch_model() const = 0;
    virtual OneThread& turn() = 0;
    virtual SlowState& slow() = 0;
    // column [1 + N]: may the next step take it? Else std::invalid_argument.
    virtual void check_column(const int32_t* column) const = 0;
    // The next step's input, [D], of a column that may be taken.
    virtual void embed(const int32_t* column, float* out, std::vector<float>& scratch) const = 0;

    virtual const nn::KvCache& fast_cache() const = 0;
    virtual int64_t fast_position() const = 0;
    virtual void set_fast_position(int64_t position) = 0;
    // Logits [C] of the next codebook, by itself; hidden: where the code is the frame's first, else nullptr.
    virtual std::vector<float> fast_alone(const float* hidden, int32_t code) = 0;
    // Logits [C] of codebook `count` from the frame's first `count` codes, without the cache.
    virtual std::vector<float> fast_recompute(const float* hidden, const int32_t* prefix, int64_t count) = 0;
};

}  // namespace dualar
