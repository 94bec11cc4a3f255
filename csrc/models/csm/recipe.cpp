#include "models/csm/recipe.h"

#include <cmath>

#include "models/ar_checks.h"
#include "models/csm/names.h"
#include "models/names.h"
#include "runtime/error.h"

namespace dualar {

namespace {

namespace keys = csm_names;

constexpr int32_t kEndCode = 0;  // a frame of it alone ends speech

// What each pair's frequency f = base^(-2 i / head_dim) is divided by, as Llama 3 scales it (transformers,
// modeling_rope_utils.py, "llama3"): not at all where its wave is short beside the context of the first training, by
// the factor where it is long, and in between by 1 / ((1 - t) / factor + t). nullptr where the file has no scaling.
ggml_tensor* read_rope_factors(Weights& weights, const std::string& prefix, const nn::BlockConfig& block) {
    const GgufFile& file = weights.file();
    const auto key = [&](const char* name) { return prefix + name; };
    bool any = false;
    for (const char* name : {keys::kScalingFactor, keys::kScalingLow, keys::kScalingHigh, keys::kScalingOriginal})
        any = any || file.has(key(name));
    if (!any) return nullptr;
    const auto real = [&](const char* name) { return static_cast<float>(file.real(key(name), 1e-6, 1e9)); };
    const float factor = real(keys::kScalingFactor);
    const float low = real(keys::kScalingLow);
    const float high = real(keys::kScalingHigh);
    const float original = real(keys::kScalingOriginal);
    if (!(low < high))
        throw ModelError(message("[", key(keys::kScalingHigh), "] expected more than ", keys::kScalingLow, " ", low,
                                 ", got ", high));
    const int64_t pairs = block.head_dim / 2;
    return weights.prepared(prefix + "factors", pairs, 1, [=](float* out) {
        constexpr float kTurn = 6.283185307179586F;
        for (int64_t i = 0; i < pairs; ++i) {
            const float exponent = static_cast<float>(2 * i) / static_cast<float>(block.head_dim);
            const float wavelength = kTurn * std::pow(block.rope_base, exponent);
            const float t = (original / wavelength - low) / (high - low);
            out[i] = t <= 0.0F ? factor : t >= 1.0F ? 1.0F : 1.0F / ((1.0F - t) / factor + t);
        }
    });
}

nn::BlockConfig read_scaled_block(Weights& weights, const BlockKeys& block_keys, const char* scaling) {
    nn::BlockConfig block = read_block_config(weights.file(), block_keys);
    block.rope_neox = true;
    block.rope_factors = read_rope_factors(weights, scaling, block);
    return block;
}

DecoderConfig read_config(Weights& weights) {
    const GgufFile& file = weights.file();
    DecoderConfig c;
    c.context_length = file.integer(keys::kContextLength, 1, kMaxContext);
    c.dim = file.integer(keys::kEmbeddingLength, 1, kMaxDim);
    c.feed_forward = file.integer(keys::kFeedForwardLength, 1, kMaxDim);
    c.layers = static_cast<int>(file.integer(keys::kBlockCount, 1, kMaxLayers));
    c.num_codebooks = static_cast<int>(file.integer(keys::kNumCodebooks, 2, 1024));
    c.codebook_size = file.integer(keys::kCodebookSize, 2, kMaxCount);
    c.vocab_size = c.codebook_size;
    c.semantic_begin = 0;
    c.semantic_end = c.codebook_size - 1;
    c.end_id = -1;
    c.end_code = kEndCode;
    c.block = read_scaled_block(
        weights, {keys::kHeadCount, keys::kHeadCountKv, keys::kKeyLength, keys::kRopeFreqBase, keys::kRmsEpsilon},
        keys::kRopeScaling);
    return c;
}

BlockTensors block_tensors(int64_t dim, int64_t feed_forward) {
    BlockTensors tensors;
    tensors.dim = dim;
    tensors.feed_forward = feed_forward;
    return tensors;
}

CodeTables read_codes(Weights& weights, const char* name, const DecoderConfig& c) {
    CodeTables codes;
    const HostTable table = weights.table(name, c.num_codebooks * c.codebook_size, c.dim);
    for (int book = 0; book < c.num_codebooks; ++book) codes.add_book(table, book * c.codebook_size);
    return codes;
}

std::shared_ptr<const FastAr> read_depth(Weights& weights, const DecoderConfig& backbone, const CodeTables& codes) {
    const GgufFile& file = weights.file();
    auto fast = std::make_shared<FastAr>();
    FastConfig& c = fast->config;
    c.hidden_dim = backbone.dim;
    c.num_codebooks = backbone.num_codebooks;
    c.codebook_size = backbone.codebook_size;
    c.dim = file.integer(keys::kDepthEmbeddingLength, 1, kMaxDim);
    c.feed_forward = file.integer(keys::kDepthFeedForwardLength, 1, kMaxDim);
    c.layers = static_cast<int>(file.integer(keys::kDepthBlockCount, 1, kMaxLayers));
    c.block = read_scaled_block(weights,
                                {keys::kDepthHeadCount, keys::kDepthHeadCountKv, keys::kDepthKeyLength,
                                 keys::kDepthRopeFreqBase, keys::kDepthRmsEpsilon},
                                keys::kDepthRopeScaling);
    for (int i = 0; i < c.layers; ++i)
        fast->blocks.push_back(
            read_block(weights, names::indexed(keys::kDepthLayer, i), c.block, block_tensors(c.dim, c.feed_forward)));
    fast->project_in = read_linear(weights, keys::kDepthProjectIn, c.dim, c.hidden_dim);
    fast->projects_codes = true;
    // A checkpoint whose two stacks have tables of their own has both.
    fast->tables =
        weights.has(keys::kDepthCodeEmbeddings) ? read_codes(weights, keys::kDepthCodeEmbeddings, backbone) : codes;
    fast->norm = weights.vector(keys::kDepthNorm, c.dim);
    read_stacked_heads(weights, keys::kDepthOutput, *fast);
    return fast;
}

}  // namespace

CsmRecipe::CsmRecipe(Weights& weights, std::optional<int64_t> end_id) {
    if (end_id) throw std::invalid_argument(message("[im_end_id] expected none: no id ends speech, got ", *end_id));
    const DecoderConfig c = read_config(weights);
    text_vocab_ = weights.file().integer(keys::kTextVocabSize, 1, kMaxCount);
    text_embeddings_ = weights.table(keys::kTextEmbeddings, text_vocab_, c.dim);
    codes_ = read_codes(weights, keys::kCodeEmbeddings, c);
    decoder_ = std::make_shared<Decoder>(weights, c, block_tensors(c.dim, c.feed_forward), keys::kLayer, keys::kNorm,
                                         keys::kOutput);
    fast_ = read_depth(weights, c, codes_);
}

bool CsmRecipe::is_others(const std::string& tensor) const { return tensor.rfind(keys::kCodec, 0) == 0; }

void CsmRecipe::check_prompt(const Prompt& prompt) const {
    if (!prompt.trailing.empty() || !prompt.speaker.empty())
        throw std::invalid_argument("[prompt] expected columns alone, got text or a speaker beside them");
    const DecoderConfig& c = decoder().config;
    for (int64_t t = 0; t < prompt.count; ++t) {
        const int32_t id = prompt.columns[static_cast<size_t>(t)];
        if (id < -1 || id >= text_vocab_)
            throw std::invalid_argument(
                message("[prompt] expected text ids from -1 to ", text_vocab_ - 1, ", got ", id, " in column ", t));
        for (int64_t i = 1; i <= c.num_codebooks; ++i) {
            const int32_t code = prompt.columns[static_cast<size_t>(i * prompt.count + t)];
            const bool fits = id >= 0 ? code == -1 : code >= 0 && code < c.codebook_size;
            if (!fits)
                throw std::invalid_argument(message("[prompt] expected ",
                                                    id >= 0 ? message("no code (-1) beside a text id")
                                                            : message("codes from 0 to ", c.codebook_size - 1),
                                                    " in row ", i, ", got ", code, " in column ", t));
        }
    }
}

void CsmRecipe::check_column(const int32_t* column) const {
    const DecoderConfig& c = decoder().config;
    for (int i = 1; i <= c.num_codebooks; ++i) check_code(column[i], c.codebook_size);
    if (column[0] != column[1])
        throw std::invalid_argument(
            message("[step] expected the main id to be the frame's first code, got ", column[0], " and ", column[1]));
}

void CsmRecipe::embed_frame(const int32_t* codes, int64_t stride, float* out, std::vector<float>& scratch) const {
    codes_.read(0, codes[0], out);
    for (int64_t book = 1; book < decoder().config.num_codebooks; ++book)
        codes_.add(book, codes[book * stride], out, scratch);
}

void CsmRecipe::embed_prompt(const Prompt& prompt, const float*, int64_t first, int64_t count, float* out,
                             std::vector<float>& scratch) const {
    const int32_t* ids = prompt.columns.data();
    for (int64_t t = first; t < first + count; ++t, out += decoder().config.dim) {
        if (ids[t] >= 0)
            text_embeddings_.read(ids[t], out);
        else
            embed_frame(ids + prompt.count + t, prompt.count, out, scratch);
    }
}

void CsmRecipe::embed_column(const int32_t* column, const float*, float* out, std::vector<float>& scratch) const {
    embed_frame(column + 1, 1, out, scratch);
}

}  // namespace dualar
