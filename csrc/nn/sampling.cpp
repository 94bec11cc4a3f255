#include "nn/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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

// The stream of a second draw, beside those of the codebooks.
constexpr uint64_t kRedrawStream = 1000;

// Sorting a whole row costs more than all the rest of a draw, and the highest few entries mostly hold all of top_p.
constexpr int64_t kHead = 256;

// ids <- those of the k highest entries above -inf, in descending order, equal ones by lower id.
template <class Real>
void rank(const Real* x, int64_t n, int64_t k, std::vector<int64_t>& ids) {
    ids.clear();
    constexpr int64_t kInsert = 64;  // up to here inserting one by one is quicker than sorting the row
    if (k > kInsert) {
        for (int64_t id = 0; id < n; ++id)
            if (x[id] > -INFINITY) ids.push_back(id);
        const auto end = ids.begin() + std::min(k, static_cast<int64_t>(ids.size()));
        const auto before = [x](int64_t a, int64_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; };
        std::partial_sort(ids.begin(), end, ids.end(), before);
        ids.erase(end, ids.end());
        return;
    }
    ids.reserve(static_cast<size_t>(k) + 1);
    Real lowest = -INFINITY;  // what a new one must exceed
    for (int64_t id = 0; id < n; ++id) {
        if (!(x[id] > lowest)) continue;
        auto at = ids.end();
        while (at != ids.begin() && x[*(at - 1)] < x[id]) --at;
        ids.insert(at, id);
        if (static_cast<int64_t>(ids.size()) > k) ids.pop_back();
        if (static_cast<int64_t>(ids.size()) == k) lowest = x[ids.back()];
    }
}

// ids <- those of all entries above -inf, ascending.
template <class Real>
void all_ids(const Real* x, int64_t n, std::vector<int64_t>& ids) {
    ids.clear();
    for (int64_t id = 0; id < n; ++id)
        if (x[id] > -INFINITY) ids.push_back(id);
}

int64_t effective_top_k(const Sampler& sampler, int64_t n) {
    return sampler.top_k > 0 ? std::min(sampler.top_k, n) : n;
}

// The draw of one row: the row as it may be drawn from, and where the candidates go.
struct Row {
    const float* x;  // without NaN; +inf has been replaced
    int64_t n;
    double highest;
    int64_t best;  // the lowest id of the highest entry
    DrawScratch& scratch;

    double centred(int64_t id) const { return static_cast<double>(x[id]) - highest; }
};

// Drops the candidates from the first on for which keep(mass before it, its own) is false; the first one stays.
template <class Keep>
void keep_first(DrawScratch& scratch, double total, const Keep& keep) {
    double mass = 0;
    size_t kept = 0;
    for (; kept < scratch.ids.size(); ++kept) {
        const double own = exp_negative(scratch.scores[kept]) / total;
        if (kept > 0 && !keep(mass, own)) break;
        mass += own;
    }
    scratch.ids.resize(kept);
    scratch.scores.resize(kept);
}

// Candidates <- the k highest of entries x in descending order; only as many as hold more than top_p where that is
// fewer. score(id) <= 0 is what stands for the entry; the sum of e^score over the whole row is given back.
template <class Real, class Score>
double take_head(const Real* x, int64_t n, int64_t k, double top_p, const Score& score, DrawScratch& s) {
    double total = 0;
    for (int64_t id = 0; id < n; ++id) total += exp_negative(score(id));
    for (const int64_t count : {std::min(k, kHead), k}) {
        rank(x, n, count, s.ids);
        s.scores.clear();
        double mass = 0;
        for (const int64_t id : s.ids) {
            s.scores.push_back(score(id));
            mass += exp_negative(s.scores.back()) / total;
        }
        if (count == k || mass > top_p + 1e-9) break;
    }
    return total;
}

void untempered_candidates(const Row& row, double temperature, double top_p, int64_t k) {
    DrawScratch& s = row.scratch;
    const auto score = [&](int64_t id) { return row.centred(id); };
    if (top_p >= 1 && k == row.n) {
        all_ids(row.x, row.n, s.ids);
        s.scores.clear();
        for (const int64_t id : s.ids) s.scores.push_back(score(id));
    } else {
        const double total = take_head(row.x, row.n, k, top_p, score, s);
        if (top_p < 1) keep_first(s, total, [&](double mass, double own) { return mass + own <= top_p; });
    }
    for (double& value : s.scores) value /= temperature;
}

void nucleus_candidates(const Row& row, double temperature, double top_p, int64_t k) {
    const auto score = [&](int64_t id) { return row.centred(id) / temperature; };
    const double total = take_head(row.x, row.n, k, top_p, score, row.scratch);
    if (top_p < 1) keep_first(row.scratch, total, [&](double mass, double) { return mass < top_p; });
}

// Entries as float64, those of ids in `history` penalised, once each.
const std::vector<double>& penalised(const Row& row, double penalty, const int32_t* history, int64_t count) {
    std::vector<double>& x = row.scratch.penalised;
    x.assign(row.x, row.x + row.n);
    if (penalty == 1) return x;
    for (int64_t i = 0; i < count; ++i) {
        const double old = static_cast<double>(row.x[history[i]]);
        x[static_cast<size_t>(history[i])] = old > 0 ? old / penalty : old * penalty;
    }
    return x;
}

