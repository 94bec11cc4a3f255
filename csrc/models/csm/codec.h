// Mimi, CSM's codec: what its weights are called, and how they become those of an RvqCodec and a MimiEncoder. Its
// transformers see a window of positions, themselves included, whole and streamed.
#pragma once

#include <memory>

#include "models/mimi_encoder.h"
#include "models/rvq_codec.h"

namespace dualar {

// The codec's geometry, as its GGUF keys give it.
struct MimiConfig {
    int sample_rate = 0;
    int num_codebooks = 0;
    int64_t codebook_size = 0;
    int64_t codebook_dim = 0;      // of a code's vector
    int64_t latent_dim = 0;        // of what the projected vectors add up to
    int64_t decoder_dim = 0;       // channels before the first rate
    int64_t upsampling_ratio = 0;  // positions of the transformer a frame
    std::vector<int64_t> decoder_rates;
    CodecTransformer transformer;
    int64_t window = 0;

    int64_t samples_per_frame() const { return upsampling_ratio * product(decoder_rates); }
};

class CsmCodec : public RvqCodec {
  public:
    CsmCodec(std::shared_ptr<const GgufFile> file, const std::shared_ptr<Backend>& backend);

  private:
    CsmCodec(const std::shared_ptr<const GgufFile>& file, const std::shared_ptr<Backend>& backend,
             const MimiConfig& config);
    std::unique_ptr<CodecEncoder> make_encoder(const EncoderWeights& encoder, int64_t max_frames) const override;
};

}  // namespace dualar
