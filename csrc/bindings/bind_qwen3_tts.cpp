// Qwen3-TTS and its sessions: the methods of DualAR and Session, with a prompt of its own.
#include <pybind11/stl.h>

#include "bindings/step_output.h"
#include "models/qwen3_tts.h"

namespace dualar::bindings {

namespace {

// dualar.qwen3_prompt.TalkerPrompt, or anything with its attributes.
TalkerPrompt to_prompt(const py::object& from, int num_codebooks) {
    const auto attribute = [&](const char* name) -> py::object {
        if (!py::hasattr(from, name))
            throw std::invalid_argument(text("[prompt] expected a TalkerPrompt, got ",
                                             py::type::of(from).attr("__name__").cast<std::string>()));
        return from.attr(name);
    };
    TalkerPrompt prompt;
    IntegerArray columns = integers(attribute("columns").cast<py::array>(), "prompt", 2);
    require_rows(columns, num_codebooks, "prompt");
    prompt.columns = std::move(columns.values);
    prompt.count = columns.shape[1];
    prompt.trailing = integers(attribute("trailing").cast<py::array>(), "trailing", 1).values;
    const py::object speaker = attribute("speaker");
    if (!speaker.is_none()) {
        prompt.speaker = floats(speaker.cast<py::array>(), "speaker");
        prompt.speaker_column = attribute("speaker_column").cast<Whole>();
        if (prompt.speaker.empty()) throw std::invalid_argument("[prompt] expected the speaker's vector or None");
    }
    return prompt;
}

}  // namespace

void bind_qwen3_tts(py::module_& m) {
    py::class_<Qwen3Session, BatchRow>(m, "Qwen3Session",
                                       "KV caches, text and position of one request; one thread at a time.")
        .def_property_readonly("position", &Qwen3Session::position)
        .def_property_readonly("max_positions", &Qwen3Session::max_positions)
        .def_property_readonly("nbytes", &Qwen3Session::nbytes)
        .def_property_readonly("graph_builds", &Qwen3Session::graph_builds)
        .def(
            "prefill",
            [](Qwen3Session& s, const py::object& prompt, bool all_positions, bool full_vocab) {
                const TalkerPrompt given = to_prompt(prompt, s.model().config().num_codebooks);
                return step_output(s.model().config().dim, all_positions,
                                   [&] { return s.prefill(given, all_positions, full_vocab); });
            },
            py::arg("prompt"), py::kw_only(), py::arg("all_positions") = false, py::arg("full_vocab") = false)
        .def(
            "step",
            [](Qwen3Session& s, const py::array& column, bool full_vocab) {
                const IntegerArray given = integers(column, "column", 1);
                require_rows(given, s.model().config().num_codebooks, "column");
                return step_output(s.model().config().dim, false, [&] { return s.step(given.values, full_vocab); });
            },
            py::arg("column"), py::kw_only(), py::arg("full_vocab") = false)
        .def(
            "fast_begin",
            [](Qwen3Session& s, const py::array& hidden, Whole code) {
                const std::vector<float> h = floats(hidden, "hidden");
                return compute([&] { return s.fast_begin(h, code); });
            },
            py::arg("hidden"), py::arg("code"))
        .def(
            "fast_step", [](Qwen3Session& s, Whole code) { return compute([&] { return s.fast_step(code); }); },
            py::arg("code"))
        .def(
            "fast_decode",
            [](Qwen3Session& s, const py::array& hidden, const py::array& prefix) {
                const std::vector<float> h = floats(hidden, "hidden");
                const IntegerArray p = integers(prefix, "prefix", 1);
                return compute([&] { return s.fast_decode(h, p.values); });
            },
            py::arg("hidden"), py::arg("prefix"))
        .def("reset", &Qwen3Session::reset)
        .def(
            "truncate", [](Qwen3Session& s, Whole positions) { s.truncate(positions); }, py::arg("positions"))
        .def("_keep_probes", &Qwen3Session::keep_probes, py::arg("keep"))
        .def("_probes", [](const Qwen3Session& s) {
            py::dict all;
            for (auto& [name, values] : s.probes()) all[py::cast(name)] = to_numpy(values);
            return all;
        });

    py::class_<Qwen3Tts, BatchModel, std::shared_ptr<Qwen3Tts>>(
        m, "Qwen3TTS", "Talker and code predictor of one file: immutable weights.")
        .def(py::init([](std::shared_ptr<GgufFile> file, std::shared_ptr<Backend> runtime) {
                 const py::gil_scoped_release release;
                 return std::make_shared<Qwen3Tts>(std::move(file), std::move(runtime));
             }),
             py::arg("file"), py::arg("runtime"))
        .def_property_readonly("num_codebooks", [](const Qwen3Tts& d) { return d.config().num_codebooks; })
        .def_property_readonly("codebook_size", [](const Qwen3Tts& d) { return d.config().codebook_size; })
        .def_property_readonly("hidden_size", [](const Qwen3Tts& d) { return d.config().dim; })
        .def_property_readonly("vocab_size", [](const Qwen3Tts& d) { return d.config().vocab_size; })
        .def_property_readonly("text_vocab_size", [](const Qwen3Tts& d) { return d.text_config().text_vocab; })
        .def_property_readonly("context_length", [](const Qwen3Tts& d) { return d.config().context_length; })
        .def_property_readonly("semantic_begin_id", [](const Qwen3Tts& d) { return d.config().semantic_begin; })
        .def_property_readonly("semantic_end_id", [](const Qwen3Tts& d) { return d.config().semantic_end; })
        .def_property_readonly("im_end_id", [](const Qwen3Tts& d) { return d.config().im_end; })
        .def_property_readonly("has_fast_ar", [](const Qwen3Tts&) { return true; })
        .def_property_readonly("main_ids",
                               [](const Qwen3Tts& d) {
                                   const std::vector<int32_t> ids = d.main_ids();
                                   return py::array_t<int32_t>(static_cast<py::ssize_t>(ids.size()), ids.data());
                               })
        .def_property_readonly("unused_tensors", &Qwen3Tts::unused_tensors)
        .def("load", &Qwen3Tts::load, py::call_guard<py::gil_scoped_release>())
        .def(
            "kv_bytes", [](const Qwen3Tts& d, Whole n, const std::string& kv_type) { return d.kv_bytes(n, kv_type); },
            py::arg("max_positions"), py::arg("kv_type") = "auto")
        .def(
            "session", [](const Qwen3Tts& d, Whole n, const std::string& kv_type) { return d.session(n, kv_type); },
            py::kw_only(), py::arg("max_positions"), py::arg("kv_type") = "auto")
        .def(
            "fast_decode",
            [](const Qwen3Tts& d, const py::array& hidden, const py::array& prefix) {
                const std::vector<float> h = floats(hidden, "hidden");
                const IntegerArray p = integers(prefix, "prefix", 1);
                return compute([&] { return d.fast_decode(h, p.values); });
            },
            py::arg("hidden"), py::arg("prefix"));
}

}  // namespace dualar::bindings
