#include "models/s2/codec_encoder.h"

#include "models/s2/names.h"
#include "runtime/error.h"

namespace dualar {

namespace {

// Positions that the encoder's transformers see; the published code has no key for it.
constexpr int64_t kEncoderWindow = 512;

}  // namespace

bool DacEncoder::present(const GgufFile& file) {
    return file.find(std::string(names::kEncoder) + "0.conv.weight") != nullptr;
}

DacEncoder::DacEncoder(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend, const DacConfig& config)
    : EncoderWeights(std::move(file), std::move(backend)) {
    read_blocks(config);
    read_quantizer(config);
}

void DacEncoder::read_blocks(const DacConfig& c) {
    const auto name = [](size_t index) { return names::kEncoder + std::to_string(index); };
    const std::string keys = names::kEncoderTransformer;
    int64_t channels = c.encoder_dim;
    first = read_conv(weights_, name(0) + ".conv", 1, channels, 7, 1);
    for (size_t b = 0; b < c.encoder_rates.size(); ++b) {
        const std::string prefix = name(b + 1) + ".block.";
        const int rate = static_cast<int>(c.encoder_rates[b]);
        EncoderBlock block;
        for (int u = 0; u < 3; ++u)
            block.units[u] =
                read_residual_unit(weights_, prefix + std::to_string(u) + ".block.", channels, kUnitDilations[u]);
        block.snake = nn::Activation::snake(weights_.vector3(prefix + "3.alpha", channels));
        block.downsample = read_conv(weights_, prefix + "4.conv", channels, 2 * channels, 2 * rate, 1, rate);
        channels *= 2;
        const int layers = static_cast<int>(c.encoder_transformer_layers[b]);
        if (layers > 0) {
            const int64_t head_dim = weights_.file().integer(keys + names::kHeadDim, 2, 65536);
            if (channels % head_dim != 0)
                throw ModelError(message("[", keys, names::kHeadDim, "] expected a divisor of the width ", channels,
                                         " of encoder block ", b + 1, ", got ", head_dim));
            // There is no key for the feed-forward's width: the first layer's own tensor tells it.
            const FileTensor* w1 = weights_.file().find(prefix + "5.layers.0." + names::kW1);
            const int64_t feed_forward = w1 != nullptr && !w1->shape.empty() ? w1->shape.front() : 3 * channels;
            block.transformer =
                read_windowed(weights_, prefix + "5.", read_transformer(weights_.file(), keys, channels / head_dim),
                              channels, feed_forward, layers, kEncoderWindow);
        }
        blocks.push_back(std::move(block));
    }
    last_snake = nn::Activation::snake(weights_.vector3(name(c.encoder_rates.size() + 1) + ".alpha", channels));
    last = read_conv(weights_, name(c.encoder_rates.size() + 2) + ".conv", channels, c.latent_dim, 3, 1);
}

void DacEncoder::read_quantizer(const DacConfig& c) {
    for (size_t i = 0; i < c.downsample_factors.size(); ++i) {
        const int factor = static_cast<int>(c.downsample_factors[i]);
        const std::string prefix = names::indexed(names::kDownsample, static_cast<int>(i));
        downsamples.push_back(
            {read_conv(weights_, prefix + "0.conv", c.quantizer_dim, c.quantizer_dim, factor, 1, factor),
             read_convnext(weights_, prefix + "1", c.quantizer_dim)});
    }
    pre_module = read_windowed(weights_, names::kPreModule, c.rvq_block, c.quantizer_dim, c.rvq_feed_forward,
                               c.rvq_layers, c.rvq_window);
    for (int q = 0; q < c.num_codebooks(); ++q) {
        const std::string prefix =
            q == 0 ? names::kSemanticQuantizer : names::indexed(names::kResidualQuantizer, q - 1);
        const auto require = [&](const char* part, const char* kind, const Shape& shape) {
            return weights_.require(prefix + part + kind, shape);
        };
        const FileTensor* book = weights_.require(prefix + names::kCodebook, {c.codebook_size(q), c.codebook_dim});
        const FileTensor* in_weight = require(names::kInProj, ".weight", {c.codebook_dim, c.quantizer_dim, 1});
        const FileTensor* in_bias = require(names::kInProj, ".bias", {c.codebook_dim});
        const FileTensor* out_weight = require(names::kOutProj, ".weight", {c.quantizer_dim, c.codebook_dim, 1});
        const FileTensor* out_bias = require(names::kOutProj, ".bias", {c.quantizer_dim});
        weights_.on_load([=, dim = c.quantizer_dim] {
            quantizer.add(
                {to_float(*in_weight), to_float(*in_bias), to_float(*out_weight), to_float(*out_bias), to_float(*book)},
                dim);
        });
    }
}

namespace {

// In the order in which build() meets them.
std::vector<nn::ConvState::Size> state_sizes(const DacEncoder& encoder) {
    std::vector<nn::ConvState::Size> sizes;
    add_state(sizes, encoder.first);
    for (const EncoderBlock& block : encoder.blocks) {
        for (const ResidualUnit& unit : block.units) add_state(sizes, unit);
        add_state(sizes, block.downsample);
    }
    add_state(sizes, encoder.last);
    for (const DacEncoder::Downsample& down : encoder.downsamples) {
        add_state(sizes, down.conv);
        add_state(sizes, down.convnext.depthwise);
    }
    return sizes;
}

}  // namespace

DacEncodeStream::DacEncodeStream(std::shared_ptr<const Codec> codec, const DacEncoder& encoder, const DacConfig& config,
                                 int64_t max_frames)
    : CodecEncoder(std::move(codec), max_frames),
      encoder_(encoder),
      state_(*this->codec().backend(), state_sizes(encoder_)),
      graphs_(static_cast<size_t>(max_frames) + 1) {
    int64_t positions = this->codec().samples_per_frame();
    const auto add = [&](const nn::WindowedTransformer& transformer, const std::string& name) {
        windowed_.push_back(
            {std::make_unique<nn::WindowedState>(*this->codec().backend(), transformer, positions * max_frames, name),
             positions});
    };
    for (size_t b = 0; b < encoder_.blocks.size(); ++b) {
        positions /= config.encoder_rates[b];
        if (!encoder_.blocks[b].transformer.blocks.empty()) add(encoder_.blocks[b].transformer, message("encoder.", b));
    }
    positions = 1;
    add(encoder_.pre_module, "pre_module");
}

void DacEncodeStream::build(GraphBuilder& g, int64_t frames) const {
    ConvSequence conv(g, state_);
    size_t next = 0;
    ggml_tensor* x = g.input("x", GGML_TYPE_F32, 1, frames * codec().samples_per_frame());
    x = conv(x, encoder_.first);
    for (const EncoderBlock& block : encoder_.blocks) {
        for (const ResidualUnit& unit : block.units) x = conv(x, unit);
        x = conv(x, block.downsample, {block.snake});
        if (!block.transformer.blocks.empty()) x = windowed_[next++].state->build(g, x);
    }
    x = conv(x, encoder_.last, {encoder_.last_snake});
    for (const DacEncoder::Downsample& down : encoder_.downsamples) x = conv(conv(x, down.conv), down.convnext);
    g.output("latent", windowed_[next].state->build(g, x));
}

std::vector<int32_t> DacEncodeStream::encode(const std::vector<float>& samples, bool) {
    const auto per_frame = static_cast<size_t>(codec().samples_per_frame());
    const auto frames = static_cast<int64_t>((samples.size() + per_frame - 1) / per_frame);
    std::vector<float> filled = samples;
    filled.resize(static_cast<size_t>(frames) * per_frame);
    std::unique_ptr<Graph>& graph = graphs_[static_cast<size_t>(frames)];
    if (!graph) {
        ++graph_builds_;
        size_t blocks = encoder_.pre_module.blocks.size();
        for (const EncoderBlock& block : encoder_.blocks) blocks += block.transformer.blocks.size();
        const size_t nodes = kNodesPerConv * state_sizes(encoder_).size() + nn::kNodesPerBlock * blocks + 64;
        graph = std::make_unique<Graph>(codec().backend(), nodes, [&](GraphBuilder& g) { build(g, frames); });
    }
    graph->set("x", filled.data(), filled.size() * sizeof(float));
    for (const Windowed& w : windowed_) w.state->set(*graph, w.positions_per_frame * frames);
    graph->compute();
    for (const Windowed& w : windowed_) w.state->advance(w.positions_per_frame * frames);
    const std::vector<float>& latent = probes_["latent"] = graph->get("latent");
    std::vector<int32_t> codes(static_cast<size_t>(codebooks() * frames));
    encoder_.quantizer.encode(latent.data(), frames, codes.data());
    return codes;
}

void DacEncodeStream::clear() {
    state_.reset();
    for (const Windowed& w : windowed_) w.state->reset();
}

size_t DacEncodeStream::nbytes() const {
    size_t bytes = state_.nbytes();
    for (const Windowed& w : windowed_) bytes += w.state->nbytes();
    return bytes;
}

}  // namespace dualar
