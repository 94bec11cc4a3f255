// The threads that compute on the CPU: one pool of ggml's for each number of threads in use, and where they run.
// Owns the pools; leaves to others which number a graph runs on. One caller at a time.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "ggml-cpp.h"
#include "runtime/short_turns.h"

namespace dualar {

struct ThreadpoolDeleter {
    void (*free)(struct ggml_threadpool*) = nullptr;
    void operator()(struct ggml_threadpool* pool) const;
};

class ThreadPools {
  public:
    // Starts `most` threads for `cpu`, a CPU backend that lasts at least as long as this. BackendError where they do
    // not start.
    ThreadPools(ggml_backend_t cpu, int most);
    ~ThreadPools();
    ThreadPools(const ThreadPools&) = delete;
    ThreadPools& operator=(const ThreadPools&) = delete;

    // The next computation is to run on `threads`. Where `alone`, no other thread is awake meanwhile, which on a busy
    // machine leaves the cores to others, but costs a waking when more threads are wanted again.
    void use(int threads, bool alone);
    // The machine is busy with other processes, or no longer. Beside them the threads in use are kept apart, each on
    // CPUs of its own, as seen from the calling thread's present CPU, because the system may leave two of them on one
    // CPU for long, where each waits for the other's turn; and their turns are short (short_turns.h says why). The
    // calling thread itself is never bound. Linux only; elsewhere nothing happens.
    void beside_others(bool busy);
    // In a forked child the threads do not exist, and to join them would never end: forget them.
    void abandon();

  private:
    struct Pool {
        std::unique_ptr<struct ggml_threadpool, ThreadpoolDeleter> handle;
        std::vector<int> ids;           // the system's number of each thread; the caller's at 0
        std::vector<ShortTurns> turns;  // of each thread but the caller's
        int apart_from = -1;            // the caller's CPU when they were last placed; -1 when the system places them
    };

    Pool& pool_of(int threads);
    std::vector<int> thread_ids(int threads) const;
    void place(Pool& pool) const;
    void release(Pool& pool) const;

    ggml_backend_t cpu_;
    int most_;
    void (*set_pool_)(ggml_backend_t, struct ggml_threadpool*);
    ggml_backend_set_n_threads_t set_threads_;
    std::map<int, Pool> pools_;  // by number of threads
    int current_ = 0;            // the pool in use
    std::vector<int> cpus_;      // that the process may use
};

}  // namespace dualar
