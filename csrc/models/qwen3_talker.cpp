#include "models/qwen3_talker.h"

#include <algorithm>
#include <cmath>

#include "models/block_weights.h"
#include "models/names.h"
#include "models/qwen3_names.h"
#include "runtime/error.h"

namespace dualar {

namespace {

namespace keys = qwen3_names;

constexpr int64_t kMaxDim = 1 << 20;
constexpr int64_t kMaxCount = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxContext = int64_t{1} << 24;  // float32 positions are exact up to here
constexpr int64_t kProjectAtOnce = 512;            // text ids, so that memory for intermediates stays bounded

SlowConfig read_config(const GgufFile& file) {
    SlowConfig c;
    c.context_length = file.integer(keys::kContextLength, 1, kMaxContext);
    c.vocab_size = file.integer(keys::kVocabSize, 1, kMaxCount);
    c.dim = file.integer(keys::kEmbeddingLength, 1, kMaxDim);
    c.feed_forward = file.integer(keys::kFeedForwardLength, 1, kMaxDim);
    c.layers = static_cast<int>(file.integer(keys::kBlockCount, 1, 1024));
    c.num_codebooks = static_cast<int>(file.integer(keys::kNumCodebooks, 2, 1024));
    c.codebook_size = file.integer(keys::kCodebookSize, 1, c.vocab_size - 1);
    // The vocabulary: the main codes, then control ids, of which only the end of speech can be emitted.
    c.semantic_begin = 0;
    c.semantic_end = c.codebook_size - 1;
    c.im_end = file.integer(keys::kCodecEosId, c.codebook_size, c.vocab_size - 1);
    c.block = read_qwen3_block(file, keys::kHeadCount, keys::kHeadCountKv, keys::kKeyLength, keys::kRopeFreqBase,
                               keys::kRmsEpsilon);
    return c;
}

}  // namespace

nn::BlockConfig read_qwen3_block(const GgufFile& file, const char* heads, const char* kv_heads, const char* head_dim,
                                 const char* rope_base, const char* eps) {
    nn::BlockConfig c;
    c.heads = static_cast<int>(file.integer(heads, 1, kMaxDim));
    c.kv_heads = static_cast<int>(file.integer(kv_heads, 1, c.heads));
    if (c.heads % c.kv_heads != 0)
        throw ModelError(text("[", kv_heads, "] expected a divisor of the ", c.heads, " heads, got ", c.kv_heads));
    c.head_dim = static_cast<int>(file.integer(head_dim, 2, kMaxDim));
    if (c.head_dim % 2 != 0) throw ModelError(text("[", head_dim, "] expected an even number, got ", c.head_dim));
    c.rope_base = static_cast<float>(file.real(rope_base, 1.0, 1e12));
    c.rope_neox = true;
    c.eps = static_cast<float>(file.real(eps, 0.0, 1.0));
    return c;
}

nn::Linear read_with_bias(Weights& weights, const char* name, int64_t rows, int64_t columns) {
    nn::Linear layer = read_linear(weights, text(name, ".weight"), rows, columns);
    layer.bias = weights.vector(text(name, ".bias"), rows);
    return layer;
}

Talker::Talker(Weights& weights) {
    const GgufFile& file = weights.file();
    const SlowConfig c = read_config(file);
    config.text_vocab = file.integer(keys::kTextVocabSize, 1, kMaxCount);
    config.text_dim = file.integer(keys::kTextEmbeddingLength, 1, kMaxDim);
    config.tts_pad = file.integer(keys::kTtsPadId, 0, config.text_vocab - 1);
    text_embeddings_ = weights.table(keys::kTextEmbeddings, config.text_vocab, config.text_dim);
    text_in_ = read_with_bias(weights, keys::kTextProjectionIn, config.text_dim, config.text_dim);
    text_out_ = read_with_bias(weights, keys::kTextProjectionOut, c.dim, config.text_dim);
    embeddings_ = weights.table(keys::kEmbeddings, c.vocab_size, c.dim);
    code_embeddings_ = weights.table(keys::kPredictorEmbeddings, (c.num_codebooks - 1) * c.codebook_size, c.dim);
    BlockTensors tensors;
    tensors.dim = c.dim;
    tensors.feed_forward = c.feed_forward;
    tensors.qk_norm = true;
    decoder = std::make_shared<SlowAr>(weights, c, tensors, keys::kLayer, keys::kNorm, keys::kOutput);
}

void Talker::check(const TalkerPrompt& prompt) const {
    const SlowConfig& c = decoder->config;
    const auto require = [](const char* what, int64_t value, int64_t low, int64_t size, const char* where, int64_t at) {
        if (value < low || value >= size)
            throw std::invalid_argument(text("[prompt] expected ", what, " from ", low, " to ", size - 1, ", got ",
                                             value, " in ", where, " ", at));
    };
    for (int64_t t = 0; t < prompt.count; ++t) {
        require("text ids", prompt.columns[static_cast<size_t>(t)], -1, config.text_vocab, "column", t);
        require("ids", prompt.columns[static_cast<size_t>(prompt.count + t)], -1, c.vocab_size, "column", t);
        for (int64_t i = 1; i < c.num_codebooks; ++i)
            require("codes", prompt.columns[static_cast<size_t>((i + 1) * prompt.count + t)], -1, c.codebook_size,
                    "column", t);
    }
    for (size_t i = 0; i < prompt.trailing.size(); ++i)
        require("text ids", prompt.trailing[i], 0, config.text_vocab, "trailing", static_cast<int64_t>(i));
    if (prompt.speaker.empty()) return;
    if (static_cast<int64_t>(prompt.speaker.size()) != c.dim)
        throw std::invalid_argument(
            text("[prompt] expected ", c.dim, " values of the speaker, got ", prompt.speaker.size()));
    for (const float value : prompt.speaker)
        if (!std::isfinite(value))
            throw std::invalid_argument(text("[prompt] expected finite values of the speaker, got ", value));
    require("the speaker's column", prompt.speaker_column, 0, prompt.count, "a prompt of columns", prompt.count);
}

void Talker::add_code(int64_t book, int32_t code, float* out, std::vector<float>& scratch) const {
    if (book == 0)
        embeddings_.add(code, out, scratch);
    else
        code_embeddings_.add((book - 1) * decoder->config.codebook_size + code, out, scratch);
}

void Talker::add_codes(const int32_t* codes, int64_t stride, float* out, std::vector<float>& scratch) const {
    for (int64_t book = 0; book < decoder->config.num_codebooks; ++book)
        if (codes[book * stride] >= 0) add_code(book, codes[book * stride], out, scratch);
}

TalkerState::TalkerState(std::shared_ptr<const Talker> model, std::shared_ptr<Backend> backend, int64_t max_positions,
                         ggml_type kv_type)
    : model_(std::move(model)), backend_(backend), decoder_(model_->decoder, backend, max_positions, kv_type) {}

std::vector<float> TalkerState::project(const std::vector<int32_t>& ids) {
    const auto dim = static_cast<size_t>(model_->decoder->config.dim);
    const auto text_dim = static_cast<size_t>(model_->config.text_dim);
    std::vector<float> out(ids.size() * dim);
    std::vector<float> embedded;
    std::unique_ptr<Graph> graph;
    size_t made_for = 0;
    for (size_t first = 0; first < ids.size();) {
        const size_t count = std::min<size_t>(kProjectAtOnce, ids.size() - first);
        embedded.resize(count * text_dim);
        for (size_t i = 0; i < count; ++i)
            model_->text_embeddings_.read(ids[first + i], embedded.data() + i * text_dim);
        if (made_for != count) {
            graph = std::make_unique<Graph>(backend_, 16, [&](GraphBuilder& g) {
                ggml_tensor* x =
                    g.input("x", GGML_TYPE_F32, static_cast<int64_t>(text_dim), static_cast<int64_t>(count));
                x = ggml_silu(g.context, nn::linear(g, model_->text_in_, x));
                g.output("y", nn::linear(g, model_->text_out_, x));
            });
            made_for = count;
            ++graph_builds_;
        }
        graph->set("x", embedded.data(), embedded.size() * sizeof(float));
        graph->compute();
        graph->get("y", out.data() + first * dim, count * dim);
        first += count;
    }
    return out;
}

SlowOutput TalkerState::prefill(const TalkerPrompt& prompt, bool all_positions, bool full_vocab) {
    backend_->check_process();
    const int64_t dim = model_->decoder->config.dim;
    // One projection for all text of the request; a text id's vector is added where it stands.
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < prompt.count; ++t)
        if (prompt.columns[static_cast<size_t>(t)] >= 0) ids.push_back(prompt.columns[static_cast<size_t>(t)]);
    const auto in_prompt = static_cast<int64_t>(ids.size());
    ids.insert(ids.end(), prompt.trailing.begin(), prompt.trailing.end());
    ids.push_back(static_cast<int32_t>(model_->config.tts_pad));
    const std::vector<float> projected = project(ids);

