// Devices and the backend that computes on one of them: creation, threads, buffers, one computation at a time.
// Knows no graph and no model.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ggml-cpp.h"

namespace dualar {

struct DeviceInfo {
    std::string name;         // what `device=` takes: cpu, cuda, cuda1, metal, vulkan
    std::string kind;         // cpu, gpu, igpu, accel
    std::string description;  // the hardware's name
    size_t memory_total;      // bytes, 0 where the backend does not say
    size_t memory_free;
};

// What this build can use, the CPU first.
std::vector<DeviceInfo> devices();

// min(CPU affinity, cgroup quota), at least 1: more threads than that wait for one another's turn on a CPU.
int usable_cpus();

// min(usable_cpus(), physical cores).
int default_threads();

// Load the CPU variants and other backends that a portable build carries as shared modules beside it. Other builds
// have theirs linked in: nothing happens. Called once, before anything else here.
void load_backend_modules(const std::string& folder);

struct ThreadpoolDeleter {
    void (*free)(struct ggml_threadpool*) = nullptr;
    void operator()(struct ggml_threadpool* pool) const;
};

class Backend {
  public:
    // device: a DeviceInfo::name; threads: 1..512, of which usable_cpus() are started, or 0 for default_threads().
    // Throws std::invalid_argument for an unknown name or count, BackendError for a device that this build lacks or
    // that does not start.
    Backend(const std::string& device, int threads);
    ~Backend();
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;

    const std::string& device() const { return device_; }
    int threads() const { return threads_; }
    bool is_cpu() const { return gpu_ == nullptr; }

    // Where weights and state live.
    ggml_backend_t main() const { return gpu_ ? gpu_.get() : cpu_.get(); }
    // In a scheduler's order of preference; the CPU last.
    const std::vector<ggml_backend_t>& all() const { return all_; }

    // Memory for every tensor of `context` on main(), cleared to zero. BackendError with the size when there is none.
    ggml_backend_buffer_ptr allocate(ggml_context* context, const char* what) const;

    // Run on `threads` of the pool's, at most threads(). Two sessions on one pool take turns.
    ggml_status compute(ggml_backend_sched_t scheduler, ggml_cgraph* graph, int threads);

    // Threads do not survive a fork, and a graph that waits for them never ends: BackendError in a forked child.
    void check_process() const;

  private:
    std::string device_;
    int threads_;
    long process_;
    std::unique_ptr<struct ggml_threadpool, ThreadpoolDeleter> pool_;
    ggml_backend_ptr cpu_;
    ggml_backend_set_n_threads_t set_threads_ = nullptr;
    ggml_backend_ptr gpu_;
    std::vector<ggml_backend_t> all_;
    std::mutex compute_mutex_;
};

}  // namespace dualar
