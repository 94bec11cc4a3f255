#include "nn/causal_conv.h"

#include <algorithm>

#include "runtime/error.h"

namespace dualar::nn {

template <class Value>
void arrange_conv(const Value* published, int64_t in, int64_t taps, Rows rows, Value* arranged) {
    for (int64_t o = rows.first; o < rows.first + rows.count; ++o)
        for (int64_t tap = 0; tap < taps; ++tap)
            for (int64_t i = 0; i < in; ++i) *arranged++ = published[(o * in + i) * taps + tap];
}

template <class Value>
void arrange_transposed(const Value* published, int64_t in, int64_t out, int64_t kernel, int64_t stride, Rows rows,
                        Value* arranged) {
    const int64_t taps = kernel / stride;
    for (int64_t row = rows.first; row < rows.first + rows.count; ++row)
        for (int64_t tap = 0; tap < taps; ++tap) {
            const int64_t back = taps - 1 - tap;  // oldest tap first
            const Value* from = published + row % out * kernel + row / out + back * stride;
            for (int64_t i = 0; i < in; ++i) *arranged++ = from[i * out * kernel];
        }
}

template void arrange_conv(const float*, int64_t, int64_t, Rows, float*);
template void arrange_conv(const ggml_fp16_t*, int64_t, int64_t, Rows, ggml_fp16_t*);
template void arrange_transposed(const float*, int64_t, int64_t, int64_t, int64_t, Rows, float*);
template void arrange_transposed(const ggml_fp16_t*, int64_t, int64_t, int64_t, int64_t, Rows, ggml_fp16_t*);

ConvState::ConvState(const Backend& backend, const std::vector<Size>& sizes) {
    const ggml_init_params params{/*mem_size=*/(sizes.size() + 1) * ggml_tensor_overhead(), /*mem_buffer=*/nullptr,
                                  /*no_alloc=*/true};
    context_.reset(ggml_init(params));
    if (!context_) throw BackendError("[memory] no room for the convolutions' state");
    for (const Size& size : sizes) {
        tensors_.push_back(size.columns > 0
                               ? ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, size.channels, size.columns)
                               : nullptr);
        nbytes_ += static_cast<size_t>(size.channels * size.columns) * sizeof(float);
    }
    buffer_ = backend.allocate(context_.get(), "the convolutions' state");
}

void ConvState::reset() {
    if (buffer_) ggml_backend_buffer_clear(buffer_.get(), 0);
}

// copy(tensor, where it begins among all values).
template <class Copy>
void ConvState::each(const Copy& copy) const {
    size_t first = 0;
    for (ggml_tensor* tensor : tensors_)
        if (tensor != nullptr) {
            copy(tensor, first);
            first += static_cast<size_t>(ggml_nelements(tensor));
        }
}

std::vector<float> ConvState::read() const {
    std::vector<float> columns(nbytes_ / sizeof(float));
    each([&](ggml_tensor* tensor, size_t first) {
        ggml_backend_tensor_get(tensor, columns.data() + first, 0, ggml_nbytes(tensor));
    });
    return columns;
}

void ConvState::write(const std::vector<float>& columns) {
    each([&](ggml_tensor* tensor, size_t first) {
        ggml_backend_tensor_set(tensor, columns.data() + first, 0, ggml_nbytes(tensor));
    });
}

namespace {

// Column t of the result is x[t * stride + tap * dilation]: what a tap sees.
ggml_tensor* seen_by(GraphBuilder& g, ggml_tensor* x, const Conv& c, int tap, int64_t columns) {
    return ggml_view_2d(g.context, x, c.in, columns, static_cast<size_t>(c.stride) * x->nb[1],
                        static_cast<size_t>(tap) * static_cast<size_t>(c.dilation) * x->nb[1]);
}

// The weights of one tap: [in, out * upsample], or [channels] when depthwise.
ggml_tensor* tap_weight(GraphBuilder& g, const Conv& c, int tap) {
    if (c.depthwise) return ggml_view_1d(g.context, c.weight, c.in, static_cast<size_t>(tap) * c.weight->nb[1]);
    return ggml_view_2d(g.context, c.weight, c.in, c.weight->ne[1], c.weight->nb[1],
                        static_cast<size_t>(tap) * static_cast<size_t>(c.in) * sizeof(float));
}

// A sum over taps of shifted products.
ggml_tensor* sum_of_taps(GraphBuilder& g, ggml_tensor* x, const Conv& c, int64_t columns) {
    ggml_tensor* sum = nullptr;
    for (int tap = 0; tap < c.taps; ++tap) {
        ggml_tensor* seen = seen_by(g, x, c, tap, columns);
        ggml_tensor* weight = tap_weight(g, c, tap);
        ggml_tensor* term = c.depthwise ? ggml_mul(g.context, seen, weight) : ggml_mul_mat(g.context, weight, seen);
        sum = sum ? ggml_add(g.context, sum, term) : term;
    }
    return sum;
}

// `count` times column `index` of x.
ggml_tensor* repeated(GraphBuilder& g, ggml_tensor* x, int64_t index, int64_t count) {
    ggml_tensor* column = ggml_view_2d(g.context, x, x->ne[0], 1, x->nb[1], static_cast<size_t>(index) * x->nb[1]);
    return ggml_repeat_4d(g.context, column, x->ne[0], count, 1, 1);
}

}  // namespace

