#include "nn/packed_matrix.h"

#include <cstring>
#include <new>

#include "ggml.h"

namespace dualar::nn {

namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

void PackedMatrix::Free::operator()(void* memory) const { ::operator delete(memory, kAlignment); }

PackedMatrix::PackedMatrix(const float* rows, int64_t n, int64_t depth, bool half, const CpuKernels& kernels)
    : kernels_(&kernels), n_(n), depth_(depth) {
    half_ = half && !narrow();
    const int64_t width = kernels.width;
    nbytes_ =
        static_cast<size_t>((narrow() ? n : panels() * width) * depth) * (half_ ? sizeof(ggml_fp16_t) : sizeof(float));
    data_.reset(::operator new(nbytes_, kAlignment));
    auto* floats = static_cast<float*>(data_.get());
    auto* halves = static_cast<ggml_fp16_t*>(data_.get());
    if (narrow()) {
        std::memcpy(floats, rows, nbytes_);
        return;
    }
    for (int64_t first = 0; first < n; first += width)
        for (int64_t d = 0; d < depth; ++d)
            for (int64_t i = 0; i < width; ++i) {
                const int64_t at = first * depth + d * width + i;
                const float value = first + i < n ? rows[(first + i) * depth + d] : 0.0F;
                if (half_)
                    halves[at] = ggml_fp32_to_fp16(value);
                else
                    floats[at] = value;
            }
}

void PackedMatrix::describe(PackedProduct& product) const {
    product.weights = data_.get();
    product.panel_bytes = nbytes_ / static_cast<size_t>(narrow() ? 1 : panels());
    product.n = n_;
    product.half = half_;
    product.narrow = narrow();
}

}  // namespace dualar::nn
