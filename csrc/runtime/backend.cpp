#include "runtime/backend.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>
#include <utility>

#include "runtime/cpu_topology.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/program_exit.h"

namespace dualar {

namespace {

constexpr int kMaxThreads = 512;  // GGML_MAX_N_THREADS

// So long after a run that was held up the machine is taken to be busy.
constexpr double kBusySeconds = 1.0;

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A graph ends after the node that it is at; backends that cannot do that finish theirs.
void end_graphs_at_exit(ggml_backend_t backend) {
    ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
    void* address = ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_abort_callback");
    if (address == nullptr) return;
    const auto set = reinterpret_cast<ggml_backend_set_abort_callback_t>(address);
    set(backend, [](void*) { return is_exiting(); }, nullptr);
}

std::string lower(std::string value) {
    std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
    return value;
}

const char* kind_of(ggml_backend_dev_t device) {
    switch (ggml_backend_dev_type(device)) {
        case GGML_BACKEND_DEVICE_TYPE_CPU:
            return "cpu";
        case GGML_BACKEND_DEVICE_TYPE_GPU:
            return "gpu";
        case GGML_BACKEND_DEVICE_TYPE_IGPU:
            return "igpu";
        default:
            return "accel";
    }
}

// ggml counts from CUDA0, Vulkan0, Metal (or MTL0); users say cuda, vulkan, metal, and cuda1 for the second.
std::string user_name(ggml_backend_dev_t device) {
    std::string name = lower(ggml_backend_dev_name(device));
    if (name.size() > 1 && name.back() == '0' && !std::isdigit(static_cast<unsigned char>(name[name.size() - 2])))
        name.pop_back();
    return name == "mtl" ? "metal" : name;
}

std::vector<std::pair<std::string, ggml_backend_dev_t>> named_devices() {
    std::vector<std::pair<std::string, ggml_backend_dev_t>> found;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        found.emplace_back(user_name(device), device);
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first == "cpu" && b.first != "cpu"; });
    return found;
}

int affinity_cpus() {
    const std::vector<int> cpus = allowed_cpus();
    return cpus.empty() ? static_cast<int>(std::thread::hardware_concurrency()) : static_cast<int>(cpus.size());
}

// Whole CPUs that the cgroup (v2, else v1) grants, rounded up; a large number where there is no limit.
int cgroup_cpus() {
    constexpr int kNoLimit = 1 << 20;
    std::string quota;
    double period = 0;
    std::ifstream v2("/sys/fs/cgroup/cpu.max");
    if (v2 >> quota >> period && quota != "max" && period > 0)
        return std::max(1, static_cast<int>(std::ceil(std::stod(quota) / period)));
    double micros = 0;
    std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (v1_quota >> micros && v1_period >> period && micros > 0 && period > 0)
        return std::max(1, static_cast<int>(std::ceil(micros / period)));
    return kNoLimit;
}

}  // namespace

int usable_cpus() { return std::max(1, std::min(affinity_cpus(), cgroup_cpus())); }

int default_threads() { return std::min(usable_cpus(), fast_cores()); }

std::vector<DeviceInfo> devices() {
    std::vector<DeviceInfo> found;
    for (const auto& [name, device] : named_devices()) {
        size_t free = 0;
        size_t total = 0;
        ggml_backend_dev_memory(device, &free, &total);
        found.push_back({name, kind_of(device), ggml_backend_dev_description(device), total, free});
    }
    return found;
}

