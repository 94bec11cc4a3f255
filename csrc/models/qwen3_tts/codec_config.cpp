#include "models/qwen3_tts/codec_config.h"

#include "models/codec_weights.h"
#include "models/names.h"
#include "models/qwen3_tts/codec_names.h"
#include "runtime/error.h"

namespace dualar {

namespace keys = qwen3_codec_names;

namespace {

int64_t dim(const GgufFile& file, const std::string& key) { return file.integer(key, 1, kMaxCodecDim); }

Qwen3CodecConfig::Transformer read_sizes(const GgufFile& file, const std::string& prefix) {
    Qwen3CodecConfig::Transformer t;
    t.block = read_transformer(file, prefix, dim(file, prefix + names::kHeads));
    t.block.rope_neox = true;
    t.dim = dim(file, prefix + names::kDim);
    t.feed_forward = dim(file, prefix + names::kTransformerFeedForward);
    t.layers = static_cast<int>(file.integer(prefix + names::kLayers, 1, 1024));
    return t;
}

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
        throw ModelError(text("[", keys::kDecoderRates, "] expected at most ", kMaxSamplesPerFrame,
                              " samples a frame, got a product of ", product(c.decoder_rates), " times ",
                              product(c.upsampling_ratios), " (", keys::kUpsamplingRatios, ")"));
    if (c.decoder_dim % (int64_t{1} << c.decoder_rates.size()) != 0)
        throw ModelError(text("[", keys::kDecoderDim, "] expected a multiple of 2^", c.decoder_rates.size(), ", got ",
                              c.decoder_dim));
    c.transformer = read_sizes(file, keys::kTransformer);
    c.window = read_window(file, keys::kTransformer, c.transformer.block, c.transformer.layers);
    return c;
}

Qwen3EncoderConfig read_qwen3_encoder_config(const GgufFile& file, const Qwen3CodecConfig& codec) {
    Qwen3EncoderConfig c;
    c.filters = dim(file, keys::kEncoderFilters);
    c.rates = read_rates(file, keys::kEncoderRates);
    c.codebook_dim = dim(file, keys::kEncoderCodebookDim);
    c.transformer = read_sizes(file, keys::kEncoderTransformer);
    if (codec.samples_per_frame() % product(c.rates) != 0)
        throw ModelError(text("[", keys::kEncoderRates, "] expected a product that divides the ",
                              codec.samples_per_frame(), " samples of a frame, got ", product(c.rates)));
    c.downsample = codec.samples_per_frame() / product(c.rates);
    if (c.filters % 2 != 0 || c.filters > kMaxCodecDim >> c.rates.size())
        throw ModelError(text("[", keys::kEncoderFilters, "] expected an even width that doubles ", c.rates.size(),
                              " times within ", kMaxCodecDim, ", got ", c.filters));
    return c;
}

}  // namespace dualar
