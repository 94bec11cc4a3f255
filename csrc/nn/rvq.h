// Residual vector quantisation, the decoding half: codes -> the sum over codebooks of out_proj(codebook[code]).
// The looked-up rows of all codebooks stand side by side, so one matrix does every projection and the sum.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/ops.h"
#include "runtime/host_table.h"

namespace dualar::nn {

struct Rvq {
    std::vector<HostTable> codebooks;  // each [size, codebook_dim]
    int64_t codebook_dim = 0;
    Linear out_proj;  // weight ggml [codebooks * codebook_dim, dim], the biases already summed

    int64_t columns() const { return static_cast<int64_t>(codebooks.size()) * codebook_dim; }

    // codes [codebooks, frames] (row-major), each clamped to its codebook -> out [frames, columns()].
    void look_up(const int32_t* codes, int64_t frames, float* out) const;
};

}  // namespace dualar::nn
