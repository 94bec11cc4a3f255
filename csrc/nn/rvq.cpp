#include "nn/rvq.h"

#include <algorithm>
#include <cmath>

namespace dualar::nn {

void Rvq::add(HostTable codebook, int64_t group) {
    codebooks.push_back(codebook);
    groups.push_back(group);
}

void Rvq::look_up(const int32_t* codes, int64_t frames, float* out) const {
    std::fill_n(out, frames * columns(), 0.0F);
    std::vector<float> scratch;
    for (size_t q = 0; q < codebooks.size(); ++q) {
        const HostTable& book = codebooks[q];
        for (int64_t t = 0; t < frames; ++t) {
            const int64_t code = codes[static_cast<int64_t>(q) * frames + t];
            book.add(std::clamp<int64_t>(code, 0, book.rows() - 1), out + t * columns() + groups[q] * codebook_dim,
                     scratch);
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

void NearestRvqEncoder::project(std::vector<float> weight, int64_t codebook_dim, int64_t dim) {
    codebook_dim_ = codebook_dim;
    dim_ = dim;
    in_proj_ = PackedMatrix(weight.data(), GGML_TYPE_F32, codebook_dim, dim, /*threads=*/1);
}

void NearestRvqEncoder::add(std::vector<float> rows) {
    const auto width = static_cast<size_t>(codebook_dim_);
    Codebook book;
    for (size_t at = 0; at < rows.size(); at += width) book.offset.push_back(-0.5F * dot(&rows[at], &rows[at], width));
    book.packed = PackedMatrix(rows.data(), GGML_TYPE_F32, static_cast<int64_t>(book.offset.size()), codebook_dim_,
                               /*threads=*/1);
    book.rows = std::move(rows);
    books_.push_back(std::move(book));
}

namespace {

// x [count, depth] -> out [count, n].
void multiply(const PackedMatrix& weights, const float* x, int64_t count, const float* bias, float* out) {
    PackedProduct product;
    weights.describe(product);
    product.x = x;
    product.rows = count;
    product.row_stride = product.channels = weights.depth();
    product.bias = bias;
    product.bias_period = weights.n();
    product.out = out;
    weights.kernels().product(product, 0, 1);
}

}  // namespace

void NearestRvqEncoder::encode(const float* latent, int64_t frames, int32_t* codes) const {
    std::vector<float> left(static_cast<size_t>(frames * codebook_dim_));
    std::vector<float> closeness;
    multiply(in_proj_, latent, frames, nullptr, left.data());
    for (size_t q = 0; q < books_.size(); ++q) {
        const Codebook& book = books_[q];
        const size_t size = book.offset.size();
        closeness.resize(static_cast<size_t>(frames) * size);
        multiply(book.packed, left.data(), frames, book.offset.data(), closeness.data());
        for (int64_t t = 0; t < frames; ++t) {
            const float* row = closeness.data() + static_cast<size_t>(t) * size;
            const auto best = std::max_element(row, row + size) - row;
            codes[static_cast<int64_t>(q) * frames + t] = static_cast<int32_t>(best);
            for (int64_t i = 0; i < codebook_dim_; ++i)
                left[static_cast<size_t>(t * codebook_dim_ + i)] -=
                    book.rows[static_cast<size_t>(best * codebook_dim_ + i)];
        }
    }
}

}  // namespace dualar::nn
