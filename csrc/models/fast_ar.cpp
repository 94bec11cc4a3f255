#include "models/fast_ar.h"

#include <algorithm>

namespace dualar {

namespace {

// A frame's cache is a few rows: float32 costs nothing and keeps the cached path equal to the recompute.
constexpr ggml_type kCacheType = GGML_TYPE_F32;

}  // namespace

ggml_tensor* FastAr::head(GraphBuilder& g, ggml_tensor* h, int book) const {
    if (stacked_heads == nullptr) return nn::linear(g, heads[heads_differ() ? static_cast<size_t>(book - 1) : 0], h);
    const auto first = static_cast<size_t>((book - 1) * config.codebook_size);
    ggml_tensor* rows = ggml_view_2d(g.context, stacked_heads, config.dim, config.codebook_size, stacked_heads->nb[1],
                                     first * stacked_heads->nb[1]);
    return ggml_mul_mat(g.context, rows, h);
}

void FastAr::build(GraphBuilder& g, int64_t hiddens, int64_t codes, int64_t rows, int book,
                   const nn::AttentionInputs& inputs, const nn::KvCache* cache) const {
    ggml_tensor* x = g.input("x", GGML_TYPE_F32, code_dim(), hidden_apart() ? codes : hiddens + codes);
    if (hidden_apart() && hiddens > 0) {
        ggml_tensor* hidden = g.input("hidden", GGML_TYPE_F32, config.hidden_dim, hiddens);
        x = ggml_concat(g.context, nn::linear(g, *project_in, hidden), x, 1);
    } else if (projects_codes && project_in) {
        x = nn::linear(g, *project_in, x);
    }
    const int64_t positions = x->ne[1];
    x = nn::transformer(g, x, blocks, config.block, inputs, cache, kName);
    if (positions > rows) x = ggml_cont(g.context, nn::last_columns(g, x, rows));
    g.output("logits", head(g, nn::rms_norm(g, x, norm, config.block.eps), book));
}

void FastAr::set(Graph& graph, const FastInputs& inputs, std::vector<float>& scratch) const {
    const int64_t width = code_dim();
    const int64_t before = hidden_apart() ? 0 : inputs.hiddens;
    scratch.resize(static_cast<size_t>((before + inputs.count) * width));
    if (before > 0) std::copy_n(inputs.hidden, before * width, scratch.data());
    for (int64_t i = 0; i < inputs.count; ++i)
        tables.read(inputs.first_book + (inputs.go_on ? i : 0), inputs.codes[i], scratch.data() + (before + i) * width);
    graph.set("x", scratch.data(), scratch.size() * sizeof(float));
    if (hidden_apart() && inputs.hiddens > 0)
        graph.set("hidden", inputs.hidden, static_cast<size_t>(inputs.hiddens * config.hidden_dim) * sizeof(float));
}

void read_stacked_heads(Weights& weights, const char* name, FastAr& fast) {
    const FastConfig& c = fast.config;
    const int64_t books = c.num_codebooks - 1;
    const FileTensor* source = weights.file().find(name);
    if (source == nullptr || !weights.on_cpu() || !nn::PackedMatrix::can_pack(source->type)) {
        fast.stacked_heads = weights.matrix(name, books * c.codebook_size, c.dim);
        return;
    }
    if (weights.require(name, {books * c.codebook_size, c.dim}) == nullptr) return;
    std::vector<std::shared_ptr<nn::PackedMatrix>> heads;
    for (int64_t i = 0; i < books; ++i) {
        heads.push_back(std::make_shared<nn::PackedMatrix>());
        fast.heads.push_back({nullptr, nullptr, heads.back()});
    }
    weights.on_load([heads, c, source, &file = weights.file(), threads = weights.threads()] {
        const size_t bytes = ggml_row_size(source->type, c.dim) * static_cast<size_t>(c.codebook_size);
        for (size_t i = 0; i < heads.size(); ++i)
            *heads[i] = nn::PackedMatrix(static_cast<const char*>(source->data) + i * bytes, source->type,
                                         c.codebook_size, c.dim, threads);
        file.forget(*source);
    });
}

FrameState::FrameState(std::shared_ptr<const FastAr> model, std::shared_ptr<Backend> backend)
    : model_(std::move(model)),
      backend_(std::move(backend)),
      cache_(*backend_, model_->config.layers, model_->config.block.kv_heads, model_->config.block.head_dim,
             model_->config.num_codebooks, kCacheType),
      cached_(static_cast<size_t>(model_->graphs())),
      stateless_(static_cast<size_t>(model_->config.num_codebooks)) {}

size_t FrameState::nbytes(const FastConfig& c) {
    return nn::KvCache::nbytes(c.layers, c.block.kv_dim(), c.num_codebooks, kCacheType);
}

const std::vector<float>& FrameState::run(std::unique_ptr<Graph>& graph, const FastInputs& inputs, int64_t first,
                                          bool cached) {
    backend_->check_process();
    const FastConfig& c = model_->config;
    const int64_t positions = inputs.hiddens + inputs.count;
    const int64_t keys = cached ? cache_.rows() : positions;
    if (!graph) {
        ++graph_builds_;
        const auto build = [&](GraphBuilder& g) {
            const int book = inputs.first_book + static_cast<int>(inputs.count);
            model_->build(g, inputs.hiddens, inputs.count, 1, book,
                          nn::make_attention_inputs(g, FastAr::kName, positions, keys, cached),
                          cached ? &cache_ : nullptr);
        };
        const size_t nodes = static_cast<size_t>(c.layers) * nn::kNodesPerBlock + 32;
        graph = std::make_unique<Graph>(backend_, nodes, build);
    }
    model_->set(*graph, inputs, scratch_);
    feed_.linear(first, positions, keys);
    feed_.set(*graph, FastAr::kName, cached);
    graph->compute();
    logits_.resize(static_cast<size_t>(c.codebook_size));
    graph->get("logits", logits_.data(), logits_.size());
    if (cached) position_ = first + positions;
    return logits_;
}

const std::vector<float>& FrameState::begin(const float* hidden, int32_t code) {
    position_ = 0;
    return run(cached_[static_cast<size_t>(model_->graph_of(1))], {hidden, 1, &code, 1}, 0, true);
}

const std::vector<float>& FrameState::step(int32_t code) {
    // Position p holds the code of codebook p - 1 and gives the logits of codebook p.
    const auto book = static_cast<int>(position_);
    std::unique_ptr<Graph>& graph = cached_[static_cast<size_t>(model_->graph_of(book))];
    return run(graph, {nullptr, 0, &code, 1, book - 1}, position_, true);
}

const std::vector<float>& FrameState::decode(const float* hidden, const int32_t* prefix, int64_t count) {
    return run(stateless_[static_cast<size_t>(count)], {hidden, 1, prefix, count, 0, true}, 0, false);
}

}  // namespace dualar
