// What is known of the threads that each graph runs best on, kept by the graph's shape: a graph that is built anew, as
// each request does, goes on with what is known of its shape. Decisions are in thread_governor.h. Not for several
// threads at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "ggml.h"
#include "runtime/thread_governor.h"

namespace dualar {

class WorkByShape {
  public:
    // most: the threads that the graph's work is worth on a quiet machine.
    std::shared_ptr<ThreadGovernor::Work> of(const ggml_cgraph* graph, int most);

  private:
    std::map<uint64_t, std::shared_ptr<ThreadGovernor::Work>> known_;
};

}  // namespace dualar
