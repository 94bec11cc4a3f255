// The one causal convolution, with explicit state: whole sequences and streams run through the same nodes.
// A transposed convolution whose kernel is a multiple of its stride is the same thing with kernel / stride taps and
// stride * out channels: frame t of its output depends on input columns t, t - 1, … only. Knows no tensor name.
#pragma once

#include <functional>
#include <vector>

#include "nn/ops.h"

namespace dualar::nn {

// weight: ggml [in * taps, out * upsample], within a row the taps oldest first and the channels side by side, or on the
// CPU `packed` in its place; depthwise: ggml [channels, taps]. bias [out].
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

    // Input columns that the next call needs from this one: (taps - 1) * dilation + 1 - stride.
    int64_t history() const { return int64_t{taps - 1} * dilation + 1 - stride; }
};

// Rearrange published weights for Conv::weight.
// conv: numpy [out, in, taps] (in is 1 when depthwise) -> row o: [tap][in]; depthwise -> row tap: [channel].
void arrange_conv(const float* published, int64_t out, int64_t in, int64_t taps, float* arranged);
// transposed: numpy [in, out, kernel], kernel a multiple of stride -> row (r, o): [tap][in], where the tap that
// reads column t - m is published[in, o, r + m * stride].
void arrange_transposed(const float* published, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                        float* arranged);

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

  private:
    ggml_context_ptr context_;
    ggml_backend_buffer_ptr buffer_;
    std::vector<ggml_tensor*> tensors_;
    size_t nbytes_ = 0;
};

// What may be done in the same pass.
struct ConvExtras {
    ggml_tensor* alpha = nullptr;     // snake on the input first; the state then holds columns after it
    ggml_tensor* residual = nullptr;  // added to the result; shaped as it
};

// x [in, T], T a multiple of the stride -> [out, T / stride * upsample]. Reads `state` (conv.history() columns) as
// what came before x, and leaves the last columns there for the next run.
ggml_tensor* causal_conv(GraphBuilder& g, ggml_tensor* x, const Conv& conv, ggml_tensor* state,
                         const ConvExtras& extras = {});

}  // namespace dualar::nn
