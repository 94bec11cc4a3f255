// Mutable state that belongs to one thread at a time: a second caller is told, not raced.
#pragma once

#include <atomic>
#include <stdexcept>

#include "runtime/error.h"

namespace dualar {

class OneThread {
  public:
    // Held during a call. `what` names the object in the error.
    class Use {
      public:
        Use(OneThread& owner, const char* what) : owner_(owner) {
            if (owner_.in_use_.exchange(true))
                throw std::invalid_argument(
                    message("[", what, "] expected one thread at a time, another one is computing with it"));
        }
        ~Use() { owner_.in_use_ = false; }
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

      private:
        OneThread& owner_;
    };

  private:
    std::atomic<bool> in_use_{false};
};

}  // namespace dualar
