#include "models/qwen3_predictor.h"

#include <algorithm>

#include "models/block_weights.h"
#include "models/names.h"
#include "models/qwen3_names.h"

namespace dualar {

namespace {

namespace keys = qwen3_names;

constexpr int64_t kMaxDim = 1 << 20;

// A frame's cache is a few rows: float32 costs nothing and keeps the cached path equal to the recompute.
constexpr ggml_type kCacheType = GGML_TYPE_F32;

PredictorConfig read_config(const GgufFile& file, const SlowConfig& talker) {
    PredictorConfig c;
    c.talker_dim = talker.dim;
    c.num_codebooks = talker.num_codebooks;
    c.codebook_size = talker.codebook_size;
    c.dim = file.integer(keys::kPredictorEmbeddingLength, 1, kMaxDim);
    c.feed_forward = file.integer(keys::kPredictorFeedForwardLength, 1, kMaxDim);
    c.layers = static_cast<int>(file.integer(keys::kPredictorBlockCount, 1, 1024));
    c.block = read_qwen3_block(file, keys::kPredictorHeadCount, keys::kPredictorHeadCountKv, keys::kPredictorKeyLength,
                               keys::kPredictorRopeFreqBase, keys::kPredictorRmsEpsilon);
    return c;
}

}  // namespace

Predictor::Predictor(Weights& weights, std::shared_ptr<const Talker> talker)
    : config(read_config(weights.file(), talker->decoder->config)), talker_(std::move(talker)) {
    const PredictorConfig& c = config;
    const int64_t books = c.num_codebooks - 1;
    BlockTensors tensors;
    tensors.dim = c.dim;
    tensors.feed_forward = c.feed_forward;
    tensors.qk_norm = true;
    for (int i = 0; i < c.layers; ++i)
        blocks.push_back(read_block(weights, names::indexed(keys::kPredictorLayer, i), c.block, tensors));
    if (c.dim != c.talker_dim) project_in = read_with_bias(weights, keys::kPredictorProjectIn, c.dim, c.talker_dim);
    norm = weights.vector(keys::kPredictorNorm, c.dim);

    const FileTensor* source = weights.file().find(keys::kPredictorOutput);
    if (source == nullptr || !weights.on_cpu() || !nn::PackedMatrix::can_pack(source->type)) {
        heads_ = weights.matrix(keys::kPredictorOutput, books * c.codebook_size, c.dim);
        return;
    }
    if (weights.require(keys::kPredictorOutput, {books * c.codebook_size, c.dim}) == nullptr) return;
    for (int64_t i = 0; i < books; ++i) packed_heads_.push_back(std::make_shared<nn::PackedMatrix>());
    weights.on_load([heads = packed_heads_, c, source, &file = weights.file(), threads = weights.threads()] {
        const size_t bytes = ggml_row_size(source->type, c.dim) * static_cast<size_t>(c.codebook_size);
        for (size_t i = 0; i < heads.size(); ++i)
            *heads[i] = nn::PackedMatrix(static_cast<const char*>(source->data) + i * bytes, source->type,
                                         c.codebook_size, c.dim, threads);
        file.forget(*source);
    });
}

ggml_tensor* Predictor::head(GraphBuilder& g, ggml_tensor* h, int book) const {
    if (!packed_heads_.empty())
        return nn::linear(g, {nullptr, nullptr, packed_heads_[static_cast<size_t>(book - 1)]}, h);
    const auto first = static_cast<size_t>((book - 1) * config.codebook_size);
    ggml_tensor* rows =
        ggml_view_2d(g.context, heads_, config.dim, config.codebook_size, heads_->nb[1], first * heads_->nb[1]);
    return ggml_mul_mat(g.context, rows, h);
}

void Predictor::build(GraphBuilder& g, int64_t positions, int64_t rows, int book, const nn::AttentionInputs& inputs,
                      const nn::KvCache* cache) const {
    ggml_tensor* x = g.input("x", GGML_TYPE_F32, config.talker_dim, positions);
    if (project_in) x = nn::linear(g, *project_in, x);
    x = nn::transformer(g, x, blocks, config.block, inputs, cache, kName);
    if (positions > rows) x = ggml_cont(g.context, nn::last_columns(g, x, rows));
    x = nn::rms_norm(g, x, norm, config.block.eps);
    g.output("logits", head(g, x, book));
}

void Predictor::embed(const float* hidden, const int32_t* codes, int64_t count, int book, std::vector<float>& x,
                      std::vector<float>& scratch) const {
    const int64_t dim = config.talker_dim;
    const int64_t hiddens = hidden != nullptr ? count : 0;
    x.assign(static_cast<size_t>((hiddens + count) * dim), 0.0F);
    if (hidden != nullptr) std::copy_n(hidden, hiddens * dim, x.data());
    for (int64_t i = 0; i < count; ++i) talker_->add_code(book, codes[i], x.data() + (hiddens + i) * dim, scratch);
}

PredictorState::PredictorState(std::shared_ptr<const Predictor> model, std::shared_ptr<Backend> backend)
    : model_(std::move(model)),
      backend_(std::move(backend)),
      cache_(*backend_, model_->config.layers, model_->config.block.kv_heads, model_->config.block.head_dim,
             model_->config.num_codebooks, kCacheType),
      cached_(static_cast<size_t>(model_->config.num_codebooks)),
      stateless_(static_cast<size_t>(model_->config.num_codebooks)) {}

size_t PredictorState::nbytes(const PredictorConfig& c) {
    return nn::KvCache::nbytes(c.layers, c.block.kv_dim(), c.num_codebooks, kCacheType);
}

std::unique_ptr<Graph> PredictorState::make_graph(int64_t positions, int book, bool cached) {
    ++graph_builds_;
    const PredictorConfig& c = model_->config;
    const auto build = [&](GraphBuilder& g) {
        const int64_t keys = cached ? cache_.rows() : positions;
        const auto inputs = nn::make_attention_inputs(g, Predictor::kName, positions, keys, cached);
        model_->build(g, positions, 1, book, inputs, cached ? &cache_ : nullptr);
    };
    return std::make_unique<Graph>(backend_, static_cast<size_t>(c.layers) * nn::kNodesPerBlock + 32, build);
}

std::vector<float> PredictorState::run(std::unique_ptr<Graph>& graph, const float* hidden, const int32_t* codes,
                                       int64_t count, int first_book, int64_t first, bool cached) {
    backend_->check_process();
    const PredictorConfig& c = model_->config;
    const int64_t positions = count + (hidden != nullptr ? 1 : 0);
    const int book = first_book + static_cast<int>(count);
    if (!graph) graph = make_graph(positions, book, cached);
    input_.assign(static_cast<size_t>(positions * c.talker_dim), 0.0F);
    float* x = input_.data();
    if (hidden != nullptr) x = std::copy_n(hidden, c.talker_dim, x);
    for (int64_t i = 0; i < count; ++i, x += c.talker_dim)
        model_->talker().add_code(first_book + i, codes[i], x, scratch_);
    graph->set("x", input_.data(), input_.size() * sizeof(float));
    feed_.linear(first, positions, cached ? cache_.rows() : positions);
    feed_.set(*graph, Predictor::kName, cached);
    graph->compute();
    std::vector<float> logits(static_cast<size_t>(c.codebook_size));
    graph->get("logits", logits.data(), logits.size());
    if (cached) position_ = first + positions;
    return logits;
}

std::vector<float> PredictorState::begin(const float* hidden, int32_t code) {
    position_ = 0;
    return run(cached_[1], hidden, &code, 1, 0, 0, true);
}

std::vector<float> PredictorState::step(int32_t code) {
    // Position p holds the code of codebook p - 1 and gives the logits of codebook p.
    const auto book = static_cast<int>(position_);
    return run(cached_[static_cast<size_t>(book)], nullptr, &code, 1, book - 1, position_, true);
}

std::vector<float> PredictorState::decode(const float* hidden, const int32_t* prefix, int64_t count) {
    return run(stateless_[static_cast<size_t>(count)], hidden, prefix, count, 0, 0, false);
}

}  // namespace dualar
