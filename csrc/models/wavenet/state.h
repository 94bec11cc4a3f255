// WaveNet sample by sample: the queues of a batch of sequences, and the loop that steps them and draws.
// A step rebuilds nothing, moves no queue, allocates nothing and runs on the calling thread: at these sizes handing
// one sample's work to a graph or to other threads would cost more than the work.
#pragma once

#include <memory>
#include <vector>

#include "models/wavenet/wavenet.h"
#include "runtime/one_thread.h"
#include "runtime/progress.h"

namespace dualar {

class WaveNetState {
  public:
    // All zeros: what lies before a clip. batch: 1 to 65536, of at most 8 GiB.
    WaveNetState(std::shared_ptr<const WaveNet> model, int64_t batch);
    std::unique_ptr<WaveNetState> copy() const;

    const std::shared_ptr<const WaveNet>& model() const { return model_; }
    int64_t batch() const { return batch_; }
    int64_t position() const { return position_; }  // samples fed so far
    // The queues: 4 B C sum of (K - 1) d.
    size_t nbytes() const;
    void reset();

    // One sample: classes [B], condition [B, H] -> logits [B, Q].
    void step(const std::vector<int32_t>& classes, const std::vector<float>& condition, float* logits);
    // Many that are known: classes [B, T], condition [B, H, T].
    void prime(const std::vector<int32_t>& classes, const std::vector<float>& condition);
    // `count` samples, each drawn from the logits of the one before it, `first` [B] before all. condition [B, H,
    // count]. uniforms [B, count] in [0, 1): class q is the first for which the sum of softmax(logits / temperature) up
    // to and with q exceeds it. temperature 0: the first class of the highest logit, uniforms may be empty. -> [B,
    // count].
    std::vector<int32_t> generate(const std::vector<int32_t>& first, const std::vector<float>& condition, int64_t count,
                                  double temperature, const std::vector<double>& uniforms);

  private:
    // The next `steps` conditions [steps, B, H]; then as many times classes [B] -> logits_.
    void begin(const float* condition, int64_t steps);
    void advance(const int32_t* classes);

    std::shared_ptr<const WaveNet> model_;
    int64_t batch_;
    int64_t position_ = 0;
    std::vector<nn::WaveNetSteps> blocks_;
    std::vector<float> sums_;    // [B, C + S]
    std::vector<float> skips_;   // [B, S], what the head's layers read
    std::vector<float> hidden_;  // [B, S]
    std::vector<float> logits_;  // [B, Q]
    mutable OneThread one_thread_;
    Progress progress_;
};

}  // namespace dualar
