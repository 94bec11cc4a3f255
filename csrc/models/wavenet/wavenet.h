// WaveNet (arXiv:1609.03499): the weights of one file, and whole sequences of classes to logits through one graph.
// Leaves what goes sample by sample to wavenet/state.h. On the CPU only: one sample is far too little for a device.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nn/wavenet_block.h"
#include "runtime/graph.h"
#include "runtime/host_table.h"
#include "runtime/weights.h"

namespace dualar {

struct WaveNetConfig {
    int64_t channels = 0;            // C
    int64_t condition_channels = 0;  // H
    int64_t skip_channels = 0;       // S
    int64_t levels = 0;              // Q
    int kernel_size = 0;             // K
    std::vector<int64_t> dilations;  // one per block
    int sample_rate = 0;

    // Columns that all blocks together remember: sum of (K - 1) d.
    int64_t history() const;
    // Samples that one output depends on, its own input included.
    int64_t receptive_field() const { return history() + 1; }
};

WaveNetConfig read_wavenet_config(const GgufFile& file);

class WaveNet {
  public:
    // ModelError for a file of another architecture, or one whose keys or tensors are not as they must be.
    WaveNet(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend);

    std::vector<std::string> unused_tensors() const { return weights_.unused(); }

    // The queues of one sequence, block after block, each [columns, C] with the oldest column first.
    using Queues = std::vector<std::vector<float>>;

    // One sequence: `classes` [T] in 0 to Q - 1, `condition` [H, T] -> `logits` [Q, T], or nowhere if nullptr. The
    // convolutions see `queues` before the first sample, zeros if nullptr, and leave theirs there.
    void run(const int32_t* classes, const float* condition, int64_t samples, Queues* queues, float* logits) const;

    // std::invalid_argument for a class out of range, or a value that is not finite.
    void check_classes(const std::vector<int32_t>& classes) const;
    static void check_condition(const std::vector<float>& condition);

    WaveNetConfig config;
    HostTable embedding;
    std::vector<nn::WaveNetBlock> blocks;
    nn::Linear head[2];

  private:
    nn::WaveNetBlock read_block(int index);
    void build(GraphBuilder& g, int64_t samples) const;
    Graph& graph(int64_t samples) const;

    std::shared_ptr<Backend> backend_;
    Weights weights_;
    mutable std::mutex run_mutex_;  // over what follows
    mutable std::unique_ptr<nn::ConvState> state_;
    mutable std::map<int64_t, std::unique_ptr<Graph>> graphs_;  // by samples
};

}  // namespace dualar
