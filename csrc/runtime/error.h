// The three kinds of error that leave the core, and the way their text is put together.
// std::invalid_argument blames the caller (ValueError), ModelError the file, BackendError the device.
// Text: "[where] what was expected, what came".
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace dualar {

struct ModelError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct BackendError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The parts, streamed one after the other.
template <class... Parts>
std::string message(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

}  // namespace dualar
