#include "models/decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/names.h"
#include "runtime/error.h"

namespace dualar {

namespace {

// A graph serves every KV length up to the next multiple of this, so it is built anew only once in 256 frames.
constexpr int64_t kKeyBucket = 256;

// Rows of a head that may as well be packed as a whole, beside those that can be emitted.
constexpr int64_t kSmallHead = 1 << 13;

}  // namespace

Decoder::Decoder(Weights& weights, const DecoderConfig& c, const BlockTensors& tensors, const char* layer,
                 const char* norm_name, const char* head_name)
    : config(c) {
    const GgufFile& file = weights.file();
    for (int i = 0; i < c.layers; ++i)
        blocks.push_back(read_block(weights, names::indexed(layer, i), c.block, tensors));
    norm = weights.vector(norm_name, c.dim);
    head = weights.matrix(head_name, c.vocab_size, c.dim);
    for (const DecoderConfig::Head& named : c.alignment_heads) query_layers.push_back(named.layer);
    std::sort(query_layers.begin(), query_layers.end());
    query_layers.erase(std::unique(query_layers.begin(), query_layers.end()), query_layers.end());
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
        if (c.end_id >= 0)
            slice.insert(slice.end(), rows + static_cast<size_t>(c.end_id) * row,
                         rows + static_cast<size_t>(c.end_id + 1) * row);
        *packed = nn::PackedMatrix(slice.data(), source->type, c.main_count(), c.dim, threads);
    });
    if (c.vocab_size > kSmallHead) return;
    auto whole = std::make_shared<nn::PackedMatrix>();
    whole_head = whole;
    weights.on_load([whole, c, source = file.find(head_name), threads = weights.threads()] {
        *whole = nn::PackedMatrix(source->data, source->type, c.vocab_size, c.dim, threads);
    });
}

std::vector<int32_t> Decoder::main_ids() const {
    std::vector<int32_t> ids;
    for (int64_t id = config.semantic_begin; id <= config.semantic_end; ++id) ids.push_back(static_cast<int32_t>(id));
    if (config.end_id >= 0) ids.push_back(static_cast<int32_t>(config.end_id));
    return ids;
}

ggml_type Decoder::kv_type(const std::string& name) const {
    if (name == "f32") return GGML_TYPE_F32;
    if (name == "f16") return GGML_TYPE_F16;
    if (name == "auto") return matrix_type == GGML_TYPE_F32 ? GGML_TYPE_F32 : GGML_TYPE_F16;
    throw std::invalid_argument(message("[kv_type] expected \"auto\", \"f32\" or \"f16\", got \"", name, "\""));
}

void Decoder::check_positions(int64_t max_positions) const {
    if (max_positions < 1 || max_positions > config.context_length)
        throw std::invalid_argument(message("[max_positions] expected 1 to the model's context of ",
                                            config.context_length, ", got ", max_positions));
}

void Decoder::build(GraphBuilder& g, int64_t count, const nn::AttentionInputs& inputs, const nn::KvCache* cache,
                    bool all, bool full_vocab) const {
    const DecoderConfig& c = config;
    ggml_tensor* x = g.input("x", GGML_TYPE_F32, c.dim, count);
    nn::AttentionInputs watched = inputs;
    watched.query_layers = &query_layers;
    x = nn::transformer(g, x, blocks, c.block, watched, cache, kName);
    if (!all && count > 1) x = ggml_cont(g.context, nn::last_columns(g, x, 1));
    ggml_tensor* h = nn::rms_norm(g, x, norm, c.block.eps);
    g.output("hidden", c.hidden_normed ? h : x);
    if (full_vocab) {
        g.output("logits",
                 whole_head ? nn::linear(g, {nullptr, nullptr, whole_head}, h) : ggml_mul_mat(g.context, head, h));
        return;
    }
    // Only the semantic ids and end_id can be emitted: those rows of the head, and no others, are read.
    if (sliced_head) {
        g.output("logits", nn::linear(g, {nullptr, nullptr, sliced_head}, h));
        return;
    }
    ggml_tensor* semantic = ggml_view_2d(g.context, head, c.dim, c.semantic_count(), head->nb[1],
                                         static_cast<size_t>(c.semantic_begin) * head->nb[1]);
    g.output("semantic_logits", ggml_mul_mat(g.context, semantic, h));
    if (c.end_id < 0) return;
    ggml_tensor* end_id =
        ggml_view_2d(g.context, head, c.dim, 1, head->nb[1], static_cast<size_t>(c.end_id) * head->nb[1]);
    g.output("end_logit", ggml_mul_mat(g.context, end_id, h));
}

void Decoder::read(const Graph& graph, int64_t count, bool full_vocab, float* logits, float* hidden) const {
    graph.get("hidden", hidden, static_cast<size_t>(count * config.dim));
    const int64_t row = width(full_vocab);
    if (full_vocab || sliced_head) {
        graph.get("logits", logits, static_cast<size_t>(count * row));
        return;
    }
    const auto n = static_cast<size_t>(config.semantic_count());
    for (int64_t r = 0; r < count; ++r) {
        graph.get("semantic_logits", logits + r * row, n, static_cast<size_t>(r) * n);
        if (config.end_id >= 0) graph.get("end_logit", logits + (r + 1) * row - 1, 1, static_cast<size_t>(r));
    }
}