ggml_tensor* valid_conv(GraphBuilder& g, ggml_tensor* x, const Conv& c, ggml_tensor* residual) {
    const int64_t columns = (x->ne[1] - c.history()) / c.stride;
    // [out * upsample, columns] and [out, upsample * columns] are the same bytes.
    const auto spread = [&](ggml_tensor* y) { return ggml_reshape_2d(g.context, y, c.out, columns * c.upsample); };
    if (c.packed) {
        ggml_tensor* product =
            packed_product(g, x, c.packed, {c.taps, c.stride, c.dilation}, columns, c.bias, residual);
        const char* kind = c.upsample > 1 ? "transposed conv" : c.taps > 1 ? "conv" : "conv 1x1";
        return spread(GraphBuilder::label(kind, product));
    }
    ggml_tensor* y = spread(sum_of_taps(g, x, c, columns));
    if (c.bias) y = ggml_add(g.context, y, c.bias);
    return residual ? ggml_add(g.context, y, residual) : y;
}

ggml_tensor* causal_conv(GraphBuilder& g, ggml_tensor* x, const Conv& c, ggml_tensor* state, const ConvExtras& extras) {
    const int64_t missing = (c.stride - x->ne[1] % c.stride) % c.stride;
    const bool begin = c.replicate && extras.first && state != nullptr;
    x = activate(g, x, extras.activation, begin ? nullptr : state);
    if (begin) x = ggml_concat(g.context, repeated(g, x, 0, c.history()), x, 1);
    if (missing > 0 && c.replicate)
        x = ggml_concat(g.context, x, repeated(g, x, x->ne[1] - 1, missing), 1);
    else if (missing > 0)
        x = ggml_pad(g.context, x, 0, static_cast<int>(missing), 0, 0);
    if (state != nullptr) g.effect(ggml_cpy(g.context, last_columns(g, x, c.history()), state));
    return valid_conv(g, x, c, extras.residual);
}

ConvRing::ConvRing(const Conv& conv, int64_t batch)
    : in_(conv.in),
      taps_(conv.taps),
      dilation_(conv.dilation),
      columns_(conv.history()),
      batch_(batch),
      values_(static_cast<size_t>(columns_ * batch * conv.in)) {}

void ConvRing::look(int64_t ahead, int64_t stride, float* seen) const {
    for (int64_t b = 0; b < batch_; ++b)
        for (int64_t tap = 0; tap + 1 < taps_; ++tap)
            std::copy_n(values_.data() + at(slot(ahead + tap * dilation_), b), in_, seen + b * stride + tap * in_);
}

void ConvRing::push(const float* x, int64_t stride) {
    if (columns_ == 0) return;
    for (int64_t b = 0; b < batch_; ++b) std::copy_n(x + b * stride, in_, values_.data() + at(oldest_, b));
    oldest_ = slot(1);
}

void ConvRing::reset() { std::fill(values_.begin(), values_.end(), 0.0F); }

void ConvRing::read(int64_t sequence, float* columns) const {
    for (int64_t i = 0; i < columns_; ++i) std::copy_n(values_.data() + at(slot(i), sequence), in_, columns + i * in_);
}

void ConvRing::write(int64_t sequence, const float* columns) {
    for (int64_t i = 0; i < columns_; ++i) std::copy_n(columns + i * in_, in_, values_.data() + at(slot(i), sequence));
}

namespace {

// `taps` of the convolution from `x` on, whose columns lie side by side in rows `row_stride` apart.
PackedProduct taps_product(const Conv& c, const float* x, int64_t rows, int64_t row_stride, int64_t taps, float* out) {
    PackedProduct product;
    c.packed->describe(product);
    product.x = x;
    product.rows = rows;
    product.row_stride = row_stride;
    product.taps = taps;
    product.tap_stride = product.channels = c.in;
    product.out = out;
    return product;
}

void finish(const Conv& c, PackedProduct& product, const float* residual) {
    product.bias = static_cast<const float*>(c.bias->data);
    product.bias_period = c.out;
    product.residual = residual;
    c.packed->kernels().product(product, 0, 1);
}

}  // namespace

void causal_conv_step(const Conv& c, ConvRing& ring, const float* x, int64_t stride, const float* residual, float* seen,
                      float* out) {
    const int64_t older = (c.taps - 1) * c.in;
    const int64_t row = older + c.in;
    ring.look(0, row, seen);
    for (int64_t b = 0; b < ring.batch(); ++b) std::copy_n(x + b * stride, c.in, seen + b * row + older);
    ring.push(x, stride);
    PackedProduct product = taps_product(c, seen, ring.batch(), row, c.taps, out);
    finish(c, product, residual);
}

bool can_go_ahead(const Conv& c, int64_t steps) {
    PackedProduct product;
    c.packed->describe(product);
    return c.taps > 1 && steps <= c.dilation && !product.narrow;
}

void causal_conv_ahead(const Conv& c, const ConvRing& ring, int64_t steps, float* seen, float* sums) {
    const int64_t row = (c.taps - 1) * c.in;
    for (int64_t step = 0; step < steps; ++step) ring.look(step, row, seen + step * ring.batch() * row);
    const PackedProduct product = taps_product(c, seen, steps * ring.batch(), row, c.taps - 1, sums);
    c.packed->kernels().product(product, 0, 1);
}

void causal_conv_finish(const Conv& c, ConvRing& ring, const float* x, int64_t stride, const float* residual,
                        const float* sums, float* out) {
    PackedProduct product = taps_product(c, x, ring.batch(), stride, 1, out);
    product.start = sums;
    product.skipped = (c.taps - 1) * c.in;
    finish(c, product, residual);
    ring.push(x, stride);
}

}  // namespace dualar::nn