// rank(), and then those that equal the k-th.
void rank_with_ties(const std::vector<double>& x, int64_t k, std::vector<int64_t>& ids) {
    const auto n = static_cast<int64_t>(x.size());
    rank(x.data(), n, k, ids);
    if (static_cast<int64_t>(ids.size()) < k) return;
    const double last = x[static_cast<size_t>(ids.back())];
    for (int64_t id = ids.back() + 1; id < n; ++id)
        if (x[static_cast<size_t>(id)] == last) ids.push_back(id);
}

void penalised_candidates(const Row& row, const Sampler& sampler, const int32_t* history, int64_t count) {
    DrawScratch& s = row.scratch;
    const std::vector<double>& x = penalised(row, sampler.repetition_penalty, history, count);
    const auto highest = std::max_element(x.begin(), x.end());
    if (sampler.temperature == 0) {
        s.ids.assign(1, highest - x.begin());
        s.scores.assign(1, 0.0);
        return;
    }
    const int64_t k = effective_top_k(sampler, row.n);
    const auto score = [&](int64_t id) { return (x[static_cast<size_t>(id)] - *highest) / sampler.temperature; };
    double total = 0;
    if (k == row.n && sampler.top_p < 1) {
        total = take_head(x.data(), row.n, k, sampler.top_p, score, s);
    } else {
        if (k == row.n)
            all_ids(x.data(), row.n, s.ids);
        else
            rank_with_ties(x, k, s.ids);
        s.scores.clear();
        for (const int64_t id : s.ids) {
            s.scores.push_back(score(id));
            total += exp_negative(s.scores.back());
        }
    }
    if (sampler.top_p < 1) keep_first(s, total, [&](double mass, double) { return mass < sampler.top_p; });
}

// Gumbel-max over the candidates.
int64_t draw_candidate(const DrawScratch& s, const DrawKey& key, uint64_t stream) {
    if (s.ids.size() == 1) return s.ids[0];
    int64_t drawn = s.ids[0];
    double drawn_score = -INFINITY;
    for (size_t i = 0; i < s.ids.size(); ++i) {
        const double u = uniform(key.seed, key.step, stream, static_cast<uint64_t>(s.ids[i]));
        const double score = s.scores[i] - std::log(-std::log(u));
        if (score > drawn_score) {
            drawn_score = score;
            drawn = s.ids[i];
        }
    }
    return drawn;
}

// A draw from the whole row without one id, which stays where it is the only one.
int64_t draw_other(const Row& row, int64_t without, double temperature, const DrawKey& key) {
    DrawScratch& s = row.scratch;
    all_ids(row.x, row.n, s.ids);
    const auto found = std::find(s.ids.begin(), s.ids.end(), without);
    if (s.ids.size() > 1 && found != s.ids.end()) s.ids.erase(found);
    double highest = -INFINITY;
    for (const int64_t id : s.ids) highest = std::max(highest, static_cast<double>(row.x[id]));
    s.scores.clear();
    for (const int64_t id : s.ids) s.scores.push_back((static_cast<double>(row.x[id]) - highest) / temperature);
    return draw_candidate(s, key, kRedrawStream);
}

int64_t draw_from(const Row& row, const Sampler& sampler, const DrawKey& key, const int32_t* history, int64_t count) {
    if (sampler.chain == Chain::kPenalised) {
        penalised_candidates(row, sampler, history, count);
        return draw_candidate(row.scratch, key, key.stream);
    }
    if (sampler.temperature == 0) return row.best;
    const bool untempered = sampler.chain == Chain::kUntempered;
    const int64_t k = effective_top_k(sampler, row.n);
    const auto candidates = untempered ? untempered_candidates : nucleus_candidates;
    candidates(row, sampler.temperature, sampler.top_p, k);
    const int64_t drawn = draw_candidate(row.scratch, key, key.stream);
    const auto repeats = static_cast<double>(std::count(history, history + count, static_cast<int32_t>(drawn)));
    if (!(sampler.repeat_threshold > 0) || repeats < sampler.repeat_threshold) return drawn;
    if (!untempered) return draw_other(row, drawn, sampler.temperature, key);
    if (sampler.redraw_temperature == 0) return row.best;
    untempered_candidates(row, sampler.redraw_temperature, sampler.redraw_top_p, k);
    return draw_candidate(row.scratch, key, kRedrawStream);
}

}  // namespace

int64_t draw(const float* logits, int64_t n, const Sampler& sampler, const DrawKey& key, const int32_t* history,
             int64_t count, DrawScratch& scratch) {
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
    if (highest == INFINITY) {  // its entries share the whole mass
        scratch.row.clear();
        for (int64_t id = 0; id < n; ++id) scratch.row.push_back(logits[id] == INFINITY ? 0.0F : -INFINITY);
        logits = scratch.row.data();
        highest = 0.0F;
    }
    const int64_t window = sampler.history_window < 0 ? count : std::min(sampler.history_window, count);
    const Row row{logits, n, highest, best, scratch};
    return draw_from(row, sampler, key, history + (count - window), window);
}

}  // namespace dualar::nn