    const float* next = projected.data();
    const auto embed = [&](int64_t first, int64_t count, float* out) {
        for (int64_t t = first; t < first + count; ++t, out += dim) {
            if (prompt.columns[static_cast<size_t>(t)] >= 0) {
                std::copy_n(next, dim, out);
                next += dim;
            } else {
                std::fill_n(out, dim, 0.0F);
            }
            model_->add_codes(prompt.columns.data() + prompt.count + t, prompt.count, out, scratch_);
            if (!prompt.speaker.empty() && t == prompt.speaker_column)
                for (int64_t d = 0; d < dim; ++d) out[d] += prompt.speaker[static_cast<size_t>(d)];
        }
    };
    SlowOutput out = decoder_.feed(embed, prompt.count, all_positions, full_vocab);
    trailing_.assign(projected.begin() + in_prompt * dim, projected.end());
    prompt_end_ = decoder_.position();
    return out;
}

void TalkerState::embed(const int32_t* codes, float* out, std::vector<float>& scratch) const {
    const int64_t dim = model_->decoder->config.dim;
    const int64_t rows = static_cast<int64_t>(trailing_.size()) / dim;
    std::copy_n(trailing_.data() + std::min(frame(), rows - 1) * dim, dim, out);
    model_->add_codes(codes, 1, out, scratch);
}

SlowOutput TalkerState::step(const int32_t* codes, bool full_vocab) {
    return decoder_.feed([&](int64_t, int64_t, float* out) { embed(codes, out, scratch_); }, 1, false, full_vocab);
}

}  // namespace dualar
