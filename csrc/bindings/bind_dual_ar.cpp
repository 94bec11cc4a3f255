// The dual-AR model and its sessions.
#include <pybind11/stl.h>

#include "bindings/step_output.h"
#include "models/dual_ar.h"

namespace dualar::bindings {

namespace {

StepOutput feed(Session& session, const py::array& columns, int dims, bool all_positions, bool full_vocab,
                const char* where) {
    const IntegerArray array = integers(columns, where, dims);
    require_rows(array, session.model().config().num_codebooks, where);
    const int64_t count = dims == 2 ? array.shape[1] : 1;
    return step_output(session.model().config().dim, all_positions,
                       [&] { return session.feed(array.values, count, all_positions, full_vocab); });
}

}  // namespace

void bind_dual_ar(py::module_& m) {
    py::class_<StepOutput>(m, "StepOutput", "logits [n] or [T, n], hidden [D] or [T, D], float32.")
        .def_readonly("logits", &StepOutput::logits)
        .def_readonly("hidden", &StepOutput::hidden);

    py::class_<SlowPrefix>(m, "Prefix", "What a session's first positions left in its cache.")
        .def_property_readonly("positions", [](const SlowPrefix& p) { return p.positions; })
        .def_property_readonly("nbytes", [](const SlowPrefix& p) { return p.rows.size(); });

    py::class_<Session, BatchRow>(m, "Session", "KV caches and position of one request; one thread at a time.")
        .def_property_readonly("position", &Session::position)
        .def_property_readonly("max_positions", &Session::max_positions)
        .def_property_readonly("nbytes", &Session::nbytes)
        .def_property_readonly("graph_builds", &Session::graph_builds)
        .def(
            "prefill",
            [](Session& s, const py::array& prompt, bool all_positions, bool full_vocab) {
                return feed(s, prompt, 2, all_positions, full_vocab, "prompt");
            },
            py::arg("prompt"), py::kw_only(), py::arg("all_positions") = false, py::arg("full_vocab") = false)
        .def(
            "step",
            [](Session& s, const py::array& column, bool full_vocab) {
                return feed(s, column, 1, false, full_vocab, "column");
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
        .def_property_readonly("kv_type", &Session::kv_type)
        .def(
            "attention_rows", [](const Session& s, Whole positions) { return s.attention_rows(positions); },
            py::arg("positions"))
        .def("snapshot", &Session::snapshot, py::call_guard<py::gil_scoped_release>())
        .def("restore", &Session::restore, py::arg("prefix"), py::call_guard<py::gil_scoped_release>())
        .def(
            "truncate", [](Session& s, Whole positions) { s.truncate(positions); }, py::arg("positions"))
        .def("_keep_probes", &Session::keep_probes, py::arg("keep"))
        .def("_probes", [](const Session& s) {
            py::dict all;
            for (auto& [name, values] : s.probes()) all[py::cast(name)] = to_numpy(values);
            return all;
        });

    py::class_<DualAr, BatchModel, std::shared_ptr<DualAr>>(m, "DualAR",
                                                            "Slow-AR and Fast-AR of one file: immutable weights.")
        .def(py::init([](std::shared_ptr<GgufFile> file, std::shared_ptr<Backend> runtime, Whole im_end_id) {
                 const py::gil_scoped_release release;
                 return std::make_shared<DualAr>(std::move(file), std::move(runtime), im_end_id);
             }),
             py::arg("file"), py::arg("runtime"), py::kw_only(), py::arg("im_end_id"))
        .def_property_readonly("num_codebooks", [](const DualAr& d) { return d.config().num_codebooks; })
        .def_property_readonly("codebook_size", [](const DualAr& d) { return d.config().codebook_size; })
        .def_property_readonly("hidden_size", [](const DualAr& d) { return d.config().dim; })
        .def_property_readonly("vocab_size", [](const DualAr& d) { return d.config().vocab_size; })
        .def_property_readonly("context_length", [](const DualAr& d) { return d.config().context_length; })
        .def_property_readonly("semantic_begin_id", [](const DualAr& d) { return d.config().semantic_begin; })
        .def_property_readonly("semantic_end_id", [](const DualAr& d) { return d.config().semantic_end; })
        .def_property_readonly("im_end_id", [](const DualAr& d) { return d.config().im_end; })
        .def_property_readonly("prefill_piece", [](const DualAr&) { return SlowState::kPrefillPiece; })
        .def_property_readonly("has_fast_ar", &DualAr::has_fast_ar)
        .def_property_readonly("main_ids",
                               [](const DualAr& d) {
                                   const std::vector<int32_t> ids = d.main_ids();
                                   return py::array_t<int32_t>(static_cast<py::ssize_t>(ids.size()), ids.data());
                               })
        .def_property_readonly("unused_tensors", &DualAr::unused_tensors)
        .def("load", &DualAr::load, py::call_guard<py::gil_scoped_release>())
        .def(
            "kv_bytes", [](const DualAr& d, Whole n, const std::string& kv_type) { return d.kv_bytes(n, kv_type); },
            py::arg("max_positions"), py::arg("kv_type") = "auto")
        .def(
            "session", [](const DualAr& d, Whole n, const std::string& kv_type) { return d.session(n, kv_type); },
            py::kw_only(), py::arg("max_positions"), py::arg("kv_type") = "auto")
        .def(
            "fast_decode",
            [](const DualAr& d, const py::array& hidden, const py::array& prefix) {
                const std::vector<float> h = floats(hidden, "hidden");
                const IntegerArray p = integers(prefix, "prefix", 1);
                return compute([&] { return d.fast_decode(h, p.values); });
            },
            py::arg("hidden"), py::arg("prefix"));
}

}  // namespace dualar::bindings
