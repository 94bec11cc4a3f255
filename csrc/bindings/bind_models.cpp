// Models of all families, and their sessions.
#include <pybind11/stl.h>

#include "bindings/step_output.h"
#include "bindings/without_gil.h"
#include "models/ar_checks.h"
#include "models/qwen3_tts/names.h"
#include "models/s2/names.h"
#include "models/session.h"

namespace dualar::bindings {

namespace {

// A class of its own for each family in Python, whose constructor takes files of that family alone.
struct DualAr : Model {
    DualAr(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend, int64_t end_id)
        : Model((check_architecture(*file, names::kArchitecture), std::move(file)), std::move(backend), end_id) {}
};
struct Qwen3Tts : Model {
    Qwen3Tts(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend)
        : Model((check_architecture(*file, qwen3_names::kArchitecture), std::move(file)), std::move(backend), {}) {}
};

// A matrix [1 + N, T], or anything that has it as `columns`; of a family that has a text vocabulary
// dualar.families.qwen3_prompt.TalkerPrompt, or anything with its attributes.
Prompt to_prompt(const py::object& from, const Model& model) {
    const bool takes_text = model.recipe().text_vocab() > 0;
    const auto attribute = [&](const char* name) -> py::object {
        if (!py::hasattr(from, name))
            throw std::invalid_argument(message("[prompt] expected a TalkerPrompt, got ",
                                                py::type::of(from).attr("__name__").cast<std::string>()));
        return from.attr(name);
    };
    Prompt prompt;
    IntegerArray columns = integers(
        (takes_text || py::hasattr(from, "columns") ? attribute("columns") : from).cast<py::array>(), "prompt", 2);
    require_rows(columns, model.config().num_codebooks, "prompt");
    prompt.columns = std::move(columns.values);
    prompt.count = columns.shape[1];
    if (!takes_text) return prompt;
    prompt.trailing = integers(attribute("trailing").cast<py::array>(), "trailing", 1).values;
    const py::object speaker = attribute("speaker");
    if (!speaker.is_none()) {
        prompt.speaker = floats(speaker.cast<py::array>(), "speaker");
        prompt.speaker_column = attribute("speaker_column").cast<Whole>();
        if (prompt.speaker.empty()) throw std::invalid_argument("[prompt] expected the speaker's vector or None");
    }
    return prompt;
}

void bind_session(py::module_& m) {
    py::class_<StepOutput>(m, "StepOutput", "logits [n] or [T, n], hidden [D] or [T, D], float32.")
        .def_readonly("logits", &StepOutput::logits, "float32 [n]: of the main ids; [T, n] of all positions.")
        .def_readonly("hidden", &StepOutput::hidden, "float32 [D] or [T, D]: what the Fast-AR begins with.");

    py::class_<DecoderPrefix>(m, "Prefix", "What a session's first positions left in its cache.")
        .def_property_readonly("positions", [](const DecoderPrefix& p) { return p.positions; })
        .def_property_readonly("nbytes", [](const DecoderPrefix& p) { return p.rows.size(); });

    py::class_<Session>(m, "Session", "KV caches, text and position of one request; one thread at a time.")
        .def_property_readonly("position", &Session::position, "Positions fed so far.")
        .def_property_readonly("max_positions", &Session::max_positions, "Positions that it has room for.")
        .def_property_readonly("nbytes", &Session::nbytes, "Bytes of its caches and graphs.")
        .def_property_readonly("graph_builds", &Session::graph_builds, "How often a graph was built.")
        .def_property_readonly("kv_type", &Session::kv_type, "The type of its cache: f32 or f16.")
        .def(
            "prefill",
            [](Session& s, const py::object& prompt, bool all_positions, bool full_vocab) {
                const Prompt given = to_prompt(prompt, s.model());
                return step_output(s.model().config().dim, all_positions,
                                   [&] { return s.prefill(given, all_positions, full_vocab); });
            },
            py::arg("prompt"), py::kw_only(), py::arg("all_positions") = false, py::arg("full_vocab") = false)
        .def(
            "step",
            [](Session& s, const py::array& column, bool full_vocab) {
                const IntegerArray given = integers(column, "column", 1);
                require_rows(given, s.model().config().num_codebooks, "column");
                return step_output(s.model().config().dim, false, [&] { return s.step(given.values, full_vocab); });
            },
            py::arg("column"), py::kw_only(), py::arg("full_vocab") = false)
        .def(
            "fast_begin",
            [](Session& s, const py::array& hidden, Whole code) {
                const std::vector<float> h = floats(hidden, "hidden");
                return compute([&] { return s.fast_begin(h, code); });
            },
            py::arg("hidden"), py::arg("code"))
        .def(
            "fast_step", [](Session& s, Whole code) { return compute([&] { return s.fast_step(code); }); },
            py::arg("code"))
        .def(
            "fast_decode",
            [](Session& s, const py::array& hidden, const py::array& prefix) {
                const std::vector<float> h = floats(hidden, "hidden");
                const IntegerArray p = integers(prefix, "prefix", 1);
                return compute([&] { return s.fast_decode(h, p.values); });
            },
            py::arg("hidden"), py::arg("prefix"))
        .def("reset", &Session::reset)
        .def(
            "truncate", [](Session& s, Whole positions) { s.truncate(positions); }, py::arg("positions"))
        .def(
            "attention_rows", [](const Session& s, Whole positions) { return s.attention_rows(positions); },
            py::arg("positions"))
        .def(
            "watch", [](Session& s, Whole first, Whole last) { s.watch(first, last); }, py::arg("first"),
            py::arg("last"))
        .def("alignment",
             [](Session& s) {
                 std::vector<float> values = s.alignment();
                 const auto heads = static_cast<py::ssize_t>(s.model().config().alignment_heads.size());
                 const auto count = static_cast<py::ssize_t>(values.size()) / heads;
                 return to_numpy(std::move(values), {heads, count});
             })
        .def("snapshot", &Session::snapshot, py::call_guard<WithoutGil>())
        .def("restore", &Session::restore, py::arg("prefix"), py::call_guard<WithoutGil>())
        .def("_keep_probes", &Session::keep_probes, py::arg("keep"))
        .def("_probes", [](const Session& s) {
            py::dict all;
            for (auto& [name, values] : s.probes()) all[py::cast(name)] = to_numpy(values);
            return all;
        });
}

void bind_model(py::module_& m) {
    py::class_<Model, std::shared_ptr<Model>>(m, "Model", "A dual-autoregressive model of any family: its weights.")
        .def(py::init([](std::shared_ptr<GgufFile> file, std::shared_ptr<Backend> runtime, std::optional<Whole> end) {
                 const WithoutGil without_gil;
                 const auto end_id = end ? std::optional<int64_t>(end->value) : std::nullopt;
                 return std::make_shared<Model>(std::move(file), std::move(runtime), end_id);
             }),
             py::arg("file"), py::arg("runtime"), py::kw_only(), py::arg("im_end_id") = py::none())
        .def_property_readonly("num_codebooks", [](const Model& d) { return d.config().num_codebooks; })
        .def_property_readonly("codebook_size", [](const Model& d) { return d.config().codebook_size; })
        .def_property_readonly("hidden_size", [](const Model& d) { return d.config().dim; })
        .def_property_readonly("vocab_size", [](const Model& d) { return d.config().vocab_size; })
        .def_property_readonly("context_length", [](const Model& d) { return d.config().context_length; })
        .def_property_readonly("semantic_begin_id", [](const Model& d) { return d.config().semantic_begin; })
        .def_property_readonly("semantic_end_id", [](const Model& d) { return d.config().semantic_end; })
        .def_property_readonly("im_end_id", [](const Model& d) { return d.config().end_id; })
        .def_property_readonly("end_code", [](const Model& d) { return d.config().end_code; })
        .def_property_readonly("prefill_piece", [](const Model&) { return DecoderState::kPrefillPiece; })
        .def_property_readonly("has_fast_ar", &Model::has_fast_ar)
        .def_property_readonly("main_ids",
                               [](const Model& d) {
                                   const std::vector<int32_t> ids = d.recipe().decoder().main_ids();
                                   return py::array_t<int32_t>(static_cast<py::ssize_t>(ids.size()), ids.data());
                               })
        .def_property_readonly("alignment_heads",
                               [](const Model& d) {
                                   py::list all;
                                   for (const DecoderConfig::Head& named : d.config().alignment_heads)
                                       all.append(py::make_tuple(named.layer, named.head));
                                   return all;
                               })
        .def_property_readonly("unused_tensors", &Model::unused_tensors)
        .def("load", &Model::load, py::call_guard<WithoutGil>())
        .def(
            "kv_bytes", [](const Model& d, Whole n, const std::string& kv_type) { return d.kv_bytes(n, kv_type); },
            py::arg("max_positions"), py::arg("kv_type") = "auto")
        .def(
            "session",
            [](const Model& d, Whole n, const std::string& kv_type) {
                const WithoutGil without_gil;
                return d.session(n, kv_type);
            },
            py::kw_only(), py::arg("max_positions"), py::arg("kv_type") = "auto")
        .def(
            "fast_decode",
            [](const Model& d, const py::array& hidden, const py::array& prefix) {
                const std::vector<float> h = floats(hidden, "hidden");
                const IntegerArray p = integers(prefix, "prefix", 1);
                return compute([&] { return d.fast_decode(h, p.values); });
            },
            py::arg("hidden"), py::arg("prefix"));
}

}  // namespace

void bind_models(py::module_& m) {
    bind_session(m);
    bind_model(m);
    py::class_<DualAr, Model, std::shared_ptr<DualAr>>(m, "DualAR", "A model of the S2 family.")
        .def(py::init([](std::shared_ptr<GgufFile> file, std::shared_ptr<Backend> runtime, Whole im_end_id) {
                 const WithoutGil without_gil;
                 return std::make_shared<DualAr>(std::move(file), std::move(runtime), im_end_id);
             }),
             py::arg("file"), py::arg("runtime"), py::kw_only(), py::arg("im_end_id"));
    py::class_<Qwen3Tts, Model, std::shared_ptr<Qwen3Tts>>(m, "Qwen3TTS", "A model of the Qwen3-TTS family.")
        .def(py::init([](std::shared_ptr<GgufFile> file, std::shared_ptr<Backend> runtime) {
                 const WithoutGil without_gil;
                 return std::make_shared<Qwen3Tts>(std::move(file), std::move(runtime));
             }),
             py::arg("file"), py::arg("runtime"))
        .def_property_readonly(
            "text_vocab_size", [](const Qwen3Tts& d) { return d.recipe().text_vocab(); },
            "Rows of the table of text tokens.");
}

}  // namespace dualar::bindings
