#include "models/s2/codec.h"

#include <algorithm>

#include "models/s2/codec_encoder.h"
#include "models/s2/names.h"

namespace dualar {

namespace {

RvqCodec::Config codec_config(const DacConfig& c) {
    RvqCodec::Config config{c.sample_rate, c.samples_per_frame(), {}, false, "c.", "c.encoder."};
    for (int q = 0; q < c.num_codebooks(); ++q) config.codebook_sizes.push_back(c.codebook_size(q));
    config.clamps_codes = true;  // the model may draw one that is out of range
    return config;
}

void read_quantizer(Weights& weights, const DacConfig& c, RvqDecoder& decoder) {
    nn::Rvq& rvq = decoder.rvq;
    rvq.codebook_dim = c.codebook_dim;
    std::vector<const FileTensor*> projections;
    std::vector<const FileTensor*> biases;
    for (int q = 0; q < c.num_codebooks(); ++q) {
        const std::string prefix =
            q == 0 ? names::kSemanticQuantizer : names::indexed(names::kResidualQuantizer, q - 1);
        rvq.add(weights.table(prefix + names::kCodebook, c.codebook_size(q), c.codebook_dim), q);
        projections.push_back(
            weights.require(prefix + names::kOutProj + ".weight", {c.quantizer_dim, c.codebook_dim, 1}));
        biases.push_back(weights.require(prefix + names::kOutProj + ".bias", {c.quantizer_dim}));
    }
    rvq.out_proj.weight = weights.prepared("out_proj.weight", rvq.columns(), c.quantizer_dim, [=](float* out) {
        for (size_t q = 0; q < projections.size(); ++q) {
            const std::vector<float> published = to_float(*projections[q]);
            for (int64_t row = 0; row < c.quantizer_dim; ++row)
                std::copy_n(published.begin() + row * c.codebook_dim, c.codebook_dim,
                            out + row * static_cast<int64_t>(projections.size()) * c.codebook_dim +
                                static_cast<int64_t>(q) * c.codebook_dim);
        }
    });
    rvq.out_proj.bias = weights.prepared("out_proj.bias", c.quantizer_dim, 1, [=](float* out) {
        std::fill_n(out, c.quantizer_dim, 0.0F);
        for (const FileTensor* bias : biases) {
            const std::vector<float> published = to_float(*bias);
            for (int64_t i = 0; i < c.quantizer_dim; ++i) out[i] += published[static_cast<size_t>(i)];
        }
    });
    decoder.transformer = read_windowed(weights, names::kPostModule, c.rvq_block, c.quantizer_dim, c.rvq_feed_forward,
                                        c.rvq_layers, c.rvq_window);
    for (size_t i = 0; i < c.downsample_factors.size(); ++i) {
        const int factor = static_cast<int>(c.downsample_factors[c.downsample_factors.size() - 1 - i]);
        const std::string prefix = names::indexed(names::kUpsample, static_cast<int>(i));
        decoder.upsamples.push_back(
            {read_transposed(weights, prefix + "0.conv", c.quantizer_dim, c.quantizer_dim, factor, factor),
             read_convnext(weights, prefix + "1", c.quantizer_dim)});
    }
}

void read_blocks(Weights& weights, const DacConfig& c, RvqDecoder& decoder) {
    const auto name = [](int index) { return names::kDecoder + std::to_string(index); };
    int64_t channels = c.decoder_dim;
    decoder.first = read_conv(weights, name(0) + ".conv", c.latent_dim, channels, 7, 1);
    const int blocks = static_cast<int>(c.decoder_rates.size());
    for (int b = 0; b < blocks; ++b) {
        const std::string prefix = name(b + 1) + ".block.";
        const int rate = static_cast<int>(c.decoder_rates[static_cast<size_t>(b)]);
        RvqDecoder::Block block;
        block.activation = nn::Activation::snake(weights.vector3(prefix + "0.alpha", channels));
        block.upsample = read_transposed(weights, prefix + "1.conv", channels, channels / 2, 2 * rate, rate);
        channels /= 2;
        for (int u = 0; u < 3; ++u)
            block.units.push_back(
                read_residual_unit(weights, prefix + std::to_string(u + 2) + ".block.", channels, kUnitDilations[u]));
        decoder.blocks.push_back(block);
    }
    decoder.last_activation = nn::Activation::snake(weights.vector3(name(blocks + 1) + ".alpha", channels));
    decoder.last = read_conv(weights, name(blocks + 2) + ".conv", channels, 1, 7, 1);
}

}  // namespace

Dac::Dac(std::shared_ptr<const GgufFile> file, const std::shared_ptr<Backend>& backend)
    : Dac(file, backend, read_dac_config(*file)) {}

Dac::Dac(const std::shared_ptr<const GgufFile>& file, const std::shared_ptr<Backend>& backend, const DacConfig& config)
    : RvqCodec(file, backend, codec_config(config)), config_(config) {
    read_quantizer(weights(), config, decoder);
    read_blocks(weights(), config, decoder);
    complete(DacEncoder::present(*file) ? std::make_unique<DacEncoder>(file, backend, config) : nullptr);
}

std::unique_ptr<CodecEncoder> Dac::make_encoder(const EncoderWeights& encoder, int64_t max_frames) const {
    return std::make_unique<DacEncodeStream>(shared_from_this(), static_cast<const DacEncoder&>(encoder), config_,
                                             max_frames);
}

}  // namespace dualar
