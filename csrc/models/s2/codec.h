// The S2 family's codec (a causal DAC variant): what its weights are called, and how they become those of an RvqCodec.
#pragma once

#include <memory>

#include "models/rvq_codec.h"
#include "models/s2/codec_config.h"

namespace dualar {

class Dac : public RvqCodec {
  public:
    Dac(std::shared_ptr<const GgufFile> file, const std::shared_ptr<Backend>& backend);

  private:
    Dac(const std::shared_ptr<const GgufFile>& file, const std::shared_ptr<Backend>& backend, const DacConfig& config);
    std::unique_ptr<CodecEncoder> make_encoder(const EncoderWeights& encoder, int64_t max_frames) const override;

    DacConfig config_;
};

}  // namespace dualar
