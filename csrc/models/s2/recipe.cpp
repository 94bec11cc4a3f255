#include "models/s2/recipe.h"

#include <cmath>

#include "models/s2/names.h"
#include "runtime/error.h"

namespace dualar {

namespace {

constexpr size_t kMostNumbers = 32;  // of the key that names alignment heads: two for each

// Pairs of a layer and a head of it.
std::vector<DecoderConfig::Head> read_alignment_heads(const GgufFile& file, const DecoderConfig& c) {
    std::vector<DecoderConfig::Head> heads;
    if (!file.has(names::kAlignmentHeads)) return heads;
    const std::vector<int64_t> numbers = file.integers(names::kAlignmentHeads, 0, kMaxCount);
    if (numbers.empty() || numbers.size() % 2 != 0 || numbers.size() > kMostNumbers)
        throw ModelError(message("[", names::kAlignmentHeads, "] expected 1 to ", kMostNumbers / 2,
                                 " pairs of a layer and a head, got ", numbers.size(), " numbers"));
    for (size_t i = 0; i < numbers.size(); i += 2) {
        if (numbers[i] >= c.layers || numbers[i + 1] >= c.block.heads)
            throw ModelError(message("[", names::kAlignmentHeads, "] expected a layer below ", c.layers,
                                     " and a head below ", c.block.heads, ", got ", numbers[i], " and ",
                                     numbers[i + 1]));
        heads.push_back({static_cast<int>(numbers[i]), static_cast<int>(numbers[i + 1])});
    }
    return heads;
}

DecoderConfig read_config(const GgufFile& file, std::optional<int64_t> end_id) {
    DecoderConfig c;
    c.context_length = file.integer(names::kContextLength, 1, kMaxContext);
    c.vocab_size = file.integer(names::kVocabSize, 1, kMaxCount);
    c.dim = file.integer(names::kEmbeddingLength, 1, kMaxDim);
    c.feed_forward = file.integer(names::kFeedForwardLength, 1, kMaxDim);
    c.layers = static_cast<int>(file.integer(names::kBlockCount, 1, kMaxLayers));
    c.num_codebooks = static_cast<int>(file.integer(names::kNumCodebooks, 1, 1024));
    c.codebook_size = file.integer(names::kCodebookSize, 1, kMaxCount);
    c.semantic_begin = file.integer(names::kSemanticBeginId, 0, c.vocab_size - 1);
    c.semantic_end = file.integer(names::kSemanticEndId, c.semantic_begin, c.vocab_size - 1);
    if (!end_id) throw std::invalid_argument("[im_end_id] expected the id that ends speech, got none");
    c.end_id = *end_id;
    if (c.end_id < 0 || c.end_id >= c.vocab_size || c.is_semantic(c.end_id))
        throw std::invalid_argument(message("[im_end_id] expected an id of the vocabulary (0 to ", c.vocab_size - 1,
                                            ") outside the semantic ids ", c.semantic_begin, " to ", c.semantic_end,
                                            ", got ", c.end_id));
    c.hidden_normed = file.boolean(names::kNormFastlayerInput, true);
    c.block = read_block_config(
        file, {names::kHeadCount, names::kHeadCountKv, nullptr, names::kRopeFreqBase, names::kRmsEpsilon});
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
        throw ModelError(message("[", names::kKeyLength, "] expected an even head_dim of at least 2, got ", head_dim,
                                 " (from the key, else q_norm's length, else wo's columns / head_count)"));
    c.block.head_dim = static_cast<int>(head_dim);
    c.alignment_heads = read_alignment_heads(file, c);
    return c;
}

FastConfig read_fast_config(const GgufFile& file, const DecoderConfig& slow) {
    FastConfig c;
    c.hidden_dim = slow.dim;
    c.num_codebooks = slow.num_codebooks;
    c.codebook_size = slow.codebook_size;
    c.dim = file.integer(names::kFastEmbeddingLength, 1, kMaxDim);
    c.feed_forward = file.integer(names::kFastFeedForwardLength, 1, kMaxDim);
    c.layers = static_cast<int>(file.integer(names::kFastBlockCount, 1, kMaxLayers));
    file.integer(names::kFastContextLength, c.num_codebooks, int64_t{1} << 31);  // must hold one frame
    c.block = read_block_config(file, {names::kFastHeadCount, names::kFastHeadCountKv, names::kFastHeadDim,
                                       names::kFastRopeFreqBase, names::kFastRmsEpsilon});
    return c;
}

std::shared_ptr<const FastAr> read_fast(Weights& weights, const DecoderConfig& slow) {
    const GgufFile& file = weights.file();
    auto fast = std::make_shared<FastAr>();
    const FastConfig& c = fast->config = read_fast_config(file, slow);
    BlockTensors tensors;
    tensors.dim = c.dim;
    tensors.feed_forward = c.feed_forward;
    tensors.qk_norm = file.boolean(names::kFastQkNorm, false);
    tensors.qkv_bias = file.boolean(names::kFastQkvBias, false);
    tensors.o_bias = file.boolean(names::kFastOBias, false);
    for (int i = 0; i < c.layers; ++i)
        fast->blocks.push_back(read_block(weights, names::indexed(names::kFastLayer, i), c.block, tensors));
    const bool projects = file.boolean(names::kFastProjectIn, c.dim != slow.dim);
    if (!projects && c.dim != slow.dim)
        throw ModelError(message("[", names::kFastProjectIn, "] expected true where the Fast-AR's width ", c.dim,
                                 " is not the Slow-AR's ", slow.dim, ", got false"));
    if (projects) {
        fast->project_in = read_linear(weights, names::kFastProjectInWeight, c.dim, slow.dim);
        fast->project_in->bias = weights.vector(names::kFastProjectInBias, c.dim);
    }
    fast->norm = weights.vector(names::kFastNorm, c.dim);
    fast->heads.push_back(read_linear(weights, names::kFastOutput, c.codebook_size, c.dim));
    const HostTable table = weights.table(names::kFastEmbeddings, c.codebook_size, c.dim);
    for (int book = 0; book + 1 < c.num_codebooks; ++book) fast->tables.add_book(table, 0);
    return fast;
}

}  // namespace

S2Recipe::S2Recipe(Weights& weights, std::optional<int64_t> end_id) {
    const GgufFile& file = weights.file();
    const DecoderConfig c = read_config(file, end_id);
    scale_ = file.boolean(names::kScaleCodebookEmbeddings, false);
    BlockTensors tensors;
    tensors.dim = c.dim;
    tensors.feed_forward = c.feed_forward;
    tensors.qk_norm = file.boolean(names::kQkNorm, false);
    tensors.qkv_bias = file.boolean(names::kQkvBias, false);
    tensors.o_bias = file.boolean(names::kOBias, false);
    const bool tied = file.boolean(names::kTieWordEmbeddings, true);
    decoder_ = std::make_shared<Decoder>(weights, c, tensors, names::kLayer, names::kNorm,
                                         tied ? names::kEmbeddings : names::kOutput);
    embeddings_ = weights.table(names::kEmbeddings, c.vocab_size, c.dim);
    const HostTable codes = weights.table(names::kCodebookEmbeddings, c.num_codebooks * c.codebook_size, c.dim);
    for (int book = 0; book < c.num_codebooks; ++book) code_embeddings_.add_book(codes, book * c.codebook_size);
    if (file.has(names::kFastBlockCount)) fast_ = read_fast(weights, c);
}

bool S2Recipe::is_others(const std::string& tensor) const { return tensor.rfind("c.", 0) == 0; /* the codec's */ }

void S2Recipe::check_prompt(const Prompt& prompt) const {
    if (!prompt.trailing.empty() || !prompt.speaker.empty())
        throw std::invalid_argument("[prompt] expected columns alone, got text or a speaker beside them");
    check_columns(prompt.columns.data(), prompt.count);
}

void S2Recipe::check_columns(const int32_t* columns, int64_t count) const {
    const DecoderConfig& c = decoder().config;
    const auto check = [](const char* what, int32_t value, int64_t size, int64_t row, int64_t column) {
        if (value < 0 || value >= size)
            throw std::invalid_argument(message("[prompt] expected ", what, " from 0 to ", size - 1, " in row ", row,
                                                ", got ", value, " in column ", column));
    };
    for (int64_t t = 0; t < count; ++t) {
        check("ids", columns[t], c.vocab_size, 0, t);
        for (int64_t i = 1; i <= c.num_codebooks; ++i) check("codes", columns[i * count + t], c.codebook_size, i, t);
    }
}

void S2Recipe::embed(const int32_t* column, int64_t stride, float* out, std::vector<float>& scratch) const {
    const DecoderConfig& c = decoder().config;
    embeddings_.read(column[0], out);
    if (!c.is_semantic(column[0])) return;
    for (int64_t i = 0; i < c.num_codebooks; ++i) code_embeddings_.add(i, column[(i + 1) * stride], out, scratch);
    if (!scale_) return;
    const float shrink = 1.0F / std::sqrt(static_cast<float>(c.num_codebooks + 1));
    for (int64_t d = 0; d < c.dim; ++d) out[d] *= shrink;
}

void S2Recipe::embed_prompt(const Prompt& prompt, const float*, int64_t first, int64_t count, float* out,
                            std::vector<float>& scratch) const {
    for (int64_t t = first; t < first + count; ++t, out += decoder().config.dim)
        embed(prompt.columns.data() + t, prompt.count, out, scratch);
}

void S2Recipe::embed_column(const int32_t* column, const float*, float* out, std::vector<float>& scratch) const {
    embed(column, 1, out, scratch);
}

}  // namespace dualar
