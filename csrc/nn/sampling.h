// The S2 family's draw from one row of logits, for loops that must not return to Python between draws.
// python/dualar/sampling.py defines it, for every family; a test compares the two token for token.
#pragma once

#include <cstdint>
#include <vector>

namespace dualar::nn {

struct DrawOptions {
    double temperature = 0;  // 0 is argmax
    double top_p = 1;        // >= 1 is off
    int64_t top_k = 0;       // <= 0 or > n is off
};

// What a draw gives in place of an id for a row that cannot be drawn from.
constexpr int64_t kNotANumber = -1;
constexpr int64_t kNothingAllowed = -2;

// Kept from draw to draw by the caller, so that a loop of them allocates once.
struct DrawScratch {
    std::vector<int64_t> ids;
    std::vector<float> row;
};

// logits [n] -> an id. Both filters on the untempered softmax, then the temperature, then Gumbel-max with the noise of
// (seed, step, stream, id). Equal logits rank by lower id.
int64_t draw(const float* logits, int64_t n, const DrawOptions& options, uint64_t seed, uint64_t step, uint64_t stream,
             DrawScratch& scratch);

}  // namespace dualar::nn
