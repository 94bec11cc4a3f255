#include "nn/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/error.h"

namespace dualar::nn {

namespace {

const ggml_fp16_t kSeen = ggml_fp32_to_fp16(0.0F);
const ggml_fp16_t kHidden = ggml_fp32_to_fp16(-INFINITY);

}  // namespace

KvCache::KvCache(const Backend& backend, int layers, int kv_heads, int head_dim, int64_t rows, ggml_type type)
    : kv_dim_(int64_t{kv_heads} * head_dim), rows_(rows), type_(type) {
    const ggml_init_params params{/*mem_size=*/2 * static_cast<size_t>(layers) * ggml_tensor_overhead(),
                                  /*mem_buffer=*/nullptr, /*no_alloc=*/true};
    context_.reset(ggml_init(params));
    if (!context_) throw BackendError("[memory] no room for the KV cache's description");
    for (int i = 0; i < layers; ++i)
        layers_.push_back({ggml_new_tensor_3d(context_.get(), type, head_dim, rows, kv_heads),
                           ggml_new_tensor_3d(context_.get(), type, head_dim, rows, kv_heads)});
    buffer_ = backend.allocate(context_.get(), message("a KV cache of ", nbytes(), " bytes").c_str());
}

size_t KvCache::nbytes(int layers, int64_t kv_dim, int64_t rows, ggml_type type) {
    return 2 * static_cast<size_t>(layers) * static_cast<size_t>(rows) * ggml_row_size(type, kv_dim);
}

// copy(tensor, offset in it, bytes) for each run of bytes that the first `count` rows are.
template <class Copy>
void KvCache::each_run(int64_t count, const Copy& copy) const {
    for (const Layer& layer : layers_)
        for (ggml_tensor* tensor : {layer.keys, layer.values})
            for (int64_t head = 0; head < tensor->ne[2]; ++head)
                copy(tensor, static_cast<size_t>(head) * tensor->nb[2], static_cast<size_t>(count) * tensor->nb[1]);
}

std::vector<char> KvCache::read(int64_t count) const {
    std::vector<char> rows(nbytes(static_cast<int>(layers_.size()), kv_dim_, count, type_));
    char* out = rows.data();
    each_run(count, [&](ggml_tensor* tensor, size_t offset, size_t size) {
        ggml_backend_tensor_get(tensor, out, offset, size);
        out += size;
    });
    return rows;
}

void KvCache::write(int64_t count, const std::vector<char>& rows) {
    const char* in = rows.data();
    each_run(count, [&](ggml_tensor* tensor, size_t offset, size_t size) {
        ggml_backend_tensor_set(tensor, in, offset, size);
        in += size;
    });
}

void KvCache::read_keys(int layer_index, int kv_head, int64_t first, int64_t count, float* out) const {
    const ggml_tensor* keys = layer(layer_index).keys;
    const auto values = static_cast<size_t>(count * keys->ne[0]);
    const size_t offset = static_cast<size_t>(kv_head) * keys->nb[2] + static_cast<size_t>(first) * keys->nb[1];
    if (type_ == GGML_TYPE_F32) {
        ggml_backend_tensor_get(keys, out, offset, values * sizeof(float));
        return;
    }
    std::vector<ggml_fp16_t> half(values);
    ggml_backend_tensor_get(keys, half.data(), offset, values * sizeof(ggml_fp16_t));
    ggml_fp16_to_fp32_row(half.data(), out, static_cast<int64_t>(values));
}

std::string query_output(int layer) { return message("query.", layer); }

AttentionInputs make_attention_inputs(GraphBuilder& g, const std::string& name, int64_t positions, int64_t keys,
                                      bool cached) {
    return {g.input(name + ".positions", GGML_TYPE_I32, positions),
            cached ? g.input(name + ".rows", GGML_TYPE_I64, positions) : nullptr,
            g.input(name + ".mask", GGML_TYPE_F16, keys, positions), keys};
}

void CacheColumns::assign(std::vector<Column> all) {
    columns = std::move(all);
    size_t longest = 0;
    for (const Column& column : columns) longest = std::max(longest, static_cast<size_t>(column.position) + 1);
    if (seen.size() < longest) seen.resize(longest, kSeen);
}

AttentionInputs make_column_inputs(GraphBuilder& g, const std::string& name, int64_t count,
                                   const CacheColumns& columns) {
    return {g.input(name + ".positions", GGML_TYPE_I32, count), nullptr, nullptr, 0, &columns};
}

void set_column_inputs(Graph& graph, const std::string& name, const CacheColumns& columns) {
    std::vector<int32_t> positions;
    for (const CacheColumns::Column& column : columns.columns)
        positions.push_back(static_cast<int32_t>(column.position));
    graph.set(name + ".positions", positions.data(), positions.size() * sizeof(int32_t));
}

void AttentionFeed::linear(int64_t first, int64_t count, int64_t keys) {
    positions.resize(static_cast<size_t>(count));
    rows.resize(static_cast<size_t>(count));
    mask.resize(static_cast<size_t>(count * keys));
    for (int64_t t = 0; t < count; ++t) {
        positions[static_cast<size_t>(t)] = static_cast<int32_t>(first + t);
        rows[static_cast<size_t>(t)] = first + t;
        ggml_fp16_t* row = mask.data() + t * keys;
        std::fill(row, row + first + t + 1, kSeen);
        std::fill(row + first + t + 1, row + keys, kHidden);
    }
}

void AttentionFeed::windowed(int64_t first, int64_t count, int64_t ring, int64_t window) {
    positions.resize(static_cast<size_t>(count));
    rows.resize(static_cast<size_t>(count));
    mask.assign(static_cast<size_t>(count * ring), kHidden);
    for (int64_t t = 0; t < count; ++t) {
        const int64_t position = first + t;
        positions[static_cast<size_t>(t)] = static_cast<int32_t>(position);
        rows[static_cast<size_t>(t)] = position % ring;
        for (int64_t seen = std::max<int64_t>(0, position - window + 1); seen <= position; ++seen)
            mask[static_cast<size_t>(t * ring + seen % ring)] = kSeen;
    }
}

void AttentionFeed::set(Graph& graph, const std::string& name, bool cached) const {
    graph.set(name + ".positions", positions.data(), positions.size() * sizeof(int32_t));
    if (cached) graph.set(name + ".rows", rows.data(), rows.size() * sizeof(int64_t));
    graph.set(name + ".mask", mask.data(), mask.size() * sizeof(ggml_fp16_t));
}

}  // namespace dualar::nn
