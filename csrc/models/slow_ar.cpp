#include "models/slow_ar.h"

#include <algorithm>
#include <cmath>

#include "models/names.h"
#include "runtime/error.h"

namespace dualar {

namespace {

// A graph serves every KV length up to the next multiple, so it is built again only once in so many frames.
constexpr int64_t kKeyBucket = 256;

// Rows of a head that may as well be packed as a whole, beside those that can be emitted.
constexpr int64_t kSmallHead = 1 << 13;

constexpr int64_t kMaxDim = 1 << 20;
constexpr int64_t kMaxCount = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxContext = int64_t{1} << 24;  // float32 positions are exact up to here
constexpr int kMaxLayers = 1024;

SlowConfig read_config(const Weights& weights, int64_t im_end) {
    const GgufFile& file = weights.file();
    SlowConfig c;
    c.context_length = file.integer(names::kContextLength, 1, kMaxContext);
    c.vocab_size = file.integer(names::kVocabSize, 1, kMaxCount);
    c.dim = file.integer(names::kEmbeddingLength, 1, kMaxDim);
    c.feed_forward = file.integer(names::kFeedForwardLength, 1, kMaxDim);
    c.layers = static_cast<int>(file.integer(names::kBlockCount, 1, kMaxLayers));
    c.num_codebooks = static_cast<int>(file.integer(names::kNumCodebooks, 1, 1024));
    c.codebook_size = file.integer(names::kCodebookSize, 1, kMaxCount);
    c.semantic_begin = file.integer(names::kSemanticBeginId, 0, c.vocab_size - 1);
    c.semantic_end = file.integer(names::kSemanticEndId, c.semantic_begin, c.vocab_size - 1);
    c.im_end = im_end;
    if (im_end < 0 || im_end >= c.vocab_size || c.is_semantic(im_end))
        throw std::invalid_argument(text("[im_end_id] expected an id of the vocabulary (0 to ", c.vocab_size - 1,
                                         ") outside the semantic ids ", c.semantic_begin, " to ", c.semantic_end,
                                         ", got ", im_end));
    c.scale_codebook_embeddings = file.boolean(names::kScaleCodebookEmbeddings, false);
    c.norm_fast_input = file.boolean(names::kNormFastlayerInput, true);
    c.tied = file.boolean(names::kTieWordEmbeddings, true);

    c.block.heads = static_cast<int>(file.integer(names::kHeadCount, 1, kMaxDim));
    c.block.kv_heads = static_cast<int>(file.integer(names::kHeadCountKv, 1, c.block.heads));
    if (c.block.heads % c.block.kv_heads != 0)
        throw ModelError(text("[", names::kHeadCountKv, "] expected a divisor of the ", c.block.heads, " heads, got ",
                              c.block.kv_heads));
    c.block.rope_base = static_cast<float>(file.real(names::kRopeFreqBase, 1.0, 1e12));
    c.block.eps = static_cast<float>(file.real(names::kRmsEpsilon, 0.0, 1.0));
    // An explicit head_dim; else q_norm's length; else what wo was made for.
    const FileTensor* q_norm = file.find(names::indexed(names::kLayer, 0) + names::kQNorm);
    const FileTensor* wo = file.find(names::indexed(names::kLayer, 0) + names::kWo + ".weight");
    int64_t head_dim = 0;
    if (file.has(names::kKeyLength))
        head_dim = file.integer(names::kKeyLength, 2, kMaxDim);
    else if (q_norm != nullptr)
        head_dim = q_norm->shape.empty() ? 0 : q_norm->shape.back();
    else if (wo != nullptr && !wo->shape.empty() && wo->shape.back() % c.block.heads == 0)
        head_dim = wo->shape.back() / c.block.heads;
    if (head_dim < 2 || head_dim % 2 != 0 || head_dim > kMaxDim)
        throw ModelError(text("[", names::kKeyLength, "] expected an even head_dim of at least 2, got ", head_dim,
                              " (from the key, else q_norm's length, else wo's columns / head_count)"));
    c.block.head_dim = static_cast<int>(head_dim);
    return c;
}

BlockTensors read_tensors(const GgufFile& file, const SlowConfig& c) {
    BlockTensors tensors;
    tensors.dim = c.dim;
    tensors.feed_forward = c.feed_forward;
    tensors.qk_norm = file.boolean(names::kQkNorm, false);
    tensors.qkv_bias = file.boolean(names::kQkvBias, false);
    tensors.o_bias = file.boolean(names::kOBias, false);
    return tensors;
}

}  // namespace

SlowAr::SlowAr(Weights& weights, int64_t im_end) : SlowAr(weights, read_config(weights, im_end)) {}

SlowAr::SlowAr(Weights& weights, const SlowConfig& c)
    : SlowAr(weights, c, read_tensors(weights.file(), c), names::kLayer, names::kNorm,
             c.tied ? names::kEmbeddings : names::kOutput) {
    embeddings_ = weights.table(names::kEmbeddings, c.vocab_size, c.dim);
    codebook_embeddings_ = weights.table(names::kCodebookEmbeddings, c.num_codebooks * c.codebook_size, c.dim);
}

SlowAr::SlowAr(Weights& weights, const SlowConfig& c, const BlockTensors& tensors, const char* layer,
               const char* norm_name, const char* head_name)
    : config(c) {
    const GgufFile& file = weights.file();
    for (int i = 0; i < c.layers; ++i)
        blocks.push_back(read_block(weights, names::indexed(layer, i), c.block, tensors));
    norm = weights.vector(norm_name, c.dim);
    head = weights.matrix(head_name, c.vocab_size, c.dim);
    const FileTensor* wqkv = file.find(names::indexed(layer, 0) + names::kWqkv + ".weight");
    if (wqkv != nullptr) matrix_type = wqkv->type;
    if (head == nullptr || !weights.on_cpu() || !nn::PackedMatrix::can_pack(head->type)) return;
    auto packed = std::make_shared<nn::PackedMatrix>();
    sliced_head = packed;
    weights.on_load([packed, c, source = file.find(head_name), threads = weights.threads()] {
        const size_t row = ggml_row_size(source->type, c.dim);
        const auto* rows = static_cast<const char*>(source->data);
        std::vector<char> slice(rows + static_cast<size_t>(c.semantic_begin) * row,
                                rows + static_cast<size_t>(c.semantic_end + 1) * row);
        slice.insert(slice.end(), rows + static_cast<size_t>(c.im_end) * row,
                     rows + static_cast<size_t>(c.im_end + 1) * row);
        *packed = nn::PackedMatrix(slice.data(), source->type, c.semantic_count() + 1, c.dim, threads);
    });
    if (c.vocab_size > kSmallHead) return;
    auto whole = std::make_shared<nn::PackedMatrix>();
    whole_head = whole;
    weights.on_load([whole, c, source = file.find(head_name), threads = weights.threads()] {
        *whole = nn::PackedMatrix(source->data, source->type, c.vocab_size, c.dim, threads);
    });
}

std::vector<int32_t> SlowAr::main_ids() const {
    std::vector<int32_t> ids;
    for (int64_t id = config.semantic_begin; id <= config.semantic_end; ++id) ids.push_back(static_cast<int32_t>(id));
    ids.push_back(static_cast<int32_t>(config.im_end));
    return ids;
}

ggml_type SlowAr::kv_type(const std::string& name) const {
    if (name == "f32") return GGML_TYPE_F32;
    if (name == "f16") return GGML_TYPE_F16;
    if (name == "auto") return matrix_type == GGML_TYPE_F32 ? GGML_TYPE_F32 : GGML_TYPE_F16;
    throw std::invalid_argument(text("[kv_type] expected \"auto\", \"f32\" or \"f16\", got \"", name, "\""));
}

void SlowAr::check_positions(int64_t max_positions) const {
    if (max_positions < 1 || max_positions > config.context_length)
        throw std::invalid_argument(text("[max_positions] expected 1 to the model's context of ", config.context_length,
                                         ", got ", max_positions));
}

void SlowAr::embed(const int32_t* columns, int64_t count, int64_t stride, float* out,
                   std::vector<float>& scratch) const {
    const float shrink = 1.0F / std::sqrt(static_cast<float>(config.num_codebooks + 1));
    for (int64_t t = 0; t < count; ++t) {
        float* x = out + t * config.dim;
        const int32_t token = columns[t];
        embeddings_.read(token, x);
        if (!config.is_semantic(token)) continue;
        for (int64_t i = 0; i < config.num_codebooks; ++i)
            codebook_embeddings_.add(i * config.codebook_size + columns[(i + 1) * stride + t], x, scratch);
        if (config.scale_codebook_embeddings)
            for (int64_t d = 0; d < config.dim; ++d) x[d] *= shrink;
    }
}

void SlowAr::build(GraphBuilder& g, int64_t count, const nn::AttentionInputs& inputs, const nn::KvCache* cache,
                   bool all, bool full_vocab) const {
    const SlowConfig& c = config;
    ggml_tensor* x = g.input("x", GGML_TYPE_F32, c.dim, count);
    x = nn::transformer(g, x, blocks, c.block, inputs, cache, kName);
    if (!all && count > 1) x = ggml_cont(g.context, nn::last_columns(g, x, 1));
    ggml_tensor* h = nn::rms_norm(g, x, norm, c.block.eps);
    g.output("hidden", c.norm_fast_input ? h : x);
    if (full_vocab) {
        g.output("logits",
                 whole_head ? nn::linear(g, {nullptr, nullptr, whole_head}, h) : ggml_mul_mat(g.context, head, h));
        return;
    }
    // Only the semantic ids and im_end can be emitted: those rows of the head, and no others, are read.
    if (sliced_head) {
        g.output("logits", nn::linear(g, {nullptr, nullptr, sliced_head}, h));
        return;
    }
    ggml_tensor* semantic = ggml_view_2d(g.context, head, c.dim, c.semantic_count(), head->nb[1],
                                         static_cast<size_t>(c.semantic_begin) * head->nb[1]);
    ggml_tensor* im_end =
        ggml_view_2d(g.context, head, c.dim, 1, head->nb[1], static_cast<size_t>(c.im_end) * head->nb[1]);
    g.output("semantic_logits", ggml_mul_mat(g.context, semantic, h));
    g.output("im_end_logit", ggml_mul_mat(g.context, im_end, h));
}

void SlowAr::read(const Graph& graph, int64_t count, bool full_vocab, float* logits, float* hidden) const {
    graph.get("hidden", hidden, static_cast<size_t>(count * config.dim));
    const int64_t row = width(full_vocab);
    if (full_vocab || sliced_head) {
        graph.get("logits", logits, static_cast<size_t>(count * row));
        return;
    }
    const auto n = static_cast<size_t>(config.semantic_count());
    for (int64_t r = 0; r < count; ++r) {
        graph.get("semantic_logits", logits + r * row, n, static_cast<size_t>(r) * n);
        graph.get("im_end_logit", logits + (r + 1) * row - 1, 1, static_cast<size_t>(r));
    }
}

SlowState::SlowState(std::shared_ptr<const SlowAr> model, std::shared_ptr<Backend> backend, int64_t max_positions,
                     ggml_type kv_type)
    : model_(std::move(model)),
      backend_(std::move(backend)),
      max_positions_(max_positions),
      kv_type_(kv_type),
      cache_(*backend_, model_->config.layers, model_->config.block.kv_heads, model_->config.block.head_dim,
             max_positions, kv_type) {}

std::unique_ptr<Graph> SlowState::make_graph(int64_t count, int64_t keys, bool all_positions, bool full_vocab) {
    ++graph_builds_;
    const size_t nodes = static_cast<size_t>(model_->config.layers) * nn::kNodesPerBlock + 32;
    return std::make_unique<Graph>(
        backend_, nodes,
        [&](GraphBuilder& g) {
            const nn::AttentionInputs inputs =
                nn::make_attention_inputs(g, SlowAr::kName, count, keys, /*cached=*/true);
            model_->build(g, count, inputs, &cache_, all_positions, full_vocab);
        },
        keep_probes_);
}

Graph& SlowState::step_graph(int64_t keys, bool full_vocab) {
    const size_t which = full_vocab ? 1 : 0;
    if (!step_[which] || step_keys_[which] != keys) {
        step_[which].reset();  // the old one's memory first
        step_[which] = make_graph(1, keys, false, full_vocab);
        step_keys_[which] = keys;
    }
    return *step_[which];
}

void SlowState::run(Graph& graph, const Embed& embed, int64_t first, int64_t count, int64_t keys) {
    embedded_.resize(static_cast<size_t>(count * model_->config.dim));
    embed(first, count, embedded_.data());
    graph.set("x", embedded_.data(), embedded_.size() * sizeof(float));
    feed_.linear(position_, count, keys);
    feed_.set(graph, SlowAr::kName, /*cached=*/true);
    graph.compute();
}

int64_t SlowState::attention_rows(int64_t positions) const {
    return std::min(max_positions_, (positions + kKeyBucket - 1) / kKeyBucket * kKeyBucket);
}

SlowPrefix SlowState::snapshot() const { return {model_, kv_type_, position_, cache_.read(position_)}; }

void SlowState::restore(const SlowPrefix& prefix) {
    backend_->check_process();
    cache_.write(prefix.positions, prefix.rows);
    position_ = prefix.positions;
}

SlowOutput SlowState::feed(const int32_t* columns, int64_t count, bool all_positions, bool full_vocab) {
    const auto embed = [&](int64_t first, int64_t n, float* out) {
        model_->embed(columns + first, n, count, out, scratch_);
    };
    return feed(embed, count, all_positions, full_vocab);
}

SlowOutput SlowState::feed(const Embed& embed, int64_t count, bool all_positions, bool full_vocab) {
    backend_->check_process();
    const SlowConfig& c = model_->config;
    SlowOutput out;
    out.positions = all_positions ? count : 1;
    out.width = model_->width(full_vocab);
    out.logits.resize(static_cast<size_t>(out.positions * out.width));
    out.hidden.resize(static_cast<size_t>(out.positions * c.dim));
    const int64_t start = position_;
    probes_.clear();
    try {
        for (int64_t done = 0; done < count;) {
            const int64_t piece = std::min(kPrefillPiece, count - done);
            const int64_t needed = position_ + piece;
            const int64_t keys = attention_rows(needed);
            std::unique_ptr<Graph> prefill;
            if (piece > 1 || all_positions) prefill = make_graph(piece, keys, all_positions, full_vocab);
            Graph& graph = prefill ? *prefill : step_graph(keys, full_vocab);
            run(graph, embed, done, piece, keys);
            position_ += piece;

            const bool last = done + piece == count;
            const int64_t rows = all_positions ? piece : 1;
            const int64_t row = all_positions ? done : 0;
            if (all_positions || last) {
                model_->read(graph, rows, full_vocab, out.logits.data() + row * out.width,
                             out.hidden.data() + row * c.dim);
            }
            if (keep_probes_)
                for (const std::string& name : graph.output_names()) {
                    const std::vector<float> values = graph.get(name);
                    std::vector<float>& all = probes_[name];
                    all.insert(all.end(), values.begin(), values.end());
                }
            done += piece;
        }
    } catch (...) {
        position_ = start;  // as if nothing had been fed: rows past the position are never read
        throw;
    }
    return out;
}

void SlowState::keep_probes(bool keep) {
    keep_probes_ = keep;
    step_[0].reset();
    step_[1].reset();
}

std::map<std::string, std::vector<float>> SlowState::probes() const { return probes_; }

}  // namespace dualar
