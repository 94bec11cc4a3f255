#include "models/qwen3_tts/codec_encoder.h"

#include "models/block_weights.h"
#include "models/names.h"
#include "models/qwen3_tts/codec_names.h"
#include "runtime/error.h"

namespace dualar {

namespace keys = qwen3_codec_names;

bool Qwen3Encoder::present(const GgufFile& file) {
    return file.find(std::string(keys::kEncoder) + "0.conv.weight") != nullptr;
}

Qwen3Encoder::Qwen3Encoder(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend,
                           const Qwen3CodecConfig& codec)
    : EncoderWeights(file, std::move(backend)), config(read_qwen3_encoder_config(*file, codec)) {
    read_blocks();
    read_transformer();
    read_quantizers(codec);
}

// The published list of layers counts the activations too: a residual unit, one, a strided convolution for each rate.
void Qwen3Encoder::read_blocks() {
    int index = 0;
    const auto name = [&] { return names::indexed(keys::kEncoder, index); };
    int64_t channels = config.filters;
    first = read_conv(weights_, name() + "conv", 1, channels, 7, 1);
    for (const int64_t rate : config.rates) {
        Block block;
        index += 1;
        block.unit = {nn::Activation::elu(), read_conv(weights_, name() + "block.1.conv", channels, channels / 2, 3, 1),
                      nn::Activation::elu(),
                      read_conv(weights_, name() + "block.3.conv", channels / 2, channels, 1, 1)};
        index += 2;
        const int stride = static_cast<int>(rate);
        block.downsample = read_conv(weights_, name() + "conv", channels, 2 * channels, 2 * stride, 1, stride);
        channels *= 2;
        blocks.push_back(std::move(block));
    }
    index += 2;
    last = read_conv(weights_, name() + "conv", channels, config.transformer.dim, 3, 1);
}

void Qwen3Encoder::read_transformer() {
    const Qwen3CodecConfig::Transformer& t = config.transformer;
    BlockTensors tensors;
    tensors.dim = t.dim;
    tensors.feed_forward = t.feed_forward;
    tensors.layer_scale = true;
    tensors.layer_norm = true;
    tensors.gated = false;
    tensors.read_matrix = read_codec_linear;
    transformer.config = t.block;
    const std::string prefix = std::string(keys::kEncoderTransformerBlocks) + names::kLayer;
    for (int i = 0; i < t.layers; ++i)
        transformer.blocks.push_back(read_block(weights_, names::indexed(prefix.c_str(), i), t.block, tensors));
    const int stride = static_cast<int>(config.downsample);
    downsample = read_conv(weights_, keys::kDownsample, t.dim, t.dim, 2 * stride, 1, stride, /*bias=*/false);
    downsample.replicate = true;
}

void Qwen3Encoder::read_quantizers(const Qwen3CodecConfig& codec) {
    const int64_t width = config.codebook_dim;
    const int64_t dim = config.transformer.dim;
    const auto read = [&](nn::NearestRvqEncoder& chain, const char* projection, int from, int to) {
        const FileTensor* in_proj = weights_.require(projection, {width, dim});
        std::vector<const FileTensor*> books;
        for (int q = from; q < to; ++q)
            books.push_back(
                weights_.require(names::indexed(keys::kEncoderCodebook, q) + "weight", {codec.codebook_size, width}));
        weights_.on_load([=, &chain] {
            chain.project(to_float(*in_proj), width, dim);
            for (const FileTensor* book : books) chain.add(to_float(*book));
        });
    };
    read(semantic, keys::kSemanticInProj, 0, 1);
    read(acoustic, keys::kAcousticInProj, 1, codec.num_codebooks);
}

namespace {

// In the order in which build() meets them.
std::vector<nn::ConvState::Size> state_sizes(const Qwen3Encoder& encoder) {
    std::vector<nn::ConvState::Size> sizes;
    add_state(sizes, encoder.first);
    for (const Qwen3Encoder::Block& block : encoder.blocks) {
        add_state(sizes, block.unit);
        add_state(sizes, block.downsample);
    }
    add_state(sizes, encoder.last);
    add_state(sizes, encoder.downsample);
    return sizes;
}

}  // namespace

Qwen3EncodeStream::Qwen3EncodeStream(std::shared_ptr<const Codec> codec, const Qwen3Encoder& encoder,
                                     int64_t max_frames)
    : CodecEncoder(std::move(codec), max_frames),
      encoder_(encoder),
      state_(*this->codec().backend(), state_sizes(encoder_)),
      transformer_(*this->codec().backend(), encoder_.transformer, "transformer") {}

void Qwen3EncodeStream::build(GraphBuilder& g, int64_t samples) const {
    ConvSequence conv(g, state_);
    const nn::ConvExtras elu{nn::Activation::elu()};
    ggml_tensor* x = conv(g.input("x", GGML_TYPE_F32, 1, samples), encoder_.first);
    for (const Qwen3Encoder::Block& block : encoder_.blocks) x = conv(conv(x, block.unit), block.downsample, elu);
    x = conv(x, encoder_.last, elu);
    g.output("seanet", x);
    x = transformer_.build(g, x);
    g.output("transformer", x);
    nn::ConvExtras begin;
    begin.first = first_;
    g.output("latent", conv(x, encoder_.downsample, begin));
}

std::vector<int32_t> Qwen3EncodeStream::encode(const std::vector<float>& samples, bool) {
    const auto count = static_cast<int64_t>(samples.size());
    const auto rounded_up = [&](int64_t size) { return (count + size - 1) / size; };
    const int64_t frames = rounded_up(codec().samples_per_frame());
    const int64_t positions = rounded_up(codec().samples_per_frame() / encoder_.config.downsample);
    if (transformer_.reserve(positions)) graphs_.clear();
    std::unique_ptr<Graph>& graph = graphs_[{count, first_}];
    if (!graph) {
        ++graph_builds_;
        const size_t nodes =
            kNodesPerConv * state_sizes(encoder_).size() + nn::kNodesPerBlock * encoder_.transformer.blocks.size() + 64;
        graph = std::make_unique<Graph>(codec().backend(), nodes, [&](GraphBuilder& g) { build(g, count); });
    }
    graph->set("x", samples.data(), samples.size() * sizeof(float));
    transformer_.set(*graph, positions);
    graph->compute();
    transformer_.advance(positions);
    first_ = false;
    for (const std::string& name : graph->output_names()) probes_[name] = graph->get(name);
    std::vector<int32_t> codes(static_cast<size_t>(codebooks() * frames));
    const float* latent = probes_["latent"].data();
    encoder_.semantic.encode(latent, frames, codes.data());
    encoder_.acoustic.encode(latent, frames, codes.data() + frames);
    return codes;
}

void Qwen3EncodeStream::clear() {
    first_ = true;
    state_.reset();
    transformer_.reset();
}

}  // namespace dualar
