// The S2 family's codec (a causal DAC variant). Dac holds the weights, its encoder's (dac_encoder.h) apart; DacStream
// is the recipe of decoding, with one stream's state.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "models/codec.h"
#include "models/codec_weights.h"
#include "models/s2/codec_config.h"
#include "models/s2/codec_encoder.h"
#include "nn/rvq.h"
#include "runtime/weights.h"

namespace dualar {

struct DecoderBlock {
    nn::Activation snake;
    nn::Conv upsample;
    ResidualUnit units[3];
};

class Dac : public Codec {
  public:
    Dac(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend);

    int sample_rate() const override { return config.sample_rate; }
    int64_t samples_per_frame() const override { return config.samples_per_frame(); }
    std::vector<int64_t> codebook_sizes() const override;
    bool clamps_codes() const override { return true; }  // the model may draw one that is out of range
    bool can_encode() const override { return encoder_ != nullptr; }
    std::vector<std::string> unused_tensors() const override;
    std::unique_ptr<CodecStream> stream(int64_t max_frames) const override;
    std::unique_ptr<CodecEncoder> encode_stream(int64_t max_frames) const override;
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
    nn::Activation last_snake;
    nn::Conv last;

  private:
    void read_quantizer(Weights& weights);
    void read_decoder(Weights& weights);

    std::shared_ptr<const Dac> shared() const { return std::static_pointer_cast<const Dac>(shared_from_this()); }

    mutable Weights weights_;
    mutable std::once_flag loaded_;
    std::unique_ptr<DacEncoder> encoder_;
};

class DacStream : public CodecStream {
  public:
    DacStream(std::shared_ptr<const Dac> codec, int64_t max_frames);

  private:
    void build(GraphBuilder& g, int64_t frames) const override;

    std::shared_ptr<const Dac> codec_;
};

}  // namespace dualar
