// Qwen3-TTS's speaker encoder: ECAPA-TDNN (arXiv:2005.07143) without batch norm.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "models/speaker_encoder.h"
#include "nn/causal_conv.h"
#include "runtime/weights.h"

namespace dualar {

class Qwen3Speaker : public SpeakerEncoder {
  public:
    static bool present(const GgufFile& file);
    // ModelError for keys or tensors that are not as they must be.
    Qwen3Speaker(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend);

    int sample_rate() const override { return sample_rate_; }
    int64_t mel_dim() const override { return mel_dim_; }
    int64_t dim() const override { return dim_; }
    int64_t min_frames() const override;
    std::vector<std::string> unused_tensors() const override;
    std::vector<float> embed(const std::vector<float>& mel, int64_t frames) const override;
    std::map<std::string, std::vector<float>> probe(const std::vector<float>& mel, int64_t frames) const override;

  private:
    struct Block {
        nn::Conv in;
        std::vector<nn::Conv> groups;  // of all channel groups but the first
        nn::Conv mix;
        nn::Conv squeeze;
        nn::Conv excite;
    };
    void read(const std::vector<int64_t>& channels, const std::vector<int64_t>& kernels,
              const std::vector<int64_t>& dilations);
    std::vector<int64_t> histories() const;
    void build(GraphBuilder& g, int64_t frames) const;
    std::unique_ptr<Graph> run(const std::vector<float>& mel, int64_t frames, bool keep_probes) const;

    std::shared_ptr<Backend> backend_;
    mutable Weights weights_;
    mutable std::once_flag loaded_;
    int sample_rate_ = 0;
    int64_t mel_dim_ = 0;
    int64_t dim_ = 0;
    nn::Conv first_;
    std::vector<Block> blocks_;
    nn::Conv aggregation_;
    nn::Conv attention_;
    nn::Conv attention_out_;
    nn::Conv out_;
};

}  // namespace dualar
