// Whether a state that computations change in place is that after a whole number of them.
#pragma once

#include <stdexcept>

#include "runtime/error.h"

namespace dualar {

// A computation that ends in the middle (the device failed, the program ends) leaves a state that is neither the one
// before nor the one after it. Nothing may be computed from such a one.
class Progress {
  public:
    // std::invalid_argument for a state that is between two steps. `what` names it in the error.
    void check(const char* what) const {
        if (between_)
            throw std::invalid_argument(
                message("[", what, "] expected reset() first: a computation with it was broken off in the middle"));
    }
    void begin(const char* what) {
        check(what);
        between_ = true;
    }
    void end() { between_ = false; }
    // The state was made anew.
    void restart() { between_ = false; }

  private:
    bool between_ = false;
};

}  // namespace dualar
