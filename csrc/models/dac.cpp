#include "models/dac.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "models/codec_weights.h"
#include "models/names.h"
#include "runtime/error.h"

namespace dualar {

namespace {

constexpr int64_t kMaxDim = 1 << 20;
constexpr int64_t kMaxRate = 4096;
constexpr int kResidualDilations[3] = {1, 3, 9};

int64_t product(const std::vector<int64_t>& values) {
    return std::accumulate(values.begin(), values.end(), int64_t{1}, std::multiplies<>());
}

std::vector<int64_t> read_rates(const GgufFile& file, const char* key) {
    std::vector<int64_t> rates = file.integers(key, 1, kMaxRate);
    if (rates.empty() || rates.size() > 16)
        throw ModelError(text("[", key, "] expected 1 to 16 values, got ", rates.size()));
    return rates;
}

DacConfig read_config(const GgufFile& file) {
    const auto dim = [&](const char* key) { return file.integer(key, 1, kMaxDim); };
    DacConfig c;
    c.sample_rate = static_cast<int>(file.integer(names::kSampleRate, 1000, 1000000));
    c.hop_length = file.integer(names::kHopLength, 1, kMaxDim);
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
        throw ModelError(text("[", names::kEncoderTransformerLayers, "] expected ", c.encoder_rates.size(),
                              " values, one per encoder rate, got ", c.encoder_transformer_layers.size()));
    for (const auto& [key, rates] :
         {std::pair(names::kEncoderRates, &c.encoder_rates), std::pair(names::kDecoderRates, &c.decoder_rates)})
        if (product(*rates) != c.hop_length)
            throw ModelError(text("[", key, "] expected a product of ", c.hop_length, " (", names::kHopLength,
                                  "), got ", product(*rates)));
    if (c.decoder_dim % (int64_t{1} << c.decoder_rates.size()) != 0)
        throw ModelError(text("[", names::kDecoderDim, "] expected a multiple of 2^", c.decoder_rates.size(), ", got ",
                              c.decoder_dim));

    const std::string rvq = names::kRvqTransformer;
    const int64_t width = dim((rvq + names::kDim).c_str());
    if (width != c.quantizer_dim || c.latent_dim != c.quantizer_dim)
        throw ModelError(text("[", rvq, names::kDim, "] expected ", names::kQuantizerInputDim, " (", c.quantizer_dim,
                              "), which must also be ", names::kLatentDim, " (", c.latent_dim, "), got ", width));
    c.rvq_window = file.integer(rvq + names::kWindowSize, 1, kMaxDim);
    c.rvq_layers = static_cast<int>(file.integer(rvq + names::kLayers, 1, 1024));
    c.rvq_feed_forward = dim((rvq + names::kTransformerFeedForward).c_str());
    c.rvq_block = read_transformer(file, rvq, file.integer(rvq + names::kHeads, 1, kMaxDim));
    return c;
}

}  // namespace

int64_t DacConfig::positions_per_frame() const { return product(downsample_factors); }

bool Dac::present(const GgufFile& file) { return file.has(names::kSampleRate); }

Dac::Dac(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend)
    : config(read_config(*file)), backend_(std::move(backend)), weights_(std::move(file), backend_) {
    read_quantizer(weights_);
    read_decoder(weights_);
    weights_.check();
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
        rvq.codebooks.push_back(weights.table(prefix + names::kCodebook, c.codebook_size(q), c.codebook_dim));
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
    post_blocks =
        read_codec_blocks(weights, names::kPostModule, c.rvq_block, c.quantizer_dim, c.rvq_feed_forward, c.rvq_layers);
    post_norm = weights.vector(std::string(names::kPostModule) + names::kNorm, c.quantizer_dim);
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
        block.alpha = weights.vector3(prefix + "0.alpha", channels);
        block.upsample = read_transposed(weights, prefix + "1.conv", channels, channels / 2, 2 * rate, rate);
        channels /= 2;
        for (int u = 0; u < 3; ++u) {
            const std::string unit = prefix + std::to_string(u + 2) + ".block.";
            block.units[u] = {weights.vector3(unit + "0.alpha", channels),
                              read_conv(weights, unit + "1.conv", channels, channels, 7, kResidualDilations[u]),
                              weights.vector3(unit + "2.alpha", channels),
                              read_conv(weights, unit + "3.conv", channels, channels, 1, 1)};
        }
        decoder.push_back(block);
    }
    last_alpha = weights.vector3(name(blocks + 1) + ".alpha", channels);
    last = read_conv(weights, name(blocks + 2) + ".conv", channels, 1, 7, 1);
}

std::vector<std::string> Dac::unused_tensors() const {
    std::vector<std::string> found;
    for (const std::string& name : weights_.unused())
        if (name.rfind("c.", 0) == 0) found.push_back(name);
    return found;
}

