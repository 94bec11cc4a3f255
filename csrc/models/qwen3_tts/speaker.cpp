#include "models/qwen3_tts/speaker.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "models/codec_weights.h"
#include "models/names.h"
#include "models/qwen3_tts/codec_names.h"
#include "nn/same_conv.h"
#include "runtime/error.h"

namespace dualar {

namespace keys = qwen3_codec_names;

namespace {

constexpr float kMinVariance = 1e-12F;
constexpr int64_t kMaxFrames = 1 << 20;

// One value for each of `count` layers.
std::vector<int64_t> per_layer(const GgufFile& file, const char* key, int64_t high, size_t count) {
    std::vector<int64_t> values = file.integers(key, 1, high);
    if (values.size() != count)
        throw ModelError(message("[", key, "] expected ", count, " values, as ", keys::kSpeakerChannels, " has, got ",
                                 values.size()));
    return values;
}

}  // namespace

bool Qwen3Speaker::present(const GgufFile& file) { return file.has(keys::kSpeakerDim); }

Qwen3Speaker::Qwen3Speaker(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend)
    : backend_(std::move(backend)), weights_(std::move(file), backend_) {
    const GgufFile& f = weights_.file();
    sample_rate_ = static_cast<int>(f.integer(keys::kSpeakerSampleRate, 1000, 1000000));
    mel_dim_ = f.integer(keys::kSpeakerMelDim, 1, 4096);
    dim_ = f.integer(keys::kSpeakerDim, 1, kMaxCodecDim);
    const std::vector<int64_t> channels = f.integers(keys::kSpeakerChannels, 1, kMaxCodecDim);
    if (channels.size() < 3 || channels.size() > 64)
        throw ModelError(message("[", keys::kSpeakerChannels, "] expected 3 to 64 values, got ", channels.size()));
    for (size_t i = 1; i + 1 < channels.size(); ++i)
        if (channels[i] != channels[0])
            throw ModelError(message("[", keys::kSpeakerChannels, "] expected ", channels[0],
                                     " in all blocks, as each adds its input, got ", channels[i]));
    read(channels, per_layer(f, keys::kSpeakerKernelSizes, 1023, channels.size()),
         per_layer(f, keys::kSpeakerDilations, 1023, channels.size()));
    check_tensors(f.path(), weights_.problems());
}

void Qwen3Speaker::read(const std::vector<int64_t>& channels, const std::vector<int64_t>& kernels,
                        const std::vector<int64_t>& dilations) {
    const GgufFile& f = weights_.file();
    const int64_t width = channels.front();
    const int64_t total = channels.back();
    const int64_t scale = f.integer(keys::kSpeakerScale, 2, 1024);
    if (width % scale != 0)
        throw ModelError(
            message("[", keys::kSpeakerScale, "] expected a divisor of the ", width, " channels, got ", scale));
    const int64_t attention = f.integer(keys::kSpeakerAttentionChannels, 1, kMaxCodecDim);
    const int64_t squeezed = f.integer(keys::kSpeakerSqueezeChannels, 1, kMaxCodecDim);
    const auto conv = [&](const std::string& name, int64_t in, int64_t out, size_t layer) {
        return read_conv(weights_, name, in, out, static_cast<int>(kernels[layer]), static_cast<int>(dilations[layer]));
    };
    const auto pointwise = [&](const std::string& name, int64_t in, int64_t out) {
        return read_conv(weights_, name, in, out, 1, 1);
    };
    first_ = conv(names::indexed(keys::kSpeakerBlock, 0) + keys::kSpeakerConv, mel_dim_, width, 0);
    for (size_t b = 1; b + 1 < channels.size(); ++b) {
        const std::string prefix = names::indexed(keys::kSpeakerBlock, static_cast<int>(b));
        Block block;
        block.in = pointwise(prefix + keys::kSpeakerIn, width, width);
        for (int i = 0; i + 1 < scale; ++i)
            block.groups.push_back(conv(names::indexed((prefix + keys::kSpeakerGroup).c_str(), i) + keys::kSpeakerConv,
                                        width / scale, width / scale, b));
        block.mix = pointwise(prefix + keys::kSpeakerMix, width, width);
        block.squeeze = pointwise(prefix + keys::kSpeakerSqueeze, width, squeezed);
        block.excite = pointwise(prefix + keys::kSpeakerExcite, squeezed, width);
        blocks_.push_back(std::move(block));
    }
    aggregation_ =
        conv(keys::kSpeakerAggregation, width * static_cast<int64_t>(blocks_.size()), total, channels.size() - 1);
    attention_ = pointwise(keys::kSpeakerAttention, 3 * total, attention);
    attention_out_ = pointwise(keys::kSpeakerAttentionOut, attention, total);
    out_ = pointwise(keys::kSpeakerOut, 2 * total, dim_);
}

// Of the convolutions that see more than one column, each number once.
std::vector<int64_t> Qwen3Speaker::histories() const {
    std::set<int64_t> found = {first_.history(), aggregation_.history()};
    for (const Block& block : blocks_)
        for (const nn::Conv& conv : block.groups) found.insert(conv.history());
    found.erase(0);
    return {found.begin(), found.end()};
}

int64_t Qwen3Speaker::min_frames() const {
    const std::vector<int64_t> all = histories();
    return all.empty() ? 1 : 1 + all.back() - all.back() / 2;
}

std::vector<std::string> Qwen3Speaker::unused_tensors() const {
    std::vector<std::string> found;
    for (const std::string& name : weights_.unused())
        if (name.rfind(keys::kSpeaker, 0) == 0) found.push_back(name);
    return found;
}

namespace {

// [C, T] <-> [T, C]
ggml_tensor* transposed(GraphBuilder& g, ggml_tensor* x) { return ggml_cont(g.context, ggml_transpose(g.context, x)); }

// [1, C] -> [C, 1]
ggml_tensor* as_column(GraphBuilder& g, ggml_tensor* x) { return ggml_reshape_2d(g.context, x, x->ne[1], 1); }

// sqrt of the mean (weights nullptr), or the weighted sum, of (x - mean)^2 over time. x [T, C], mean [1, C] -> [1, C].
ggml_tensor* deviation(GraphBuilder& g, ggml_tensor* x, ggml_tensor* mean, ggml_tensor* weights) {
    ggml_tensor* square = ggml_sqr(g.context, ggml_sub(g.context, x, mean));
    ggml_tensor* variance =
        weights ? ggml_sum_rows(g.context, ggml_mul(g.context, weights, square)) : ggml_mean(g.context, square);
    return ggml_sqrt(g.context, ggml_clamp(g.context, variance, kMinVariance, INFINITY));
}

}  // namespace

void Qwen3Speaker::build(GraphBuilder& g, int64_t frames) const {
    ggml_context* ctx = g.context;
    nn::SameConvs conv(g, frames);
    const auto active = [&](ggml_tensor* x, const nn::Conv& c) { return ggml_relu(ctx, conv(x, c)); };
    ggml_tensor* x = g.probe("block.0", active(g.input("mel", GGML_TYPE_F32, mel_dim_, frames), first_));
    ggml_tensor* all = nullptr;
    for (size_t b = 0; b < blocks_.size(); ++b) {
        const Block& block = blocks_[b];
        ggml_tensor* h = active(x, block.in);
        const int64_t width = h->ne[0] / static_cast<int64_t>(block.groups.size() + 1);
        const auto group = [&](size_t i) {
            return ggml_view_2d(ctx, h, width, frames, h->nb[1], i * static_cast<size_t>(width) * h->nb[0]);
        };
        ggml_tensor* joined = group(0);
        ggml_tensor* before = nullptr;
        for (size_t i = 0; i < block.groups.size(); ++i) {
            ggml_tensor* in = before ? ggml_add(ctx, group(i + 1), before) : group(i + 1);
            before = active(in, block.groups[i]);
            joined = ggml_concat(ctx, joined, before, 0);
        }
        ggml_tensor* y = active(joined, block.mix);
        ggml_tensor* mean = as_column(g, ggml_mean(ctx, transposed(g, y)));
        ggml_tensor* squeezed = ggml_relu(ctx, nn::valid_conv(g, mean, block.squeeze));
        ggml_tensor* gate = ggml_sigmoid(ctx, nn::valid_conv(g, squeezed, block.excite));
        x = g.probe(message("block.", b + 1), ggml_add(ctx, ggml_mul(ctx, y, gate), x));
        all = all ? ggml_concat(ctx, all, x, 0) : x;
    }
    x = g.probe("aggregation", active(all, aggregation_));

    // Attentive statistics: mean and deviation over time, weighted per channel.
    ggml_tensor* over_time = transposed(g, x);
    ggml_tensor* mean = ggml_mean(ctx, over_time);
    const auto repeated = [&](ggml_tensor* statistic) { return ggml_repeat(ctx, as_column(g, statistic), x); };
    ggml_tensor* seen = ggml_concat(ctx, x, repeated(mean), 0);
    seen = ggml_concat(ctx, seen, repeated(deviation(g, over_time, mean, nullptr)), 0);
    ggml_tensor* scores = conv(ggml_tanh(ctx, active(seen, attention_)), attention_out_);
    ggml_tensor* weights = ggml_soft_max(ctx, transposed(g, scores));
    mean = ggml_sum_rows(ctx, ggml_mul(ctx, weights, over_time));
    ggml_tensor* spread = deviation(g, over_time, mean, weights);
    ggml_tensor* pooled = ggml_concat(ctx, as_column(g, mean), as_column(g, spread), 0);
    g.output("embedding", nn::valid_conv(g, g.probe("pooled", pooled), out_));
}

std::unique_ptr<Graph> Qwen3Speaker::run(const std::vector<float>& mel, int64_t frames, bool keep_probes) const {
    backend_->check_process();
    if (frames < min_frames() || frames > kMaxFrames)
        throw std::invalid_argument(
            message("[mel] expected ", min_frames(), " to ", kMaxFrames, " frames, got ", frames));
    for (const float value : mel)
        if (!std::isfinite(value)) throw std::invalid_argument(message("[mel] expected finite values, got ", value));
    std::call_once(loaded_, [this] { weights_.load(); });
    const size_t nodes = 64 * (blocks_.size() + 1) + blocks_.size() * blocks_.front().groups.size() * 32;
    auto graph = std::make_unique<Graph>(backend_, nodes, [&](GraphBuilder& g) { build(g, frames); }, keep_probes);
    graph->set("mel", mel.data(), mel.size() * sizeof(float));
    nn::SameConvs::set(*graph, frames, histories());
    graph->compute();
    return graph;
}

std::vector<float> Qwen3Speaker::embed(const std::vector<float>& mel, int64_t frames) const {
    return run(mel, frames, /*keep_probes=*/false)->get("embedding");
}

std::map<std::string, std::vector<float>> Qwen3Speaker::probe(const std::vector<float>& mel, int64_t frames) const {
    const std::unique_ptr<Graph> graph = run(mel, frames, /*keep_probes=*/true);
    std::map<std::string, std::vector<float>> found;
    for (const std::string& name : graph->output_names()) found[name] = graph->get(name);
    return found;
}

}  // namespace dualar
