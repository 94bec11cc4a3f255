#include "models/rvq_codec.h"

#include <algorithm>
#include <cmath>

#include "runtime/error.h"

namespace dualar {

namespace {

constexpr const char* kStream = "codec stream";

}  // namespace

RvqCodec::RvqCodec(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend, Config config)
    : Codec(std::move(backend)), config_(std::move(config)), weights_(std::move(file), this->backend()) {}

void RvqCodec::complete(std::unique_ptr<EncoderWeights> encoder) {
    encoder_ = std::move(encoder);
    std::vector<std::string> problems = weights_.problems();
    if (encoder_) {
        const std::vector<std::string>& more = encoder_->weights().problems();
        problems.insert(problems.end(), more.begin(), more.end());
    }
    check_tensors(weights_.file().path(), problems);
}

std::vector<std::string> RvqCodec::unused_tensors() const {
    std::vector<std::string> found;
    for (const std::string& name : weights_.unused())
        if (name.rfind(config_.prefix, 0) == 0 && !(encoder_ && encoder_->weights().asked(name))) found.push_back(name);
    return found;
}

void RvqCodec::load() const {
    backend()->check_process();  // a fork may have come in the middle of a load, which never ends in the child
    std::call_once(loaded_, [this] { weights_.load(); });
}

std::unique_ptr<CodecStream> RvqCodec::stream(int64_t max_frames) const {
    auto made = std::make_unique<RvqStream>(std::static_pointer_cast<const RvqCodec>(shared_from_this()), max_frames);
    load();
    return made;
}

std::unique_ptr<CodecEncoder> RvqCodec::encode_stream(int64_t max_frames) const {
    if (!encoder_)
        throw ModelError(message("[codec] expected encoder tensors (", config_.encoder_prefix,
                                 "*) in the file, found none: it can only decode"));
    encoder_->load();
    return make_encoder(*encoder_, max_frames);
}

namespace {

// In the order in which build() meets them.
std::vector<nn::ConvState::Size> state_sizes(const RvqDecoder& decoder) {
    std::vector<nn::ConvState::Size> sizes;
    if (decoder.pre_conv) add_state(sizes, *decoder.pre_conv);
    if (decoder.pre_upsample) add_state(sizes, *decoder.pre_upsample);
    for (const RvqDecoder::Upsample& up : decoder.upsamples) {
        add_state(sizes, up.conv);
        add_state(sizes, up.convnext.depthwise);
    }
    add_state(sizes, decoder.first);
    for (const RvqDecoder::Block& block : decoder.blocks) {
        add_state(sizes, block.upsample);
        for (const ResidualUnit& unit : block.units) add_state(sizes, unit);
    }
    add_state(sizes, decoder.last);
    return sizes;
}

}  // namespace

RvqStream::RvqStream(std::shared_ptr<const RvqCodec> codec, int64_t max_frames)
    : codec_(std::move(codec)),
      max_frames_(checked_frames(max_frames)),
      max_nodes_(kNodesPerConv * state_sizes(codec_->decoder).size() +
                 nn::kNodesPerBlock * codec_->decoder.transformer.blocks.size() + 64),
      transformer_(*codec_->backend(), codec_->decoder.transformer, max_frames * codec_->decoder.positions_per_frame(),
                   "transformer"),
      columns_(*codec_->backend(), state_sizes(codec_->decoder)),
      graphs_(static_cast<size_t>(max_frames) + 1) {}

void RvqStream::build(GraphBuilder& g, int64_t frames) const {
    const RvqDecoder& d = codec_->decoder;
    ConvSequence conv(g, columns_);
    ggml_tensor* x = nn::linear(g, d.rvq.out_proj, g.input("x", GGML_TYPE_F32, d.rvq.columns(), frames));
    g.probe("quantized", x);
    if (d.pre_conv) x = g.probe("pre_conv", conv(x, *d.pre_conv));
    if (d.pre_upsample) x = g.probe("pre_upsample", conv(x, *d.pre_upsample));
    if (d.in_proj) x = nn::linear(g, *d.in_proj, x);
    x = transformer_.build(g, x);
    if (d.out_proj) x = nn::linear(g, *d.out_proj, x);
    g.probe("pre_transformer", x);
    for (size_t i = 0; i < d.upsamples.size(); ++i) {
        x = g.probe(message("upsample.", i, ".conv"), conv(x, d.upsamples[i].conv));
        x = g.probe(message("upsample.", i), conv(x, d.upsamples[i].convnext));
    }
    x = g.probe("decoder.0", conv(x, d.first));
    for (size_t i = 0; i < d.blocks.size(); ++i) {
        const std::string name = message("decoder.", i + 1);
        x = g.probe(name + ".conv", conv(x, d.blocks[i].upsample, {d.blocks[i].activation}));
        for (size_t u = 0; u < d.blocks[i].units.size(); ++u)
            x = g.probe(message(name, ".unit.", u), conv(x, d.blocks[i].units[u]));
    }
    x = conv(x, d.last, {d.last_activation});
    g.output("samples", d.range == RvqDecoder::Range::kTanh ? ggml_tanh(g.context, x) : x);
}

void RvqStream::check(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames) const {
    const std::vector<int64_t> sizes = codec_->codebook_sizes();
    if (codebooks != codec_->num_codebooks())
        throw std::invalid_argument(message("[codes] expected ", codec_->num_codebooks(), " rows, got ", codebooks));
    if (frames > max_frames_)
        throw std::invalid_argument(message("[codes] expected at most ", max_frames_, " frames a push, got ", frames));
    for (size_t i = 0; i < codes.size(); ++i) {
        if (codes[i] < 0) throw std::invalid_argument(message("[codes] expected no negative code, got ", codes[i]));
        const size_t codebook = i / static_cast<size_t>(frames);
        if (!codec_->clamps_codes() && codes[i] >= sizes[codebook])
            throw std::invalid_argument(message("[codes] expected codes below ", sizes[codebook], " in codebook ",
                                                codebook, ", got ", codes[i]));
    }
}

// The graph that decodes `frames` frames, with its inputs set.
Graph& RvqStream::ready(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames) {
    check(codes, codebooks, frames);
    codec_->backend()->check_process();
    std::unique_ptr<Graph>& graph = graphs_[static_cast<size_t>(frames)];
    if (!graph) {
        ++graph_builds_;
        graph = std::make_unique<Graph>(codec_->backend(), max_nodes_, [&](GraphBuilder& g) { build(g, frames); });
    }
    set(*graph, codes, frames);
    return *graph;
}

void RvqStream::set(Graph& graph, const std::vector<int32_t>& codes, int64_t frames) {
    looked_up_.resize(static_cast<size_t>(frames * codec_->decoder.rvq.columns()));
    codec_->decoder.rvq.look_up(codes.data(), frames, looked_up_.data());
    graph.set("x", looked_up_.data(), looked_up_.size() * sizeof(float));
    transformer_.set(graph, frames * codec_->decoder.positions_per_frame());
}

std::vector<float> RvqStream::push(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames) {
    const OneThread::Use use(one_thread_, kStream);
    if (frames == 0 && codebooks == codec_->num_codebooks()) return {};
    Graph& graph = ready(codes, codebooks, frames);
    progress_.begin(kStream);
    graph.compute();
    transformer_.advance(frames * codec_->decoder.positions_per_frame());
    progress_.end();
    std::vector<float> samples(static_cast<size_t>(frames * codec_->samples_per_frame()));
    graph.get("samples", samples.data(), samples.size());
    if (codec_->decoder.range == RvqDecoder::Range::kClamped)  // clamped, but for what is not finite: that must be seen
        for (float& sample : samples)
            if (std::isfinite(sample)) sample = std::clamp(sample, -1.0F, 1.0F);
    return samples;
}

std::map<std::string, double> RvqStream::profile(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames) {
    const OneThread::Use use(one_thread_, kStream);
    if (frames < 1) throw std::invalid_argument("[codes] expected at least one frame, got none");
    Graph& graph = ready(codes, codebooks, frames);
    progress_.begin(kStream);
    const std::map<std::string, double> seconds = graph.profile();
    transformer_.advance(frames * codec_->decoder.positions_per_frame());
    progress_.end();
    return seconds;
}

std::map<std::string, std::vector<float>> RvqStream::probe(const std::vector<int32_t>& codes, int64_t codebooks,
                                                           int64_t frames) {
    const OneThread::Use use(one_thread_, kStream);
    if (frames < 1) throw std::invalid_argument("[codes] expected at least one frame, got none");
    check(codes, codebooks, frames);
    Graph graph(
        codec_->backend(), max_nodes_, [&](GraphBuilder& g) { build(g, frames); },
        /*keep_probes=*/true);
    set(graph, codes, frames);
    progress_.begin(kStream);
    graph.compute();
    transformer_.advance(frames * codec_->decoder.positions_per_frame());
    progress_.end();
    std::map<std::string, std::vector<float>> found;
    for (const std::string& name : graph.output_names()) found[name] = graph.get(name);
    return found;
}

void RvqStream::reset() {
    const OneThread::Use use(one_thread_, kStream);
    columns_.reset();
    transformer_.reset();
    progress_.restart();
}

CodecSnapshot RvqStream::snapshot() {
    const OneThread::Use use(one_thread_, kStream);
    codec_->backend()->check_process();
    progress_.check(kStream);
    return {codec_, max_frames_, transformer_.position(), transformer_.read(), columns_.read()};
}

void RvqStream::restore(const CodecSnapshot& snapshot) {
    const OneThread::Use use(one_thread_, kStream);
    codec_->backend()->check_process();
    if (snapshot.codec != codec_)
        throw std::invalid_argument("[codec] expected a snapshot of this codec, got one of another");
    if (snapshot.max_frames != max_frames_)
        throw std::invalid_argument(message("[codec] expected a snapshot of a stream of ", max_frames_,
                                            " frames a push, got one of ", snapshot.max_frames));
    transformer_.write(snapshot.positions, snapshot.rows);
    columns_.write(snapshot.columns);
    progress_.restart();
}

}  // namespace dualar
