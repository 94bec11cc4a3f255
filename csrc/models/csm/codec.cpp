#include "models/csm/codec.h"

#include <algorithm>

#include "models/csm/names.h"
#include "models/names.h"
#include "runtime/error.h"

namespace dualar {

namespace keys = csm_names;

namespace {

constexpr MimiEncoderNames kEncoderNames = {keys::kEncoder,  keys::kEncoderTransformerBlocks, keys::kDownsample,
                                            keys::kCodebook, keys::kSemanticInProj,           keys::kAcousticInProj};
constexpr SplitRvqNames kRvqNames = {keys::kCodebook, keys::kSemanticOutProj, keys::kAcousticOutProj};

MimiConfig read_config(const GgufFile& file) {
    const auto dim = [&](const char* key) { return file.integer(key, 1, kMaxCodecDim); };
    MimiConfig c;
    c.sample_rate = static_cast<int>(file.integer(keys::kSampleRate, 1000, 1000000));
    c.num_codebooks = static_cast<int>(file.integer(keys::kNumCodebooks, 2, 1024));
    c.codebook_size = dim(keys::kCodebookSize);
    c.codebook_dim = dim(keys::kCodebookDim);
    c.latent_dim = dim(keys::kLatentDim);
    c.decoder_dim = dim(keys::kDecoderDim);
    c.upsampling_ratio = file.integer(keys::kUpsamplingRatio, 1, 4096);
    c.decoder_rates = read_rates(file, keys::kDecoderRates);
    if (product(c.decoder_rates) > kMaxSamplesPerFrame / c.upsampling_ratio)
        throw ModelError(message("[", keys::kDecoderRates, "] expected at most ", kMaxSamplesPerFrame,
                                 " samples a frame, got a product of ", product(c.decoder_rates), " times ",
                                 c.upsampling_ratio, " (", keys::kUpsamplingRatio, ")"));
    // Each residual unit goes through half its channels, the last one's too.
    if (c.decoder_dim % (int64_t{2} << c.decoder_rates.size()) != 0)
        throw ModelError(message("[", keys::kDecoderDim, "] expected a multiple of 2^", c.decoder_rates.size() + 1,
                                 ", got ", c.decoder_dim));
    c.transformer = read_codec_transformer(file, keys::kTransformer);
    if (c.transformer.dim != c.latent_dim)
        throw ModelError(message("[", keys::kTransformer, names::kDim, "] expected ", keys::kLatentDim, ", ",
                                 c.latent_dim, ", got ", c.transformer.dim));
    c.window = read_window(file, keys::kTransformer, c.transformer.block, c.transformer.layers);
    return c;
}

MimiEncoderConfig read_encoder_config(const GgufFile& file, const MimiConfig& codec) {
    MimiEncoderConfig c;
    c.num_codebooks = codec.num_codebooks;
    c.codebook_size = codec.codebook_size;
    c.codebook_dim = codec.codebook_dim;
    c.transformer = read_codec_transformer(file, keys::kEncoderTransformer);
    c.window = read_window(file, keys::kEncoderTransformer, c.transformer.block, c.transformer.layers);
    c.fills_frames = true;  // as the code that CSM was trained with does
    read_mimi_rates(file, {keys::kEncoderFilters, keys::kEncoderRates}, codec.samples_per_frame(), c);
    return c;
}

RvqCodec::Config codec_config(const MimiConfig& c) {
    return {c.sample_rate,
            c.samples_per_frame(),
            std::vector<int64_t>(static_cast<size_t>(c.num_codebooks), c.codebook_size),
            /*clamps_codes=*/false,
            keys::kCodec,
            keys::kEncoder};
}

// The published list of layers counts the activations too, as the encoder's does.
void read_blocks(Weights& weights, const MimiConfig& c, RvqDecoder& decoder) {
    int index = 0;
    const auto name = [&] { return names::indexed(keys::kDecoder, index); };
    int64_t channels = c.decoder_dim;
    decoder.first = read_conv(weights, name() + "conv", c.latent_dim, channels, 7, 1);
    for (const int64_t rate : c.decoder_rates) {
        RvqDecoder::Block block;
        block.activation = nn::Activation::elu();
        index += 2;
        const int stride = static_cast<int>(rate);
        block.upsample = read_transposed(weights, name() + "conv", channels, channels / 2, 2 * stride, stride);
        channels /= 2;
        index += 1;
        block.units.push_back(read_elu_unit(weights, name() + "block.", channels));
        decoder.blocks.push_back(std::move(block));
    }
    index += 2;
    decoder.last_activation = nn::Activation::elu();
    decoder.last = read_conv(weights, name() + "conv", channels, 1, 3, 1);
}

}  // namespace

CsmCodec::CsmCodec(std::shared_ptr<const GgufFile> file, const std::shared_ptr<Backend>& backend)
    : CsmCodec(file, backend, read_config(*file)) {}

CsmCodec::CsmCodec(const std::shared_ptr<const GgufFile>& file, const std::shared_ptr<Backend>& backend,
                   const MimiConfig& config)
    : RvqCodec(file, backend, codec_config(config)) {
    const int ratio = static_cast<int>(config.upsampling_ratio);
    decoder.rvq = read_split_rvq(weights(), kRvqNames, config.num_codebooks, config.codebook_size, config.codebook_dim,
                                 config.latent_dim);
    decoder.pre_upsample = read_depthwise_transposed(weights(), keys::kUpsample, config.latent_dim, 2 * ratio, ratio);
    decoder.transformer = read_plain_windowed(weights(), keys::kTransformerBlocks, config.transformer, config.window);
    read_blocks(weights(), config, decoder);
    decoder.range = RvqDecoder::Range::kFree;
    std::unique_ptr<EncoderWeights> encoder;
    if (MimiEncoder::present(*file, kEncoderNames))
        encoder = std::make_unique<MimiEncoder>(file, backend, read_encoder_config(*file, config), kEncoderNames);
    complete(std::move(encoder));
}

std::unique_ptr<CodecEncoder> CsmCodec::make_encoder(const EncoderWeights& encoder, int64_t max_frames) const {
    return std::make_unique<MimiEncodeStream>(shared_from_this(), static_cast<const MimiEncoder&>(encoder), max_frames);
}

}  // namespace dualar
