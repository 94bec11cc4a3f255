// Samplers: how an id is drawn from a row of logits (nn/sampling).
#include <pybind11/stl.h>

#include "bindings/arrays.h"
#include "models/ar_checks.h"
#include "runtime/error.h"

namespace dualar::bindings {

namespace {

nn::Chain chain_named(const std::string& name) {
    if (name == "fish") return nn::Chain::kUntempered;
    if (name == "hf") return nn::Chain::kPenalised;
    if (name == "cosyvoice") return nn::Chain::kNucleus;
    throw std::invalid_argument(message("[family] expected fish, hf or cosyvoice, got ", quoted(name)));
}

nn::Sampler make_sampler(const std::string& family, double temperature, double top_p, Whole top_k, Whole history_window,
                         double repetition_penalty, double repeat_threshold, double redraw_temperature,
                         double redraw_top_p) {
    const nn::Sampler sampler{
        chain_named(family), temperature,        top_p,       top_k, history_window, repetition_penalty,
        repeat_threshold,    redraw_temperature, redraw_top_p};
    check_sampler(sampler);
    return sampler;
}

int64_t draw(const nn::Sampler& sampler, const py::array& logits, uint64_t seed, uint64_t step, uint64_t stream,
             const std::optional<py::array>& history) {
    const std::vector<float> row = floats(logits, "logits");
    if (row.empty()) throw std::invalid_argument("[logits] expected at least one, got none");
    const std::vector<int32_t> past = history ? integers(*history, "history", 1).values : std::vector<int32_t>();
    const auto n = static_cast<int64_t>(row.size());
    for (const int32_t id : past)
        if (id < 0 || id >= n)
            throw std::invalid_argument(message("[history] expected ids from 0 to ", n - 1, ", got ", id));
    nn::DrawScratch scratch;
    const int64_t drawn =
        nn::draw(row.data(), n, sampler, {seed, step, stream}, past.data(), static_cast<int64_t>(past.size()), scratch);
    if (drawn < 0) throw ModelError(cannot_draw(step, stream, drawn));
    return drawn;
}

}  // namespace

void bind_sampling(py::module_& m) {
    py::class_<nn::Sampler>(m, "Sampler", "How an id is drawn from a row of logits.")
        .def(py::init(&make_sampler), py::arg("family"), py::kw_only(), py::arg("temperature"), py::arg("top_p"),
             py::arg("top_k"), py::arg("history_window") = 0, py::arg("repetition_penalty") = 1.0,
             py::arg("repeat_threshold") = 0.0, py::arg("redraw_temperature") = 1.0, py::arg("redraw_top_p") = 1.0)
        .def("draw", &draw, py::arg("logits"), py::kw_only(), py::arg("seed"), py::arg("step"), py::arg("stream"),
             py::arg("history") = py::none());
}

}  // namespace dualar::bindings
