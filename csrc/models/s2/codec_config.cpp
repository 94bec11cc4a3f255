#include "models/s2/codec_config.h"

#include "models/codec_weights.h"
#include "models/s2/names.h"
#include "runtime/error.h"

namespace dualar {

namespace {

constexpr int64_t kMaxDim = kMaxCodecDim;

}  // namespace

DacConfig read_dac_config(const GgufFile& file) {
    const auto dim = [&](const char* key) { return file.integer(key, 1, kMaxDim); };
    DacConfig c;
    c.sample_rate = static_cast<int>(file.integer(names::kSampleRate, 1000, 1000000));
    c.hop_length = file.integer(names::kHopLength, 1, kMaxSamplesPerFrame);
    c.encoder_dim = dim(names::kEncoderDim);
    c.decoder_dim = dim(names::kDecoderDim);
    c.latent_dim = dim(names::kLatentDim);
    c.quantizer_dim = dim(names::kQuantizerInputDim);
    c.codebook_dim = dim(names::kCodebookDim);
    c.residual_codebooks = static_cast<int>(file.integer(names::kResidualCodebooks, 0, 1023));
    c.residual_codebook_size = dim(names::kResidualCodebookSize);
    c.semantic_codebook_size = dim(names::kSemanticCodebookSize);
    c.encoder_rates = read_rates(file, names::kEncoderRates);
    c.decoder_rates = read_rates(file, names::kDecoderRates);
    c.downsample_factors = read_rates(file, names::kDownsampleFactor);
    c.encoder_transformer_layers = file.integers(names::kEncoderTransformerLayers, 0, 1024);
    if (c.encoder_transformer_layers.size() != c.encoder_rates.size())
        throw ModelError(message("[", names::kEncoderTransformerLayers, "] expected ", c.encoder_rates.size(),
                                 " values, one per encoder rate, got ", c.encoder_transformer_layers.size()));
    for (const auto& [key, rates] :
         {std::pair(names::kEncoderRates, &c.encoder_rates), std::pair(names::kDecoderRates, &c.decoder_rates)})
        if (product(*rates) != c.hop_length)
            throw ModelError(message("[", key, "] expected a product of ", c.hop_length, " (", names::kHopLength,
                                     "), got ", product(*rates)));
    if (product(c.downsample_factors) > kMaxSamplesPerFrame / c.hop_length)
        throw ModelError(message("[", names::kDownsampleFactor, "] expected at most ", kMaxSamplesPerFrame,
                                 " samples a frame, got a product of ", product(c.downsample_factors), " times ",
                                 c.hop_length, " (", names::kHopLength, ")"));
    if (c.encoder_dim > kMaxDim >> c.encoder_rates.size())
        throw ModelError(message("[", names::kEncoderDim, "] expected a width that doubles ", c.encoder_rates.size(),
                                 " times within ", kMaxDim, ", got ", c.encoder_dim));
    if (c.decoder_dim % (int64_t{1} << c.decoder_rates.size()) != 0)
        throw ModelError(message("[", names::kDecoderDim, "] expected a multiple of 2^", c.decoder_rates.size(),
                                 ", got ", c.decoder_dim));

    const std::string rvq = names::kRvqTransformer;
    const int64_t width = dim((rvq + names::kDim).c_str());
    if (width != c.quantizer_dim || c.latent_dim != c.quantizer_dim)
        throw ModelError(message("[", rvq, names::kDim, "] expected ", names::kQuantizerInputDim, " (", c.quantizer_dim,
                                 "), which must also be ", names::kLatentDim, " (", c.latent_dim, "), got ", width));
    c.rvq_layers = static_cast<int>(file.integer(rvq + names::kLayers, 1, 1024));
    c.rvq_feed_forward = dim((rvq + names::kTransformerFeedForward).c_str());
    c.rvq_block = read_transformer(file, rvq, file.integer(rvq + names::kHeads, 1, kMaxDim));
    c.rvq_window = read_window(file, rvq, c.rvq_block, c.rvq_layers);
    return c;
}

int64_t DacConfig::positions_per_frame() const { return product(downsample_factors); }

}  // namespace dualar
