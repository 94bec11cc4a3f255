// Keys and values of past positions, one pair of tensors a layer, written in place by row. A cache that is as long as
// the request holds position p in row p; a ring holds it in row p % rows. Which rows a query may see is the mask's
// affair. Knows no model.
#pragma once

#include <string>
#include <vector>

#include "runtime/graph.h"

namespace dualar::nn {

class KvCache {
  public:
    struct Layer {
        ggml_tensor* keys;    // ggml [head_dim, rows, kv_heads]: a head's rows lie side by side
        ggml_tensor* values;  // the same
    };

    // type: F32 or F16. BackendError when there is no room.
    KvCache(const Backend& backend, int layers, int kv_heads, int head_dim, int64_t rows, ggml_type type);

    const Layer& layer(int index) const { return layers_[static_cast<size_t>(index)]; }
    int64_t rows() const { return rows_; }
    size_t nbytes() const { return nbytes(static_cast<int>(layers_.size()), kv_dim_, rows_, type_); }
    static size_t nbytes(int layers, int64_t kv_dim, int64_t rows, ggml_type type);

    // The first `count` rows of every layer, copied to the host and back: keys, then values, head by head. They fit a
    // cache of the same layers, heads and type, of any number of rows.
    std::vector<char> read(int64_t count) const;
    void write(int64_t count, const std::vector<char>& rows);
    // Keys [count, head_dim] of one layer and kv head, rows first .. first + count - 1, as float32 on the host.
    void read_keys(int layer, int kv_head, int64_t first, int64_t count, float* out) const;

  private:
    template <class Copy>
    void each_run(int64_t count, const Copy& copy) const;

    int64_t kv_dim_;
    int64_t rows_;
    ggml_type type_;
    ggml_context_ptr context_;
    ggml_backend_buffer_ptr buffer_;
    std::vector<Layer> layers_;
};

// Columns of one graph that belong to different requests: each has a cache of its own, is written to row `position`
// there and sees rows 0 to `position`. A graph of the CPU reads this anew each time it runs, so the caches and their
// lengths may change between two runs.
struct CacheColumns {
    struct Column {
        const KvCache* cache;
        int64_t position;
    };
    std::vector<Column> columns;
    std::vector<ggml_fp16_t> seen;  // a mask that hides nothing, as long as the longest

    void assign(std::vector<Column> all);
};

// The inputs that say where new positions go and what they see; the same for every layer of a graph.
struct AttentionInputs {
    ggml_tensor* positions;                          // int32 [T], for rope
    ggml_tensor* rows;                               // int64 [T], where the cache keeps them; nullptr without a cache
    ggml_tensor* mask;                               // float16 [keys, T]: 0 or -inf
    int64_t keys;                                    // cache rows that attention reads, from row 0 on
    const CacheColumns* columns = nullptr;           // in place of rows, mask and keys
    const std::vector<int>* query_layers = nullptr;  // layers whose rotated queries are outputs: query_output()
};

// The output [head_dim, heads, T] with the queries of a layer, after norm and rotation.
std::string query_output(int layer);

// `name` tells them from those of another transformer in the same graph.
AttentionInputs make_attention_inputs(GraphBuilder& g, const std::string& name, int64_t positions, int64_t keys,
                                      bool cached);

// The same for `columns`, `count` of them at each run (CPU only).
AttentionInputs make_column_inputs(GraphBuilder& g, const std::string& name, int64_t count,
                                   const CacheColumns& columns);
void set_column_inputs(Graph& graph, const std::string& name, const CacheColumns& columns);

// Host side of those inputs.
struct AttentionFeed {
    std::vector<int32_t> positions;
    std::vector<int64_t> rows;
    std::vector<ggml_fp16_t> mask;

    // Positions first .. first + count - 1 of a cache of `keys` rows that holds position p in row p (a prefix).
    void linear(int64_t first, int64_t count, int64_t keys);
    // The same for a ring of `ring` rows; each query sees the last `window` positions, itself included.
    void windowed(int64_t first, int64_t count, int64_t ring, int64_t window);
    void set(Graph& graph, const std::string& name, bool cached) const;
};

}  // namespace dualar::nn
