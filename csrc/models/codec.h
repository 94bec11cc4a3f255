// What a neural codec is to its callers, whatever it is made of: weights, decoding streams (codes -> samples) and
// encoding streams (samples -> codes). Whole decoding is a stream that is fed in pieces. models/rvq_codec.h is the one
// implementation so far.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend.h"
#include "runtime/gguf_file.h"
#include "runtime/one_thread.h"
#include "runtime/progress.h"

namespace dualar {

class CodecStream;
class CodecEncoder;

class Codec : public std::enable_shared_from_this<Codec> {
  public:
    virtual ~Codec() = default;
    Codec(const Codec&) = delete;
    Codec& operator=(const Codec&) = delete;

    virtual int sample_rate() const = 0;
    virtual int64_t samples_per_frame() const = 0;
    virtual std::vector<int64_t> codebook_sizes() const = 0;
    // A code at or above its codebook's size: is it the last entry (true), or an error?
    virtual bool clamps_codes() const = 0;
    virtual bool can_encode() const = 0;
    virtual std::vector<std::string> unused_tensors() const = 0;

    // Bring the decoder's weights to the device, once: else the first stream does. ProgramExit where the program ends
    // meanwhile. The encoder's weights wait for a first clip.
    virtual void load() const = 0;
    // max_frames: how many frames one push may hold, 1 to 4096.
    virtual std::unique_ptr<CodecStream> stream(int64_t max_frames) const = 0;
    // ModelError for a file without the encoder's tensors.
    virtual std::unique_ptr<CodecEncoder> encode_stream(int64_t max_frames) const = 0;

    int64_t num_codebooks() const { return static_cast<int64_t>(codebook_sizes().size()); }
    const std::shared_ptr<Backend>& backend() const { return backend_; }

  protected:
    explicit Codec(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

  private:
    std::shared_ptr<Backend> backend_;
};

// Where a stream was after some frames, on the host: what it must remember of them.
struct CodecSnapshot {
    std::shared_ptr<const Codec> codec;
    int64_t max_frames;
    int64_t positions;           // of the transformer
    std::vector<char> rows;      // of its cache
    std::vector<float> columns;  // of the convolutions

    size_t nbytes() const { return rows.size() + columns.size() * sizeof(float); }
};

// One stream's state. It belongs to one thread at a time.
class CodecStream {
  public:
    virtual ~CodecStream() = default;

    // codes int32 [codebooks, frames] row-major, frames <= max_frames -> samples [frames * samples_per_frame].
    // std::invalid_argument for what does not fit; nothing has changed then. After any other error only reset() and
    // restore() may follow.
    virtual std::vector<float> push(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames) = 0;
    virtual void reset() = 0;
    virtual CodecSnapshot snapshot() = 0;
    // Go on from there. std::invalid_argument for one of another codec or max_frames.
    virtual void restore(const CodecSnapshot& snapshot) = 0;
    // A push, and the seconds that each kind of layer took: for benchmarks.
    virtual std::map<std::string, double> profile(const std::vector<int32_t>& codes, int64_t codebooks,
                                                  int64_t frames) = 0;
    // A push, and what came out of the layers that have a name, column by column: for tests.
    virtual std::map<std::string, std::vector<float>> probe(const std::vector<int32_t>& codes, int64_t codebooks,
                                                            int64_t frames) = 0;
    virtual int64_t max_frames() const = 0;
    virtual size_t nbytes() const = 0;
    virtual int graph_builds() const = 0;
};

// One clip's state.
class CodecEncoder {
  public:
    virtual ~CodecEncoder() = default;
    CodecEncoder(const CodecEncoder&) = delete;
    CodecEncoder& operator=(const CodecEncoder&) = delete;

    // samples [frames * samples_per_frame], at most max_frames -> codes int32 [codebooks, frames] row-major.
    std::vector<int32_t> push(const std::vector<float>& samples);
    // The clip's last samples, which need not fill their last frame, -> codes of the frames that they begin. Then only
    // reset() may follow, and so after an error of the device.
    std::vector<int32_t> finish(const std::vector<float>& samples);
    void reset();

    int64_t max_frames() const { return max_frames_; }
    int64_t codebooks() const { return codec_->num_codebooks(); }
    virtual size_t nbytes() const = 0;
    virtual int graph_builds() const = 0;
    // What the last push gave, by name and column by column: for tests.
    const std::map<std::string, std::vector<float>>& probes() const { return probes_; }

  protected:
    CodecEncoder(std::shared_ptr<const Codec> codec, int64_t max_frames);

    // Some samples, all of them finite; whole frames, but where they are the last.
    virtual std::vector<int32_t> encode(const std::vector<float>& samples, bool last) = 0;
    virtual void clear() = 0;
    const Codec& codec() const { return *codec_; }

    std::map<std::string, std::vector<float>> probes_;

  private:
    std::vector<int32_t> run(const std::vector<float>& samples, bool last);

    std::shared_ptr<const Codec> codec_;
    int64_t max_frames_;
    bool finished_ = false;
    OneThread one_thread_;
    Progress progress_;
};

}  // namespace dualar
