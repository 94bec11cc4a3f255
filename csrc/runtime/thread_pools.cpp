#include "runtime/thread_pools.h"

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>

#include "runtime/error.h"
#include "runtime/on_threads.h"

namespace dualar {

namespace {

// Rounds of polling (x 131072 pause instructions, a few milliseconds) before a waiting worker sleeps: longer than the
// gap between the graphs of one frame, short enough to leave the core to others between requests.
constexpr uint32_t kPollLevel = 1;

using ThreadpoolNew = struct ggml_threadpool* (*)(struct ggml_threadpool_params*);
using ThreadpoolFree = void (*)(struct ggml_threadpool*);
using SetThreadpool = void (*)(ggml_backend_t, struct ggml_threadpool*);

// A function of the CPU backend, which a portable build reaches only through its registry.
template <class Function>
Function cpu_function(const char* name) {
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (device == nullptr) throw BackendError("[backend] expected a CPU backend, this build has none");
    void* address = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), name);
    if (address == nullptr) throw BackendError(message("[backend] expected the CPU backend to have ", name));
    return reinterpret_cast<Function>(address);
}

#if defined(__linux__)

std::vector<int> allowed_cpus() {
    std::vector<int> cpus;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    return cpus;
}

// A thread that ended, or a system that forbids it, leaves things as they are: placing is a matter of speed alone.
void bind(int thread, const std::vector<int>& cpus, size_t first, size_t last) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (size_t i = first; i < last; ++i) CPU_SET(cpus[i], &set);
    sched_setaffinity(thread, sizeof(set), &set);
}

void write_thread_id(ggml_tensor* out, int ith, int, void*) {
    static_cast<int32_t*>(out->data)[ith] = static_cast<int32_t>(syscall(SYS_gettid));
}

#endif

}  // namespace

void ThreadpoolDeleter::operator()(struct ggml_threadpool* pool) const { free(pool); }

ThreadPools::ThreadPools(ggml_backend_t cpu, int most)
    : cpu_(cpu),
      most_(most),
      set_pool_(cpu_function<SetThreadpool>("ggml_backend_cpu_set_threadpool")),
      set_threads_(cpu_function<ggml_backend_set_n_threads_t>("ggml_backend_set_n_threads")) {
#if defined(__linux__)
    cpus_ = allowed_cpus();
#endif
    use(most, /*alone=*/false);
}

ThreadPools::~ThreadPools() = default;

void ThreadPools::abandon() {
    for (auto& [threads, pool] : pools_) (void)pool.handle.release();
}

ThreadPools::Pool& ThreadPools::pool_of(int threads) {
    const auto found = pools_.find(threads);
    if (found != pools_.end()) return found->second;
    // ggml ends the process where it cannot start a thread.
    if (!can_start_threads(threads - 1)) throw BackendError(message("[backend] could not start ", threads, " threads"));
    struct ggml_threadpool_params params = ggml_threadpool_params_default(threads);
    params.poll = kPollLevel;
    Pool pool;
    pool.handle = {cpu_function<ThreadpoolNew>("ggml_threadpool_new")(&params),
                   ThreadpoolDeleter{cpu_function<ThreadpoolFree>("ggml_threadpool_free")}};
    if (!pool.handle) throw BackendError(message("[backend] could not start ", threads, " threads"));
    return pools_.emplace(threads, std::move(pool)).first->second;
}

void ThreadPools::use(int threads, bool alone) {
    const int size = alone ? threads : current_ >= threads ? current_ : most_;
    if (size != current_) {
        Pool& pool = pool_of(size);
        set_pool_(cpu_, pool.handle.get());
        current_ = size;
        if (pool.ids.empty()) pool.ids = thread_ids(size);
    }
    set_threads_(cpu_, threads);
}

// What each thread of the pool in use says in a graph of one node.
std::vector<int> ThreadPools::thread_ids(int threads) const {
    std::vector<int> ids(static_cast<size_t>(threads), 0);
#if defined(__linux__)
    const ggml_init_params params{/*mem_size=*/4 * ggml_tensor_overhead() + ggml_graph_overhead_custom(2, false) +
                                      static_cast<size_t>(threads) * sizeof(int32_t) + 1024,
                                  /*mem_buffer=*/nullptr, /*no_alloc=*/false};
    const ggml_context_ptr context(ggml_init(params));
    if (!context) throw BackendError("[memory] no room for a graph's nodes");
    ggml_cgraph* graph = ggml_new_graph_custom(context.get(), 2, false);
    ggml_tensor* said = ggml_custom_4d(context.get(), GGML_TYPE_I32, threads, 1, 1, 1, nullptr, 0, write_thread_id,
                                       GGML_N_TASKS_MAX, nullptr);
    ggml_build_forward_expand(graph, said);
    set_threads_(cpu_, threads);
    if (ggml_backend_graph_compute(cpu_, graph) != GGML_STATUS_SUCCESS)
        throw BackendError(message("[backend] could not run on ", threads, " threads"));
    std::copy_n(static_cast<const int32_t*>(said->data), ids.size(), ids.begin());
#endif
    return ids;
}

void ThreadPools::beside_others(bool busy) {
    static thread_local ShortTurns callers_turns;
    if (busy && current_ > 1)
        callers_turns.ask(0);
    else
        callers_turns.take_back(0);
    for (auto& [threads, pool] : pools_) {
        const bool in_use = busy && threads == current_;
        pool.turns.resize(pool.ids.size());
        for (size_t i = 1; i < pool.ids.size(); ++i) {
            if (in_use)
                pool.turns[i].ask(pool.ids[i]);
            else if (!busy)
                pool.turns[i].take_back(pool.ids[i]);
        }
        if (in_use)
            place(pool);
        else if (!busy)
            release(pool);
    }
}

void ThreadPools::release(Pool& pool) const {
#if defined(__linux__)
    if (pool.apart_from < 0) return;
    for (size_t i = 1; i < pool.ids.size(); ++i) bind(pool.ids[i], cpus_, 0, cpus_.size());
#endif
    pool.apart_from = -1;
}

// The CPUs in as many groups as there are threads. The group with the caller's CPU is its own; each worker is bound to
// one of the others.
void ThreadPools::place(Pool& pool) const {
#if defined(__linux__)
    const size_t groups = pool.ids.size();
    const int here = sched_getcpu();
    const auto found = std::find(cpus_.begin(), cpus_.end(), here);
    if (here == pool.apart_from || groups < 2 || cpus_.size() < groups || found == cpus_.end()) return;
    const auto own = static_cast<size_t>(found - cpus_.begin());
    for (size_t group = 0, worker = 1; group < groups; ++group) {
        const size_t first = group * cpus_.size() / groups;
        const size_t last = (group + 1) * cpus_.size() / groups;
        if (first <= own && own < last) continue;
        bind(pool.ids[worker++], cpus_, first, last);
    }
    pool.apart_from = here;
#else
    (void)pool;
#endif
}

}  // namespace dualar
