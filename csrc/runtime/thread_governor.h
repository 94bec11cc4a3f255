// Decides on how many threads graphs run, from the seconds that their runs take.
// Owns the decision alone: it starts no thread and reads no clock, so that tests can feed it any history.
//
// Threads wait for one another after every node. When other processes keep one of them from its core, all wait, and a
// graph of many small nodes can then take far longer on several threads than on one. The governor keeps to the number
// of threads that costs least at the time: it leaves a number when the runs have lost enough time against what another
// number is expected to take, and comes back to try again after a pause that grows with each vain try. All graphs of
// one set of threads share the decision, because each change puts threads to sleep or wakes them.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace dualar {

class ThreadGovernor {
    static constexpr double kUnknown = std::numeric_limits<double>::infinity();

    // The mean of runs, where those of long ago count less and less.
    struct Mean {
        double seconds = 0;
        double usual = 0;  // seconds of the same runs on a quiet machine
        double runs = 0;

        void add(double run, double usual_run);
    };

  public:
    // What is known of one graph. Graphs of one shape may share it.
    class Work {
      public:
        // most: the threads that the graph's work is worth on a quiet machine, at least 1. fixed: it always runs on
        // those, because its bits depend on their number.
        explicit Work(int most, bool fixed = false) : most_(most), fixed_(fixed || most == 1) {}
        int most() const { return most_; }
        bool fixed() const { return fixed_; }

      private:
        friend class ThreadGovernor;
        int most_;
        bool fixed_;
        bool warm_ = false;         // it has run before
        std::vector<double> best_;  // by level: seconds of a run that nothing disturbs, the least mean of some in a row
        Mean window_;               // of the last runs
        size_t window_level_ = 0;
    };

    // threads: that there are, at least 1. The governor chooses among all, all but one, and then halves down to 1.
    explicit ThreadGovernor(int threads);

    // For the next run of a graph.
    int threads(const Work& work) const { return work.fixed_ || work.most_ < limit() ? work.most_ : limit(); }
    // At most so many threads run at present.
    int limit() const { return levels_[at_].threads; }
    bool shrunk() const { return at_ > 0; }

    // A run on threads(work), which is not fixed, took `seconds` and ended at `now`, a time in seconds that never goes
    // back.
    void ran(Work& work, double seconds, double now);
    // The last run took far longer than it is known to need: something held it up.
    bool held_up() const { return held_up_; }

  private:
    // One number of threads.
    struct Level {
        int threads;
        double recent = kUnknown;          // times as long as on a quiet machine, in the last visit
        double trusted_until = -kUnknown;  // until then `recent` is expected of it, afterwards that nothing disturbs
        double pause = 0;                  // how long `recent` was trusted last time
        double lost = 0;  // seconds, by the runs of this visit elsewhere, against what is expected here
    };

    size_t level_of(const Work& work, size_t level) const;
    double usual(const Work& work) const;
    double expected(const Work& work, size_t level, double when) const;
    void note(Work& work, double seconds) const;
    // measured: what the next level takes was measured of late.
    void move_to(size_t next, bool measured, double now);

    std::vector<Level> levels_;
    size_t at_ = 0;
    Mean visit_;         // of the present visit to a level
    double began_ = -1;  // when it did
    bool held_up_ = false;
};

}  // namespace dualar
