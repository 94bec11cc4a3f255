// Qwen3-TTS's 12 Hz codec. Qwen3Codec holds the weights, its encoder's (qwen3_codec_encoder.h) apart; Qwen3CodecStream
// is the recipe of decoding, with one stream's state.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "models/codec.h"
#include "models/codec_weights.h"
#include "models/qwen3_tts/codec_config.h"
#include "models/qwen3_tts/codec_encoder.h"
#include "nn/rvq.h"
#include "runtime/weights.h"

namespace dualar {

class Qwen3Codec : public Codec {
  public:
    Qwen3Codec(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend);

    int sample_rate() const override { return config.sample_rate; }
    int64_t samples_per_frame() const override { return config.samples_per_frame(); }
    std::vector<int64_t> codebook_sizes() const override;
    bool clamps_codes() const override { return false; }
    bool can_encode() const override { return encoder_ != nullptr; }
    std::vector<std::string> unused_tensors() const override;
    std::unique_ptr<CodecStream> stream(int64_t max_frames) const override;
    std::unique_ptr<CodecEncoder> encode_stream(int64_t max_frames) const override;
    // Bring the weights to the device, once: a file that is only looked at never pays for it.
    void load() const;

    // nullptr for a file without encoder tensors.
    const Qwen3Encoder* encoder() const { return encoder_.get(); }

    Qwen3CodecConfig config;
    nn::Rvq rvq;
    nn::Conv pre_conv;
    nn::Linear in_proj;
    nn::WindowedTransformer transformer;
    nn::Linear out_proj;
    struct Upsample {
        nn::Conv conv;
        nn::ConvNext convnext;
    };
    std::vector<Upsample> upsamples;
    nn::Conv first;
    struct Block {
        nn::Activation snake;
        nn::Conv upsample;
        ResidualUnit units[3];
    };
    std::vector<Block> decoder;
    nn::Activation last_snake;
    nn::Conv last;

  private:
    void read_quantizer();
    void read_transformer();
    void read_decoder();
    std::shared_ptr<const Qwen3Codec> shared() const {
        return std::static_pointer_cast<const Qwen3Codec>(shared_from_this());
    }

    mutable Weights weights_;
    mutable std::once_flag loaded_;
    std::unique_ptr<Qwen3Encoder> encoder_;
};

class Qwen3CodecStream : public CodecStream {
  public:
    Qwen3CodecStream(std::shared_ptr<const Qwen3Codec> codec, int64_t max_frames);

  private:
    void build(GraphBuilder& g, int64_t frames) const override;
    void post(std::vector<float>& samples) const override;

    std::shared_ptr<const Qwen3Codec> codec_;
};

}  // namespace dualar
