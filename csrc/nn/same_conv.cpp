#include "nn/same_conv.h"

#include "runtime/error.h"

namespace dualar::nn {

namespace {

std::string input_name(int64_t missing) { return message("reflected.", missing); }

}  // namespace

ggml_tensor* SameConvs::operator()(ggml_tensor* x, const Conv& conv) {
    const int64_t missing = conv.history();
    if (missing > 0) {
        ggml_tensor*& indices = indices_[missing];
        if (indices == nullptr) indices = g_.input(input_name(missing), GGML_TYPE_I32, columns_ + missing);
        x = ggml_get_rows(g_.context, x, indices);
    }
    return valid_conv(g_, x, conv);
}

void SameConvs::set(Graph& graph, int64_t columns, const std::vector<int64_t>& histories) {
    for (const int64_t missing : histories) {
        std::vector<int32_t> indices;
        for (int64_t i = 0; i < columns + missing; ++i) {
            int64_t column = i - missing / 2;
            if (column < 0) column = -column;
            if (column >= columns) column = 2 * (columns - 1) - column;
            indices.push_back(static_cast<int32_t>(column));
        }
        graph.set(input_name(missing), indices.data(), indices.size() * sizeof(int32_t));
    }
}

}  // namespace dualar::nn
