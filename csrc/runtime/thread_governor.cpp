#include "runtime/thread_governor.h"

#include <algorithm>

namespace dualar {

namespace {

// A run that is this much slower than its best, and by at least the time that a system gives to one thread before
// another has its turn, was held up.
constexpr double kHeldUpRatio = 1.5;
constexpr double kTurn = 0.002;  // seconds

// What a visit may lose before the governor moves: several turns of other processes and a whole run. One run alone, as
// when a machine stands still for a moment, counts for at most a part of it where the other number was not measured of
// late.
constexpr double kPatience = 0.025;
constexpr double kShareOfOneRun = 0.6;

// Fewer threads have to promise this much, because what holds up several threads will hold up one too; more threads
// only need to be better at all, and so does what was measured lately.
constexpr double kMarginOfFewer = 1.5;
constexpr double kMargin = 1.05;

// A number of threads that was left is not tried again for a pause; what a try lost that a measured time refuted is at
// most 1/20 of it.
constexpr double kFirstPause = 0.1;
constexpr double kLongestDoubledPause = 5.0;
constexpr double kLongestPause = 30.0;
constexpr double kPausePerLoss = 20;
constexpr double kLongVisit = 1.0;

// `best` is the mean of this many runs in a row, or of those in so many seconds.
constexpr double kWindowRuns = 8;
constexpr double kWindowSeconds = 0.05;
// It rises by so much at each such mean, because the same graph can come to have more work as a context grows.
constexpr double kDrift = 1.001;

// A mean forgets half of what it has when it spans both of these.
constexpr double kMemoryRuns = 16;
constexpr double kMemorySeconds = 0.1;

}  // namespace

ThreadGovernor::ThreadGovernor(int threads) {
    levels_.push_back({std::max(1, threads)});
    if (threads > 3) levels_.push_back({threads - 1});  // one busy core among several
    for (int fewer = threads / 2; fewer >= 1; fewer /= 2) levels_.push_back({fewer});
}

void ThreadGovernor::Mean::add(double run, double usual_run) {
    if (runs >= kMemoryRuns && seconds >= kMemorySeconds) {
        seconds /= 2;
        usual /= 2;
        runs /= 2;
    }
    seconds += run;
    usual += usual_run;
    runs += 1;
}

// All levels with at least as many threads as the graph is worth are one to it.
size_t ThreadGovernor::level_of(const Work& work, size_t level) const {
    return levels_[level].threads >= work.most_ ? 0 : level;
}

// Seconds of a run on as many threads as the graph is worth when nothing disturbs. Where it never ran so, its threads
// are taken to share the work perfectly.
double ThreadGovernor::usual(const Work& work) const {
    if (work.best_[0] != kUnknown) return work.best_[0];
    const size_t present = level_of(work, at_);
    return work.best_[present] * levels_[present].threads / work.most_;
}

// Seconds that a run is expected to take on a level. On one where the graph never ran its work is again taken to be
// shared perfectly, which for fewer threads than now is the longest that they need, and for more the shortest.
double ThreadGovernor::expected(const Work& work, size_t level, double when) const {
    const Level& other = levels_[level];
    if (when < other.trusted_until) return kMargin * other.recent * usual(work);
    const double margin = level > at_ ? kMarginOfFewer : kMargin;
    const double best = work.best_[level_of(work, level)];
    if (best != kUnknown) return margin * best;
    return margin * usual(work) * work.most_ / std::min(work.most_, other.threads);
}

void ThreadGovernor::note(Work& work, double seconds) const {
    const size_t level = level_of(work, at_);
    if (work.window_level_ != level) work.window_ = {};
    work.window_level_ = level;
    work.window_.add(seconds, 0);
    if (work.window_.runs < kWindowRuns && work.window_.seconds < kWindowSeconds) return;
    work.best_[level] = std::min(work.best_[level] * kDrift, work.window_.seconds / work.window_.runs);
    work.window_ = {};
}

void ThreadGovernor::ran(Work& work, double seconds, double now) {
    held_up_ = false;
    work.best_.resize(levels_.size(), kUnknown);
    if (!work.warm_) {  // a first run fills caches and touches new memory
        work.warm_ = true;
        return;
    }
    note(work, seconds);
    const size_t present = level_of(work, at_);
    if (work.best_[present] == kUnknown) return;
    held_up_ = seconds > kHeldUpRatio * work.best_[present] + kTurn;
    const double began = now - seconds;
    if (began_ < 0) began_ = began;
    visit_.add(seconds, usual(work));
    // A cumulative sum for each neighbour (Page, "Continuous inspection schemes", 1954).
    for (const size_t next : {at_ + 1, at_ - 1}) {
        if (next >= levels_.size() || level_of(work, next) == present) continue;  // at_ - 1 wraps around at 0
        const double there = expected(work, next, began);
        const double patience = std::max(kPatience, there);
        const bool measured = began < levels_[next].trusted_until;
        const double lost = std::min(seconds - there, measured ? seconds : kShareOfOneRun * patience);
        levels_[next].lost = std::max(0.0, levels_[next].lost + lost);
        if (levels_[next].lost > patience) return move_to(next, measured, now);
    }
}

void ThreadGovernor::move_to(size_t next, bool measured, double now) {
    Level& left = levels_[at_];
    // What did not serve for long is tried again later and later, and later still where a measured time refuted it.
    const bool brief = now - began_ < kLongVisit;
    const double pause = brief ? std::min(2 * left.pause, kLongestDoubledPause) : 0;
    const double worth = brief && measured ? std::min(kPausePerLoss * levels_[next].lost, kLongestPause) : 0;
    left.pause = std::max({kFirstPause, pause, worth});
    left.recent = visit_.seconds / visit_.usual;
    left.trusted_until = now + left.pause;
    for (Level& level : levels_) level.lost = 0;
    at_ = next;
    visit_ = {};
    began_ = -1;
}

}  // namespace dualar
