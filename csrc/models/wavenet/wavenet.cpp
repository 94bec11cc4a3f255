#include "models/wavenet/wavenet.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/codec_weights.h"
#include "models/wavenet/names.h"
#include "runtime/error.h"

namespace dualar {

namespace {

constexpr int64_t kMaxChannels = 1 << 16;
constexpr int64_t kMaxStateFloats = int64_t{1} << 28;  // of one sequence: 1 GiB
// Samples in one run of the graph: enough for full tiles, and the intermediates stay small.
constexpr int64_t kSamplesPerRun = 512;
constexpr size_t kGraphsKept = 8;
constexpr size_t kNodesPerBlock = 16;

// One matrix of the rows of several, [n_i, depth, 1] each in the file.
struct Part {
    std::string name;
    int64_t rows;
};

nn::Linear read_stacked(Weights& weights, const std::vector<Part>& parts, int64_t depth, bool bias) {
    nn::Linear layer;
    std::vector<const FileTensor*> matrices;
    std::vector<const FileTensor*> biases;
    int64_t rows = 0;
    for (const Part& part : parts) {
        matrices.push_back(weights.require(part.name + ".weight", {part.rows, depth, 1}));
        if (bias) biases.push_back(weights.require(part.name + ".bias", {part.rows}));
        rows += part.rows;
    }
    if (std::count(matrices.begin(), matrices.end(), nullptr) + std::count(biases.begin(), biases.end(), nullptr) > 0)
        return layer;
    const auto concatenate = [](const std::vector<const FileTensor*>& tensors, float* out) {
        for (const FileTensor* tensor : tensors) {
            const std::vector<float> values = to_float(*tensor);
            out = std::copy(values.begin(), values.end(), out);
        }
    };
    auto packed = std::make_shared<nn::PackedMatrix>();
    weights.on_load([=, threads = weights.threads()] {
        std::vector<float> values(static_cast<size_t>(rows * depth));
        concatenate(matrices, values.data());
        *packed = nn::PackedMatrix(values.data(), GGML_TYPE_F32, rows, depth, threads);
    });
    layer.packed = packed;
    if (bias)
        layer.bias =
            weights.prepared(parts.front().name + ".bias", rows, 1, [=](float* out) { concatenate(biases, out); });
    return layer;
}

}  // namespace

int64_t WaveNetConfig::history() const {
    return (kernel_size - 1) * std::accumulate(dilations.begin(), dilations.end(), int64_t{0});
}

WaveNetConfig read_wavenet_config(const GgufFile& file) {
    const std::string architecture = file.string(names::kArchitectureKey);
    if (architecture != names::kWavenet)
        throw ModelError(message("[", names::kArchitectureKey, "] expected \"", names::kWavenet, "\", got \"",
                                 architecture, "\" in ", file.path()));
    WaveNetConfig c;
    c.channels = file.integer(names::kWavenetChannels, 1, kMaxChannels);
    c.condition_channels = file.integer(names::kWavenetConditionChannels, 1, kMaxChannels);
    c.skip_channels = file.integer(names::kWavenetSkipChannels, 1, kMaxChannels);
    c.levels = file.integer(names::kWavenetQuantizationLevels, 2, kMaxChannels);
    c.kernel_size = static_cast<int>(file.integer(names::kWavenetKernelSize, 1, 1024));
    c.dilations = file.integers(names::kWavenetDilations, 1, 1 << 20);
    if (c.dilations.empty() || c.dilations.size() > 1024)
        throw ModelError(
            message("[", names::kWavenetDilations, "] expected 1 to 1024 values, got ", c.dilations.size()));
    if (c.history() * c.channels > kMaxStateFloats)
        throw ModelError(message("[", names::kWavenetDilations, "] expected at most ", kMaxStateFloats / c.channels,
                                 " remembered samples at ", c.channels, " channels, got ", c.history()));
    c.sample_rate = static_cast<int>(file.integer(names::kWavenetSampleRate, 1, 1000000));
    return c;
}

WaveNet::WaveNet(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend)
    : config(read_wavenet_config(*file)), backend_(backend), weights_(std::move(file), std::move(backend)) {
    if (!weights_.on_cpu())
        throw std::invalid_argument(message("[device] expected cpu, where WaveNet runs, got ", backend_->device()));
    embedding = weights_.table(names::kWavenetEmbedding, config.levels, config.channels);
    for (size_t i = 0; i < config.dilations.size(); ++i) blocks.push_back(read_block(static_cast<int>(i)));
    const int64_t widths[] = {config.skip_channels, config.levels};
    for (int i = 0; i < 2; ++i)
        head[i] =
            read_stacked(weights_, {{names::kWavenetHead + std::to_string(i), widths[i]}}, config.skip_channels, true);
    weights_.load();
}

nn::WaveNetBlock WaveNet::read_block(int index) {
    const std::string prefix = names::indexed(names::kWavenetBlock, index);
    const int64_t channels = config.channels;
    nn::WaveNetBlock block;
    block.conv = read_conv(weights_, prefix + names::kWavenetConv, channels, 2 * channels, config.kernel_size,
                           static_cast<int>(config.dilations[static_cast<size_t>(index)]));
    block.condition =
        read_stacked(weights_, {{prefix + names::kWavenetCond, 2 * channels}}, config.condition_channels, false);
    block.project = read_stacked(
        weights_, {{prefix + names::kWavenetResidual, channels}, {prefix + names::kWavenetSkip, config.skip_channels}},
        channels, true);
    return block;
}

void WaveNet::build(GraphBuilder& g, int64_t samples) const {
    ggml_tensor* sums = g.input("sums", GGML_TYPE_F32, config.channels + config.skip_channels, samples);
    ggml_tensor* condition = g.input("condition", GGML_TYPE_F32, config.condition_channels, samples);
    for (size_t i = 0; i < blocks.size(); ++i)
        sums = g.probe(message("blocks.", i), nn::wavenet_block(g, sums, condition, blocks[i], state_->tensor(i)));
    ggml_tensor* skips = ggml_view_2d(g.context, sums, config.skip_channels, samples, sums->nb[1],
                                      static_cast<size_t>(config.channels) * sizeof(float));
    ggml_tensor* x = nn::linear(g, head[0], ggml_relu(g.context, ggml_cont(g.context, skips)));
    g.output("logits", nn::linear(g, head[1], ggml_relu(g.context, x)));
}

Graph& WaveNet::graph(int64_t samples) const {
    std::unique_ptr<Graph>& found = graphs_[samples];
    if (!found) {
        // The last runs of sequences of many lengths: not kept without end.
        if (graphs_.size() > kGraphsKept)
            for (auto it = graphs_.begin(); it != graphs_.end();)
                it = it->first == samples || it->first == kSamplesPerRun ? std::next(it) : graphs_.erase(it);
        found = std::make_unique<Graph>(backend_, kNodesPerBlock * blocks.size() + 64,
                                        [&](GraphBuilder& g) { build(g, samples); });
    }
    return *found;
}

void WaveNet::run(const int32_t* classes, const float* condition, int64_t samples, Queues* queues,
                  float* logits) const {
    backend_->check_process();
    const std::lock_guard<std::mutex> lock(run_mutex_);
    if (!state_) {
        std::vector<nn::ConvState::Size> sizes;
        for (const nn::WaveNetBlock& block : blocks) add_state(sizes, block.conv);
        state_ = std::make_unique<nn::ConvState>(*backend_, sizes);
    }
    state_->reset();
    for (size_t i = 0; i < blocks.size(); ++i)
        if (queues && state_->tensor(i))
            ggml_backend_tensor_set(state_->tensor(i), (*queues)[i].data(), 0, ggml_nbytes(state_->tensor(i)));

    const int64_t width = config.channels + config.skip_channels;
    std::vector<float> sums;
    std::vector<float> columns;
    std::vector<float> part;
    for (int64_t first = 0; first < samples; first += kSamplesPerRun) {
        const int64_t count = std::min(kSamplesPerRun, samples - first);
        sums.assign(static_cast<size_t>(count * width), 0.0F);
        columns.resize(static_cast<size_t>(count * config.condition_channels));
        for (int64_t t = 0; t < count; ++t) {
            embedding.read(classes[first + t], sums.data() + t * width);
            for (int64_t h = 0; h < config.condition_channels; ++h)
                columns[static_cast<size_t>(t * config.condition_channels + h)] = condition[h * samples + first + t];
        }
        Graph& g = graph(count);
        g.set("sums", sums.data(), sums.size() * sizeof(float));
        g.set("condition", columns.data(), columns.size() * sizeof(float));
        g.compute();
        if (logits == nullptr) continue;
        part.resize(static_cast<size_t>(count * config.levels));
        g.get("logits", part.data(), part.size());
        for (int64_t t = 0; t < count; ++t)
            for (int64_t q = 0; q < config.levels; ++q)
                logits[q * samples + first + t] = part[static_cast<size_t>(t * config.levels + q)];
    }
    for (size_t i = 0; i < blocks.size(); ++i)
        if (queues && state_->tensor(i))
            ggml_backend_tensor_get(state_->tensor(i), (*queues)[i].data(), 0, ggml_nbytes(state_->tensor(i)));
}

void WaveNet::check_classes(const std::vector<int32_t>& classes) const {
    for (const int32_t value : classes)
        if (value < 0 || value >= config.levels)
            throw std::invalid_argument(message("[classes] expected 0 to ", config.levels - 1, ", got ", value));
}

void WaveNet::check_condition(const std::vector<float>& condition) {
    for (const float value : condition)
        if (!std::isfinite(value))
            throw std::invalid_argument(message("[condition] expected finite values, got ", value));
}

}  // namespace dualar
