// What a speaker encoder is to its callers: a mel spectrogram -> one vector that says whose voice it is. It runs once
// per voice, on the whole clip; making the spectrogram is the caller's affair.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dualar {

class SpeakerEncoder {
  public:
    virtual ~SpeakerEncoder() = default;

    virtual int sample_rate() const = 0;
    virtual int64_t mel_dim() const = 0;
    virtual int64_t dim() const = 0;
    // The fewest frames that embed() takes: fewer cannot be reflected far enough at their ends.
    virtual int64_t min_frames() const = 0;
    virtual std::vector<std::string> unused_tensors() const = 0;

    // mel [frames, mel_dim] row-major -> [dim]. std::invalid_argument for too few frames or values that are not finite.
    virtual std::vector<float> embed(const std::vector<float>& mel, int64_t frames) const = 0;
    // The same, and what came out of the layers that have a name, column by column: for tests.
    virtual std::map<std::string, std::vector<float>> probe(const std::vector<float>& mel, int64_t frames) const = 0;
};

}  // namespace dualar
