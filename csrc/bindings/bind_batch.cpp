// Batches of sessions (models/batch).
#include <pybind11/stl.h>

#include "bindings/arrays.h"
#include "bindings/without_gil.h"
#include "models/batch.h"
#include "runtime/error.h"

namespace dualar::bindings {

namespace {

// The sessions of a list, which is kept as it is while they compute.
struct Rows {
    std::vector<py::object> objects;
    std::vector<Session*> sessions;

    explicit Rows(const py::sequence& list) {
        for (const auto& item : list) {
            objects.push_back(py::reinterpret_borrow<py::object>(item));
            sessions.push_back(item.cast<Session*>());
            if (sessions.back() == nullptr) throw std::invalid_argument("[batch] expected sessions, got None");
        }
    }
    py::ssize_t size() const { return static_cast<py::ssize_t>(sessions.size()); }
};

// Any float dtype as float32, [rows, columns].
std::vector<float> matrix(const py::array& array, const char* where, py::ssize_t rows, py::ssize_t columns) {
    if (array.ndim() != 2 || array.shape(0) != rows || array.shape(1) != columns)
        throw std::invalid_argument(message("[", where, "] expected [", rows, ", ", columns, "], got ", array.ndim(),
                                            " dimensions and ", array.size(), " values"));
    return floats(py::array(array).reshape({array.size()}), where);
}

Batch::FastPath fast_path_named(const std::string& name) {
    if (name == "cached") return Batch::FastPath::kCached;
    if (name == "recompute") return Batch::FastPath::kRecompute;
    throw std::invalid_argument(message("[fast_ar] expected cached or recompute, got ", quoted(name)));
}

}  // namespace

void bind_batch(py::module_& m) {
    py::class_<Batch>(m, "Batch", "Sessions of one model taken a step further together; one thread at a time.")
        .def(py::init([](std::shared_ptr<Model> model, bool in_turn, const std::string& fast_ar) {
                 return std::make_unique<Batch>(std::move(model), in_turn, fast_path_named(fast_ar));
             }),
             py::arg("model"), py::kw_only(), py::arg("in_turn") = false, py::arg("fast_ar") = "cached")
        .def_property_readonly("graph_builds", &Batch::graph_builds)
        .def(
            "step",
            [](Batch& batch, const py::sequence& sessions, const py::array& columns) {
                const Rows rows(sessions);
                const IntegerArray array = integers(columns, "columns", 2);
                DecoderOutput out;
                {
                    const WithoutGil without_gil;
                    out = batch.step(rows.sessions, array.values);
                }
                const int64_t width = out.width;
                return py::make_tuple(to_numpy(std::move(out.logits), {rows.size(), width}),
                                      to_numpy(std::move(out.hidden),
                                               {rows.size(), static_cast<py::ssize_t>(batch.model().config().dim)}));
            },
            py::arg("sessions"), py::arg("columns"))
        .def(
            "_profile",
            [](Batch& batch, const py::sequence& sessions, const py::array& columns) {
                const Rows rows(sessions);
                const IntegerArray array = integers(columns, "columns", 2);
                const WithoutGil without_gil;
                return batch.profile(rows.sessions, array.values);
            },
            py::arg("sessions"), py::arg("columns"))
        .def(
            "fast_begin",
            [](Batch& batch, const py::sequence& sessions, const py::array& hidden, const py::array& codes) {
                const Rows rows(sessions);
                const std::vector<float> h = matrix(hidden, "hidden", rows.size(), batch.model().config().dim);
                const IntegerArray c = integers(codes, "codes", 1);
                std::vector<float> logits;
                {
                    const WithoutGil without_gil;
                    logits = batch.fast_begin(rows.sessions, h, c.values);
                }
                return to_numpy(std::move(logits), {rows.size(), batch.model().config().codebook_size});
            },
            py::arg("sessions"), py::arg("hidden"), py::arg("codes"))
        .def(
            "fast_step",
            [](Batch& batch, const py::sequence& sessions, const py::array& codes) {
                const Rows rows(sessions);
                const IntegerArray c = integers(codes, "codes", 1);
                std::vector<float> logits;
                {
                    const WithoutGil without_gil;
                    logits = batch.fast_step(rows.sessions, c.values);
                }
                return to_numpy(std::move(logits), {rows.size(), batch.model().config().codebook_size});
            },
            py::arg("sessions"), py::arg("codes"))
        .def(
            "fast_frames",
            [](Batch& batch, const py::sequence& sessions, const py::array& hidden, const py::array& codes,
               const std::vector<std::tuple<nn::Sampler, uint64_t, uint64_t>>& draws) {
                const Rows rows(sessions);
                const std::vector<float> h = matrix(hidden, "hidden", rows.size(), batch.model().config().dim);
                const IntegerArray c = integers(codes, "codes", 1);
                std::vector<Batch::Draw> all;
                for (const auto& [sampler, seed, step] : draws) all.push_back({sampler, seed, step});
                Batch::Frames frames;
                {
                    const WithoutGil without_gil;
                    frames = batch.fast_frames(rows.sessions, h, c.values, all);
                }
                const py::ssize_t books = batch.model().config().num_codebooks;
                const auto reason = [](const std::string& said) -> py::object {
                    if (said.empty()) return py::none();
                    return py::str(said);
                };
                py::list broken;
                for (const std::string& said : frames.broken) broken.append(reason(said));
                return py::make_tuple(py::array_t<int32_t>({rows.size(), books}, frames.codes.data()), broken,
                                      reason(frames.failure));
            },
            py::arg("sessions"), py::arg("hidden"), py::arg("codes"), py::arg("draws"));
}

}  // namespace dualar::bindings
