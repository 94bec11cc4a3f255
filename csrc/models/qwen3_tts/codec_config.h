// The geometry of Qwen3-TTS's codec, as its GGUF keys give it.
#pragma once

#include <cstdint>
#include <vector>

#include "models/mimi_encoder.h"

namespace dualar {

struct Qwen3CodecConfig {
    int sample_rate = 0;
    int num_codebooks = 0;
    int64_t codebook_size = 0;
    int64_t codebook_dim = 0;   // of a code's vector
    int64_t quantizer_dim = 0;  // of what the projected vectors add up to
    int64_t latent_dim = 0;
    int64_t decoder_dim = 0;
    std::vector<int64_t> upsampling_ratios;
    std::vector<int64_t> decoder_rates;
    CodecTransformer transformer;
    int64_t window = 0;

    int64_t samples_per_frame() const;
};

// ModelError for a key that is missing, of another type, out of range or at odds with another.
Qwen3CodecConfig read_qwen3_codec_config(const GgufFile& file);
MimiEncoderConfig read_qwen3_encoder_config(const GgufFile& file, const Qwen3CodecConfig& codec);

}  // namespace dualar
