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
    Turn(Batch& batch, const std::vector<BatchRow*>& sessions) : use_(batch.one_thread_, "batch") {
        if (sessions.empty() || sessions.size() > kMaxRows)
            throw std::invalid_argument(text("[batch] expected 1 to ", kMaxRows, " sessions, got ", sessions.size()));
        if (std::set<const BatchRow*>(sessions.begin(), sessions.end()).size() != sessions.size())
            throw std::invalid_argument("[batch] expected each session once, got one twice");
        for (BatchRow* session : sessions) {
            if (&session->batch_model() != batch.model_.get())
                throw std::invalid_argument("[batch] expected sessions of the batch's model, got one of another");
            uses_.emplace_back(session->turn(), "session");
        }
    }

  private:
    OneThread::Use use_;
    std::deque<OneThread::Use> uses_;
};

Batch::Batch(std::shared_ptr<const BatchModel> model, bool in_turn, FastPath fast_path)
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
        const auto inputs = nn::make_column_inputs(g, SlowAr::kName, count, slow_columns_);
        model_->slow().build(g, count, inputs, nullptr, /*all=*/true, /*full_vocab=*/false);
    });
    return *found;
}

Graph& Batch::fast_graph(int book, size_t rows) {
    std::unique_ptr<Graph>& found = graphs(rows).fast[model_->fast_graph(book)];
    if (found) return *found;
    ++graph_builds_;
    const auto count = static_cast<int64_t>(rows);
    const size_t nodes = static_cast<size_t>(model_->fast_layers()) * nn::kNodesPerBlock + 32;
    found = std::make_unique<Graph>(model_->backend(), nodes, [&](GraphBuilder& g) {
        const auto columns = book == 1 ? 2 * count : count;
        const auto inputs = nn::make_column_inputs(g, model_->fast_name(), columns, fast_columns_);
        model_->build_fast(g, book, count, inputs);
    });
    return *found;
}

void Batch::check_step(const std::vector<BatchRow*>& sessions, const std::vector<int32_t>& columns) const {
    const size_t height = static_cast<size_t>(model_->config().num_codebooks) + 1;
    if (columns.size() != sessions.size() * height)
        throw std::invalid_argument(text("[columns] expected ", sessions.size(), " times ", height,
                                         " values (a token id and ", height - 1, " codes for each session), got ",
                                         columns.size()));
    for (size_t r = 0; r < sessions.size(); ++r) sessions[r]->check_column(&columns[r * height]);
    model_->backend()->check_process();
}

Graph& Batch::ready_step(const std::vector<BatchRow*>& sessions, const std::vector<int32_t>& columns) {
    const auto dim = static_cast<size_t>(model_->config().dim);
    const size_t height = columns.size() / sessions.size();
    scratch_.input.resize(sessions.size() * dim);
    std::vector<nn::CacheColumns::Column> caches;
    for (size_t r = 0; r < sessions.size(); ++r) {
        sessions[r]->embed(&columns[r * height], &scratch_.input[r * dim], scratch_.row);
        caches.push_back({&sessions[r]->slow().cache(), sessions[r]->slow().position()});
    }
    slow_columns_.assign(std::move(caches));
    Graph& graph = slow_graph(sessions.size());
    graph.set("x", scratch_.input.data(), scratch_.input.size() * sizeof(float));
    nn::set_column_inputs(graph, SlowAr::kName, slow_columns_);
    return graph;
}

SlowOutput Batch::step(const std::vector<BatchRow*>& sessions, const std::vector<int32_t>& columns) {
    const Turn turn(*this, sessions);
    check_step(sessions, columns);
    const SlowAr& slow = model_->slow();
    SlowOutput out;
    out.positions = static_cast<int64_t>(sessions.size());
    out.width = slow.width(false);
    out.logits.resize(static_cast<size_t>(out.positions * out.width));
    out.hidden.resize(static_cast<size_t>(out.positions * slow.config.dim));
    if (!in_turn_) {
        Graph& graph = ready_step(sessions, columns);
        graph.compute();
        slow.read(graph, out.positions, false, out.logits.data(), out.hidden.data());
        for (BatchRow* session : sessions) session->slow().advance();
        return out;
    }
    const size_t height = columns.size() / sessions.size();
    size_t done = 0;
    try {
        for (; done < sessions.size(); ++done) {
            BatchRow& row = *sessions[done];
            const auto embed = [&](int64_t, int64_t, float* x) { row.embed(&columns[done * height], x, scratch_.row); };
            const SlowOutput one = row.slow().feed(embed, 1, false, false);
            std::copy(one.logits.begin(), one.logits.end(), &out.logits[done * one.logits.size()]);
            std::copy(one.hidden.begin(), one.hidden.end(), &out.hidden[done * one.hidden.size()]);
        }
    } catch (...) {
        while (done > 0) {
            SlowState& state = sessions[--done]->slow();
            state.truncate(state.position() - 1);
        }
        throw;
    }
    return out;
}

std::map<std::string, double> Batch::profile(const std::vector<BatchRow*>& sessions,
                                             const std::vector<int32_t>& columns) {
    const Turn turn(*this, sessions);
    check_step(sessions, columns);
    if (in_turn_) throw std::invalid_argument("[profile] expected rows that step together, these go in turn");
    return ready_step(sessions, columns).profile();
}

