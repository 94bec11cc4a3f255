#include "runtime/backend_modules.h"

#if defined(DUALAR_BACKEND_DL)
#include <dlfcn.h>

#include <filesystem>
#include <system_error>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "runtime/log.h"
#include "runtime/x86_features.h"

namespace dualar {

#if defined(DUALAR_BACKEND_DL)

namespace {

using ScoreOf = int (*)();  // ggml_backend_score_t, which no public header of ggml has

// ggml's own search also takes GGML_BACKEND_PATH, and says nothing of modules that do not load.
void load_best(const std::filesystem::path& folder, const std::string& name) {
    const std::string prefix = "libggml-" + name;
    int best_score = -1;
    std::filesystem::path best;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
        const std::string file = entry.path().filename().string();
        if (entry.path().extension() != ".so" || file.rfind(prefix, 0) != 0) continue;
        if (file[prefix.size()] != '-' && file[prefix.size()] != '.') continue;
        void* module = dlopen(entry.path().c_str(), RTLD_NOW | RTLD_LOCAL);
        if (module == nullptr) {
            const char* why = dlerror();
            log_line(30, "[backend] " + file + " did not load: " + (why == nullptr ? "no reason given" : why));
            continue;
        }
        // 0 for a CPU that cannot run the variant; a module without variants has no score.
        const auto score_of = reinterpret_cast<ScoreOf>(dlsym(module, "ggml_backend_score"));
        const int score = score_of == nullptr ? 0 : score_of();
        if ((score > 0 || score_of == nullptr) && score > best_score) {
            best_score = score;
            best = entry.path();
        }
        dlclose(module);
    }
    if (!best.empty()) ggml_backend_load(best.c_str());
}

}  // namespace

void load_backend_modules(const std::string& folder) {
    const std::filesystem::path package = std::filesystem::absolute(folder);
    for (const char* name : {"cuda", "metal", "vulkan", "cpu"}) load_best(package, name);
}

std::string missing_cpu_features() {
    if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) != nullptr) return {};
    return "every one of the CPU variants beside the package";
}

#else

void load_backend_modules(const std::string&) {}

std::string missing_cpu_features() {
    std::string missing;
    const auto need = [&](const char* name, int built, bool has) {
        if (built != 0 && !has) missing += (missing.empty() ? "" : ", ") + std::string(name);
    };
#if defined(__x86_64__)
    const X86Features& can = x86_features();
    need("SSE3", ggml_cpu_has_sse3(), can.sse3);
    need("SSSE3", ggml_cpu_has_ssse3(), can.ssse3);
    need("AVX", ggml_cpu_has_avx(), can.avx);
    need("AVX2", ggml_cpu_has_avx2(), can.avx2);
    need("FMA", ggml_cpu_has_fma(), can.fma);
    need("BMI2", ggml_cpu_has_bmi2(), can.bmi2);
    need("AVX-512", ggml_cpu_has_avx512(), can.avx512f);
    need("AVX-512 VBMI", ggml_cpu_has_avx512_vbmi(), can.avx512_vbmi);
    need("AVX-512 VNNI", ggml_cpu_has_avx512_vnni(), can.avx512_vnni);
    need("AVX-512 BF16", ggml_cpu_has_avx512_bf16(), can.avx512_bf16);
#elif defined(__aarch64__) && defined(__linux__)
    const unsigned long has = getauxval(AT_HWCAP);
    need("dot products", ggml_cpu_has_dotprod(), (has & HWCAP_ASIMDDP) != 0);
    need("half-precision arithmetic", ggml_cpu_has_fp16_va(), (has & HWCAP_ASIMDHP) != 0);
    need("SVE", ggml_cpu_has_sve(), (has & HWCAP_SVE) != 0);
#if defined(HWCAP2_I8MM)
    need("I8MM", ggml_cpu_has_matmul_int8(), (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0);
#endif
#endif
    return missing;
}

#endif

}  // namespace dualar
