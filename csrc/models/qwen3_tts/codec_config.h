// The geometry of Qwen3-TTS's codec, as its GGUF keys give it.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/transformer.h"
#include "runtime/gguf_file.h"

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
    struct Transformer {
        nn::BlockConfig block;
        int64_t dim = 0;
        int64_t feed_forward = 0;
        int layers = 0;
    };
    Transformer transformer;
    int64_t window = 0;

    int64_t samples_per_frame() const;
};

struct Qwen3EncoderConfig {
    int64_t filters = 0;
    std::vector<int64_t> rates;
    int64_t codebook_dim = 0;
    int64_t downsample = 0;  // columns per frame that come out of the rates
    Qwen3CodecConfig::Transformer transformer;
};

// ModelError for a key that is missing, of another type, out of range or at odds with another.
Qwen3CodecConfig read_qwen3_codec_config(const GgufFile& file);
Qwen3EncoderConfig read_qwen3_encoder_config(const GgufFile& file, const Qwen3CodecConfig& codec);

}  // namespace dualar
