// The speaker encoder.
#include <pybind11/stl.h>

#include "bindings/arrays.h"
#include "models/qwen3_tts/speaker.h"
#include "runtime/error.h"

namespace dualar::bindings {

namespace {

std::vector<float> checked(const Qwen3Speaker& speaker, const py::array& mel) {
    if (mel.dtype().kind() != 'f' || mel.ndim() != 2 || mel.shape(1) != speaker.mel_dim())
        throw std::invalid_argument(text("[mel] expected floats [frames, ", speaker.mel_dim(), "], got ",
                                         std::string(py::str(py::object(mel.dtype()))), " in ", mel.ndim(),
                                         " dimension(s), the last of ", mel.ndim() ? mel.shape(mel.ndim() - 1) : 0));
    const auto values = py::array_t<float, py::array::c_style | py::array::forcecast>::ensure(mel);
    if (!values) throw py::error_already_set();
    return {values.data(), values.data() + values.size()};
}

}  // namespace

void bind_speaker(py::module_& m) {
    py::class_<Qwen3Speaker, std::shared_ptr<Qwen3Speaker>>(m, "SpeakerEncoder", "The speaker encoder's weights.")
        .def(py::init([](std::shared_ptr<GgufFile> file, std::shared_ptr<Backend> runtime) {
                 const py::gil_scoped_release release;
                 return std::make_shared<Qwen3Speaker>(std::move(file), std::move(runtime));
             }),
             py::arg("file"), py::arg("runtime"))
        .def_static("present", &Qwen3Speaker::present, py::arg("file"))
        .def_property_readonly("sample_rate", &Qwen3Speaker::sample_rate)
        .def_property_readonly("mel_dim", &Qwen3Speaker::mel_dim)
        .def_property_readonly("dim", &Qwen3Speaker::dim)
        .def_property_readonly("min_frames", &Qwen3Speaker::min_frames)
        .def_property_readonly("unused_tensors", &Qwen3Speaker::unused_tensors)
        .def(
            "embed",
            [](const Qwen3Speaker& s, const py::array& mel) {
                const std::vector<float> values = checked(s, mel);
                std::vector<float> embedding;
                {
                    const py::gil_scoped_release release;
                    embedding = s.embed(values, mel.shape(0));
                }
                return to_numpy(std::move(embedding));
            },
            py::arg("mel"))
        .def(
            "_probe",
            [](const Qwen3Speaker& s, const py::array& mel) {
                py::dict out;
                for (auto& [name, values] : s.probe(checked(s, mel), mel.shape(0)))
                    out[py::str(name)] = to_numpy(values);
                return out;
            },
            py::arg("mel"));
}

}  // namespace dualar::bindings
