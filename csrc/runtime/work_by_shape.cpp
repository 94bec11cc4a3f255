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

}  // namespace

std::shared_ptr<ThreadGovernor::Work> WorkByShape::of(const ggml_cgraph* graph, int most) {
    uint64_t hash = 14695981039346656037ULL;
    add_to_hash(hash, static_cast<uint64_t>(most));
    auto* nodes = const_cast<ggml_cgraph*>(graph);
    for (int i = 0; i < ggml_graph_n_nodes(nodes); ++i) {
        const ggml_tensor* node = ggml_graph_node(nodes, i);
        add_to_hash(hash, static_cast<uint64_t>(node->op));
        add_to_hash(hash, node);
        for (const ggml_tensor* source : node->src)
            if (source != nullptr) add_to_hash(hash, source);
    }
    if (known_.size() >= kShapes) known_.clear();  // those in use go on by themselves
    std::shared_ptr<ThreadGovernor::Work>& work = known_[hash];
    if (work == nullptr) work = std::make_shared<ThreadGovernor::Work>(most);
    return work;
}

}  // namespace dualar
