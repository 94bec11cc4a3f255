// The encoding half of Mimi, which is also that of codecs that descend from it (Qwen3-TTS's): samples -> codes, in
// pieces of whole frames, with one clip's state. MimiEncoder holds the weights (loaded when a first clip needs them),
// MimiEncodeStream the state. Their keys and names are the recipe's.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/rvq_codec.h"
#include "nn/growing_transformer.h"

namespace dualar {

struct MimiEncoderConfig {
    int num_codebooks = 0;
    int64_t codebook_size = 0;
    int64_t codebook_dim = 0;  // of a code's vector
    int64_t filters = 0;
    std::vector<int64_t> rates;
    int64_t downsample = 0;  // columns per frame that come out of the rates
    CodecTransformer transformer;
    int64_t window = 0;         // positions that the transformer sees; 0: all
    bool fills_frames = false;  // a last frame that is cut short: are the samples filled up, or each layer's input?
};
// Filters, rates and downsample, of these keys; ModelError where they do not fit each other and the frame.
struct MimiRateKeys {
    const char* filters;
    const char* rates;
};
void read_mimi_rates(const GgufFile& file, const MimiRateKeys& keys, int64_t samples_per_frame,
                     MimiEncoderConfig& config);

// What its tensors are called: beginnings, or whole names.
struct MimiEncoderNames {
    const char* layers;
    const char* transformer;
    const char* downsample;
    const char* codebook;
    const char* semantic_in_proj;
    const char* acoustic_in_proj;
};

class MimiEncoder : public EncoderWeights {
  public:
    // Problems are left in weights().
    MimiEncoder(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend, const MimiEncoderConfig& config,
                const MimiEncoderNames& names);
    static bool present(const GgufFile& file, const MimiEncoderNames& names);

    MimiEncoderConfig config;
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
    void read_blocks(const MimiEncoderNames& names);
    void read_quantizers(const MimiEncoderNames& names);
};

class MimiEncodeStream : public CodecEncoder {
  public:
    MimiEncodeStream(std::shared_ptr<const Codec> codec, const MimiEncoder& encoder, int64_t max_frames);
    size_t nbytes() const override { return state_.nbytes() + transformer_.nbytes(); }
    int graph_builds() const override { return graph_builds_; }

  private:
    std::vector<int32_t> encode(const std::vector<float>& samples, bool last) override;
    std::vector<int32_t> encode_columns(const std::vector<float>& samples);
    void clear() override;
    void build(GraphBuilder& g, int64_t samples) const;

    const MimiEncoder& encoder_;
    nn::ConvState state_;
    nn::GrowingState transformer_;
    bool first_ = true;
    std::map<std::pair<int64_t, bool>, std::unique_ptr<Graph>> graphs_;  // by samples in a push, and first_
    int graph_builds_ = 0;
};

}  // namespace dualar
