#include "models/qwen3_tts/codec.h"

#include "models/names.h"
#include "models/qwen3_tts/codec_names.h"

namespace dualar {

namespace keys = qwen3_codec_names;

namespace {

nn::Activation read_snake(Weights& weights, const std::string& prefix, int64_t channels) {
    return nn::Activation::snake(weights.vector(prefix + keys::kAlpha, channels),
                                 weights.vector(prefix + keys::kBeta, channels));
}

nn::Linear read_projection(Weights& weights, const std::string& name, int64_t rows, int64_t columns) {
    nn::Linear layer = read_codec_linear(weights, name + ".weight", rows, columns);
    layer.bias = weights.vector(name + ".bias", rows);
    return layer;
}

RvqCodec::Config codec_config(const Qwen3CodecConfig& c) {
    return {c.sample_rate,
            c.samples_per_frame(),
            std::vector<int64_t>(static_cast<size_t>(c.num_codebooks), c.codebook_size),
            /*clamps_codes=*/false,
            keys::kCodec,
            keys::kEncoder};
}

constexpr MimiEncoderNames kEncoderNames = {keys::kEncoder,        keys::kEncoderTransformerBlocks,
                                            keys::kDownsample,     keys::kEncoderCodebook,
                                            keys::kSemanticInProj, keys::kAcousticInProj};
constexpr SplitRvqNames kRvqNames = {keys::kCodebook, keys::kSemanticOutProj, keys::kAcousticOutProj};

void read_transformer(Weights& weights, const Qwen3CodecConfig& c, RvqDecoder& decoder) {
    const CodecTransformer& t = c.transformer;
    decoder.in_proj = read_projection(weights, keys::kTransformerInProj, t.dim, c.latent_dim);
    decoder.transformer =
        read_windowed(weights, keys::kTransformerBlocks, t.block, t.dim, t.feed_forward, t.layers, c.window);
    decoder.out_proj = read_projection(weights, keys::kTransformerOutProj, c.latent_dim, t.dim);
}

void read_blocks(Weights& weights, const Qwen3CodecConfig& c, RvqDecoder& decoder) {
    for (size_t i = 0; i < c.upsampling_ratios.size(); ++i) {
        const int ratio = static_cast<int>(c.upsampling_ratios[i]);
        const std::string prefix = names::indexed(keys::kUpsample, static_cast<int>(i));
        decoder.upsamples.push_back(
            {read_transposed(weights, prefix + "0.conv", c.latent_dim, c.latent_dim, ratio, ratio),
             read_convnext(weights, prefix + "1", c.latent_dim)});
    }
    const auto name = [](size_t index) { return names::indexed(keys::kDecoder, static_cast<int>(index)); };
    int64_t channels = c.decoder_dim;
    decoder.first = read_conv(weights, name(0) + "conv", c.latent_dim, channels, 7, 1);
    for (size_t b = 0; b < c.decoder_rates.size(); ++b) {
        const std::string prefix = name(b + 1) + "block.";
        const int rate = static_cast<int>(c.decoder_rates[b]);
        RvqDecoder::Block block;
        block.activation = read_snake(weights, prefix + "0.", channels);
        block.upsample = read_transposed(weights, prefix + "1.conv", channels, channels / 2, 2 * rate, rate);
        channels /= 2;
        for (int u = 0; u < 3; ++u) {
            const std::string unit = prefix + std::to_string(u + 2) + ".";
            block.units.push_back(
                {read_snake(weights, unit + keys::kUnitFirstSnake, channels),
                 read_conv(weights, unit + keys::kUnitFirst, channels, channels, 7, kUnitDilations[u]),
                 read_snake(weights, unit + keys::kUnitSecondSnake, channels),
                 read_conv(weights, unit + keys::kUnitSecond, channels, channels, 1, 1)});
        }
        decoder.blocks.push_back(block);
    }
    decoder.last_activation = read_snake(weights, name(decoder.blocks.size() + 1), channels);
    decoder.last = read_conv(weights, name(decoder.blocks.size() + 2) + "conv", channels, 1, 7, 1);
}

}  // namespace

Qwen3Codec::Qwen3Codec(std::shared_ptr<const GgufFile> file, const std::shared_ptr<Backend>& backend)
    : Qwen3Codec(file, backend, read_qwen3_codec_config(*file)) {}

Qwen3Codec::Qwen3Codec(const std::shared_ptr<const GgufFile>& file, const std::shared_ptr<Backend>& backend,
                       const Qwen3CodecConfig& config)
    : RvqCodec(file, backend, codec_config(config)) {
    decoder.rvq = read_split_rvq(weights(), kRvqNames, config.num_codebooks, config.codebook_size, config.codebook_dim,
                                 config.quantizer_dim);
    decoder.pre_conv = read_conv(weights(), keys::kPreConv, config.quantizer_dim, config.latent_dim, 3, 1);
    read_transformer(weights(), config, decoder);
    read_blocks(weights(), config, decoder);
    decoder.range = RvqDecoder::Range::kClamped;
    std::unique_ptr<EncoderWeights> encoder;
    if (MimiEncoder::present(*file, kEncoderNames))
        encoder = std::make_unique<MimiEncoder>(file, backend, read_qwen3_encoder_config(*file, config), kEncoderNames);
    complete(std::move(encoder));
}

std::unique_ptr<CodecEncoder> Qwen3Codec::make_encoder(const EncoderWeights& encoder, int64_t max_frames) const {
    return std::make_unique<MimiEncodeStream>(shared_from_this(), static_cast<const MimiEncoder&>(encoder), max_frames);
}

}  // namespace dualar
