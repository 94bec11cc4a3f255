#include "runtime/log.h"

#include <mutex>
#include <utility>
#include <vector>

#include "ggml.h"

namespace dualar {

namespace {

thread_local LogCapture* capture = nullptr;
thread_local std::string partial;  // ggml ends a line with a later call at level CONT
thread_local int partial_level = 0;

std::mutex& sink_mutex() {
    static std::mutex mutex;
    return mutex;
}

// Lines that come before the first sink, as those of an import, wait for it.
struct Sink {
    LogSink target;
    bool was_set = false;
    std::vector<std::pair<int, std::string>> waiting;
};

constexpr size_t kMaxWaiting = 200;

Sink& sink() {
    static Sink value;
    return value;
}

int python_level(ggml_log_level level) {
    switch (level) {
        case GGML_LOG_LEVEL_ERROR:
            return 40;
        case GGML_LOG_LEVEL_WARN:
            return 30;
        case GGML_LOG_LEVEL_INFO:
            return 20;
        default:
            return 10;
    }
}

}  // namespace

void log_line(int level, std::string line) {
    while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
    if (line.empty()) return;
    if (capture != nullptr && level >= 30) {
        if (!capture->lines_.empty()) capture->lines_ += "; ";
        capture->lines_ += line;
        return;
    }
    LogSink target;
    {
        const std::lock_guard<std::mutex> lock(sink_mutex());
        Sink& known = sink();
        if (!known.was_set && known.waiting.size() < kMaxWaiting) known.waiting.emplace_back(level, line);
        target = known.target;
    }
    if (target) target(level, line);
}

namespace {

void on_ggml_log(ggml_log_level level, const char* piece, void*) {
    if (level != GGML_LOG_LEVEL_CONT) partial_level = python_level(level);
    partial += piece;
    if (partial.empty() || partial.back() != '\n') return;
    log_line(partial_level, std::exchange(partial, {}));
}

// ggml keeps one callback for the whole process.
void install() {
    static std::once_flag once;
    std::call_once(once, [] { ggml_log_set(on_ggml_log, nullptr); });
}

}  // namespace

void set_log_sink(LogSink value) {
    install();
    std::vector<std::pair<int, std::string>> waiting;
    {
        const std::lock_guard<std::mutex> lock(sink_mutex());
        sink().target = value;
        if (!value) return;
        sink().was_set = true;
        waiting.swap(sink().waiting);
    }
    for (const auto& [level, line] : waiting) value(level, line);
}

LogCapture::LogCapture() : outer_(std::exchange(capture, this)) { install(); }

LogCapture::~LogCapture() { capture = outer_; }

std::string LogCapture::text() const { return lines_; }

}  // namespace dualar