void Decoder::read_query(const Graph& graph, const DecoderConfig::Head& head, int64_t column, float* out) const {
    const auto size = static_cast<size_t>(config.block.head_dim);
    const auto first = static_cast<size_t>(column * config.block.heads + head.head) * size;
    graph.get(nn::query_output(head.layer), out, size, first);
}

DecoderState::DecoderState(std::shared_ptr<const Decoder> model, std::shared_ptr<Backend> backend,
                           int64_t max_positions, ggml_type kv_type)
    : model_(std::move(model)),
      backend_(std::move(backend)),
      max_positions_(max_positions),
      kv_type_(kv_type),
      cache_(*backend_, model_->config.layers, model_->config.block.kv_heads, model_->config.block.head_dim,
             max_positions, kv_type) {}

std::unique_ptr<Graph> DecoderState::make_graph(int64_t count, int64_t keys, bool all_positions, bool full_vocab) {
    ++graph_builds_;
    const size_t nodes = static_cast<size_t>(model_->config.layers) * nn::kNodesPerBlock + 32;
    return std::make_unique<Graph>(
        backend_, nodes,
        [&](GraphBuilder& g) {
            const nn::AttentionInputs inputs =
                nn::make_attention_inputs(g, Decoder::kName, count, keys, /*cached=*/true);
            model_->build(g, count, inputs, &cache_, all_positions, full_vocab);
        },
        keep_probes_);
}

Graph& DecoderState::step_graph(int64_t keys, bool full_vocab) {
    const size_t which = full_vocab ? 1 : 0;
    if (!step_[which] || step_keys_[which] != keys) {
        step_[which].reset();  // the old one's memory first
        step_[which] = make_graph(1, keys, false, full_vocab);
        step_keys_[which] = keys;
    }
    return *step_[which];
}

void DecoderState::run(Graph& graph, const Embed& embed, int64_t first, int64_t count, int64_t keys) {
    embedded_.resize(static_cast<size_t>(count * model_->config.dim));
    embed(first, count, embedded_.data());
    graph.set("x", embedded_.data(), embedded_.size() * sizeof(float));
    feed_.linear(position_, count, keys);
    feed_.set(graph, Decoder::kName, /*cached=*/true);
    graph.compute();
}

int64_t DecoderState::attention_rows(int64_t positions) const {
    return std::min(max_positions_, (positions + kKeyBucket - 1) / kKeyBucket * kKeyBucket);
}

DecoderPrefix DecoderState::snapshot() const { return {model_, kv_type_, position_, cache_.read(position_)}; }

void DecoderState::restore(const DecoderPrefix& prefix) {
    backend_->check_process();
    cache_.write(prefix.positions, prefix.rows);
    position_ = prefix.positions;
}

DecoderOutput DecoderState::feed(const Embed& embed, int64_t count, bool all_positions, bool full_vocab) {
    backend_->check_process();
    const DecoderConfig& c = model_->config;
    DecoderOutput out;
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
            align(graph, piece - 1);

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

void DecoderState::truncate(int64_t positions) {
    position_ = positions;
    if (positions < watched_last_) watched_keys_.clear();  // other ones may come in their place
    alignment_.clear();
}

void DecoderState::watch(int64_t first, int64_t last) {
    watched_first_ = first;
    watched_last_ = last;
    watched_keys_.clear();
    alignment_.clear();
}

void DecoderState::align(const Graph& graph, int64_t column) {
    const std::vector<DecoderConfig::Head>& heads = model_->config.alignment_heads;
    const auto count = static_cast<size_t>(watched_last_ - watched_first_);
    if (count == 0 || position_ < watched_last_) return;
    const nn::BlockConfig& block = model_->config.block;
    const auto dim = static_cast<size_t>(block.head_dim);
    const size_t part = count * dim;
    if (watched_keys_.empty()) {
        watched_keys_.resize(heads.size() * part);
        for (size_t h = 0; h < heads.size(); ++h)
            cache_.read_keys(heads[h].layer, heads[h].head / (block.heads / block.kv_heads), watched_first_,
                             static_cast<int64_t>(count), &watched_keys_[h * part]);
    }
    query_.resize(dim);
    alignment_.resize(heads.size() * count);
    const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
    for (size_t h = 0; h < heads.size(); ++h) {
        model_->read_query(graph, heads[h], column, query_.data());
        float* row = &alignment_[h * count];
        for (size_t k = 0; k < count; ++k) {
            const float* key = &watched_keys_[h * part + k * dim];
            row[k] = scale * std::inner_product(key, key + dim, query_.data(), 0.0F);
        }
        const float largest = *std::max_element(row, row + count);
        float sum = 0.0F;
        for (size_t k = 0; k < count; ++k) sum += row[k] = std::exp(row[k] - largest);
        for (size_t k = 0; k < count; ++k) row[k] /= sum;
    }
}

void DecoderState::keep_probes(bool keep) {
    keep_probes_ = keep;
    step_[0].reset();
    step_[1].reset();
}

std::map<std::string, std::vector<float>> DecoderState::probes() const { return probes_; }

}  // namespace dualar