namespace {

// Every convolution of the decoder, in the order in which build() meets them.
std::vector<const nn::Conv*> convolutions(const Dac& dac) {
    std::vector<const nn::Conv*> all;
    for (const Dac::Upsample& up : dac.upsamples) {
        all.push_back(&up.conv);
        all.push_back(&up.convnext.depthwise);
    }
    all.push_back(&dac.first);
    for (const DecoderBlock& block : dac.decoder) {
        all.push_back(&block.upsample);
        for (const ResidualUnit& unit : block.units) {
            all.push_back(&unit.dilated);
            all.push_back(&unit.pointwise);
        }
    }
    all.push_back(&dac.last);
    return all;
}

std::vector<nn::ConvState::Size> state_sizes(const Dac& dac) {
    std::vector<nn::ConvState::Size> sizes;
    for (const nn::Conv* conv : convolutions(dac)) sizes.push_back({conv->in, conv->history()});
    return sizes;
}

// A push writes its frames before it reads them, and the oldest query still needs window - 1 frames before its own.
int64_t ring_rows(const Dac& dac, int64_t max_frames) { return dac.config.rvq_window - 1 + max_frames; }

int64_t checked_frames(int64_t max_frames) {
    if (max_frames < 1 || max_frames > 4096)
        throw std::invalid_argument(text("[max_frames] expected 1 to 4096, got ", max_frames));
    return max_frames;
}

}  // namespace

DacStream::DacStream(std::shared_ptr<const Dac> codec, int64_t max_frames)
    : codec_(std::move(codec)),
      max_frames_(checked_frames(max_frames)),
      cache_(*codec_->backend(), codec_->config.rvq_layers, codec_->config.rvq_block.kv_dim(),
             ring_rows(*codec_, max_frames), GGML_TYPE_F32),
      state_(*codec_->backend(), state_sizes(*codec_)) {
    codec_->load();
    graphs_.resize(static_cast<size_t>(max_frames) + 1);
}

void DacStream::build(GraphBuilder& g, int64_t frames) const {
    const Dac& dac = *codec_;
    size_t next = 0;
    const auto conv = [&](ggml_tensor* x, const nn::Conv& layer, const nn::ConvExtras& extras = {}) {
        return nn::causal_conv(g, x, layer, state_.tensor(next++), extras);
    };
    ggml_tensor* x = nn::linear(g, dac.rvq.out_proj, g.input("x", GGML_TYPE_F32, dac.rvq.columns(), frames));
    g.probe("quantized", x);
    const nn::AttentionInputs inputs = nn::make_attention_inputs(g, frames, cache_.rows(), /*cached=*/true);
    x = nn::transformer(g, x, dac.post_blocks, dac.config.rvq_block, inputs, &cache_, "post_module");
    x = g.probe("post_module", nn::rms_norm(g, x, dac.post_norm, dac.config.rvq_block.eps));
    for (const Dac::Upsample& up : dac.upsamples) {
        x = conv(x, up.conv);
        x = nn::convnext(g, x, up.convnext, state_.tensor(next++));
    }
    x = conv(g.probe("upsampled", x), dac.first);
    for (size_t i = 0; i < dac.decoder.size(); ++i) {
        const DecoderBlock& block = dac.decoder[i];
        x = conv(x, block.upsample, {block.alpha});
        for (const ResidualUnit& unit : block.units) {
            ggml_tensor* y = conv(x, unit.dilated, {unit.alpha_in});
            x = conv(y, unit.pointwise, {unit.alpha_out, x});
        }
        g.probe(text("decoder.", i), x);
    }
    x = conv(x, dac.last, {dac.last_alpha});
    g.output("samples", ggml_tanh(g.context, x));
}

std::vector<float> DacStream::push(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames) {
    const OneThread::Use use(one_thread_, "codec stream");
    const Dac& dac = *codec_;
    if (codebooks != dac.config.num_codebooks())
        throw std::invalid_argument(text("[codes] expected ", dac.config.num_codebooks(), " rows, got ", codebooks));
    if (frames > max_frames_)
        throw std::invalid_argument(text("[codes] expected at most ", max_frames_, " frames a push, got ", frames));
    for (const int32_t code : codes)
        if (code < 0) throw std::invalid_argument(text("[codes] expected no negative code, got ", code));
    if (frames == 0) return {};
    dac.backend()->check_process();
    std::unique_ptr<Graph>& graph = graphs_[static_cast<size_t>(frames)];
    if (!graph) {
        ++graph_builds_;
        const size_t nodes = 64 * convolutions(dac).size() + nn::kNodesPerBlock * dac.post_blocks.size() + 64;
        graph = std::make_unique<Graph>(dac.backend(), nodes, [&](GraphBuilder& g) { build(g, frames); });
    }
    looked_up_.resize(static_cast<size_t>(frames * dac.rvq.columns()));
    dac.rvq.look_up(codes.data(), frames, looked_up_.data());
    graph->set("x", looked_up_.data(), looked_up_.size() * sizeof(float));
    feed_.windowed(position_, frames, cache_.rows(), dac.config.rvq_window);
    feed_.set(*graph, /*cached=*/true);
    graph->compute();
    position_ += frames;
    std::vector<float> samples(static_cast<size_t>(frames * dac.config.samples_per_frame()));
    graph->get("samples", samples.data(), samples.size());
    return samples;
}

void DacStream::reset() {
    const OneThread::Use use(one_thread_, "codec stream");
    state_.reset();
    position_ = 0;  // rows of the ring past the position are never read
}

}  // namespace dualar
