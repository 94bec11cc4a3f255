// Qwen3-TTS's 12 Hz codec: what its weights are called, and how they become those of an RvqCodec.
#pragma once

#include <memory>

#include "models/qwen3_tts/codec_config.h"
#include "models/rvq_codec.h"

namespace dualar {

class Qwen3Codec : public RvqCodec {
  public:
    Qwen3Codec(std::shared_ptr<const GgufFile> file, const std::shared_ptr<Backend>& backend);

  private:
    Qwen3Codec(const std::shared_ptr<const GgufFile>& file, const std::shared_ptr<Backend>& backend,
               const Qwen3CodecConfig& config);
    std::unique_ptr<CodecEncoder> make_encoder(const EncoderWeights& encoder, int64_t max_frames) const override;
};

}  // namespace dualar
