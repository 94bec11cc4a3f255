// A batch computes the next step of several sessions of one model at once, so that each weight is read once for all of
// them. Each session keeps its own KV caches and position, and any sessions of the model may come together in any call.
// On the CPU one graph has a column for each session. On other devices, or where asked for, they are computed in turn.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/session.h"
#include "nn/sampling.h"

namespace dualar {

class Batch {
  public:
    static constexpr size_t kMaxRows = 256;
    using Sessions = std::vector<Session*>;

    // How the logits of a frame's further codes come about: from the cache of the positions before, or from all of the
    // frame anew for each. The codes are the same.
    enum class FastPath { kCached, kRecompute };

    // in_turn: one session after the other, by the same calls as alone.
    Batch(std::shared_ptr<const Model> model, bool in_turn, FastPath fast_path);

    // columns int32 [rows, 1 + N] -> logits [rows, C + 1], hidden [rows, D]. On an error no session has moved.
    DecoderOutput step(const Sessions& sessions, const std::vector<int32_t>& columns);
    // hidden [rows, D], codes [rows] -> logits [rows, C] of codebook 1.
    std::vector<float> fast_begin(const Sessions& sessions, const std::vector<float>& hidden,
                                  const std::vector<int32_t>& codes);
    // codes [rows], drawn last -> logits [rows, C] of the next codebook. All sessions must be equally far in a frame.
    std::vector<float> fast_step(const Sessions& sessions, const std::vector<int32_t>& codes);

    struct Draw {
        nn::Sampler sampler;  // of the residual codes; its history is the frame's own, the first code not included
        uint64_t seed;
        uint64_t step;
    };
    struct Frames {
        std::vector<int32_t> codes;       // [rows, N]
        std::vector<std::string> broken;  // [rows]: why a row could not be drawn from; its codes mean nothing
        std::string failure;  // why the codes of all rows are 0 from some codebook on, where the device failed
    };
    // Whole frames: each row's code and one draw for each further codebook, codebook i with the noise of (seed, step,
    // i).
    Frames fast_frames(const Sessions& sessions, const std::vector<float>& hidden, const std::vector<int32_t>& codes,
                       const std::vector<Draw>& draws);

    // Seconds of one step on the CPU by kind of work; no session moves.
    std::map<std::string, double> profile(const Sessions& sessions, const std::vector<int32_t>& columns);

    const Model& model() const { return *model_; }
    int graph_builds() const { return graph_builds_; }

  private:
    // The graphs for one number of rows.
    struct Graphs {
        size_t rows;
        std::unique_ptr<Graph> slow;
        std::map<int, std::unique_ptr<Graph>> fast;  // by FastAr::graph_of()
    };
    class Turn;

    void check_begin(const Sessions& sessions, const std::vector<float>& hidden,
                     const std::vector<int32_t>& codes) const;
    void check_codes(const Sessions& sessions, const std::vector<int32_t>& codes) const;
    void check_step(const Sessions& sessions, const std::vector<int32_t>& columns) const;
    Graphs& graphs(size_t rows);
    Graph& slow_graph(size_t rows);
    Graph& fast_graph(int book, size_t rows);
    const FastAr& fast() const { return *model_->recipe().fast(); }
    // The graph of a step with its inputs set.
    Graph& ready_step(const Sessions& sessions, const std::vector<int32_t>& columns);
    // What forbids drawing from a row's hidden state, or "".
    std::string broken_hidden(const float* hidden, uint64_t step) const;
    // Logits [rows, C] of codebook `book` of the frames whose codes so far are in codes [rows, N].
    const std::vector<float>& frame_logits(size_t book, const Sessions& sessions, const std::vector<float>& hidden,
                                           const std::vector<int32_t>& codes);
    // Logits [rows, C] of codebook `book`. Arguments are checked; hidden is nullptr but for codebook 1.
    const std::vector<float>& run_fast(int book, const Sessions& sessions, const float* hidden,
                                       const std::vector<int32_t>& codes);

    std::shared_ptr<const Model> model_;
    bool in_turn_;
    FastPath fast_path_;
    std::deque<Graphs> graphs_;  // used last first
    nn::CacheColumns slow_columns_;
    nn::CacheColumns fast_columns_;
    // Room for what a graph is given and gives, kept from call to call.
    std::vector<float> input_;
    std::vector<float> scratch_;
    std::vector<float> logits_;
    std::vector<int32_t> last_;
    nn::DrawScratch draw_scratch_;
    int graph_builds_ = 0;
    OneThread one_thread_;
};

}  // namespace dualar
