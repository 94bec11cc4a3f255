// How long a thread computes on a busy machine before the system gives its CPU to another process.
//
// Threads that wait for one another after every node need many short turns rather than few long ones: where each has a
// sixth of its CPU, in turns of 3 ms every 18, the others wait up to 15 ms for the one whose turn is over. Linux from
// 6.12 on takes a wish for the length of a turn (sched_setattr's sched_runtime for ordinary threads, 0.1 ms at least).
// It leaves a thread's share of the CPU as it is. Older kernels and other systems do not listen; nothing fails there.
#pragma once

#include <cstdint>

namespace dualar {

// What one thread wishes for, so that it can be taken back. Not for several threads at once.
class ShortTurns {
  public:
    // thread: the system's number of it, 0 for the calling one. Does nothing where it is so already.
    void ask(int thread);
    void take_back(int thread);

  private:
    bool asked_ = false;
    uint64_t usual_ = 0;  // nanoseconds
};

}  // namespace dualar