std::vector<float> Batch::run_fast(int book, const std::vector<BatchRow*>& sessions, const float* hidden,
                                   const std::vector<int32_t>& codes) {
    model_->backend()->check_process();
    const auto rows = static_cast<int64_t>(sessions.size());
    const int64_t dim = model_->config().dim;
    const int64_t size = model_->config().codebook_size;
    std::vector<float> logits(static_cast<size_t>(rows * size));
    if (in_turn_) {
        for (int64_t r = 0; r < rows; ++r) {
            const std::vector<float> one = sessions[static_cast<size_t>(r)]->fast_alone(
                hidden != nullptr ? hidden + r * dim : nullptr, codes[static_cast<size_t>(r)]);
            std::copy(one.begin(), one.end(), logits.begin() + r * size);
        }
        return logits;
    }
    // The hidden states come first among the columns, at position 0 of their sessions.
    std::vector<nn::CacheColumns::Column> caches;
    if (hidden != nullptr)
        for (BatchRow* session : sessions) caches.push_back({&session->fast_cache(), 0});
    for (BatchRow* session : sessions)
        caches.push_back({&session->fast_cache(), hidden != nullptr ? 1 : session->fast_position()});
    fast_columns_.assign(std::move(caches));
    Graph& graph = fast_graph(book, sessions.size());
    model_->set_fast(graph, book, rows, hidden, codes.data(), scratch_);
    nn::set_column_inputs(graph, model_->fast_name(), fast_columns_);
    graph.compute();
    graph.get("logits", logits.data(), logits.size());
    for (BatchRow* session : sessions) session->set_fast_position(hidden != nullptr ? 2 : session->fast_position() + 1);
    return logits;
}

void Batch::check_begin(const std::vector<BatchRow*>& sessions, const std::vector<float>& hidden,
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

void Batch::check_codes(const std::vector<BatchRow*>& sessions, const std::vector<int32_t>& codes) const {
    if (codes.size() != sessions.size())
        throw std::invalid_argument(text("[codes] expected ", sessions.size(), ", one a session, got ", codes.size()));
    for (const int32_t code : codes) check_code(code, model_->config().codebook_size);
}

std::vector<float> Batch::fast_begin(const std::vector<BatchRow*>& sessions, const std::vector<float>& hidden,
                                     const std::vector<int32_t>& codes) {
    const Turn turn(*this, sessions);
    check_begin(sessions, hidden, codes);
    return run_fast(1, sessions, hidden.data(), codes);
}

std::vector<float> Batch::fast_step(const std::vector<BatchRow*>& sessions, const std::vector<int32_t>& codes) {
    const Turn turn(*this, sessions);
    if (!model_->has_fast_ar())
        throw std::invalid_argument("[fast_ar] expected a model with a Fast-AR, this one has none");
    const int64_t position = sessions.front()->fast_position();
    check_codes(sessions, codes);
    for (BatchRow* session : sessions)
        if (session->fast_position() != position)
            throw std::invalid_argument(
                text("[fast_step] expected sessions equally far in their frames, got positions ", position, " and ",
                     session->fast_position()));
    if (position == 0) throw std::invalid_argument("[fast_step] expected fast_begin first");
    if (position >= model_->config().num_codebooks)
        throw std::invalid_argument(text("[fast_step] expected at most ", model_->config().num_codebooks - 2,
                                         " steps after fast_begin: the frames are complete"));
    return run_fast(static_cast<int>(position), sessions, nullptr, codes);
}

std::string Batch::broken_hidden(const float* hidden, uint64_t step) const {
    if (std::all_of(hidden, hidden + model_->config().dim, [](float value) { return std::isfinite(value); })) return "";
    return text("[generate] frame ", step,
                ": expected a hidden state of finite values (a weight of the file is broken, or a computation "
                "overflowed)");
}

std::vector<float> Batch::frame_logits(size_t book, const std::vector<BatchRow*>& sessions,
                                       const std::vector<float>& hidden, const std::vector<int32_t>& codes) {
    const size_t rows = sessions.size();
    const size_t books = codes.size() / rows;
    if (fast_path_ == FastPath::kCached) {
        std::vector<int32_t> last(rows);
        for (size_t r = 0; r < rows; ++r) last[r] = codes[r * books + book - 1];
        return run_fast(static_cast<int>(book), sessions, book == 1 ? hidden.data() : nullptr, last);
    }
    const size_t dim = hidden.size() / rows;
    std::vector<float> logits;
    for (size_t r = 0; r < rows; ++r) {
        const std::vector<float> one =
            sessions[r]->fast_recompute(&hidden[r * dim], &codes[r * books], static_cast<int64_t>(book));
        logits.insert(logits.end(), one.begin(), one.end());
    }
    return logits;
}

Batch::Frames Batch::fast_frames(const std::vector<BatchRow*>& sessions, const std::vector<float>& hidden,
                                 const std::vector<int32_t>& codes, const std::vector<Draw>& draws) {
    const Turn turn(*this, sessions);
    check_begin(sessions, hidden, codes);
    const size_t rows = sessions.size();
    if (draws.size() != rows)
        throw std::invalid_argument(text("[draws] expected ", rows, ", one a session, got ", draws.size()));
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
            const std::vector<float> logits = frame_logits(book, sessions, hidden, frames.codes);
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
