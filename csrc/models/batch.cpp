#include "models/batch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/ar_checks.h"
#include "runtime/error.h"

namespace dualar {

namespace {

// The graphs of the last eight numbers of rows are kept; those of a ninth take the place of the ones used longest ago.
constexpr size_t kKeptSizes = 8;

}  // namespace

// Holds the batch and its sessions for one call.
class Batch::Turn {
  public:
    Turn(Batch& batch, const Sessions& sessions) : use_(batch.one_thread_, "batch") {
        if (sessions.empty() || sessions.size() > kMaxRows)
            throw std::invalid_argument(
                message("[batch] expected 1 to ", kMaxRows, " sessions, got ", sessions.size()));
        for (auto session = sessions.begin(); session != sessions.end(); ++session)
            if (std::find(sessions.begin(), session, *session) != session)
                throw std::invalid_argument("[batch] expected each session once, got one twice");
        for (Session* session : sessions) {
            if (&session->model() != batch.model_.get())
                throw std::invalid_argument("[batch] expected sessions of the batch's model, got one of another");
            uses_.emplace_back(session->turn(), "session");
        }
    }

  private:
    OneThread::Use use_;
    std::deque<OneThread::Use> uses_;
};

Batch::Batch(std::shared_ptr<const Model> model, bool in_turn, FastPath fast_path)
    : model_(std::move(model)), in_turn_(in_turn || !model_->backend()->is_cpu()), fast_path_(fast_path) {}

Batch::Graphs& Batch::graphs(size_t rows) {
    const auto known = std::find_if(graphs_.begin(), graphs_.end(), [&](const Graphs& g) { return g.rows == rows; });
    if (known == graphs_.end()) {
        if (graphs_.size() == kKeptSizes) graphs_.pop_back();
        graphs_.push_front({rows, nullptr, {}});
    } else if (known != graphs_.begin()) {
        std::rotate(graphs_.begin(), known, known + 1);
    }
    return graphs_.front();
}

Graph& Batch::slow_graph(size_t rows) {
    std::unique_ptr<Graph>& found = graphs(rows).slow;
    if (found) return *found;
    ++graph_builds_;
    const auto count = static_cast<int64_t>(rows);
    const size_t nodes = static_cast<size_t>(model_->config().layers) * nn::kNodesPerBlock + 32;
    found = std::make_unique<Graph>(model_->backend(), nodes, [&](GraphBuilder& g) {
        const auto inputs = nn::make_column_inputs(g, Decoder::kName, count, slow_columns_);
        model_->recipe().decoder().build(g, count, inputs, nullptr, /*all=*/true, /*full_vocab=*/false);
    });
    return *found;
}

Graph& Batch::fast_graph(int book, size_t rows) {
    std::unique_ptr<Graph>& found = graphs(rows).fast[fast().graph_of(book)];
    if (found) return *found;
    ++graph_builds_;
    const auto count = static_cast<int64_t>(rows);
    const size_t nodes = static_cast<size_t>(fast().config.layers) * nn::kNodesPerBlock + 32;
    found = std::make_unique<Graph>(model_->backend(), nodes, [&](GraphBuilder& g) {
        const int64_t hiddens = book == 1 ? count : 0;
        const auto inputs = nn::make_column_inputs(g, FastAr::kName, hiddens + count, fast_columns_);
        fast().build(g, hiddens, count, count, book, inputs, nullptr);
    });
    return *found;
}

void Batch::check_step(const Sessions& sessions, const std::vector<int32_t>& columns) const {
    const size_t height = static_cast<size_t>(model_->config().num_codebooks) + 1;
    if (columns.size() != sessions.size() * height)
        throw std::invalid_argument(message("[columns] expected ", sessions.size(), " times ", height,
                                            " values (a token id and ", height - 1, " codes for each session), got ",
                                            columns.size()));
    for (size_t r = 0; r < sessions.size(); ++r) sessions[r]->check_column(&columns[r * height]);
    model_->backend()->check_process();
}

Graph& Batch::ready_step(const Sessions& sessions, const std::vector<int32_t>& columns) {
    const auto dim = static_cast<size_t>(model_->config().dim);
    const size_t height = columns.size() / sessions.size();
    input_.resize(sessions.size() * dim);
    std::vector<nn::CacheColumns::Column> caches = std::move(slow_columns_.columns);
    caches.clear();
    for (size_t r = 0; r < sessions.size(); ++r) {
        sessions[r]->embed(&columns[r * height], &input_[r * dim], scratch_);
        caches.push_back({&sessions[r]->decoder().cache(), sessions[r]->decoder().position()});
    }
    slow_columns_.assign(std::move(caches));
    Graph& graph = slow_graph(sessions.size());
    graph.set("x", input_.data(), input_.size() * sizeof(float));
    nn::set_column_inputs(graph, Decoder::kName, slow_columns_);
    return graph;
}

DecoderOutput Batch::step(const Sessions& sessions, const std::vector<int32_t>& columns) {
    const Turn turn(*this, sessions);
    check_step(sessions, columns);
    const Decoder& decoder = model_->recipe().decoder();
    DecoderOutput out;
    out.positions = static_cast<int64_t>(sessions.size());
    out.width = decoder.width(false);
    out.logits.resize(static_cast<size_t>(out.positions * out.width));
    out.hidden.resize(static_cast<size_t>(out.positions * decoder.config.dim));
    if (!in_turn_) {
        Graph& graph = ready_step(sessions, columns);
        graph.compute();
        decoder.read(graph, out.positions, false, out.logits.data(), out.hidden.data());
        for (size_t r = 0; r < sessions.size(); ++r) {
            sessions[r]->decoder().advance();
            sessions[r]->decoder().align(graph, static_cast<int64_t>(r));
        }
        return out;
    }
    const size_t height = columns.size() / sessions.size();
    size_t done = 0;
    try {
        for (; done < sessions.size(); ++done) {
            Session& row = *sessions[done];
            const auto embed = [&](int64_t, int64_t, float* x) { row.embed(&columns[done * height], x, scratch_); };
            const DecoderOutput one = row.decoder().feed(embed, 1, false, false);
            std::copy(one.logits.begin(), one.logits.end(), &out.logits[done * one.logits.size()]);
            std::copy(one.hidden.begin(), one.hidden.end(), &out.hidden[done * one.hidden.size()]);
        }
    } catch (...) {
        while (done > 0) {
            DecoderState& state = sessions[--done]->decoder();
            state.truncate(state.position() - 1);
        }
        throw;
    }
    return out;
}

std::map<std::string, double> Batch::profile(const Sessions& sessions, const std::vector<int32_t>& columns) {
    const Turn turn(*this, sessions);
    check_step(sessions, columns);
    if (in_turn_) throw std::invalid_argument("[profile] expected rows that step together, these go in turn");
    return ready_step(sessions, columns).profile();
}

const std::vector<float>& Batch::run_fast(int book, const Sessions& sessions, const float* hidden,
                                          const std::vector<int32_t>& codes) {
    model_->backend()->check_process();
    const auto rows = static_cast<int64_t>(sessions.size());
    const int64_t dim = model_->config().dim;
    const int64_t size = model_->config().codebook_size;
    logits_.resize(static_cast<size_t>(rows * size));
    if (in_turn_) {
        for (int64_t r = 0; r < rows; ++r) {
            FrameState& frame = sessions[static_cast<size_t>(r)]->frame();
            const int32_t code = codes[static_cast<size_t>(r)];
            const auto& one = hidden != nullptr ? frame.begin(hidden + r * dim, code) : frame.step(code);
            std::copy(one.begin(), one.end(), logits_.begin() + r * size);
        }
        return logits_;
    }
    // The hidden states come first among the columns, at position 0 of their sessions.
    std::vector<nn::CacheColumns::Column> caches = std::move(fast_columns_.columns);
    caches.clear();
    if (hidden != nullptr)
        for (Session* session : sessions) caches.push_back({&session->frame().cache(), 0});
    for (Session* session : sessions)
        caches.push_back({&session->frame().cache(), hidden != nullptr ? 1 : session->frame().position()});
    fast_columns_.assign(std::move(caches));
    Graph& graph = fast_graph(book, sessions.size());
    fast().set(graph, {hidden, hidden != nullptr ? rows : 0, codes.data(), rows, book - 1}, input_);
    nn::set_column_inputs(graph, FastAr::kName, fast_columns_);
    graph.compute();
    graph.get("logits", logits_.data(), logits_.size());
    for (Session* session : sessions)
        session->frame().set_position(hidden != nullptr ? 2 : session->frame().position() + 1);
    return logits_;
}

void Batch::check_begin(const Sessions& sessions, const std::vector<float>& hidden,
                        const std::vector<int32_t>& codes) const {
    const size_t rows = sessions.size();
    const auto dim = static_cast<size_t>(model_->config().dim);
    if (!model_->has_fast_ar())
        throw std::invalid_argument("[fast_ar] expected a model with a Fast-AR, this one has none");
    if (model_->config().num_codebooks < 2)
        throw std::invalid_argument("[fast_begin] expected a model with residual codebooks, this one has none");
    if (hidden.size() != rows * dim)
        throw std::invalid_argument(
            message("[hidden] expected ", rows, " times ", dim, " values, got ", hidden.size()));
    check_codes(sessions, codes);
}

void Batch::check_codes(const Sessions& sessions, const std::vector<int32_t>& codes) const {
    if (codes.size() != sessions.size())
        throw std::invalid_argument(
            message("[codes] expected ", sessions.size(), ", one a session, got ", codes.size()));
    for (const int32_t code : codes) check_code(code, model_->config().codebook_size);
}

std::vector<float> Batch::fast_begin(const Sessions& sessions, const std::vector<float>& hidden,
                                     const std::vector<int32_t>& codes) {
    const Turn turn(*this, sessions);
    check_begin(sessions, hidden, codes);
    return run_fast(1, sessions, hidden.data(), codes);
}

std::vector<float> Batch::fast_step(const Sessions& sessions, const std::vector<int32_t>& codes) {
    const Turn turn(*this, sessions);
    if (!model_->has_fast_ar())
        throw std::invalid_argument("[fast_ar] expected a model with a Fast-AR, this one has none");
    const int64_t position = sessions.front()->frame().position();
    check_codes(sessions, codes);
    for (Session* session : sessions)
        if (session->frame().position() != position)
            throw std::invalid_argument(
                message("[fast_step] expected sessions equally far in their frames, got positions ", position, " and ",
                        session->frame().position()));
    if (position == 0) throw std::invalid_argument("[fast_step] expected fast_begin first");
    if (position >= model_->config().num_codebooks)
        throw std::invalid_argument(message("[fast_step] expected at most ", model_->config().num_codebooks - 2,
                                            " steps after fast_begin: the frames are complete"));
    return run_fast(static_cast<int>(position), sessions, nullptr, codes);
}

std::string Batch::broken_hidden(const float* hidden, uint64_t step) const {
    if (std::all_of(hidden, hidden + model_->config().dim, [](float value) { return std::isfinite(value); })) return "";
    return message("[generate] frame ", step,
                   ": expected a hidden state of finite values (a weight of the file is broken, or a computation "
                   "overflowed)");
}

const std::vector<float>& Batch::frame_logits(size_t book, const Sessions& sessions, const std::vector<float>& hidden,
                                              const std::vector<int32_t>& codes) {
    const size_t rows = sessions.size();
    const size_t books = codes.size() / rows;
    if (fast_path_ == FastPath::kCached) {
        last_.resize(rows);
        for (size_t r = 0; r < rows; ++r) last_[r] = codes[r * books + book - 1];
        return run_fast(static_cast<int>(book), sessions, book == 1 ? hidden.data() : nullptr, last_);
    }
    const size_t dim = hidden.size() / rows;
    logits_.clear();
    for (size_t r = 0; r < rows; ++r) {
        const std::vector<float>& one =
            sessions[r]->frame().decode(&hidden[r * dim], &codes[r * books], static_cast<int64_t>(book));
        logits_.insert(logits_.end(), one.begin(), one.end());
    }
    return logits_;
}

Batch::Frames Batch::fast_frames(const Sessions& sessions, const std::vector<float>& hidden,
                                 const std::vector<int32_t>& codes, const std::vector<Draw>& draws) {
    const Turn turn(*this, sessions);
    check_begin(sessions, hidden, codes);
    const size_t rows = sessions.size();
    if (draws.size() != rows)
        throw std::invalid_argument(message("[draws] expected ", rows, ", one a session, got ", draws.size()));
    const auto books = static_cast<size_t>(model_->config().num_codebooks);
    const auto dim = static_cast<size_t>(model_->config().dim);
    const auto size = static_cast<size_t>(model_->config().codebook_size);
    Frames frames;
    frames.codes.assign(rows * books, 0);
    for (size_t r = 0; r < rows; ++r) {
        frames.codes[r * books] = codes[r];
        frames.broken.push_back(broken_hidden(&hidden[r * dim], draws[r].step));
    }
    try {
        for (size_t book = 1; book < books; ++book) {
            const std::vector<float>& logits = frame_logits(book, sessions, hidden, frames.codes);
            for (size_t r = 0; r < rows; ++r) {
                if (!frames.broken[r].empty()) continue;  // goes on in the graph, for nothing
                const Draw& d = draws[r];
                const int64_t drawn =
                    nn::draw(&logits[r * size], static_cast<int64_t>(size), d.sampler, {d.seed, d.step, book},
                             &frames.codes[r * books + 1], static_cast<int64_t>(book) - 1, draw_scratch_);
                if (drawn < 0)
                    frames.broken[r] = cannot_draw(d.step, book, drawn);
                else
                    frames.codes[r * books + book] = static_cast<int32_t>(drawn);
            }
        }
    } catch (const BackendError& error) {
        frames.failure = error.what();
    }
    return frames;
}

}  // namespace dualar
