#include "runtime/graph.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/program_exit.h"

namespace dualar {

namespace {

constexpr char kLabelMark = '#';

}  // namespace

ggml_tensor* GraphBuilder::input(const std::string& name, ggml_type type, int64_t ne0, int64_t ne1) {
    ggml_tensor* tensor = ggml_new_tensor_2d(context, type, ne0, ne1);
    ggml_set_name(tensor, name.c_str());
    ggml_set_input(tensor);
    inputs_.emplace(name, tensor);
    return tensor;
}

void GraphBuilder::output(const std::string& name, ggml_tensor* tensor) {
    ggml_set_output(tensor);
    ggml_build_forward_expand(graph, tensor);
    outputs_.emplace_back(name, tensor);
}

void GraphBuilder::effect(ggml_tensor* tensor) { ggml_build_forward_expand(graph, tensor); }

ggml_tensor* GraphBuilder::probe(const std::string& name, ggml_tensor* tensor) {
    if (keep_probes_) output(name, tensor);
    return tensor;
}

ggml_tensor* GraphBuilder::label(const char* kind, ggml_tensor* tensor) {
    ggml_format_name(tensor, "%c%s", kLabelMark, kind);
    return tensor;
}

Graph::Graph(std::shared_ptr<Backend> backend, size_t max_nodes, const std::function<void(GraphBuilder&)>& build,
             bool keep_probes)
    : backend_(std::move(backend)) {
    const ggml_init_params params{
        /*mem_size=*/2 * max_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(max_nodes, false),
        /*mem_buffer=*/nullptr, /*no_alloc=*/true};
    context_.reset(ggml_init(params));
    if (!context_) throw BackendError("[memory] no room for a graph's nodes");
    graph_ = ggml_new_graph_custom(context_.get(), max_nodes, false);

    GraphBuilder builder(context_.get(), graph_, *backend_, keep_probes);
    build(builder);
    inputs_ = std::move(builder.inputs_);
    outputs_ = std::move(builder.outputs_);
    owned_ = std::move(builder.owned_);
    work_ = builder.work_;

    std::vector<ggml_backend_t> backends = backend_->all();
    scheduler_.reset(ggml_backend_sched_new(backends.data(), nullptr, static_cast<int>(backends.size()), max_nodes,
                                            /*parallel=*/false, /*op_offload=*/false));
    const LogCapture log;
    if (!scheduler_ || !ggml_backend_sched_alloc_graph(scheduler_.get(), graph_))
        throw BackendError(message("[memory] no room on ", backend_->device(), " for intermediates: ", log.text()));
    known_work_ = backend_->work_of(graph_, useful_threads());
}

// Threads wait for one another after every node, so a small graph is faster on fewer.
int Graph::useful_threads() const {
    constexpr double kWorkPerThread = 2e6;  // multiplications and additions: some tens of microseconds
    double work = work_;
    for (int i = 0; i < ggml_graph_n_nodes(graph_); ++i) {
        const ggml_tensor* node = ggml_graph_node(graph_, i);
        if (node->op == GGML_OP_MUL_MAT) work += 2.0 * static_cast<double>(ggml_nelements(node) * node->src[0]->ne[0]);
    }
    return static_cast<int>(std::clamp(work / kWorkPerThread, 1.0, static_cast<double>(backend_->threads())));
}

void Graph::set(const std::string& name, const void* data, size_t nbytes) {
    const auto found = inputs_.find(name);
    if (found == inputs_.end()) throw std::logic_error(message("[graph] no input named ", name));
    if (ggml_nbytes(found->second) != nbytes)
        throw std::logic_error(
            message("[graph] input ", name, " has ", ggml_nbytes(found->second), " bytes, got ", nbytes));
    // An input that nothing reads has no memory.
    if (found->second->buffer != nullptr) ggml_backend_tensor_set(found->second, data, 0, nbytes);
}

void Graph::compute() { run(/*timed=*/true); }

void Graph::run(bool timed) {
    const LogCapture log;
    const ggml_status status = backend_->compute(scheduler_.get(), graph_, *known_work_, timed);
    if (status == GGML_STATUS_ABORTED) check_exit();
    if (status != GGML_STATUS_SUCCESS)
        throw BackendError(
            message("[compute] failed on ", backend_->device(), ": ", ggml_status_to_string(status), " ", log.text()));
}

std::map<std::string, double> Graph::profile() {
    struct Profile {
        std::map<std::string, double> seconds;
        int64_t last = 0;
    } profile;
    const auto on_node = [](ggml_tensor* node, bool ask, void* data) {
        auto& p = *static_cast<Profile*>(data);
        const int64_t now = ggml_time_us();
        if (!ask) {
            // ggml gives a view its source's name and a remark in brackets.
            const bool labelled = node->name[0] == kLabelMark && std::strchr(node->name, '(') == nullptr;
            const std::string kind = labelled ? node->name + 1 : ggml_op_desc(node);
            p.seconds[kind] += static_cast<double>(now - p.last) * 1e-6;
        }
        p.last = ggml_time_us();
        return true;
    };
    ggml_time_init();
    // The callback points into this call: it is taken away again however the computation ends.
    const std::unique_ptr<ggml_backend_sched, void (*)(ggml_backend_sched_t)> callback(
        scheduler_.get(), [](ggml_backend_sched_t s) { ggml_backend_sched_set_eval_callback(s, nullptr, nullptr); });
    ggml_backend_sched_set_eval_callback(callback.get(), on_node, &profile);
    run(/*timed=*/false);  // node by node: slower than a run is
    return profile.seconds;
}

ggml_tensor* Graph::find_output(const std::string& name) const {
    for (const auto& [known, tensor] : outputs_)
        if (known == name) return tensor;
    throw std::logic_error(message("[graph] no output named ", name));
}

void Graph::get(const std::string& name, float* out, size_t count, size_t first) const {
    ggml_backend_tensor_get(find_output(name), out, first * sizeof(float), count * sizeof(float));
}

std::vector<float> Graph::get(const std::string& name) const {
    const ggml_tensor* tensor = find_output(name);
    std::vector<float> values(static_cast<size_t>(ggml_nelements(tensor)));
    ggml_backend_tensor_get(tensor, values.data(), 0, values.size() * sizeof(float));
    return values;
}

std::vector<std::string> Graph::output_names() const {
    std::vector<std::string> names;
    for (const auto& entry : outputs_) names.push_back(entry.first);
    return names;
}

}  // namespace dualar
