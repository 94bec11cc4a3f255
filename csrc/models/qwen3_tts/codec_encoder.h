// The encoding half of Qwen3-TTS's codec: samples -> codes, in pieces of whole frames, with one clip's state.
// Qwen3Encoder holds the weights (loaded when a first clip needs them), Qwen3EncodeStream the state.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "models/qwen3_tts/codec_config.h"
#include "models/rvq_codec.h"
#include "nn/growing_transformer.h"

namespace dualar {

class Qwen3Encoder : public EncoderWeights {
  public:
    static bool present(const GgufFile& file);
    // Problems are left in weights().
    Qwen3Encoder(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend, const Qwen3CodecConfig& codec);

    Qwen3EncoderConfig config;
    nn::Conv first;
    struct Block {
        ResidualUnit unit;
        nn::Conv downsample;
    };
    std::vector<Block> blocks;
    nn::Conv last;
    nn::WindowedTransformer transformer;
    nn::Conv downsample;
    nn::NearestRvqEncoder semantic;  // the first codebook
    nn::NearestRvqEncoder acoustic;  // the others: of the same vector, not of what the first one left

  private:
    void read_blocks();
    void read_transformer();
    void read_quantizers(const Qwen3CodecConfig& codec);
};

class Qwen3EncodeStream : public CodecEncoder {
  public:
    Qwen3EncodeStream(std::shared_ptr<const Codec> codec, const Qwen3Encoder& encoder, int64_t max_frames);
    size_t nbytes() const override { return state_.nbytes() + transformer_.nbytes(); }
    int graph_builds() const override { return graph_builds_; }

  private:
    std::vector<int32_t> encode(const std::vector<float>& samples, bool last) override;
    void clear() override;
    void build(GraphBuilder& g, int64_t samples) const;

    const Qwen3Encoder& encoder_;
    nn::ConvState state_;
    nn::GrowingState transformer_;
    bool first_ = true;
    std::map<std::pair<int64_t, bool>, std::unique_ptr<Graph>> graphs_;  // by samples in a push, and first_
    int graph_builds_ = 0;
};

}  // namespace dualar
