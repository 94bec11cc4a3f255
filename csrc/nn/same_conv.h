// Convolutions whose result is as long as their input, which is reflected at its ends (the end itself not repeated) to
// fill what the taps see beyond them. For whole sequences. Knows no file and no tensor name.
#pragma once

#include <map>
#include <utility>

#include "nn/causal_conv.h"

namespace dualar::nn {

class SameConvs {
  public:
    // columns: of all inputs, in one graph.
    SameConvs(GraphBuilder& g, int64_t columns) : g_(g), columns_(columns) {}

    // x [in, columns] -> [out, columns]; stride 1. columns > padding(conv).
    ggml_tensor* operator()(ggml_tensor* x, const Conv& conv);
    // The longer side, the right one.
    static int64_t padding(const Conv& conv) { return conv.history() - conv.history() / 2; }
    // Once before the graph runs.
    static void set(Graph& graph, int64_t columns, const std::vector<int64_t>& histories);

  private:
    GraphBuilder& g_;
    int64_t columns_;
    std::map<int64_t, ggml_tensor*> indices_;  // by the columns that a convolution lacks
};

}  // namespace dualar::nn
