// Codecs that sum up the vectors of residual codebooks, run a windowed transformer over the sums and bring them to the
// rate of samples by causal convolutions. RvqCodec holds the weights, which a family's recipe fills in
// (models/*/codec); its streams decode. How such a codec encodes is the recipe's affair.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "models/codec.h"
#include "models/codec_weights.h"
#include "nn/rvq.h"
#include "runtime/weights.h"

namespace dualar {

// The decoding half's layers, in the order in which they are run.
struct RvqDecoder {
    nn::Rvq rvq;
    std::optional<nn::Conv> pre_conv;
    std::optional<nn::Conv> pre_upsample;  // several positions of the transformer a frame
    std::optional<nn::Linear> in_proj;     // before and behind the transformer
    nn::WindowedTransformer transformer;
    std::optional<nn::Linear> out_proj;
    struct Upsample {
        nn::Conv conv;
        nn::ConvNext convnext;
    };
    std::vector<Upsample> upsamples;
    nn::Conv first;
    struct Block {
        nn::Activation activation;
        nn::Conv upsample;
        std::vector<ResidualUnit> units;
    };
    std::vector<Block> blocks;
    nn::Activation last_activation;
    nn::Conv last;
    // What becomes of samples beyond full scale: squashed, clamped, or given as they are.
    enum class Range { kTanh, kClamped, kFree };
    Range range = Range::kTanh;

    int64_t positions_per_frame() const { return pre_upsample ? pre_upsample->upsample : 1; }
};

// An encoding half's weights, loaded when a first clip needs them.
class EncoderWeights {
  public:
    EncoderWeights(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend)
        : weights_(std::move(file), std::move(backend)) {}
    virtual ~EncoderWeights() = default;

    const Weights& weights() const { return weights_; }
    void load() const {
        std::call_once(loaded_, [this] { weights_.load(); });
    }

  protected:
    mutable Weights weights_;

  private:
    mutable std::once_flag loaded_;
};

class RvqCodec : public Codec {
  public:
    struct Config {
        int sample_rate = 0;
        int64_t samples_per_frame = 0;
        std::vector<int64_t> codebook_sizes;
        bool clamps_codes = false;
        std::string prefix;          // of the codec's tensors in the file
        std::string encoder_prefix;  // of its encoder's
    };

    int sample_rate() const override { return config_.sample_rate; }
    int64_t samples_per_frame() const override { return config_.samples_per_frame; }
    std::vector<int64_t> codebook_sizes() const override { return config_.codebook_sizes; }
    bool clamps_codes() const override { return config_.clamps_codes; }
    bool can_encode() const override { return encoder_ != nullptr; }
    std::vector<std::string> unused_tensors() const override;
    void load() const override;
    std::unique_ptr<CodecStream> stream(int64_t max_frames) const override;
    std::unique_ptr<CodecEncoder> encode_stream(int64_t max_frames) const override;

    RvqDecoder decoder;

  protected:
    RvqCodec(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend, Config config);
    // The end of a recipe's constructor: an encoder, where the file has one, and the check of all that was asked for.
    void complete(std::unique_ptr<EncoderWeights> encoder);

    Weights& weights() { return weights_; }
    // The encoder is there and loaded.
    virtual std::unique_ptr<CodecEncoder> make_encoder(const EncoderWeights& encoder, int64_t max_frames) const = 0;

  private:
    Config config_;
    mutable Weights weights_;
    mutable std::once_flag loaded_;
    std::unique_ptr<EncoderWeights> encoder_;
};

class RvqStream : public CodecStream {
  public:
    RvqStream(std::shared_ptr<const RvqCodec> codec, int64_t max_frames);

    std::vector<float> push(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames) override;
    void reset() override;
    CodecSnapshot snapshot() override;
    void restore(const CodecSnapshot& snapshot) override;
    std::map<std::string, double> profile(const std::vector<int32_t>& codes, int64_t codebooks,
                                          int64_t frames) override;
    std::map<std::string, std::vector<float>> probe(const std::vector<int32_t>& codes, int64_t codebooks,
                                                    int64_t frames) override;
    int64_t max_frames() const override { return max_frames_; }
    size_t nbytes() const override { return transformer_.nbytes() + columns_.nbytes(); }
    int graph_builds() const override { return graph_builds_; }

  private:
    // From the input "x" [rvq.columns(), frames], the rows that the codes stand for, to "samples".
    void build(GraphBuilder& g, int64_t frames) const;
    void check(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames) const;
    Graph& ready(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames);
    void set(Graph& graph, const std::vector<int32_t>& codes, int64_t frames);

    std::shared_ptr<const RvqCodec> codec_;
    int64_t max_frames_;
    size_t max_nodes_;
    nn::WindowedState transformer_;
    nn::ConvState columns_;  // of the convolutions, in the order in which build() meets them
    std::vector<float> looked_up_;
    std::vector<std::unique_ptr<Graph>> graphs_;  // by frames in a push
    int graph_builds_ = 0;
    OneThread one_thread_;
    Progress progress_;
};

}  // namespace dualar
