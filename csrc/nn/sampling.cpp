#include "nn/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace dualar::nn {

namespace {

// Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), as numpy's `Philox` runs it:
// word id % 4 of counter (1 + id / 4, step, stream, 0) under key (seed, 0).
uint64_t philox(uint64_t seed, uint64_t step, uint64_t stream, uint64_t id) {
    uint64_t counter[4] = {1 + id / 4, step, stream, 0};
    uint64_t key[2] = {seed, 0};
    for (int round = 0; round < 10; ++round) {
        const auto a = static_cast<unsigned __int128>(0xD2E7470EE14C6C93U) * counter[0];
        const auto b = static_cast<unsigned __int128>(0xCA5A826395121157U) * counter[2];
        const uint64_t next[4] = {static_cast<uint64_t>(b >> 64) ^ counter[1] ^ key[0], static_cast<uint64_t>(b),
                                  static_cast<uint64_t>(a >> 64) ^ counter[3] ^ key[1], static_cast<uint64_t>(a)};
        std::memcpy(counter, next, sizeof(counter));
        key[0] += 0x9E3779B97F4A7C15U;
        key[1] += 0xBB67AE8584CAA73BU;
    }
    return counter[id % 4];
}

// An odd number of 53 bits over 2^53: open at both ends, exact in double.
double uniform(uint64_t seed, uint64_t step, uint64_t stream, uint64_t id) {
    return static_cast<double>((philox(seed, step, stream, id) >> 11) | 1U) * 0x1p-53;
}

// e^y for y <= 0 to about one unit in the last place, without a branch, so that a loop of it vectorises.
inline double exp_negative(double y) {
    constexpr double kLog2E = 1.4426950408889634;
    constexpr double kLn2High = 6.93147180369123816490e-01;  // 21 bits short of ln 2, so that n * kLn2High is exact
    constexpr double kLn2Low = 1.90821492927058770002e-10;
    constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
    y = y > -700.0 ? y : -700.0;                   // beside the row's highest, which is 1, that is nothing
    const double shifted = y * kLog2E + kRound;
    const double n = shifted - kRound;
    const double r = (y - n * kLn2High) - n * kLn2Low;  // |r| <= ln 2 / 2; Taylor's remainder there is under 2^-53
    double p = 1.0 / 6227020800.0;
    for (const double c : {1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0,
                           1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0})
        p = p * r + c;
    uint64_t bits;  // unsigned: the shift loses the high bits, and the sum may wrap
    std::memcpy(&bits, &shifted, sizeof(bits));
    uint64_t result;
    std::memcpy(&result, &p, sizeof(result));
    result += bits << 52;  // n stands in the low bits of `shifted`: add it to the exponent
    double scaled;
    std::memcpy(&scaled, &result, sizeof(scaled));
    return scaled;
}

// ids <- those of the k highest logits above -inf, in descending order, equal ones by lower id.
void rank(const float* logits, int64_t n, int64_t k, std::vector<int64_t>& ids) {
    ids.clear();
    constexpr int64_t kInsert = 64;  // up to here inserting one by one is quicker than sorting the row
    if (k > kInsert) {
        for (int64_t id = 0; id < n; ++id)
            if (logits[id] > -INFINITY) ids.push_back(id);
        const auto before = [&](int64_t a, int64_t b) {
            return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
        };
        const auto end = ids.begin() + std::min(k, static_cast<int64_t>(ids.size()));
        std::partial_sort(ids.begin(), end, ids.end(), before);
        ids.erase(end, ids.end());
        return;
    }
    ids.reserve(static_cast<size_t>(k) + 1);
    float lowest = -INFINITY;  // what a new one must exceed
    for (int64_t id = 0; id < n; ++id) {
        if (!(logits[id] > lowest)) continue;
        auto at = ids.end();
        while (at != ids.begin() && logits[*(at - 1)] < logits[id]) --at;
        ids.insert(at, id);
        if (static_cast<int64_t>(ids.size()) > k) ids.pop_back();
        if (static_cast<int64_t>(ids.size()) == k) lowest = logits[ids.back()];
    }
}

}  // namespace

int64_t draw(const float* logits, int64_t n, const DrawOptions& options, uint64_t seed, uint64_t step, uint64_t stream,
             DrawScratch& scratch) {
    float highest = -INFINITY;
    int64_t best = 0;
    bool number = true;
    for (int64_t id = 0; id < n; ++id) {
        number &= logits[id] == logits[id];
        if (logits[id] > highest) {
            highest = logits[id];
            best = id;
        }
    }
    if (!number) return kNotANumber;
    if (highest == -INFINITY) return kNothingAllowed;
    if (options.temperature == 0) return best;
    if (highest == INFINITY) {  // its entries share the whole mass
        scratch.row.clear();
        for (int64_t id = 0; id < n; ++id) scratch.row.push_back(logits[id] == INFINITY ? 0.0F : -INFINITY);
        logits = scratch.row.data();
        highest = 0.0F;
    }
    const std::vector<int64_t>& ids = scratch.ids;
    rank(logits, n, options.top_k > 0 ? std::min(options.top_k, n) : n, scratch.ids);
    double total = 0;
    for (int64_t id = 0; id < n; ++id) total += exp_negative(static_cast<double>(logits[id]) - highest);

    int64_t drawn = ids[0];
    double drawn_score = -std::numeric_limits<double>::infinity();
    double mass = 0;
    for (size_t rank = 0; rank < ids.size(); ++rank) {
        const double y = static_cast<double>(logits[ids[rank]]) - highest;
        mass += exp_negative(y) / total;
        if (rank > 0 && mass > options.top_p && options.top_p < 1) break;
        const double u = uniform(seed, step, stream, static_cast<uint64_t>(ids[rank]));
        const double score = y / options.temperature - std::log(-std::log(u));
        if (score > drawn_score || (score == drawn_score && ids[rank] < drawn)) {
            drawn_score = score;
            drawn = ids[rank];
        }
    }
    return drawn;
}

}  // namespace dualar::nn
