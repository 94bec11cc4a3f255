// Residual vector quantisation, both ways, on vectors [frames, dim]. Knows no file and no tensor name.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/ops.h"
#include "runtime/host_table.h"

namespace dualar::nn {

// Decoding: codes -> the sum over groups of out_proj(the sum of codebook[code] over the codebooks of the group). The
// sums of all groups stand side by side, so one matrix does every projection and the last sum.
struct Rvq {
    std::vector<HostTable> codebooks;  // each [size, codebook_dim]
    std::vector<int64_t> groups;       // each codebook's, from 0 on
    int64_t codebook_dim = 0;
    Linear out_proj;  // weight ggml [groups * codebook_dim, dim], the biases already summed

    void add(HostTable codebook, int64_t group);
    int64_t columns() const { return (groups.back() + 1) * codebook_dim; }

    // codes [codebooks, frames] (row-major), each clamped to its codebook -> out [frames, columns()].
    void look_up(const int32_t* codes, int64_t frames, float* out) const;
};

// Encoding, one codebook after the other on what the ones before left: in_proj, the codebook's row with the highest
// cosine (the first of equals), and out_proj of that row, as it is, is subtracted. On the host: it is little work.
class RvqEncoder {
  public:
    struct Codebook {
        std::vector<float> in_weight;       // [codebook_dim, dim]
        std::vector<float> in_bias;         // [codebook_dim]
        std::vector<float> out_weight;      // [dim, codebook_dim]
        std::vector<float> out_bias;        // [dim]
        std::vector<float> rows;            // [size, codebook_dim]
        std::vector<float> unit_rows = {};  // the same, each of length 1
    };
    void add(Codebook book, int64_t dim);

    // latent [frames, dim] -> codes [codebooks, frames] (row-major).
    void encode(const float* latent, int64_t frames, int32_t* codes) const;

  private:
    std::vector<Codebook> books_;
    int64_t dim_ = 0;
};

// Encoding a chain of codebooks that share one projection: in_proj once, then each codebook in turn on what the ones
// before left of its result, of which the nearest row (Euclidean, the first of equals) is subtracted. On the host.
class NearestRvqEncoder {
  public:
    // weight [codebook_dim, dim].
    void project(std::vector<float> weight, int64_t codebook_dim, int64_t dim);
    // rows [size, codebook_dim].
    void add(std::vector<float> rows);

    // latent [frames, dim] -> codes [codebooks, frames] (row-major).
    void encode(const float* latent, int64_t frames, int32_t* codes) const;

  private:
    struct Codebook {
        std::vector<float> rows;
        PackedMatrix packed;        // the same
        std::vector<float> offset;  // -|row|^2 / 2: with it a product ranks rows as their distance does
    };
    int64_t codebook_dim_ = 0;
    int64_t dim_ = 0;
    PackedMatrix in_proj_;
    std::vector<Codebook> books_;
};

}  // namespace dualar::nn
