#include "nn/packed_matrix.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "runtime/host_table.h"
#include "runtime/on_threads.h"

namespace dualar::nn {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

std::optional<Quantized> quantized_of(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q8_0:
            return Quantized::q8_0;
        case GGML_TYPE_Q4_0:
            return Quantized::q4_0;
        case GGML_TYPE_Q4_K:
            return Quantized::q4_k;
        default:
            return std::nullopt;
    }
}

}  // namespace

void PackedMatrix::Free::operator()(void* memory) const { std::free(memory); }

void PackedMatrix::allocate(size_t bytes) {
    nbytes_ = bytes;
    const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) throw std::bad_alloc();
    data_.reset(memory);
#if defined(__linux__)
    // Weights are read from end to end for each token: large pages spare most of the address translation.
    if (bytes >= kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
}

namespace {

// One panel of `count` rows (rows past it are zero): value d of every row, then value d + 1, …
template <class Value>
void pack_values(const Value* rows, int64_t count, int64_t depth, int64_t width, Value* panel) {
    if (count < width) std::memset(panel, 0, static_cast<size_t>(depth * width) * sizeof(Value));
    for (int64_t d = 0; d < depth; ++d)
        for (int64_t i = 0; i < count; ++i) panel[d * width + i] = rows[i * depth + d];
}

}  // namespace

bool PackedMatrix::can_pack(ggml_type type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || quantized_of(type).has_value();
}

template <class RowsOf>
void PackedMatrix::pack(const RowsOf& rows_of, ggml_type type, int threads) {
    const size_t row_bytes = ggml_row_size(type, depth_);
    if (narrow()) {
        std::vector<char> room(static_cast<size_t>(n_) * row_bytes);
        allocate(static_cast<size_t>(n_ * depth_) * sizeof(float));
        to_float(rows_of(0, n_, room.data()), type, static_cast<float*>(data_.get()), n_ * depth_);
        return;
    }
    half_ = type == GGML_TYPE_F16;
    const size_t value = half_ ? sizeof(ggml_fp16_t) : sizeof(float);
    const size_t panel =
        quantized_ ? kernels_->panel_bytes(*quantized_, depth_) : static_cast<size_t>(depth_ * width()) * value;
    allocate(static_cast<size_t>(panels()) * panel);
    const auto pack_share = [&](int ith) {
        std::vector<char> room(static_cast<size_t>(width()) * row_bytes);
        for (int64_t p = panels() * ith / threads; p < panels() * (ith + 1) / threads; ++p) {
            const int64_t first = p * width();
            const int64_t count = std::min(width(), n_ - first);
            const void* from = rows_of(first, count, room.data());
            char* to = static_cast<char*>(data_.get()) + static_cast<size_t>(p) * panel;
            if (quantized_)
                kernels_->pack(*quantized_, from, row_bytes, count, depth_, to);
            else if (half_)
                pack_values(static_cast<const ggml_fp16_t*>(from), count, depth_, width(),
                            reinterpret_cast<ggml_fp16_t*>(to));
            else
                pack_values(static_cast<const float*>(from), count, depth_, width(), reinterpret_cast<float*>(to));
        }
    };
    on_threads(threads, pack_share);
}

PackedMatrix::PackedMatrix(const void* rows, ggml_type type, int64_t n, int64_t depth, int threads,
                           const CpuKernels& kernels)
    : kernels_(&kernels), n_(n), depth_(depth), quantized_(quantized_of(type)) {
    const size_t row_bytes = ggml_row_size(type, depth);
    const auto in_place = [=](int64_t first, int64_t, void*) -> const void* {
        return static_cast<const char*>(rows) + static_cast<size_t>(first) * row_bytes;
    };
    pack(in_place, type, threads);
}

PackedMatrix::PackedMatrix(const Fill& fill, ggml_type type, int64_t n, int64_t depth, int threads,
                           const CpuKernels& kernels)
    : kernels_(&kernels), n_(n), depth_(depth), quantized_(quantized_of(type)) {
    const auto filled = [&](int64_t first, int64_t count, void* room) -> const void* {
        fill(first, count, room);
        return room;
    };
    pack(filled, type, threads);
}

void PackedMatrix::describe(PackedProduct& product) const {
    product.weights = data_.get();
    product.panel_bytes = panel_bytes();
    product.n = n_;
    product.half = half_;
    product.narrow = narrow();
}

void PackedMatrix::describe(QuantizedProduct& product) const {
    product.weights = data_.get();
    product.panel_bytes = panel_bytes();
    product.n = n_;
    product.depth = depth_;
}

}  // namespace dualar::nn
