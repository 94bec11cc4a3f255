// The S2 family's codec (a causal DAC variant): codes -> samples.
// Dac holds the weights; DacStream one stream's state. Whole decoding is a stream that is fed in pieces.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nn/causal_conv.h"
#include "nn/convnext.h"
#include "nn/rvq.h"
#include "nn/transformer.h"
#include "runtime/one_thread.h"
#include "runtime/weights.h"

namespace dualar {

struct DacConfig {
    int sample_rate = 0;
    int64_t hop_length = 0;
    int64_t encoder_dim = 0;
    int64_t decoder_dim = 0;
    int64_t latent_dim = 0;
    int64_t quantizer_dim = 0;
    int64_t codebook_dim = 0;
    int residual_codebooks = 0;
    int64_t residual_codebook_size = 0;
    int64_t semantic_codebook_size = 0;
    std::vector<int64_t> encoder_rates;
    std::vector<int64_t> decoder_rates;
    std::vector<int64_t> encoder_transformer_layers;
    std::vector<int64_t> downsample_factors;
    nn::BlockConfig rvq_block;
    int64_t rvq_window = 0;
    int rvq_layers = 0;
    int64_t rvq_feed_forward = 0;

    int num_codebooks() const { return 1 + residual_codebooks; }
    int64_t positions_per_frame() const;  // of the decoder's input
    int64_t samples_per_frame() const { return hop_length * positions_per_frame(); }
    int64_t codebook_size(int index) const { return index == 0 ? semantic_codebook_size : residual_codebook_size; }
};

// What follows a convolution's input in the decoder: snake, convolution, residual.
struct ResidualUnit {
    ggml_tensor* alpha_in = nullptr;
    nn::Conv dilated;
    ggml_tensor* alpha_out = nullptr;
    nn::Conv pointwise;
};

struct DecoderBlock {
    ggml_tensor* alpha = nullptr;
    nn::Conv upsample;
    ResidualUnit units[3];
};

class Dac {
  public:
    static bool present(const GgufFile& file);
    Dac(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend);

    std::vector<std::string> unused_tensors() const;
    const std::shared_ptr<Backend>& backend() const { return backend_; }
    // Bring the weights to the device, once: a file that is only looked at never pays for it.
    void load() const;

    DacConfig config;
    nn::Rvq rvq;
    std::vector<nn::BlockWeights> post_blocks;
    ggml_tensor* post_norm = nullptr;
    struct Upsample {
        nn::Conv conv;
        nn::ConvNext convnext;
    };
    std::vector<Upsample> upsamples;
    nn::Conv first;
    std::vector<DecoderBlock> decoder;
    ggml_tensor* last_alpha = nullptr;
    nn::Conv last;

  private:
    void read_quantizer(Weights& weights);
    void read_decoder(Weights& weights);

    std::shared_ptr<Backend> backend_;
    mutable Weights weights_;
    mutable std::once_flag loaded_;
};

class DacStream {
  public:
    // max_frames: how many frames one push may hold, 1 to 4096.
    DacStream(std::shared_ptr<const Dac> codec, int64_t max_frames);

    // codes int32 [codebooks, frames] row-major, frames <= max_frames -> samples [frames * samples_per_frame].
    // Codes at or above their codebook's size are clamped; std::invalid_argument for anything else that does not fit.
    std::vector<float> push(const std::vector<int32_t>& codes, int64_t codebooks, int64_t frames);
    void reset();

    int64_t max_frames() const { return max_frames_; }
    size_t nbytes() const { return cache_.nbytes() + state_.nbytes(); }
    int graph_builds() const { return graph_builds_; }

  private:
    void build(GraphBuilder& g, int64_t frames) const;

    std::shared_ptr<const Dac> codec_;
    int64_t max_frames_;
    int64_t position_ = 0;  // frames so far
    nn::KvCache cache_;     // a ring of the post_module's window
    nn::ConvState state_;
    nn::AttentionFeed feed_;
    std::vector<float> looked_up_;
    std::vector<std::unique_ptr<Graph>> graphs_;  // by frames in a push
    int graph_builds_ = 0;
    OneThread one_thread_;
};

}  // namespace dualar
