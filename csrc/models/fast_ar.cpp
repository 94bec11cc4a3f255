#include "models/fast_ar.h"

#include "models/block_weights.h"
#include "models/names.h"
#include "runtime/error.h"

namespace dualar {

namespace {

constexpr int64_t kMaxDim = 1 << 20;

// A frame's cache is a few rows: float32 costs nothing and keeps the cached path equal to the recompute.
constexpr ggml_type kCacheType = GGML_TYPE_F32;

FastConfig read_config(const Weights& weights, int64_t slow_dim, int num_codebooks, int64_t codebook_size) {
    const GgufFile& file = weights.file();
    FastConfig c;
    c.slow_dim = slow_dim;
    c.num_codebooks = num_codebooks;
    c.codebook_size = codebook_size;
    c.dim = file.integer(names::kFastEmbeddingLength, 1, kMaxDim);
    c.feed_forward = file.integer(names::kFastFeedForwardLength, 1, kMaxDim);
    c.layers = static_cast<int>(file.integer(names::kFastBlockCount, 1, 1024));
    file.integer(names::kFastContextLength, num_codebooks, int64_t{1} << 31);  // must hold one frame
    c.block.heads = static_cast<int>(file.integer(names::kFastHeadCount, 1, kMaxDim));
    c.block.kv_heads = static_cast<int>(file.integer(names::kFastHeadCountKv, 1, c.block.heads));
    if (c.block.heads % c.block.kv_heads != 0)
        throw ModelError(text("[", names::kFastHeadCountKv, "] expected a divisor of the ", c.block.heads,
                              " heads, got ", c.block.kv_heads));
    c.block.head_dim = static_cast<int>(file.integer(names::kFastHeadDim, 2, kMaxDim));
    if (c.block.head_dim % 2 != 0)
        throw ModelError(text("[", names::kFastHeadDim, "] expected an even number, got ", c.block.head_dim));
    c.block.rope_base = static_cast<float>(file.real(names::kFastRopeFreqBase, 1.0, 1e12));
    c.block.eps = static_cast<float>(file.real(names::kFastRmsEpsilon, 0.0, 1.0));
    return c;
}

}  // namespace

bool FastAr::present(const GgufFile& file) { return file.has(names::kFastBlockCount); }

FastAr::FastAr(Weights& weights, int64_t slow_dim, int num_codebooks, int64_t codebook_size)
    : config(read_config(weights, slow_dim, num_codebooks, codebook_size)) {
    const FastConfig& c = config;
    const GgufFile& file = weights.file();
    BlockTensors tensors;
    tensors.dim = c.dim;
    tensors.feed_forward = c.feed_forward;
    tensors.qk_norm = file.boolean(names::kFastQkNorm, false);
    tensors.qkv_bias = file.boolean(names::kFastQkvBias, false);
    tensors.o_bias = file.boolean(names::kFastOBias, false);
    for (int i = 0; i < c.layers; ++i)
        blocks.push_back(read_block(weights, names::indexed(names::kFastLayer, i), c.block, tensors));
    const bool projects = file.boolean(names::kFastProjectIn, c.dim != slow_dim);
    if (!projects && c.dim != slow_dim)
        throw ModelError(text("[", names::kFastProjectIn, "] expected true where the Fast-AR's width ", c.dim,
                              " is not the Slow-AR's ", slow_dim, ", got false"));
    if (projects) {
        project_in = read_linear(weights, names::kFastProjectInWeight, c.dim, slow_dim);
        project_in->bias = weights.vector(names::kFastProjectInBias, c.dim);
    }
    norm = weights.vector(names::kFastNorm, c.dim);
    head = read_linear(weights, names::kFastOutput, c.codebook_size, c.dim);
    embeddings = weights.table(names::kFastEmbeddings, c.codebook_size, c.dim);
}

void FastAr::build(GraphBuilder& g, int64_t hiddens, int64_t codes, int64_t rows, const nn::AttentionInputs& inputs,
                   const nn::KvCache* cache) const {
    ggml_tensor* x = g.input("x", GGML_TYPE_F32, config.dim, codes);
    if (hiddens > 0) {
        ggml_tensor* hidden = g.input("hidden", GGML_TYPE_F32, config.slow_dim, hiddens);
        if (project_in) hidden = nn::linear(g, *project_in, hidden);
        x = ggml_concat(g.context, hidden, x, 1);
    }
    x = nn::transformer(g, x, blocks, config.block, inputs, cache, kName);
    if (x->ne[1] > rows) x = ggml_cont(g.context, nn::last_columns(g, x, rows));
    x = nn::rms_norm(g, x, norm, config.block.eps);
    g.output("logits", nn::linear(g, head, x));
}

void FastAr::embed(const int32_t* codes, int64_t count, float* out) const {
    for (int64_t t = 0; t < count; ++t) embeddings.read(codes[t], out + t * config.dim);
}

FastState::FastState(std::shared_ptr<const FastAr> model, std::shared_ptr<Backend> backend)
    : model_(std::move(model)),
      backend_(std::move(backend)),
      cache_(*backend_, model_->config.layers, model_->config.block.kv_heads, model_->config.block.head_dim,
             model_->config.num_codebooks, kCacheType) {
    decode_.resize(static_cast<size_t>(model_->config.num_codebooks));
}

size_t FastState::nbytes(const FastConfig& c) {
    return nn::KvCache::nbytes(c.layers, c.block.kv_dim(), c.num_codebooks, kCacheType);
}

std::unique_ptr<Graph> FastState::make_graph(Kind kind, int64_t codes) {
    ++graph_builds_;
    const FastConfig& c = model_->config;
    const bool cached = kind != Kind::kDecode;
    const auto build = [&](GraphBuilder& g) {
        const int64_t hiddens = kind == Kind::kStep ? 0 : 1;
        const int64_t count = hiddens + codes;
        const nn::AttentionInputs inputs =
            nn::make_attention_inputs(g, FastAr::kName, count, cached ? cache_.rows() : count, cached);
        model_->build(g, hiddens, codes, 1, inputs, cached ? &cache_ : nullptr);
    };
    const size_t nodes = static_cast<size_t>(c.layers) * nn::kNodesPerBlock + 32;
    return std::make_unique<Graph>(backend_, nodes, build);
}

const std::vector<float>& FastState::run(Graph& graph, Kind kind, const float* hidden, const int32_t* codes,
                                         int64_t count) {
    backend_->check_process();
    const FastConfig& c = model_->config;
    embedded_.resize(static_cast<size_t>(count * c.dim));
    model_->embed(codes, count, embedded_.data());
    graph.set("x", embedded_.data(), embedded_.size() * sizeof(float));
    if (kind != Kind::kStep) graph.set("hidden", hidden, static_cast<size_t>(c.slow_dim) * sizeof(float));
    const bool cached = kind != Kind::kDecode;
    const int64_t first = kind == Kind::kStep ? position_ : 0;
    const int64_t positions = kind == Kind::kStep ? 1 : count + 1;
    feed_.linear(first, positions, cached ? cache_.rows() : positions);
    feed_.set(graph, FastAr::kName, cached);
    graph.compute();
    logits_.resize(static_cast<size_t>(c.codebook_size));
    graph.get("logits", logits_.data(), logits_.size());
    if (cached) position_ = first + positions;
    return logits_;
}

const std::vector<float>& FastState::begin(const float* hidden, int32_t code) {
    position_ = 0;
    if (!begin_) begin_ = make_graph(Kind::kBegin, 1);
    return run(*begin_, Kind::kBegin, hidden, &code, 1);
}

const std::vector<float>& FastState::step(int32_t code) {
    if (!step_) step_ = make_graph(Kind::kStep, 1);
    return run(*step_, Kind::kStep, nullptr, &code, 1);
}

const std::vector<float>& FastState::decode(const float* hidden, const int32_t* prefix, int64_t count) {
    std::unique_ptr<Graph>& graph = decode_[static_cast<size_t>(count)];
    if (!graph) graph = make_graph(Kind::kDecode, count);
    return run(*graph, Kind::kDecode, hidden, prefix, count);
}

}  // namespace dualar
