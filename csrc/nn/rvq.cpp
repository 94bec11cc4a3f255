#include "nn/rvq.h"

#include <algorithm>
#include <cmath>

namespace dualar::nn {

void Rvq::look_up(const int32_t* codes, int64_t frames, float* out) const {
    for (size_t q = 0; q < codebooks.size(); ++q) {
        const HostTable& book = codebooks[q];
        for (int64_t t = 0; t < frames; ++t) {
            const int64_t code = codes[static_cast<int64_t>(q) * frames + t];
            book.read(std::clamp<int64_t>(code, 0, book.rows() - 1),
                      out + t * columns() + static_cast<int64_t>(q) * codebook_dim);
        }
    }
}

namespace {

float dot(const float* a, const float* b, size_t n) {
    float sum = 0.0F;
    for (size_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

}  // namespace

void RvqEncoder::add(Codebook book, int64_t dim) {
    const size_t width = book.in_bias.size();
    book.unit_rows = book.rows;
    for (size_t at = 0; at < book.rows.size(); at += width) {
        const float length = std::sqrt(dot(&book.rows[at], &book.rows[at], width));
        for (size_t i = 0; i < width; ++i) book.unit_rows[at + i] = length > 0.0F ? book.rows[at + i] / length : 0.0F;
    }
    dim_ = dim;
    books_.push_back(std::move(book));
}

void RvqEncoder::encode(const float* latent, int64_t frames, int32_t* codes) const {
    const auto dim = static_cast<size_t>(dim_);
    std::vector<float> left(dim);
    std::vector<float> z;
    for (int64_t t = 0; t < frames; ++t) {
        std::copy_n(latent + t * dim_, dim_, left.begin());
        for (size_t q = 0; q < books_.size(); ++q) {
            const Codebook& book = books_[q];
            const size_t width = book.in_bias.size();
            z = book.in_bias;
            for (size_t i = 0; i < width; ++i) z[i] += dot(&book.in_weight[i * dim], left.data(), dim);
            // z's own length scales every cosine alike: it decides nothing.
            size_t best = 0;
            float highest = -INFINITY;
            for (size_t row = 0; row * width < book.rows.size(); ++row) {
                const float cosine = dot(&book.unit_rows[row * width], z.data(), width);
                if (cosine > highest) {
                    highest = cosine;
                    best = row;
                }
            }
            codes[static_cast<int64_t>(q) * frames + t] = static_cast<int32_t>(best);
            const float* chosen = &book.rows[best * width];
            for (size_t d = 0; d < dim; ++d)
                left[d] -= dot(&book.out_weight[d * width], chosen, width) + book.out_bias[d];
        }
    }
}

}  // namespace dualar::nn
