// The S2 codec's geometry, as its GGUF keys give it.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/transformer.h"
#include "runtime/gguf_file.h"

namespace dualar {

struct DacConfig {
    int sample_rate = 0;
    int64_t hop_length = 0;
    int64_t encoder_dim = 0;
    int64_t decoder_dim = 0;
    int64_t latent_dim = 0;
    int64_t quantizer_dim = 0;
    int64_t codebook_dim = 0;
    int residual_codebooks = 0;
    int64_t residual_codebook_size = 0;
    int64_t semantic_codebook_size = 0;
    std::vector<int64_t> encoder_rates;
    std::vector<int64_t> decoder_rates;
    std::vector<int64_t> encoder_transformer_layers;
    std::vector<int64_t> downsample_factors;
    nn::BlockConfig rvq_block;
    int64_t rvq_window = 0;
    int rvq_layers = 0;
    int64_t rvq_feed_forward = 0;

    int num_codebooks() const { return 1 + residual_codebooks; }
    int64_t positions_per_frame() const;  // of the quantizer's input, before its downsampling
    int64_t samples_per_frame() const { return hop_length * positions_per_frame(); }
    int64_t codebook_size(int index) const { return index == 0 ? semantic_codebook_size : residual_codebook_size; }
};

// ModelError for a key that is missing, of another type, out of range or at odds with another.
DacConfig read_dac_config(const GgufFile& file);

}  // namespace dualar
