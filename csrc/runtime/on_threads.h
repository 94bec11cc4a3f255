// Threads that are started for one piece of work and end with it, also where the system starts fewer than were asked
// for.
#pragma once

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace dualar {

// Threads that are joined at the end of their scope: one that is not would end the process.
struct JoinedThreads : std::vector<std::thread> {
    ~JoinedThreads() {
        for (std::thread& thread : *this) thread.join();
    }
    // False where the system starts no further thread.
    template <class... Call>
    bool start(Call&&... call) {
        try {
            emplace_back(std::forward<Call>(call)...);
            return true;
        } catch (const std::system_error&) {
            return false;
        }
    }
};

// work(0) .. work(threads - 1), each once: on a thread of its own where the system starts one, else on the caller's.
template <class Work>
void on_threads(int threads, const Work& work) {
    JoinedThreads others;
    int next = 1;
    while (next < threads && others.start(work, next)) ++next;
    work(0);
    for (; next < threads; ++next) work(next);
}

// Does the system start so many threads beside those that run? For callees that end the process where it does not.
inline bool can_start_threads(int count) {
    std::mutex mutex;
    std::condition_variable ended;
    bool end = false;
    JoinedThreads threads;
    threads.reserve(static_cast<size_t>(count));
    const auto wait = [&] {
        std::unique_lock<std::mutex> lock(mutex);
        ended.wait(lock, [&] { return end; });
    };
    int started = 0;
    while (started < count && threads.start(wait)) ++started;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        end = true;
    }
    ended.notify_all();
    return started == count;
}

}  // namespace dualar
