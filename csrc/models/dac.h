// The S2 family's codec (a causal DAC variant). Dac holds the weights, its encoder's (dac_encoder.h) apart; DacStream
// decodes, codes -> samples, with one stream's state. Whole decoding is a stream that is fed in pieces.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "models/codec_weights.h"
#include "models/dac_config.h"
#include "models/dac_encoder.h"
#include "nn/rvq.h"
#include "runtime/one_thread.h"
#include "runtime/weights.h"

namespace dualar {

struct DecoderBlock {
    ggml_tensor* alpha = nullptr;
    nn::Conv upsample;
    ResidualUnit units[3];
};

class Dac {
  public:
    static bool present(const GgufFile& file);
    Dac(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend);

    std::vector<std::string> unused_tensors() const;
    const std::shared_ptr<Backend>& backend() const { return backend_; }
    // Bring the weights to the device, once: a file that is only looked at never pays for it.
    void load() const;

    // nullptr for a file without encoder tensors.
    const DacEncoder* encoder() const { return encoder_.get(); }

    DacConfig config;
    nn::Rvq rvq;
    nn::WindowedTransformer post_module;
    struct Upsample {
        nn::Conv conv;
        nn::ConvNext convnext;
    };
    std::vector<Upsample> upsamples;
    nn::Conv first;
    std::vector<DecoderBlock> decoder;
    ggml_tensor* last_alpha = nullptr;
    nn::Conv last;

  private:
    void read_quantizer(Weights& weights);
    void read_decoder(Weights& weights);

    std::shared_ptr<Backend> backend_;
    mutable Weights weights_;
    mutable std::once_flag loaded_;
    std::unique_ptr<DacEncoder> encoder_;
};

class DacStream {
  public:
    // max_frames: how many frames one push may hold, 1 to 4096.
    DacStream(std::shared_ptr<const Dac> codec, int64_t max_frames);

    // codes int32 [codebooks, frames] row-major, frames <= max_frames -> samples [frames * samples_per_frame].
    // Codes at or above their codebook's size are clamped; std::invalid_argument for anything else that does not fit.
    std::vector<float> push(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames);
    void reset();
    // A push, and the seconds that each kind of layer took: for benchmarks.
    std::map<std::string, double> profile(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames);

    int64_t max_frames() const { return max_frames_; }
    size_t nbytes() const { return post_module_.nbytes() + state_.nbytes(); }
    int graph_builds() const { return graph_builds_; }

  private:
    void build(GraphBuilder& g, int64_t frames) const;
    Graph& ready(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames);

    std::shared_ptr<const Dac> codec_;
    int64_t max_frames_;
    nn::WindowedState post_module_;
    nn::ConvState state_;
    std::vector<float> looked_up_;
    std::vector<std::unique_ptr<Graph>> graphs_;  // by frames in a push
    int graph_builds_ = 0;
    OneThread one_thread_;
};

}  // namespace dualar
