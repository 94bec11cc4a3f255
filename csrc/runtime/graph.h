// A compute graph of one shape: built once, then fed and run again and again without allocating.
// Owns its context, its nodes and a scheduler of its own; knows no model. Inputs and outputs go by name.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/backend.h"

namespace dualar {

// What a recipe builds with.
class GraphBuilder {
  public:
    GraphBuilder(ggml_context* context, ggml_cgraph* graph, const Backend& backend, bool keep_probes)
        : context(context), graph(graph), on_cpu(backend.is_cpu()), keep_probes_(keep_probes) {}

    ggml_context* const context;
    ggml_cgraph* const graph;
    const bool on_cpu;  // custom operators may be used: they exist for the CPU only

    // Set before each run; contents do not outlive it.
    ggml_tensor* input(const std::string& name, ggml_type type, int64_t ne0, int64_t ne1 = 1);
    // Read after each run.
    void output(const std::string& name, ggml_tensor* tensor);
    // Keep what a custom operator points at for as long as the graph.
    template <class T>
    T* own(T value) {
        auto kept = std::make_shared<T>(std::move(value));
        owned_.push_back(kept);
        return kept.get();
    }
    // What `make` made of `source` before, or makes now: for a form of a tensor that several layers read.
    template <class Make>
    ggml_tensor* derived(const ggml_tensor* source, const Make& make) {
        ggml_tensor*& known = derived_[source];
        if (known == nullptr) known = make();
        return known;
    }
    // Multiplications and additions of a custom operator, which the graph cannot count itself.
    void count_work(double operations) { work_ += operations; }
    // A side effect (a cache write) that no output depends on.
    void effect(ggml_tensor* tensor);
    // Say what kind of work a node is, for profile().
    static ggml_tensor* label(const char* kind, ggml_tensor* tensor);
    // Name an intermediate; kept for reading where the graph was asked to keep them. Returns `tensor`.
    ggml_tensor* probe(const std::string& name, ggml_tensor* tensor);

  private:
    friend class Graph;
    bool keep_probes_;
    std::unordered_map<std::string, ggml_tensor*> inputs_;
    std::vector<std::pair<std::string, ggml_tensor*>> outputs_;
    std::vector<std::shared_ptr<void>> owned_;
    double work_ = 0;
    std::unordered_map<const ggml_tensor*, ggml_tensor*> derived_;
};

class Graph {
  public:
    // max_nodes bounds what `build` may create. BackendError when the device has no room for the intermediates.
    Graph(std::shared_ptr<Backend> backend, size_t max_nodes, const std::function<void(GraphBuilder&)>& build,
          bool keep_probes = false);

    // The whole input. `nbytes` must be its size.
    void set(const std::string& name, const void* data, size_t nbytes);
    // BackendError where the device fails, ProgramExit where the program ends before the last node.
    void compute();
    // The same, node by node: seconds by label, or by ggml's name of the operator where there is none.
    std::map<std::string, double> profile();
    // `count` values of the output from `first` on.
    void get(const std::string& name, float* out, size_t count, size_t first = 0) const;
    // The whole output or probe, float32.
    std::vector<float> get(const std::string& name) const;
    std::vector<std::string> output_names() const;

  private:
    int useful_threads() const;
    void run(bool timed);
    ggml_tensor* find_output(const std::string& name) const;

    std::shared_ptr<Backend> backend_;
    ggml_context_ptr context_;
    ggml_cgraph* graph_ = nullptr;
    ggml_backend_sched_ptr scheduler_;
    std::vector<std::shared_ptr<void>> owned_;
    double work_ = 0;
    std::shared_ptr<Backend::Work> known_work_;
    std::unordered_map<std::string, ggml_tensor*> inputs_;
    std::vector<std::pair<std::string, ggml_tensor*>> outputs_;
};

}  // namespace dualar
