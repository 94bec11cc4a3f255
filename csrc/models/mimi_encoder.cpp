#include "models/mimi_encoder.h"

#include <algorithm>

#include "models/names.h"
#include "runtime/error.h"

namespace dualar {

void read_mimi_rates(const GgufFile& file, const MimiRateKeys& keys, int64_t samples_per_frame,
                     MimiEncoderConfig& config) {
    config.filters = file.integer(keys.filters, 1, kMaxCodecDim);
    config.rates = read_rates(file, keys.rates);
    if (samples_per_frame % product(config.rates) != 0)
        throw ModelError(message("[", keys.rates, "] expected a product that divides the ", samples_per_frame,
                                 " samples of a frame, got ", product(config.rates)));
    config.downsample = samples_per_frame / product(config.rates);
    if (config.filters % 2 != 0 || config.filters > kMaxCodecDim >> config.rates.size())
        throw ModelError(message("[", keys.filters, "] expected an even width that doubles ", config.rates.size(),
                                 " times within ", kMaxCodecDim, ", got ", config.filters));
}

bool MimiEncoder::present(const GgufFile& file, const MimiEncoderNames& names) {
    return file.find(std::string(names.layers) + "0.conv.weight") != nullptr;
}

MimiEncoder::MimiEncoder(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend,
                         const MimiEncoderConfig& c, const MimiEncoderNames& names)
    : EncoderWeights(std::move(file), std::move(backend)), config(c) {
    read_blocks(names);
    transformer = read_plain_windowed(weights_, names.transformer, c.transformer, c.window);
    const int stride = static_cast<int>(c.downsample);
    downsample = read_conv(weights_, names.downsample, c.transformer.dim, c.transformer.dim, 2 * stride, 1, stride,
                           /*bias=*/false);
    downsample.replicate = true;
    read_quantizers(names);
}

// The published list of layers counts the activations too: a residual unit, one, a strided convolution for each rate.
void MimiEncoder::read_blocks(const MimiEncoderNames& names) {
    int index = 0;
    const auto name = [&] { return names::indexed(names.layers, index); };
    int64_t channels = config.filters;
    first = read_conv(weights_, name() + "conv", 1, channels, 7, 1);
    for (const int64_t rate : config.rates) {
        Block block;
        index += 1;
        block.unit = read_elu_unit(weights_, name() + "block.", channels);
        index += 2;
        const int stride = static_cast<int>(rate);
        block.downsample = read_conv(weights_, name() + "conv", channels, 2 * channels, 2 * stride, 1, stride);
        channels *= 2;
        blocks.push_back(std::move(block));
    }
    index += 2;
    last = read_conv(weights_, name() + "conv", channels, config.transformer.dim, 3, 1);
}

void MimiEncoder::read_quantizers(const MimiEncoderNames& names) {
    const int64_t width = config.codebook_dim;
    const int64_t dim = config.transformer.dim;
    const auto read = [&](nn::NearestRvqEncoder& chain, const char* projection, int from, int to) {
        const FileTensor* in_proj = weights_.require(projection, {width, dim});
        std::vector<const FileTensor*> books;
        for (int q = from; q < to; ++q)
            books.push_back(
                weights_.require(names::indexed(names.codebook, q) + "weight", {config.codebook_size, width}));
        weights_.on_load([=, &chain] {
            chain.project(to_float(*in_proj), width, dim);
            for (const FileTensor* book : books) chain.add(to_float(*book));
        });
    };
    read(semantic, names.semantic_in_proj, 0, 1);
    read(acoustic, names.acoustic_in_proj, 1, config.num_codebooks);
}

namespace {

// In the order in which build() meets them.
std::vector<nn::ConvState::Size> state_sizes(const MimiEncoder& encoder) {
    std::vector<nn::ConvState::Size> sizes;
    add_state(sizes, encoder.first);
    for (const MimiEncoder::Block& block : encoder.blocks) {
        add_state(sizes, block.unit);
        add_state(sizes, block.downsample);
    }
    add_state(sizes, encoder.last);
    add_state(sizes, encoder.downsample);
    return sizes;
}

}  // namespace

MimiEncodeStream::MimiEncodeStream(std::shared_ptr<const Codec> codec, const MimiEncoder& encoder, int64_t max_frames)
    : CodecEncoder(std::move(codec), max_frames),
      encoder_(encoder),
      state_(*this->codec().backend(), state_sizes(encoder_)),
      transformer_(*this->codec().backend(), encoder_.transformer, "transformer") {}

void MimiEncodeStream::build(GraphBuilder& g, int64_t samples) const {
    ConvSequence conv(g, state_);
    const nn::ConvExtras elu{nn::Activation::elu()};
    ggml_tensor* x = conv(g.input("x", GGML_TYPE_F32, 1, samples), encoder_.first);
    for (const MimiEncoder::Block& block : encoder_.blocks) x = conv(conv(x, block.unit), block.downsample, elu);
    x = conv(x, encoder_.last, elu);
    g.output("seanet", x);
    x = transformer_.build(g, x);
    g.output("transformer", x);
    nn::ConvExtras begin;
    begin.first = first_;
    g.output("latent", conv(x, encoder_.downsample, begin));
}

std::vector<int32_t> MimiEncodeStream::encode(const std::vector<float>& samples, bool) {
    const auto frame = static_cast<size_t>(codec().samples_per_frame());
    if (!encoder_.config.fills_frames || samples.size() % frame == 0) return encode_columns(samples);
    std::vector<float> filled = samples;
    filled.resize((samples.size() / frame + 1) * frame);
    return encode_columns(filled);
}

std::vector<int32_t> MimiEncodeStream::encode_columns(const std::vector<float>& samples) {
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

void MimiEncodeStream::clear() {
    first_ = true;
    state_.reset();
    transformer_.reset();
}

}  // namespace dualar
