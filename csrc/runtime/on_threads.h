// A piece of work shared out among threads that are started for it and end with it.
#pragma once

#include <system_error>
#include <thread>
#include <vector>

namespace dualar {

// work(0) .. work(threads - 1), each once: on a thread of its own where the system starts one, else on the caller's.
template <class Work>
void on_threads(int threads, const Work& work) {
    struct Joined : std::vector<std::thread> {
        ~Joined() {  // a thread that is not joined would end the process
            for (std::thread& thread : *this) thread.join();
        }
    } others;
    int next = 1;
    try {
        others.reserve(static_cast<size_t>(threads));
        for (; next < threads; ++next) others.emplace_back(work, next);
    } catch (const std::system_error&) {  // no further thread: its share and the rest are done here
    }
    work(0);
    for (; next < threads; ++next) work(next);
}

}  // namespace dualar
