// What a step returns to Python, and the running of it without the GIL.
#pragma once

#include "bindings/arrays.h"
#include "bindings/without_gil.h"
#include "models/decoder.h"
#include "runtime/error.h"

namespace dualar::bindings {

struct StepOutput {
    py::array_t<float> logits;
    py::array_t<float> hidden;
};

// run() gives a DecoderOutput; arguments are converted with the GIL, the computation runs without it.
template <class Run>
StepOutput step_output(int64_t dim, bool all_positions, const Run& run) {
    DecoderOutput out;
    {
        const WithoutGil without_gil;
        out = run();
    }
    std::vector<py::ssize_t> logits_shape{out.width};
    std::vector<py::ssize_t> hidden_shape{dim};
    if (all_positions) {
        logits_shape.insert(logits_shape.begin(), out.positions);
        hidden_shape.insert(hidden_shape.begin(), out.positions);
    }
    return {to_numpy(std::move(out.logits), logits_shape), to_numpy(std::move(out.hidden), hidden_shape)};
}

// The same for logits alone.
template <class Run>
py::array_t<float> compute(const Run& run) {
    std::vector<float> logits;
    {
        const WithoutGil without_gil;
        logits = run();
    }
    return to_numpy(std::move(logits));
}

// ValueError where columns have not a row for the id and one for each codebook.
inline void require_rows(const IntegerArray& columns, int64_t num_codebooks, const char* where) {
    if (columns.shape[0] != num_codebooks + 1)
        throw std::invalid_argument(message("[", where, "] expected ", num_codebooks + 1, " rows (a token id and ",
                                            num_codebooks, " codes), got ", columns.shape[0]));
}

}  // namespace dualar::bindings
