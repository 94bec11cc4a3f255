#include "models/codec.h"

#include <cmath>

#include "models/codec_weights.h"
#include "runtime/error.h"

namespace dualar {

namespace {

constexpr const char* kEncoder = "encoder";

}  // namespace

CodecEncoder::CodecEncoder(std::shared_ptr<const Codec> codec, int64_t max_frames)
    : codec_(std::move(codec)), max_frames_(checked_frames(max_frames)) {}

std::vector<int32_t> CodecEncoder::push(const std::vector<float>& samples) { return run(samples, /*last=*/false); }

std::vector<int32_t> CodecEncoder::finish(const std::vector<float>& samples) { return run(samples, /*last=*/true); }

std::vector<int32_t> CodecEncoder::run(const std::vector<float>& samples, bool last) {
    const OneThread::Use use(one_thread_, kEncoder);
    codec_->backend()->check_process();
    if (finished_) throw std::invalid_argument("[samples] expected reset() after a clip's end, got more samples");
    const int64_t per_frame = codec_->samples_per_frame();
    const auto count = static_cast<int64_t>(samples.size());
    if ((!last && count % per_frame != 0) || count > max_frames_ * per_frame)
        throw std::invalid_argument(message("[samples] expected ", last ? "frames of " : "whole frames of ", per_frame,
                                            " samples, at most ", max_frames_, " a push, got ", count, " samples"));
    for (const float sample : samples)
        if (!std::isfinite(sample))
            throw std::invalid_argument(message("[samples] expected finite samples, got ", sample));
    progress_.begin(kEncoder);
    finished_ = last;
    probes_.clear();
    std::vector<int32_t> codes;
    if (count > 0) codes = encode(samples, last);
    progress_.end();
    return codes;
}

void CodecEncoder::reset() {
    const OneThread::Use use(one_thread_, kEncoder);
    finished_ = false;
    clear();
    progress_.restart();
}

}  // namespace dualar
