#include "models/batch.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "models/ar_checks.h"
#include "runtime/error.h"

namespace dualar {

namespace {

// Graphs are kept for so many different numbers of rows; a further one takes the place of the one used longest ago.
constexpr size_t kKeptSizes = 8;

}  // namespace

// Holds the batch and its sessions for one call.
class Batch::Turn {
  public:
    Turn(Batch& batch, const std::vector<Session*>& sessions) : use_(batch.one_thread_, "batch") {
        if (sessions.empty() || sessions.size() > kMaxRows)
            throw std::invalid_argument(text("[batch] expected 1 to ", kMaxRows, " sessions, got ", sessions.size()));
        if (std::set<const Session*>(sessions.begin(), sessions.end()).size() != sessions.size())
            throw std::invalid_argument("[batch] expected each session once, got one twice");
        for (Session* session : sessions) {
            if (session->model_ != batch.model_)
                throw std::invalid_argument("[batch] expected sessions of the batch's model, got one of another");
            uses_.emplace_back(session->one_thread_, "session");
        }
    }

  private:
    OneThread::Use use_;
    std::deque<OneThread::Use> uses_;
};

Batch::Batch(std::shared_ptr<const DualAr> model, bool in_turn)
    : model_(std::move(model)), in_turn_(in_turn || !model_->backend_->is_cpu()) {}

Graph& Batch::graph(Kind kind, size_t rows) {
    const auto known = std::find_if(graphs_.begin(), graphs_.end(), [&](const Graphs& g) { return g.rows == rows; });
    if (known == graphs_.end()) {
        if (graphs_.size() == kKeptSizes) graphs_.pop_back();
        graphs_.push_front({rows, {}});
    } else if (known != graphs_.begin()) {
        std::rotate(graphs_.begin(), known, known + 1);
    }
    std::unique_ptr<Graph>& found = graphs_.front().graphs[kind];
    if (found) return *found;
    ++graph_builds_;
    const auto count = static_cast<int64_t>(rows);
    const int layers = kind == kSlowStep ? model_->config().layers : model_->fast_->config.layers;
    found = std::make_unique<Graph>(
        model_->backend_, static_cast<size_t>(layers) * nn::kNodesPerBlock + 32, [&](GraphBuilder& g) {
            if (kind == kSlowStep) {
                const auto inputs = nn::make_column_inputs(g, SlowAr::kName, count, slow_columns_);
                model_->slow_->build(g, count, inputs, nullptr, /*all=*/true, /*full_vocab=*/false);
            } else {
                const int64_t hiddens = kind == kFastBegin ? count : 0;
                const auto inputs = nn::make_column_inputs(g, FastAr::kName, hiddens + count, fast_columns_);
                model_->fast_->build(g, hiddens, count, count, inputs, nullptr);
            }
        });
    return *found;
}

void Batch::check_step(const std::vector<Session*>& sessions, const std::vector<int32_t>& columns) const {
    const size_t height = static_cast<size_t>(model_->config().num_codebooks) + 1;
    if (columns.size() != sessions.size() * height)
        throw std::invalid_argument(text("[columns] expected ", sessions.size(), " times ", height,
                                         " values (a token id and ", height - 1, " codes for each session), got ",
                                         columns.size()));
    for (size_t r = 0; r < sessions.size(); ++r) sessions[r]->check_columns(&columns[r * height], 1);
    model_->backend_->check_process();
}

Graph& Batch::ready_step(const std::vector<Session*>& sessions, const std::vector<int32_t>& columns) {
    const SlowAr& slow = *model_->slow_;
    const auto dim = static_cast<size_t>(slow.config.dim);
    const size_t height = columns.size() / sessions.size();
    embedded_.resize(sessions.size() * dim);
    std::vector<nn::CacheColumns::Column> caches;
    for (size_t r = 0; r < sessions.size(); ++r) {
        slow.embed(&columns[r * height], 1, 1, &embedded_[r * dim], scratch_);
        caches.push_back({&sessions[r]->slow_.cache(), sessions[r]->position()});
    }
    slow_columns_.assign(std::move(caches));
    Graph& graph = this->graph(kSlowStep, sessions.size());
    graph.set("x", embedded_.data(), embedded_.size() * sizeof(float));
    nn::set_column_inputs(graph, SlowAr::kName, slow_columns_);
    return graph;
}

SlowOutput Batch::step(const std::vector<Session*>& sessions, const std::vector<int32_t>& columns) {
    const Turn turn(*this, sessions);
    check_step(sessions, columns);
    const SlowAr& slow = *model_->slow_;
    SlowOutput out;
    out.positions = static_cast<int64_t>(sessions.size());
    out.width = slow.width(false);
    out.logits.resize(static_cast<size_t>(out.positions * out.width));
    out.hidden.resize(static_cast<size_t>(out.positions * slow.config.dim));
    if (!in_turn_) {
        Graph& graph = ready_step(sessions, columns);
        graph.compute();
        slow.read(graph, out.positions, false, out.logits.data(), out.hidden.data());
        for (Session* session : sessions) session->slow_.advance();
        return out;
    }
    const size_t height = columns.size() / sessions.size();
    size_t done = 0;
    try {
        for (; done < sessions.size(); ++done) {
            const SlowOutput one = sessions[done]->slow_.feed(&columns[done * height], 1, false, false);
            std::copy(one.logits.begin(), one.logits.end(), &out.logits[done * one.logits.size()]);
            std::copy(one.hidden.begin(), one.hidden.end(), &out.hidden[done * one.hidden.size()]);
        }
    } catch (...) {
        while (done > 0) {
            SlowState& state = sessions[--done]->slow_;
            state.truncate(state.position() - 1);
        }
        throw;
    }
    return out;
}

std::map<std::string, double> Batch::profile(const std::vector<Session*>& sessions,
                                             const std::vector<int32_t>& columns) {
    const Turn turn(*this, sessions);
    check_step(sessions, columns);
    if (in_turn_) throw std::invalid_argument("[profile] expected rows that step together, these go in turn");
    return ready_step(sessions, columns).profile();
}

// Arguments are checked. hidden is nullptr but for kFastBegin.
std::vector<float> Batch::run_fast(Kind kind, const std::vector<Session*>& sessions, const float* hidden,
                                   const std::vector<int32_t>& codes) {
    model_->backend_->check_process();
    const FastConfig& c = model_->fast_->config;
    const auto rows = static_cast<int64_t>(sessions.size());
    std::vector<float> logits(static_cast<size_t>(rows * c.codebook_size));
    if (in_turn_) {
        for (int64_t r = 0; r < rows; ++r) {
            FastState& state = *sessions[static_cast<size_t>(r)]->fast_;
            const int32_t code = codes[static_cast<size_t>(r)];
            const std::vector<float>& one =
                kind == kFastBegin ? state.begin(hidden + r * c.slow_dim, code) : state.step(code);
            std::copy(one.begin(), one.end(), logits.begin() + r * c.codebook_size);
        }
        return logits;
    }
    // The hidden states come first among the columns, at position 0 of their sessions.
    std::vector<nn::CacheColumns::Column> caches;
    if (kind == kFastBegin)
        for (Session* session : sessions) caches.push_back({&session->fast_->cache(), 0});
    for (Session* session : sessions)
        caches.push_back({&session->fast_->cache(), kind == kFastBegin ? 1 : session->fast_->position()});
    fast_columns_.assign(std::move(caches));
    embedded_.resize(static_cast<size_t>(rows * c.dim));
    model_->fast_->embed(codes.data(), rows, embedded_.data());
    Graph& graph = this->graph(kind, sessions.size());
    graph.set("x", embedded_.data(), embedded_.size() * sizeof(float));
    if (kind == kFastBegin) graph.set("hidden", hidden, static_cast<size_t>(rows * c.slow_dim) * sizeof(float));
    nn::set_column_inputs(graph, FastAr::kName, fast_columns_);
    graph.compute();
    graph.get("logits", logits.data(), logits.size());
    for (Session* session : sessions)
        session->fast_->set_position(kind == kFastBegin ? 2 : session->fast_->position() + 1);
    return logits;
}

void Batch::check_begin(const std::vector<Session*>& sessions, const std::vector<float>& hidden,
                        const std::vector<int32_t>& codes) const {
    const size_t rows = sessions.size();
    const auto dim = static_cast<size_t>(model_->config().dim);
    if (!model_->has_fast_ar())
        throw std::invalid_argument("[fast_ar] expected a model with a Fast-AR, this one has none");
    if (model_->config().num_codebooks < 2)
        throw std::invalid_argument("[fast_begin] expected a model with residual codebooks, this one has none");
    if (hidden.size() != rows * dim)
        throw std::invalid_argument(text("[hidden] expected ", rows, " times ", dim, " values, got ", hidden.size()));
    check_codes(sessions, codes);
}

void Batch::check_codes(const std::vector<Session*>& sessions, const std::vector<int32_t>& codes) const {
    if (codes.size() != sessions.size())
        throw std::invalid_argument(text("[codes] expected ", sessions.size(), ", one a session, got ", codes.size()));
    for (const int32_t code : codes) check_code(code, model_->config().codebook_size);
}

std::vector<float> Batch::fast_begin(const std::vector<Session*>& sessions, const std::vector<float>& hidden,
                                     const std::vector<int32_t>& codes) {
    const Turn turn(*this, sessions);
    check_begin(sessions, hidden, codes);
    return run_fast(kFastBegin, sessions, hidden.data(), codes);
}

std::vector<float> Batch::fast_step(const std::vector<Session*>& sessions, const std::vector<int32_t>& codes) {
    const Turn turn(*this, sessions);
    const int64_t position = sessions.front()->fast().position();
    check_codes(sessions, codes);
    for (Session* session : sessions)
        if (session->fast().position() != position)
            throw std::invalid_argument(
                text("[fast_step] expected sessions equally far in their frames, got positions ", position, " and ",
                     session->fast().position()));
    if (position == 0) throw std::invalid_argument("[fast_step] expected fast_begin first");
    if (position >= model_->config().num_codebooks)
        throw std::invalid_argument(text("[fast_step] expected at most ", model_->config().num_codebooks - 2,
                                         " steps after fast_begin: the frames are complete"));
    return run_fast(kFastStep, sessions, nullptr, codes);
}

Batch::Frames Batch::fast_frames(const std::vector<Session*>& sessions, const std::vector<float>& hidden,
                                 const std::vector<int32_t>& codes, const std::vector<Draw>& draws) {
    const Turn turn(*this, sessions);
    check_begin(sessions, hidden, codes);
    const size_t rows = sessions.size();
    if (draws.size() != rows)
        throw std::invalid_argument(text("[draws] expected ", rows, ", one a session, got ", draws.size()));
    for (const Draw& draw : draws) check_sampling(draw.sampling);
    const auto books = static_cast<size_t>(model_->config().num_codebooks);
    const int64_t size = model_->config().codebook_size;
    Frames frames;
    frames.codes.assign(rows * books, 0);
    frames.broken.resize(rows);
    const auto dim = static_cast<size_t>(model_->config().dim);
    for (size_t r = 0; r < rows; ++r) {
        frames.codes[r * books] = codes[r];
        const float* row = &hidden[r * dim];
        if (!std::all_of(row, row + dim, [](float value) { return std::isfinite(value); }))
            frames.broken[r] = text("[generate] frame ", draws[r].step,
                                    ": expected a hidden state of finite values (a weight of the file is broken, or a "
                                    "computation overflowed)");
    }
    std::vector<int32_t> last = codes;
    try {
        for (size_t book = 1; book < books; ++book) {
            const std::vector<float> logits =
                run_fast(book == 1 ? kFastBegin : kFastStep, sessions, book == 1 ? hidden.data() : nullptr, last);
            for (size_t r = 0; r < rows; ++r) {
                if (!frames.broken[r].empty()) continue;
                const int64_t drawn = nn::draw(logits.data() + static_cast<int64_t>(r) * size, size, draws[r].sampling,
                                               draws[r].seed, draws[r].step, book, draw_scratch_);
                if (drawn < 0) {
                    frames.broken[r] = cannot_draw(draws[r].step, book, drawn);
                    last[r] = 0;  // goes on in the graph, for nothing
                    continue;
                }
                frames.codes[r * books + book] = last[r] = static_cast<int32_t>(drawn);
            }
        }
    } catch (const BackendError& error) {
        frames.failure = error.what();
    }
    return frames;
}

}  // namespace dualar
