// Where ggml's log lines go: to one sink set by the bindings, or, on a thread that asks for it, into a string
// (so that the reason a library call failed can stand in an exception's text).
#pragma once

#include <functional>
#include <string>

namespace dualar {

// level: a number of Python's `logging` (10 debug, 20 info, 30 warning, 40 error).
using LogSink = std::function<void(int level, const std::string& line)>;

// An empty sink drops everything; lines before the first one that is not empty wait for it. May be called from any
// thread; the sink must be callable from any thread.
void set_log_sink(LogSink sink);

// One whole line, to this thread's LogCapture or to the sink.
void log_line(int level, std::string line);

// While it lives, ggml's warnings and errors on this thread are collected here instead of going to the sink.
class LogCapture {
  public:
    LogCapture();
    ~LogCapture();
    LogCapture(const LogCapture&) = delete;
    LogCapture& operator=(const LogCapture&) = delete;

    // The lines so far, joined by "; ".
    std::string text() const;

  private:
    LogCapture* outer_;
    std::string lines_;
    friend void log_line(int level, std::string line);
};

}  // namespace dualar
