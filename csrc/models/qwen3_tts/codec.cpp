#include "models/qwen3_tts/codec.h"

#include <algorithm>
#include <cmath>

#include "models/names.h"
#include "models/qwen3_tts/codec_names.h"
#include "runtime/error.h"

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

}  // namespace

Qwen3Codec::Qwen3Codec(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend)
    : Codec(std::move(backend)), config(read_qwen3_codec_config(*file)), weights_(std::move(file), this->backend()) {
    read_quantizer();
    read_transformer();
    read_decoder();
    std::vector<std::string> problems = weights_.problems();
    if (Qwen3Encoder::present(weights_.file())) {
        encoder_ = std::make_unique<Qwen3Encoder>(weights_.shared_file(), this->backend(), config);
        const std::vector<std::string> more = encoder_->weights().problems();
        problems.insert(problems.end(), more.begin(), more.end());
    }
    check_tensors(weights_.file().path(), problems);
}

void Qwen3Codec::load() const {
    std::call_once(loaded_, [this] { weights_.load(); });
}

void Qwen3Codec::read_quantizer() {
    const Qwen3CodecConfig& c = config;
    rvq.codebook_dim = c.codebook_dim;
    // The semantic codebook has a projection of its own, all others share one.
    for (int q = 0; q < c.num_codebooks; ++q)
        rvq.add(weights_.table(names::indexed(keys::kCodebook, q) + "weight", c.codebook_size, c.codebook_dim),
                q == 0 ? 0 : 1);
    std::vector<const FileTensor*> projections;
    for (const char* name : {keys::kSemanticOutProj, keys::kAcousticOutProj})
        projections.push_back(weights_.require(name, {c.quantizer_dim, c.codebook_dim}));
    rvq.out_proj.weight = weights_.prepared("out_proj.weight", rvq.columns(), c.quantizer_dim, [=](float* out) {
        for (size_t group = 0; group < projections.size(); ++group) {
            const std::vector<float> published = to_float(*projections[group]);
            for (int64_t row = 0; row < c.quantizer_dim; ++row)
                std::copy_n(published.begin() + row * c.codebook_dim, c.codebook_dim,
                            out + (row * 2 + static_cast<int64_t>(group)) * c.codebook_dim);
        }
    });
    pre_conv = read_conv(weights_, keys::kPreConv, c.quantizer_dim, c.latent_dim, 3, 1);
}

void Qwen3Codec::read_transformer() {
    const Qwen3CodecConfig::Transformer& t = config.transformer;
    in_proj = read_projection(weights_, keys::kTransformerInProj, t.dim, config.latent_dim);
    transformer =
        read_windowed(weights_, keys::kTransformerBlocks, t.block, t.dim, t.feed_forward, t.layers, config.window);
    out_proj = read_projection(weights_, keys::kTransformerOutProj, config.latent_dim, t.dim);
}

void Qwen3Codec::read_decoder() {
    const Qwen3CodecConfig& c = config;
    for (size_t i = 0; i < c.upsampling_ratios.size(); ++i) {
        const int ratio = static_cast<int>(c.upsampling_ratios[i]);
        const std::string prefix = names::indexed(keys::kUpsample, static_cast<int>(i));
        upsamples.push_back({read_transposed(weights_, prefix + "0.conv", c.latent_dim, c.latent_dim, ratio, ratio),
                             read_convnext(weights_, prefix + "1", c.latent_dim)});
    }
    const auto name = [](size_t index) { return names::indexed(keys::kDecoder, static_cast<int>(index)); };
    int64_t channels = c.decoder_dim;
    first = read_conv(weights_, name(0) + "conv", c.latent_dim, channels, 7, 1);
    for (size_t b = 0; b < c.decoder_rates.size(); ++b) {
        const std::string prefix = name(b + 1) + "block.";
        const int rate = static_cast<int>(c.decoder_rates[b]);
        Block block;
        block.snake = read_snake(weights_, prefix + "0.", channels);
        block.upsample = read_transposed(weights_, prefix + "1.conv", channels, channels / 2, 2 * rate, rate);
        channels /= 2;
        for (int u = 0; u < 3; ++u) {
            const std::string unit = prefix + std::to_string(u + 2) + ".";
            block.units[u] = {read_snake(weights_, unit + keys::kUnitFirstSnake, channels),
                              read_conv(weights_, unit + keys::kUnitFirst, channels, channels, 7, kUnitDilations[u]),
                              read_snake(weights_, unit + keys::kUnitSecondSnake, channels),
                              read_conv(weights_, unit + keys::kUnitSecond, channels, channels, 1, 1)};
        }
        decoder.push_back(block);
    }
    last_snake = read_snake(weights_, name(decoder.size() + 1), channels);
    last = read_conv(weights_, name(decoder.size() + 2) + "conv", channels, 1, 7, 1);
}

