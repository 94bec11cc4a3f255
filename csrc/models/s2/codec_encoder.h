// The encoding half of the S2 family's codec: samples -> codes, in pieces of whole frames, with one clip's state.
// DacEncoder holds the weights (loaded when a first clip needs them), DacEncodeStream the state.
#pragma once

#include <memory>
#include <vector>

#include "models/rvq_codec.h"
#include "models/s2/codec_config.h"

namespace dualar {

struct EncoderBlock {
    ResidualUnit units[3];
    nn::Activation snake;
    nn::Conv downsample;
    nn::WindowedTransformer transformer;  // without blocks where the codec has none there
};

class DacEncoder : public EncoderWeights {
  public:
    static bool present(const GgufFile& file);
    // Problems are left in weights().
    DacEncoder(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend, const DacConfig& config);

    nn::Conv first;
    std::vector<EncoderBlock> blocks;
    nn::Activation last_snake;
    nn::Conv last;
    struct Downsample {
        nn::Conv conv;
        nn::ConvNext convnext;
    };
    std::vector<Downsample> downsamples;
    nn::WindowedTransformer pre_module;
    nn::RvqEncoder quantizer;

  private:
    void read_blocks(const DacConfig& config);
    void read_quantizer(const DacConfig& config);
};

// Zeros fill the last frame of a clip.
class DacEncodeStream : public CodecEncoder {
  public:
    DacEncodeStream(std::shared_ptr<const Codec> codec, const DacEncoder& encoder, const DacConfig& config,
                    int64_t max_frames);
    size_t nbytes() const override;
    int graph_builds() const override { return graph_builds_; }

  private:
    std::vector<int32_t> encode(const std::vector<float>& samples, bool last) override;
    void clear() override;
    void build(GraphBuilder& g, int64_t frames) const;

    const DacEncoder& encoder_;
    nn::ConvState state_;
    // One for each transformer, the pre_module's last, with the positions that it has per frame.
    struct Windowed {
        std::unique_ptr<nn::WindowedState> state;
        int64_t positions_per_frame;
    };
    std::vector<Windowed> windowed_;
    std::vector<std::unique_ptr<Graph>> graphs_;  // by frames in a push
    int graph_builds_ = 0;
};

}  // namespace dualar
