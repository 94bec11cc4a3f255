#include "runtime/short_turns.h"

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace dualar {

namespace {

#if defined(__linux__)

constexpr uint64_t kShortTurn = 100000;  // nanoseconds; the kernel takes no less

// The kernel's struct sched_attr in its first form (include/uapi/linux/sched/types.h), which each later kernel takes.
struct SchedAttributes {
    uint32_t size = sizeof(SchedAttributes);
    uint32_t policy = 0;
    uint64_t flags = 0;
    int32_t nice = 0;
    uint32_t priority = 0;
    uint64_t runtime = 0;
    uint64_t deadline = 0;
    uint64_t period = 0;
};
static_assert(sizeof(SchedAttributes) == 48, "SCHED_ATTR_SIZE_VER0");

// Gives back what the length was, 0 where the thread is none of the ordinary ones or the kernel does not tell.
uint64_t set_turn(int thread, uint64_t nanoseconds) {
    SchedAttributes attributes;
    if (syscall(SYS_sched_getattr, thread, &attributes, sizeof(attributes), 0) != 0) return 0;
    if (attributes.policy != SCHED_OTHER || attributes.runtime == 0) return 0;
    const uint64_t before = attributes.runtime;
    attributes.size = sizeof(attributes);
    attributes.runtime = nanoseconds;
    syscall(SYS_sched_setattr, thread, &attributes, 0);  // a system that forbids it leaves things as they are
    return before;
}

#else

uint64_t set_turn(int, uint64_t) { return 0; }
constexpr uint64_t kShortTurn = 0;

#endif

}  // namespace

void ShortTurns::ask(int thread) {
    if (asked_) return;
    asked_ = true;
    usual_ = set_turn(thread, kShortTurn);
}

void ShortTurns::take_back(int thread) {
    if (!asked_) return;
    asked_ = false;
    if (usual_ != 0) set_turn(thread, usual_);
}

}  // namespace dualar