std::vector<int64_t> Qwen3Codec::codebook_sizes() const {
    return std::vector<int64_t>(static_cast<size_t>(config.num_codebooks), config.codebook_size);
}

std::unique_ptr<CodecStream> Qwen3Codec::stream(int64_t max_frames) const {
    return std::make_unique<Qwen3CodecStream>(shared(), max_frames);
}

std::unique_ptr<CodecEncoder> Qwen3Codec::encode_stream(int64_t max_frames) const {
    return std::make_unique<Qwen3EncodeStream>(shared(), max_frames);
}

std::vector<std::string> Qwen3Codec::unused_tensors() const {
    std::vector<std::string> found;
    for (const std::string& name : weights_.unused())
        if (name.rfind(keys::kCodec, 0) == 0 && !(encoder_ && encoder_->weights().asked(name))) found.push_back(name);
    return found;
}

namespace {

// In the order in which build() meets them.
std::vector<nn::ConvState::Size> state_sizes(const Qwen3Codec& codec) {
    std::vector<nn::ConvState::Size> sizes;
    add_state(sizes, codec.pre_conv);
    for (const Qwen3Codec::Upsample& up : codec.upsamples) {
        add_state(sizes, up.conv);
        add_state(sizes, up.convnext.depthwise);
    }
    add_state(sizes, codec.first);
    for (const Qwen3Codec::Block& block : codec.decoder) {
        add_state(sizes, block.upsample);
        for (const ResidualUnit& unit : block.units) add_state(sizes, unit);
    }
    add_state(sizes, codec.last);
    return sizes;
}

}  // namespace

Qwen3CodecStream::Qwen3CodecStream(std::shared_ptr<const Qwen3Codec> codec, int64_t max_frames)
    : CodecStream(codec, max_frames, {codec->rvq, codec->transformer, "transformer", state_sizes(*codec)}),
      codec_(std::move(codec)) {
    codec_->load();
}

void Qwen3CodecStream::build(GraphBuilder& g, int64_t frames) const {
    const Qwen3Codec& codec = *codec_;
    ConvSequence conv(g, columns());
    ggml_tensor* x = nn::linear(g, codec.rvq.out_proj, g.input("x", GGML_TYPE_F32, codec.rvq.columns(), frames));
    x = g.probe("pre_conv", conv(g.probe("quantized", x), codec.pre_conv));
    x = nn::linear(g, codec.out_proj, transformer().build(g, nn::linear(g, codec.in_proj, x)));
    g.probe("pre_transformer", x);
    for (size_t i = 0; i < codec.upsamples.size(); ++i) {
        x = g.probe(text("upsample.", i, ".conv"), conv(x, codec.upsamples[i].conv));
        x = g.probe(text("upsample.", i), conv(x, codec.upsamples[i].convnext));
    }
    x = g.probe("decoder.0", conv(x, codec.first));
    for (size_t i = 0; i < codec.decoder.size(); ++i) {
        const Qwen3Codec::Block& block = codec.decoder[i];
        const std::string name = text("decoder.", i + 1);
        x = g.probe(name + ".conv", conv(x, block.upsample, {block.snake}));
        for (size_t u = 0; u < std::size(block.units); ++u)
            x = g.probe(text(name, ".unit.", u), conv(x, block.units[u]));
    }
    g.output("samples", conv(x, codec.last, {codec.last_snake}));
}

// The published clamp, but for what is not finite: that must be seen.
void Qwen3CodecStream::post(std::vector<float>& samples) const {
    for (float& sample : samples)
        if (std::isfinite(sample)) sample = std::clamp(sample, -1.0F, 1.0F);
}

}  // namespace dualar
