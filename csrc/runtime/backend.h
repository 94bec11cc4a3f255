// Devices and the backend that computes on one of them: creation, threads, buffers, one computation at a time.
// Knows no graph and no model.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ggml-cpp.h"
#include "runtime/thread_pools.h"
#include "runtime/work_by_shape.h"

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

// min(usable_cpus(), fast_cores()).
int default_threads();

class Backend {
  public:
    // device: a DeviceInfo::name; threads: 1..512, of which usable_cpus() are started, or 0 for default_threads().
    // exactly, for tests alone: all of them are started, and every graph runs on all of them. Throws
    // std::invalid_argument for an unknown name or count, BackendError for a device that this build lacks or that does
    // not start.
    Backend(const std::string& device, int threads, bool exactly = false);
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

    using Work = ThreadGovernor::Work;
    // What is known of a graph whose work is worth `most` threads on a quiet machine. Graphs of one shape share it.
    std::shared_ptr<Work> work_of(const ggml_cgraph* graph, int most);
    // Run once, on as many threads as is best just now. Two sessions on one backend take turns. What is `timed` tells
    // how many threads are best from now on. ProgramExit where the program ends before it was this one's turn,
    // GGML_STATUS_ABORTED where it ends within the graph.
    ggml_status compute(ggml_backend_sched_t scheduler, ggml_cgraph* graph, Work& work, bool timed = true);

    // Threads do not survive a fork, and a graph that waits for them never ends: BackendError in a forked child.
    void check_process() const;

  private:
    std::string device_;
    int threads_;
    long process_;
    bool exactly_;
    ggml_backend_ptr cpu_;
    std::unique_ptr<ThreadPools> pools_;
    ggml_backend_ptr gpu_;
    std::vector<ggml_backend_t> all_;
    std::mutex compute_mutex_;
    WorkByShape known_;
    ThreadGovernor governor_;
    double busy_until_ = 0;  // a moment of the steady clock: a run was held up a short while before
};

}  // namespace dualar
