// The one causal convolution, with explicit state: whole sequences and streams run through the same nodes, and networks
// that go one column at a time through the same weights with a ring in place of the queue (ConvRing).
// A transposed convolution whose kernel is a multiple of its stride is the same thing with kernel / stride taps and
// stride * out channels: frame t of its output depends on input columns t, t - 1, … only. Knows no tensor name.
#pragma once

#include <functional>
#include <vector>

#include "nn/ops.h"

namespace dualar::nn {

// weight: ggml [in * taps, out * upsample], within a row the taps oldest first and the channels side by side, or on the
// CPU `packed` in its place; depthwise: ggml [channels, taps]. bias [out] or nullptr.
struct Conv {
    ggml_tensor* weight = nullptr;
    std::shared_ptr<const PackedMatrix> packed;
    ggml_tensor* bias = nullptr;
    int64_t in = 0;
    int64_t out = 0;
    int taps = 1;
    int stride = 1;
    int dilation = 1;
    int upsample = 1;  // output columns per input column: the stride of a transposed convolution
    bool depthwise = false;
    bool replicate = false;  // what lies before the first and after the last column is that column, not zeros

    // Input columns that the next call needs from this one: (taps - 1) * dilation + 1 - stride.
    int64_t history() const { return int64_t{taps - 1} * dilation + 1 - stride; }
};

// Rows `first` to `first + count` of a matrix.
struct Rows {
    int64_t first;
    int64_t count;
};

// Rearrange published weights, float or ggml_fp16_t, for some rows of Conv::weight.
// conv: numpy [out, in, taps] (in is 1 when depthwise) -> row o: [tap][in]; depthwise -> row tap: [channel].
template <class Value>
void arrange_conv(const Value* published, int64_t in, int64_t taps, Rows rows, Value* arranged);
// transposed: numpy [in, out, kernel], kernel a multiple of stride -> row (r, o): [tap][in], where the tap that
// reads column t - m is published[in, o, r + m * stride].
template <class Value>
void arrange_transposed(const Value* published, int64_t in, int64_t out, int64_t kernel, int64_t stride, Rows rows,
                        Value* arranged);

// The columns that each convolution of a stream has seen last, on the device. Zero at the start.
class ConvState {
  public:
    // history[i]: rows of state i, as [channels, columns]; a state may have no columns.
    struct Size {
        int64_t channels;
        int64_t columns;
    };
    ConvState(const Backend& backend, const std::vector<Size>& sizes);

    ggml_tensor* tensor(size_t index) const { return tensors_[index]; }  // nullptr where there are no columns
    void reset();
    size_t nbytes() const { return nbytes_; }
    // All of them, copied to the host and back.
    std::vector<float> read() const;
    void write(const std::vector<float>& columns);

  private:
    template <class Copy>
    void each(const Copy& copy) const;

    ggml_context_ptr context_;
    ggml_backend_buffer_ptr buffer_;
    std::vector<ggml_tensor*> tensors_;
    size_t nbytes_ = 0;
};

// What may be done in the same pass.
struct ConvExtras {
    Activation activation = {};       // of the input first; the state then holds columns after it
    ggml_tensor* residual = nullptr;  // added to the result; shaped as it
    bool first = false;               // nothing came before x: a convolution that replicates needs to know
};

// x [in, T] -> [out, T / stride * upsample]. Reads `state` (conv.history() columns) as what came before x, and leaves
// the last columns there for the next run. T is a multiple of the stride, but in the last piece of a sequence, which is
// filled up to it.
ggml_tensor* causal_conv(GraphBuilder& g, ggml_tensor* x, const Conv& conv, ggml_tensor* state,
                         const ConvExtras& extras = {});

// The convolution alone, of an x [in, T] that has all columns that the taps see -> [out, (T - history) / stride *
// upsample].
ggml_tensor* valid_conv(GraphBuilder& g, ggml_tensor* x, const Conv& conv, ggml_tensor* residual = nullptr);

// The history of one convolution of stride 1 that is fed column by column on the CPU, for `batch` sequences that go
// forward together: a ring of conv.history() input columns each. A step reads what its taps see, the oldest column
// first, and only then writes the new column in the oldest one's place, so nothing is ever moved.
// One channel, dilation 4, taps 2 (old) and 3 (now), bias 1, queue 1 2 3 4: the inputs 5, 6, 7 give 18, 23, 28.
class ConvRing {
  public:
    ConvRing(const Conv& conv, int64_t batch);

    // What each tap but the newest sees at the next step -> seen, `batch` rows that are `stride` floats apart, of
    // (taps - 1) * in floats, the oldest first; or at the step `ahead` of the next one, ahead < dilation: even the
    // youngest of them is there already.
    void look(int64_t ahead, int64_t stride, float* seen) const;
    // x: `batch` columns, `stride` floats apart, in the place of the oldest.
    void push(const float* x, int64_t stride);
    void reset();
    int64_t batch() const { return batch_; }
    int64_t columns() const { return columns_; }
    size_t nbytes() const { return values_.size() * sizeof(float); }
    // The columns of one sequence in the order of ConvState, [columns, in], the oldest first.
    void read(int64_t sequence, float* columns) const;
    void write(int64_t sequence, const float* columns);

  private:
    size_t at(int64_t slot, int64_t sequence) const { return static_cast<size_t>((slot * batch_ + sequence) * in_); }
    // The slot that lies `ahead` columns after the oldest.
    int64_t slot(int64_t ahead) const {
        const int64_t index = oldest_ + ahead;
        return index < columns_ ? index : index - columns_;
    }

    int64_t in_;
    int64_t taps_;
    int64_t dilation_;
    int64_t columns_;
    int64_t batch_;
    int64_t oldest_ = 0;
    std::vector<float> values_;  // [columns, batch, in]
};

// One column of causal_conv for each sequence of the ring, from packed weights: x as ConvRing::push takes it -> out
// [batch, out], in causal_conv's own order of sums, so with the same bits. residual: shaped as out and added to it, may
// be out itself, or nullptr. seen: room for [batch, taps * in].
void causal_conv_step(const Conv& conv, ConvRing& ring, const float* x, int64_t stride, const float* residual,
                      float* seen, float* out);

// What the older taps add to the next `steps` columns -> sums [steps, batch, out], of which causal_conv_finish makes
// those columns one after the other. Their weights are then read once for all of these steps. For convolutions that
// can_go_ahead; seen: room for [steps, batch, (taps - 1) * in].
bool can_go_ahead(const Conv& conv, int64_t steps);
void causal_conv_ahead(const Conv& conv, const ConvRing& ring, int64_t steps, float* seen, float* sums);
void causal_conv_finish(const Conv& conv, ConvRing& ring, const float* x, int64_t stride, const float* residual,
                        const float* sums, float* out);

}  // namespace dualar::nn
