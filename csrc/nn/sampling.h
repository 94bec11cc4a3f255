// Draws from one row of logits, for loops that must not return to Python between draws.
// python/dualar/sampling/chains.py defines them, for batches of rows; a test compares the two draw for draw.
#pragma once

#include <cstdint>
#include <vector>

namespace dualar::nn {

// Which ids may be drawn, and with what score: the chains of three published families of samplers.
enum class Chain {
    kUntempered,  // top-k and top-p on the untempered softmax, then the temperature
    kPenalised,   // repetition penalty, temperature, top-k (ties with the k-th survive), top-p on what is left
    kNucleus,     // temperature, then ids in descending order while the mass before them is under top_p
};

struct Sampler {
    Chain chain = Chain::kUntempered;
    double temperature = 0;         // 0 is argmax
    double top_p = 1;               // >= 1 is off
    int64_t top_k = 0;              // <= 0 or > n is off
    int64_t history_window = 0;     // how many of the ids drawn last count below; -1 is all of them
    double repetition_penalty = 1;  // kPenalised: divides positive, multiplies other logits of ids of the window
    double repeat_threshold = 0;    // the others: an id that is in the window so often is drawn again; <= 0 is never
    double redraw_temperature = 1;  // kUntempered: of that second draw
    double redraw_top_p = 1;        // kUntempered: of that second draw
};

// What is drawn, for its noise: a function of these and of the id.
struct DrawKey {
    uint64_t seed;
    uint64_t step;    // the frame's index
    uint64_t stream;  // the codebook's number
};

// What a draw gives in place of an id for a row that cannot be drawn from.
constexpr int64_t kNotANumber = -1;
constexpr int64_t kNothingAllowed = -2;

// Kept from draw to draw by the caller, so that a loop of them allocates once.
struct DrawScratch {
    std::vector<float> row;
    std::vector<double> penalised;
    std::vector<int64_t> ids;    // candidates of a draw
    std::vector<double> scores;  // their logits / temperature, relative to the row's highest
};

// logits [n] -> an id, by Gumbel-max: the candidate with the highest score + noise. history: `count` ids drawn before,
// the newest last. Equal logits rank by lower id.
int64_t draw(const float* logits, int64_t n, const Sampler& sampler, const DrawKey& key, const int32_t* history,
             int64_t count, DrawScratch& scratch);

}  // namespace dualar::nn
