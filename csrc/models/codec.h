// What every neural codec here is to its callers: weights, decoding streams (codes -> samples) and encoding streams
// (samples -> codes). The checks on what goes in, and the graphs by size, are here; the recipes in each family's file.
// Whole decoding is a stream that is fed in pieces.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/causal_conv.h"
#include "nn/rvq.h"
#include "nn/windowed_transformer.h"
#include "runtime/gguf_file.h"
#include "runtime/graph.h"
#include "runtime/one_thread.h"

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

// The codec of a file, of the family that the file's architecture says. ModelError for what is wrong with it.
std::shared_ptr<Codec> open_codec(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend);

// Where a stream was after some frames, on the host.
struct CodecSnapshot {
    std::shared_ptr<const Codec> codec;
    int64_t max_frames;
    int64_t positions;           // of the transformer
    std::vector<char> rows;      // of its cache
    std::vector<float> columns;  // of the convolutions

    size_t nbytes() const { return rows.size() + columns.size() * sizeof(float); }
};

// One stream's state.
class CodecStream {
  public:
    virtual ~CodecStream() = default;
    CodecStream(const CodecStream&) = delete;
    CodecStream& operator=(const CodecStream&) = delete;

    // codes int32 [codebooks, frames] row-major, frames <= max_frames -> samples [frames * samples_per_frame].
    // std::invalid_argument for what does not fit; nothing has changed then.
    std::vector<float> push(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames);
    void reset();
    CodecSnapshot snapshot();
    // Go on from there. std::invalid_argument for one of another codec or max_frames.
    void restore(const CodecSnapshot& snapshot);
    // A push, and the seconds that each kind of layer took: for benchmarks.
    std::map<std::string, double> profile(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames);
    // A push, and what came out of the layers that have a name, column by column: for tests.
    std::map<std::string, std::vector<float>> probe(const std::vector<int32_t>& codes, int64_t codebooks,
                                                    int64_t frames);

    int64_t max_frames() const { return max_frames_; }
    size_t nbytes() const { return transformer_.nbytes() + columns_.nbytes(); }
    int graph_builds() const { return graph_builds_; }

  protected:
    // What a recipe runs on, the codec's: its codebooks, its transformer with its name in the graph, and the states of
    // its convolutions in the order in which build() meets them.
    struct Parts {
        const nn::Rvq& rvq;
        const nn::WindowedTransformer& transformer;
        const char* name;
        std::vector<nn::ConvState::Size> sizes;
    };
    CodecStream(std::shared_ptr<const Codec> codec, int64_t max_frames, const Parts& parts);

    // The recipe, from the input "x" [rvq.columns(), frames], the rows that the codes stand for, to "samples".
    virtual void build(GraphBuilder& g, int64_t frames) const = 0;
    const nn::WindowedState& transformer() const { return transformer_; }
    const nn::ConvState& columns() const { return columns_; }
    // What is still to be done to the samples, off the graph.
    virtual void post(std::vector<float>&) const {}

  private:
    void check(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames) const;
    Graph& ready(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames);
    void set(Graph& graph, const std::vector<int32_t>& codes, int64_t frames);

    std::shared_ptr<const Codec> codec_;
    int64_t max_frames_;
    const nn::Rvq& rvq_;
    size_t max_nodes_;
    nn::WindowedState transformer_;
    nn::ConvState columns_;
    std::vector<float> looked_up_;
    std::vector<std::unique_ptr<Graph>> graphs_;  // by frames in a push
    int graph_builds_ = 0;
    OneThread one_thread_;
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
    // reset() may follow.
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

    std::map<std::string, std::vector<float>> probes_;

  private:
    std::vector<int32_t> run(const std::vector<float>& samples, bool last);

    std::shared_ptr<const Codec> codec_;
    int64_t max_frames_;
    bool finished_ = false;
    OneThread one_thread_;
};

}  // namespace dualar
