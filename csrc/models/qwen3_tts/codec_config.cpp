#include "models/qwen3_tts/codec_config.h"

#include "models/codec_weights.h"
#include "models/names.h"
#include "models/qwen3_tts/codec_names.h"
#include "runtime/error.h"

namespace dualar {

namespace keys = qwen3_codec_names;

namespace {

int64_t dim(const GgufFile& file, const std::string& key) { return file.integer(key, 1, kMaxCodecDim); }

}  // namespace

int64_t Qwen3CodecConfig::samples_per_frame() const { return product(upsampling_ratios) * product(decoder_rates); }

Qwen3CodecConfig read_qwen3_codec_config(const GgufFile& file) {
    Qwen3CodecConfig c;
    c.sample_rate = static_cast<int>(file.integer(keys::kSampleRate, 1000, 1000000));
    c.num_codebooks = static_cast<int>(file.integer(keys::kNumCodebooks, 2, 1024));
    c.codebook_size = dim(file, keys::kCodebookSize);
    c.codebook_dim = dim(file, keys::kCodebookDim);
    c.quantizer_dim = dim(file, keys::kQuantizerDim);
    c.latent_dim = dim(file, keys::kLatentDim);
    c.decoder_dim = dim(file, keys::kDecoderDim);
    c.upsampling_ratios = read_rates(file, keys::kUpsamplingRatios);
    c.decoder_rates = read_rates(file, keys::kDecoderRates);
    if (product(c.upsampling_ratios) > kMaxSamplesPerFrame / std::min(product(c.decoder_rates), kMaxSamplesPerFrame))
        throw ModelError(message("[", keys::kDecoderRates, "] expected at most ", kMaxSamplesPerFrame,
                                 " samples a frame, got a product of ", product(c.decoder_rates), " times ",
                                 product(c.upsampling_ratios), " (", keys::kUpsamplingRatios, ")"));
    if (c.decoder_dim % (int64_t{1} << c.decoder_rates.size()) != 0)
        throw ModelError(message("[", keys::kDecoderDim, "] expected a multiple of 2^", c.decoder_rates.size(),
                                 ", got ", c.decoder_dim));
    c.transformer = read_codec_transformer(file, keys::kTransformer);
    c.window = read_window(file, keys::kTransformer, c.transformer.block, c.transformer.layers);
    return c;
}

MimiEncoderConfig read_qwen3_encoder_config(const GgufFile& file, const Qwen3CodecConfig& codec) {
    MimiEncoderConfig c;
    c.num_codebooks = codec.num_codebooks;
    c.codebook_size = codec.codebook_size;
    c.codebook_dim = dim(file, keys::kEncoderCodebookDim);
    c.transformer = read_codec_transformer(file, keys::kEncoderTransformer);
    read_mimi_rates(file, {keys::kEncoderFilters, keys::kEncoderRates}, codec.samples_per_frame(), c);
    return c;
}

}  // namespace dualar
