#include "models/qwen3_tts/recipe.h"

#include <algorithm>
#include <cmath>

#include "models/ar_checks.h"
#include "models/names.h"
#include "models/qwen3_tts/names.h"
#include "runtime/error.h"

namespace dualar {

namespace {

namespace keys = qwen3_names;

constexpr int64_t kProjectAtOnce = 512;  // text ids, so that memory for intermediates stays bounded

nn::BlockConfig read_neox_block(const GgufFile& file, const BlockKeys& block_keys) {
    nn::BlockConfig block = read_block_config(file, block_keys);
    block.rope_neox = true;
    return block;
}

DecoderConfig read_config(const GgufFile& file) {
    DecoderConfig c;
    c.context_length = file.integer(keys::kContextLength, 1, kMaxContext);
    c.vocab_size = file.integer(keys::kVocabSize, 1, kMaxCount);
    c.dim = file.integer(keys::kEmbeddingLength, 1, kMaxDim);
    c.feed_forward = file.integer(keys::kFeedForwardLength, 1, kMaxDim);
    c.layers = static_cast<int>(file.integer(keys::kBlockCount, 1, kMaxLayers));
    c.num_codebooks = static_cast<int>(file.integer(keys::kNumCodebooks, 2, 1024));
    c.codebook_size = file.integer(keys::kCodebookSize, 1, c.vocab_size - 1);
    // The vocabulary: the main codes, then control ids, of which only the end of speech can be emitted.
    c.semantic_begin = 0;
    c.semantic_end = c.codebook_size - 1;
    c.end_id = file.integer(keys::kCodecEosId, c.codebook_size, c.vocab_size - 1);
    c.block = read_neox_block(
        file, {keys::kHeadCount, keys::kHeadCountKv, keys::kKeyLength, keys::kRopeFreqBase, keys::kRmsEpsilon});
    return c;
}

FastConfig read_predictor_config(const GgufFile& file, const DecoderConfig& talker) {
    FastConfig c;
    c.hidden_dim = talker.dim;
    c.num_codebooks = talker.num_codebooks;
    c.codebook_size = talker.codebook_size;
    c.dim = file.integer(keys::kPredictorEmbeddingLength, 1, kMaxDim);
    c.feed_forward = file.integer(keys::kPredictorFeedForwardLength, 1, kMaxDim);
    c.layers = static_cast<int>(file.integer(keys::kPredictorBlockCount, 1, kMaxLayers));
    c.block = read_neox_block(file, {keys::kPredictorHeadCount, keys::kPredictorHeadCountKv, keys::kPredictorKeyLength,
                                     keys::kPredictorRopeFreqBase, keys::kPredictorRmsEpsilon});
    return c;
}

BlockTensors block_tensors(int64_t dim, int64_t feed_forward) {
    BlockTensors tensors;
    tensors.dim = dim;
    tensors.feed_forward = feed_forward;
    tensors.qk_norm = true;
    return tensors;
}

}  // namespace

Qwen3Recipe::Qwen3Recipe(Weights& weights, std::optional<int64_t> end_id) {
    if (end_id) throw std::invalid_argument(message("[im_end_id] expected none, the file says it, got ", *end_id));
    read_talker(weights, read_config(weights.file()));
    fast_ = read_predictor(weights);
}

void Qwen3Recipe::read_talker(Weights& weights, const DecoderConfig& c) {
    const GgufFile& file = weights.file();
    text_vocab_ = file.integer(keys::kTextVocabSize, 1, kMaxCount);
    text_dim_ = file.integer(keys::kTextEmbeddingLength, 1, kMaxDim);
    tts_pad_ = file.integer(keys::kTtsPadId, 0, text_vocab_ - 1);
    text_embeddings_ = weights.table(keys::kTextEmbeddings, text_vocab_, text_dim_);
    text_in_ = read_biased(weights, keys::kTextProjectionIn, text_dim_, text_dim_);
    text_out_ = read_biased(weights, keys::kTextProjectionOut, c.dim, text_dim_);
    codes_.add_book(weights.table(keys::kEmbeddings, c.vocab_size, c.dim), 0);
    const HostTable further = weights.table(keys::kPredictorEmbeddings, (c.num_codebooks - 1) * c.codebook_size, c.dim);
    for (int book = 1; book < c.num_codebooks; ++book) codes_.add_book(further, (book - 1) * c.codebook_size);
    decoder_ = std::make_shared<Decoder>(weights, c, block_tensors(c.dim, c.feed_forward), keys::kLayer, keys::kNorm,
                                         keys::kOutput);
}

std::shared_ptr<const FastAr> Qwen3Recipe::read_predictor(Weights& weights) const {
    auto fast = std::make_shared<FastAr>();
    const FastConfig& c = fast->config = read_predictor_config(weights.file(), decoder().config);
    for (int i = 0; i < c.layers; ++i)
        fast->blocks.push_back(read_block(weights, names::indexed(keys::kPredictorLayer, i), c.block,
                                          block_tensors(c.dim, c.feed_forward)));
    if (c.dim != c.hidden_dim) fast->project_in = read_biased(weights, keys::kPredictorProjectIn, c.dim, c.hidden_dim);
    fast->projects_codes = true;
    fast->tables = codes_;
    fast->norm = weights.vector(keys::kPredictorNorm, c.dim);

    read_stacked_heads(weights, keys::kPredictorOutput, *fast);
    return fast;
}

bool Qwen3Recipe::is_others(const std::string& tensor) const {
    return tensor.rfind(keys::kCodec, 0) == 0 || tensor.rfind(keys::kSpeakerEncoder, 0) == 0;
}

void Qwen3Recipe::check_prompt(const Prompt& prompt) const {
    const DecoderConfig& c = decoder().config;
    const auto require = [](const char* what, int64_t value, int64_t low, int64_t size, const char* where, int64_t at) {
        if (value < low || value >= size)
            throw std::invalid_argument(message("[prompt] expected ", what, " from ", low, " to ", size - 1, ", got ",
                                                value, " in ", where, " ", at));
    };
    for (int64_t t = 0; t < prompt.count; ++t) {
        require("text ids", prompt.columns[static_cast<size_t>(t)], -1, text_vocab_, "column", t);
        require("ids", prompt.columns[static_cast<size_t>(prompt.count + t)], -1, c.vocab_size, "column", t);
        for (int64_t i = 1; i < c.num_codebooks; ++i)
            require("codes", prompt.columns[static_cast<size_t>((i + 1) * prompt.count + t)], -1, c.codebook_size,
                    "column", t);
    }
    for (size_t i = 0; i < prompt.trailing.size(); ++i)
        require("text ids", prompt.trailing[i], 0, text_vocab_, "trailing", static_cast<int64_t>(i));
    if (prompt.speaker.empty()) return;
    if (static_cast<int64_t>(prompt.speaker.size()) != c.dim)
        throw std::invalid_argument(
            message("[prompt] expected ", c.dim, " values of the speaker, got ", prompt.speaker.size()));
    for (const float value : prompt.speaker)
        if (!std::isfinite(value))
            throw std::invalid_argument(message("[prompt] expected finite values of the speaker, got ", value));
    require("the speaker's column", prompt.speaker_column, 0, prompt.count, "a prompt of columns", prompt.count);
}

void Qwen3Recipe::check_column(const int32_t* column) const {
    const DecoderConfig& c = decoder().config;
    for (int i = 1; i <= c.num_codebooks; ++i) check_code(column[i], c.codebook_size);
    if (column[0] != column[1])
        throw std::invalid_argument(
            message("[step] expected the main id to be the frame's first code, got ", column[0], " and ", column[1]));
}

void Qwen3Recipe::add_codes(const int32_t* codes, int64_t stride, float* out, std::vector<float>& scratch) const {
    for (int64_t book = 0; book < decoder().config.num_codebooks; ++book)
        if (codes[book * stride] >= 0) codes_.add(book, codes[book * stride], out, scratch);
}

std::vector<float> Qwen3Recipe::project(const std::vector<int32_t>& ids, const std::shared_ptr<Backend>& backend,
                                        int& graph_builds) const {
    const auto dim = static_cast<size_t>(decoder().config.dim);
    const auto text_dim = static_cast<size_t>(text_dim_);
    std::vector<float> out(ids.size() * dim);
    std::vector<float> embedded;
    std::unique_ptr<Graph> graph;
    size_t made_for = 0;
    for (size_t first = 0; first < ids.size();) {
        const size_t count = std::min<size_t>(kProjectAtOnce, ids.size() - first);
        embedded.resize(count * text_dim);
        for (size_t i = 0; i < count; ++i) text_embeddings_.read(ids[first + i], embedded.data() + i * text_dim);
        if (made_for != count) {
            graph = std::make_unique<Graph>(backend, 16, [&](GraphBuilder& g) {
                ggml_tensor* x = g.input("x", GGML_TYPE_F32, text_dim_, static_cast<int64_t>(count));
                g.output("y", nn::linear(g, text_out_, ggml_silu(g.context, nn::linear(g, text_in_, x))));
            });
            made_for = count;
            ++graph_builds;
        }
        graph->set("x", embedded.data(), embedded.size() * sizeof(float));
        graph->compute();
        graph->get("y", out.data() + first * dim, count * dim);
        first += count;
    }
    return out;
}

TextVectors Qwen3Recipe::text_vectors(const Prompt& prompt, const std::shared_ptr<Backend>& backend,
                                      int& graph_builds) const {
    // One projection for all text of the request.
    std::vector<int32_t> ids;
    std::copy_if(prompt.columns.begin(), prompt.columns.begin() + prompt.count, std::back_inserter(ids),
                 [](int32_t id) { return id >= 0; });
    const auto in_prompt = static_cast<int64_t>(ids.size()) * decoder().config.dim;
    ids.insert(ids.end(), prompt.trailing.begin(), prompt.trailing.end());
    ids.push_back(static_cast<int32_t>(tts_pad_));
    const std::vector<float> all = project(ids, backend, graph_builds);
    return {{all.begin(), all.begin() + in_prompt}, {all.begin() + in_prompt, all.end()}};
}

void Qwen3Recipe::embed_prompt(const Prompt& prompt, const float* text, int64_t first, int64_t count, float* out,
                               std::vector<float>& scratch) const {
    const int64_t dim = decoder().config.dim;
    const int32_t* text_ids = prompt.columns.data();
    text += std::count_if(text_ids, text_ids + first, [](int32_t id) { return id >= 0; }) * dim;
    for (int64_t t = first; t < first + count; ++t, out += dim) {
        if (text_ids[t] >= 0) {
            std::copy_n(text, dim, out);
            text += dim;
        } else {
            std::fill_n(out, dim, 0.0F);
        }
        add_codes(text_ids + prompt.count + t, prompt.count, out, scratch);
        if (!prompt.speaker.empty() && t == prompt.speaker_column)
            for (int64_t d = 0; d < dim; ++d) out[d] += prompt.speaker[static_cast<size_t>(d)];
    }
}

void Qwen3Recipe::embed_column(const int32_t* column, const float* text, float* out,
                               std::vector<float>& scratch) const {
    std::copy_n(text, decoder().config.dim, out);
    add_codes(column + 1, 1, out, scratch);
}

}  // namespace dualar
