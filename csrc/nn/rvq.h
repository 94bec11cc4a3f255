// Residual vector quantisation, both ways, on vectors [frames, dim]. Knows no file and no tensor name.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/ops.h"
#include "runtime/host_table.h"

namespace dualar::nn {

// Decoding: codes -> the sum over codebooks of out_proj(codebook[code]). The looked-up rows of all codebooks stand side
// by side, so one matrix does every projection and the sum.
struct Rvq {
    std::vector<HostTable> codebooks;  // each [size, codebook_dim]
    int64_t codebook_dim = 0;
    Linear out_proj;  // weight ggml [codebooks * codebook_dim, dim], the biases already summed

    int64_t columns() const { return static_cast<int64_t>(codebooks.size()) * codebook_dim; }

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

}  // namespace dualar::nn
