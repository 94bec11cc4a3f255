#include "models/s2/codec.h"

#include <algorithm>

#include "models/codec_weights.h"
#include "models/s2/names.h"
#include "runtime/error.h"

namespace dualar {

Dac::Dac(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend)
    : Codec(std::move(backend)), config(read_dac_config(*file)), weights_(std::move(file), this->backend()) {
    read_quantizer(weights_);
    read_decoder(weights_);
    if (DacEncoder::present(weights_.file()))
        encoder_ = std::make_unique<DacEncoder>(weights_.shared_file(), this->backend(), config);
    std::vector<std::string> problems = weights_.problems();
    if (encoder_) {
        const std::vector<std::string> more = encoder_->weights().problems();
        problems.insert(problems.end(), more.begin(), more.end());
    }
    check_tensors(weights_.file().path(), problems);
}

void Dac::load() const {
    std::call_once(loaded_, [this] { weights_.load(); });
}

void Dac::read_quantizer(Weights& weights) {
    const DacConfig& c = config;
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
    post_module = read_windowed(weights, names::kPostModule, c.rvq_block, c.quantizer_dim, c.rvq_feed_forward,
                                c.rvq_layers, c.rvq_window);
    for (size_t i = 0; i < c.downsample_factors.size(); ++i) {
        const int factor = static_cast<int>(c.downsample_factors[c.downsample_factors.size() - 1 - i]);
        const std::string prefix = names::indexed(names::kUpsample, static_cast<int>(i));
        upsamples.push_back(
            {read_transposed(weights, prefix + "0.conv", c.quantizer_dim, c.quantizer_dim, factor, factor),
             read_convnext(weights, prefix + "1", c.quantizer_dim)});
    }
}

void Dac::read_decoder(Weights& weights) {
    const DacConfig& c = config;
    const auto name = [](int index) { return names::kDecoder + std::to_string(index); };
    int64_t channels = c.decoder_dim;
    first = read_conv(weights, name(0) + ".conv", c.latent_dim, channels, 7, 1);
    const int blocks = static_cast<int>(c.decoder_rates.size());
    for (int b = 0; b < blocks; ++b) {
        const std::string prefix = name(b + 1) + ".block.";
        const int rate = static_cast<int>(c.decoder_rates[static_cast<size_t>(b)]);
        DecoderBlock block;
        block.snake = nn::Activation::snake(weights.vector3(prefix + "0.alpha", channels));
        block.upsample = read_transposed(weights, prefix + "1.conv", channels, channels / 2, 2 * rate, rate);
        channels /= 2;
        for (int u = 0; u < 3; ++u)
            block.units[u] =
                read_residual_unit(weights, prefix + std::to_string(u + 2) + ".block.", channels, kUnitDilations[u]);
        decoder.push_back(block);
    }
    last_snake = nn::Activation::snake(weights.vector3(name(blocks + 1) + ".alpha", channels));
    last = read_conv(weights, name(blocks + 2) + ".conv", channels, 1, 7, 1);
}

std::vector<int64_t> Dac::codebook_sizes() const {
    std::vector<int64_t> sizes;
    for (int q = 0; q < config.num_codebooks(); ++q) sizes.push_back(config.codebook_size(q));
    return sizes;
}

std::unique_ptr<CodecStream> Dac::stream(int64_t max_frames) const {
    return std::make_unique<DacStream>(shared(), max_frames);
}

std::unique_ptr<CodecEncoder> Dac::encode_stream(int64_t max_frames) const {
    return std::make_unique<DacEncodeStream>(shared(), max_frames);
}

std::vector<std::string> Dac::unused_tensors() const {
    std::vector<std::string> found;
    for (const std::string& name : weights_.unused())
        if (name.rfind("c.", 0) == 0 && !(encoder_ && encoder_->weights().asked(name))) found.push_back(name);
    return found;
}

namespace {

// In the order in which build() meets them.
std::vector<nn::ConvState::Size> state_sizes(const Dac& dac) {
    std::vector<nn::ConvState::Size> sizes;
    for (const Dac::Upsample& up : dac.upsamples) {
        add_state(sizes, up.conv);
        add_state(sizes, up.convnext.depthwise);
    }
    add_state(sizes, dac.first);
    for (const DecoderBlock& block : dac.decoder) {
        add_state(sizes, block.upsample);
        for (const ResidualUnit& unit : block.units) add_state(sizes, unit);
    }
    add_state(sizes, dac.last);
    return sizes;
}

}  // namespace

DacStream::DacStream(std::shared_ptr<const Dac> codec, int64_t max_frames)
    : CodecStream(codec, max_frames, {codec->rvq, codec->post_module, "post_module", state_sizes(*codec)}),
      codec_(std::move(codec)) {
    codec_->load();
}

void DacStream::build(GraphBuilder& g, int64_t frames) const {
    const Dac& dac = *codec_;
    ConvSequence conv(g, columns());
    ggml_tensor* x = nn::linear(g, dac.rvq.out_proj, g.input("x", GGML_TYPE_F32, dac.rvq.columns(), frames));
    x = transformer().build(g, g.probe("quantized", x));
    for (const Dac::Upsample& up : dac.upsamples) x = conv(conv(x, up.conv), up.convnext);
    x = conv(g.probe("upsampled", x), dac.first);
    for (size_t i = 0; i < dac.decoder.size(); ++i) {
        const DecoderBlock& block = dac.decoder[i];
        x = conv(x, block.upsample, {block.snake});
        for (const ResidualUnit& unit : block.units) x = conv(x, unit);
        g.probe(text("decoder.", i), x);
    }
    g.output("samples", ggml_tanh(g.context, conv(x, dac.last, {dac.last_snake})));
}

}  // namespace dualar
