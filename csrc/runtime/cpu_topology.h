// Which CPUs this process may run on, and how many full cores they are. Reads the system's own description and owns no
// thread; how many threads run is the backend's decision.
#pragma once

#include <string>
#include <vector>

namespace dualar {

// Numbers of the CPUs that the process may run on; empty where the system does not say.
std::vector<int> allowed_cpus();

// How many of `cpus` are cores of their own among the fast ones, at least 1: hyper-threads of one core count once, and
// cores that do less than half of what the fastest of `cpus` does (little ones on ARM, efficiency cores on x86) count
// for nothing, because all threads wait for the slowest one after every node of a graph. devices: Linux' folder
// /sys/devices. Where it says nothing, every CPU counts.
int fast_cores(const std::vector<int>& cpus, const std::string& devices);

// The same for allowed_cpus() of this machine.
int fast_cores();

}  // namespace dualar