Backend::Backend(const std::string& device, int threads, bool exactly)
    : device_(lower(device)),
      threads_(threads == 0 ? default_threads()
               : exactly    ? threads
                            : std::min(threads, usable_cpus())),
      process_(getpid()),
      exactly_(exactly),
      governor_(threads_) {
    if (threads < 0 || threads > kMaxThreads)
        throw std::invalid_argument(message("[threads] expected 1 to ", kMaxThreads, ", got ", threads));

    const auto known = named_devices();
    const auto wanted =
        std::find_if(known.begin(), known.end(), [&](const auto& entry) { return entry.first == device_; });
    if (wanted == known.end()) {
        std::string names;
        for (const auto& entry : known) names += (names.empty() ? "" : ", ") + entry.first;
        for (const char* family : {"cuda", "metal", "vulkan"})
            if (device_.rfind(family, 0) == 0)
                throw BackendError(message("[device] expected one that this build can use (", names, "), got \"",
                                           device, "\": build with DUALAR_",
                                           family[0] == 'c'   ? "CUDA"
                                           : family[0] == 'm' ? "METAL"
                                                              : "VULKAN",
                                           "=ON on a machine that has one"));
        throw std::invalid_argument(message("[device] expected one of ", names, ", got \"", device, "\""));
    }

    cpu_.reset(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr));
    if (!cpu_) throw BackendError("[backend] the CPU backend did not start");
    pools_ = std::make_unique<ThreadPools>(cpu_.get(), threads_);

    if (ggml_backend_dev_type(wanted->second) != GGML_BACKEND_DEVICE_TYPE_CPU) {
        const LogCapture log;
        gpu_.reset(ggml_backend_dev_init(wanted->second, nullptr));
        if (!gpu_) throw BackendError(message("[device] \"", device, "\" did not start: ", log.text()));
        all_.push_back(gpu_.get());
    }
    all_.push_back(cpu_.get());
    for (ggml_backend_t backend : all_) end_graphs_at_exit(backend);
}

Backend::~Backend() {
    if (getpid() != process_ && pools_) pools_->abandon();
}

ggml_backend_buffer_ptr Backend::allocate(ggml_context* context, const char* what) const {
    if (ggml_get_first_tensor(context) == nullptr) return {};
    // A system that overcommits grants more than it has, and ends the process once the memory is touched.
    size_t needed = 0;
    for (ggml_tensor* t = ggml_get_first_tensor(context); t != nullptr; t = ggml_get_next_tensor(context, t))
        needed += ggml_nbytes(t);
    size_t free = 0;
    size_t total = 0;
    ggml_backend_dev_memory(ggml_backend_get_device(main()), &free, &total);
    if (total != 0 && needed > total)
        throw BackendError(
            message("[memory] expected at most the ", total, " bytes of ", device_, ", got ", needed, " for ", what));
    const LogCapture log;
    ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(context, main()));
    if (!buffer) throw BackendError(message("[memory] no room on ", device_, " for ", what, ": ", log.text()));
    ggml_backend_buffer_clear(buffer.get(), 0);
    return buffer;
}

std::shared_ptr<Backend::Work> Backend::work_of(const ggml_cgraph* graph, int most) {
    const std::lock_guard<std::mutex> lock(compute_mutex_);
    return known_.of(graph, exactly_ ? threads_ : most);
}

ggml_status Backend::compute(ggml_backend_sched_t scheduler, ggml_cgraph* graph, Work& work, bool timed) {
    const std::lock_guard<std::mutex> lock(compute_mutex_);
    check_exit();
    if (exactly_ || !is_cpu() || work.fixed()) {
        pools_->use(work.most(), /*alone=*/false);
        return ggml_backend_sched_graph_compute(scheduler, graph);
    }
    const double began = seconds_now();
    pools_->use(governor_.threads(work), governor_.shrunk());
    pools_->beside_others(began < busy_until_);
    const ggml_status status = ggml_backend_sched_graph_compute(scheduler, graph);
    if (!timed || status != GGML_STATUS_SUCCESS) return status;
    const double ended = seconds_now();
    governor_.ran(work, ended - began, ended);
    if (governor_.held_up()) busy_until_ = ended + kBusySeconds;
    return status;
}

void Backend::check_process() const {
    if (getpid() != process_)
        throw BackendError("[fork] the engine was loaded in another process; load it again in this one");
}

}  // namespace dualar
