#include "runtime/cpu_topology.h"

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "runtime/error.h"

namespace dualar {

namespace {

std::string first_line(const std::string& path) {
    std::string line;
    std::ifstream file(path);
    std::getline(file, line);
    return line;
}

// The kernel's lists, as "0-3,8".
std::set<int> numbers_of(const std::string& list) {
    std::set<int> numbers;
    std::istringstream ranges(list);
    std::string range;
    while (std::getline(ranges, range, ',')) {
        std::istringstream ends(range);
        int first = 0;
        if (!(ends >> first)) continue;
        int last = first;
        char dash = 0;
        if (ends >> dash && !(ends >> last)) continue;
        for (int cpu = first; cpu <= last; ++cpu) numbers.insert(cpu);
    }
    return numbers;
}

// A name that the CPUs of one core share. Numbers of cores repeat in each package, and on ARM in each cluster where the
// kernel leaves the package at 0 or -1, so the list of the core's CPUs comes first.
std::string core_of(const std::string& folder) {
    for (const char* name : {"core_cpus_list", "thread_siblings_list"})
        if (std::string list = first_line(folder + name); !list.empty()) return list;
    const std::string core = first_line(folder + "core_id");
    return core.empty() ? core : first_line(folder + "physical_package_id") + "/" + core;
}

// What the CPU does at its best, of the fastest one's 1024; 0 where the kernel does not say.
int capacity_of(const std::string& folder) {
    int capacity = 0;
    std::ifstream(folder + "cpu_capacity") >> capacity;
    return capacity;
}

}  // namespace

std::vector<int> allowed_cpus() {
    std::vector<int> cpus;
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
#endif
    return cpus;
}

int fast_cores(const std::vector<int>& cpus, const std::string& devices) {
    // On x86 with two kinds of cores the kernel lists the efficiency cores here.
    const std::set<int> efficient = numbers_of(first_line(devices + "/cpu_atom/cpus"));
    const auto is_efficient = [&](int cpu) { return efficient.count(cpu) != 0; };
    const bool leave_out = !std::all_of(cpus.begin(), cpus.end(), is_efficient);
    const auto folder = [&](int cpu) { return message(devices, "/system/cpu/cpu", cpu, "/"); };
    int fastest = 0;
    for (const int cpu : cpus) fastest = std::max(fastest, capacity_of(folder(cpu)));
    std::set<std::string> cores;
    for (const int cpu : cpus) {
        if (leave_out && is_efficient(cpu)) continue;
        if (2 * capacity_of(folder(cpu)) < fastest) continue;
        const std::string core = core_of(folder(cpu) + "topology/");
        cores.insert(core.empty() ? message("cpu", cpu) : core);
    }
    return std::max(1, static_cast<int>(cores.size()));
}

int fast_cores() {
#if defined(__APPLE__)
    // Performance cores where there are two kinds, else all.
    for (const char* name : {"hw.perflevel0.physicalcpu", "hw.physicalcpu"}) {
        int count = 0;
        size_t size = sizeof(count);
        if (sysctlbyname(name, &count, &size, nullptr, 0) == 0 && count > 0) return count;
    }
#endif
    const std::vector<int> cpus = allowed_cpus();
    if (cpus.empty()) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    return fast_cores(cpus, "/sys/devices");
}

}  // namespace dualar
