#include "runtime/work_by_shape.h"

namespace dualar {

namespace {

constexpr size_t kShapes = 1024;  // kept at most

// FNV-1a.
void add_to_hash(uint64_t& hash, uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
        hash ^= (value >> (8 * byte)) & 0xFF;
        hash *= 1099511628211ULL;
    }
}

void add_to_hash(uint64_t& hash, const ggml_tensor* tensor) {
    add_to_hash(hash, static_cast<uint64_t>(tensor->type));
    for (const int64_t extent : tensor->ne) add_to_hash(hash, static_cast<uint64_t>(extent));
}

// Nearly all operators of ggml, and all of ours, give each value to one thread, which computes it in one way. On ARM,
// ggml multiplies some quantized weights two rows at a time where a thread's share is even, which may round otherwise.
// Attention of a single position, whose keys ggml would split among threads, is ours on the CPU (nn/transformer.cpp).
bool bits_depend_on_threads(const ggml_tensor* node) {
#if defined(__aarch64__)
    return node->op == GGML_OP_MUL_MAT && ggml_is_quantized(node->src[0]->type);
#else
    (void)node;
    return false;
#endif
}

}  // namespace

std::shared_ptr<ThreadGovernor::Work> WorkByShape::of(const ggml_cgraph* graph, int most) {
    uint64_t hash = 14695981039346656037ULL;
    add_to_hash(hash, static_cast<uint64_t>(most));
    bool fixed = false;
    auto* nodes = const_cast<ggml_cgraph*>(graph);
    for (int i = 0; i < ggml_graph_n_nodes(nodes); ++i) {
        const ggml_tensor* node = ggml_graph_node(nodes, i);
        fixed = fixed || bits_depend_on_threads(node);
        add_to_hash(hash, static_cast<uint64_t>(node->op));
        add_to_hash(hash, node);
        for (const ggml_tensor* source : node->src)
            if (source != nullptr) add_to_hash(hash, source);
    }
    if (known_.size() >= kShapes) known_.clear();  // those in use go on by themselves
    std::shared_ptr<ThreadGovernor::Work>& work = known_[hash];
    if (work == nullptr) work = std::make_shared<ThreadGovernor::Work>(most, fixed);
    return work;
}

}  // namespace dualar
