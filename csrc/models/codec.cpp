#include "models/codec.h"

#include <cmath>

#include "models/codec_weights.h"
#include "models/registry.h"
#include "runtime/error.h"

namespace dualar {

std::shared_ptr<Codec> open_codec(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend) {
    return family_of(*file).codec(std::move(file), std::move(backend));
}

CodecStream::CodecStream(std::shared_ptr<const Codec> codec, int64_t max_frames, const Parts& parts)
    : codec_(std::move(codec)),
      max_frames_(checked_frames(max_frames)),
      rvq_(parts.rvq),
      max_nodes_(kNodesPerConv * parts.sizes.size() + nn::kNodesPerBlock * parts.transformer.blocks.size() + 64),
      transformer_(*codec_->backend(), parts.transformer, max_frames, parts.name),
      columns_(*codec_->backend(), parts.sizes),
      graphs_(static_cast<size_t>(max_frames) + 1) {}

void CodecStream::check(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames) const {
    const std::vector<int64_t> sizes = codec_->codebook_sizes();
    if (codebooks != codec_->num_codebooks())
        throw std::invalid_argument(text("[codes] expected ", codec_->num_codebooks(), " rows, got ", codebooks));
    if (frames > max_frames_)
        throw std::invalid_argument(text("[codes] expected at most ", max_frames_, " frames a push, got ", frames));
    for (size_t i = 0; i < codes.size(); ++i) {
        if (codes[i] < 0) throw std::invalid_argument(text("[codes] expected no negative code, got ", codes[i]));
        const size_t codebook = i / static_cast<size_t>(frames);
        if (!codec_->clamps_codes() && codes[i] >= sizes[codebook])
            throw std::invalid_argument(
                text("[codes] expected codes below ", sizes[codebook], " in codebook ", codebook, ", got ", codes[i]));
    }
}

// The graph of so many frames, its inputs set.
Graph& CodecStream::ready(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames) {
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

void CodecStream::set(Graph& graph, const std::vector<int32_t>& codes, int64_t frames) {
    looked_up_.resize(static_cast<size_t>(frames * rvq_.columns()));
    rvq_.look_up(codes.data(), frames, looked_up_.data());
    graph.set("x", looked_up_.data(), looked_up_.size() * sizeof(float));
    transformer_.set(graph, frames);
}

std::vector<float> CodecStream::push(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames) {
    const OneThread::Use use(one_thread_, "codec stream");
    if (frames == 0 && codebooks == codec_->num_codebooks()) return {};
    Graph& graph = ready(codes, codebooks, frames);
    graph.compute();
    transformer_.advance(frames);
    std::vector<float> samples(static_cast<size_t>(frames * codec_->samples_per_frame()));
    graph.get("samples", samples.data(), samples.size());
    post(samples);
    return samples;
}

std::map<std::string, double> CodecStream::profile(const std::vector<int32_t>& codes, int64_t codebooks,
                                                   int64_t frames) {
    const OneThread::Use use(one_thread_, "codec stream");
    if (frames < 1) throw std::invalid_argument("[codes] expected at least one frame, got none");
    const std::map<std::string, double> seconds = ready(codes, codebooks, frames).profile();
    transformer_.advance(frames);
    return seconds;
}

std::map<std::string, std::vector<float>> CodecStream::probe(const std::vector<int32_t>& codes, int64_t codebooks,
                                                             int64_t frames) {
    const OneThread::Use use(one_thread_, "codec stream");
    if (frames < 1) throw std::invalid_argument("[codes] expected at least one frame, got none");
    check(codes, codebooks, frames);
    Graph graph(codec_->backend(), max_nodes_, [&](GraphBuilder& g) { build(g, frames); }, /*keep_probes=*/true);
    set(graph, codes, frames);
    graph.compute();
    transformer_.advance(frames);
    std::map<std::string, std::vector<float>> found;
    for (const std::string& name : graph.output_names()) found[name] = graph.get(name);
    return found;
}

void CodecStream::reset() {
    const OneThread::Use use(one_thread_, "codec stream");
    columns_.reset();
    transformer_.reset();
}

CodecSnapshot CodecStream::snapshot() {
    const OneThread::Use use(one_thread_, "codec stream");
    codec_->backend()->check_process();
    return {codec_, max_frames_, transformer_.position(), transformer_.read(), columns_.read()};
}

void CodecStream::restore(const CodecSnapshot& snapshot) {
    const OneThread::Use use(one_thread_, "codec stream");
    codec_->backend()->check_process();
    if (snapshot.codec != codec_)
        throw std::invalid_argument("[codec] expected a snapshot of this codec, got one of another");
    if (snapshot.max_frames != max_frames_)
        throw std::invalid_argument(text("[codec] expected a snapshot of a stream of ", max_frames_,
                                         " frames a push, got one of ", snapshot.max_frames));
    transformer_.write(snapshot.positions, snapshot.rows);
    columns_.write(snapshot.columns);
}

CodecEncoder::CodecEncoder(std::shared_ptr<const Codec> codec, int64_t max_frames)
    : codec_(std::move(codec)), max_frames_(checked_frames(max_frames)) {}

std::vector<int32_t> CodecEncoder::push(const std::vector<float>& samples) { return run(samples, /*last=*/false); }

std::vector<int32_t> CodecEncoder::finish(const std::vector<float>& samples) { return run(samples, /*last=*/true); }

std::vector<int32_t> CodecEncoder::run(const std::vector<float>& samples, bool last) {
    const OneThread::Use use(one_thread_, "encoder");
    codec_->backend()->check_process();
    if (finished_) throw std::invalid_argument("[samples] expected reset() after a clip's end, got more samples");
    const int64_t per_frame = codec_->samples_per_frame();
    const auto count = static_cast<int64_t>(samples.size());
    if ((!last && count % per_frame != 0) || count > max_frames_ * per_frame)
        throw std::invalid_argument(text("[samples] expected ", last ? "frames of " : "whole frames of ", per_frame,
                                         " samples, at most ", max_frames_, " a push, got ", count, " samples"));
    for (const float sample : samples)
        if (!std::isfinite(sample))
            throw std::invalid_argument(text("[samples] expected finite samples, got ", sample));
    finished_ = last;
    probes_.clear();
    return count == 0 ? std::vector<int32_t>{} : encode(samples, last);
}

void CodecEncoder::reset() {
    const OneThread::Use use(one_thread_, "encoder");
    finished_ = false;
    clear();
}

}  // namespace dualar
