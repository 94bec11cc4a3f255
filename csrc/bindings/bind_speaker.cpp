// The speaker encoder.
#include <pybind11/stl.h>

#include "bindings/arrays.h"
#include "bindings/without_gil.h"
#include "models/registry.h"
#include "runtime/error.h"

namespace dualar::bindings {

namespace {

std::vector<float> checked(const SpeakerEncoder& speaker, const py::array& mel) {
    if (mel.dtype().kind() != 'f' || mel.ndim() != 2 || mel.shape(1) != speaker.mel_dim())
        throw std::invalid_argument(message("[mel] expected floats [frames, ", speaker.mel_dim(), "], got ",
                                            std::string(py::str(py::object(mel.dtype()))), " in ", mel.ndim(),
                                            " dimension(s), the last of ", mel.ndim() ? mel.shape(mel.ndim() - 1) : 0));
    const auto values = py::array_t<float, py::array::c_style | py::array::forcecast>::ensure(mel);
    if (!values) throw py::error_already_set();
    return {values.data(), values.data() + values.size()};
}

std::shared_ptr<SpeakerEncoder> open_speaker(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend) {
    const Family& family = family_of(*file);
    if (family.speaker == nullptr)
        throw ModelError(message("[speaker] expected a file with a speaker encoder, got one of the architecture \"",
                                 family.architecture, "\", which has none"));
    return family.speaker(std::move(file), std::move(backend));
}

}  // namespace

void bind_speaker(py::module_& m) {
    py::class_<SpeakerEncoder, std::shared_ptr<SpeakerEncoder>>(m, "SpeakerEncoder", "The speaker encoder's weights.")
        .def(py::init([](std::shared_ptr<GgufFile> file, std::shared_ptr<Backend> runtime) {
                 const WithoutGil without_gil;
                 return open_speaker(std::move(file), std::move(runtime));
             }),
             py::arg("file"), py::arg("runtime"))
        .def_static(
            "present", [](const GgufFile& file) { return family_of(file).has_speaker(file); }, py::arg("file"))
        .def_property_readonly("sample_rate", &SpeakerEncoder::sample_rate)
        .def_property_readonly("mel_dim", &SpeakerEncoder::mel_dim)
        .def_property_readonly("dim", &SpeakerEncoder::dim)
        .def_property_readonly("min_frames", &SpeakerEncoder::min_frames)
        .def_property_readonly("unused_tensors", &SpeakerEncoder::unused_tensors)
        .def(
            "embed",
            [](const SpeakerEncoder& s, const py::array& mel) {
                const std::vector<float> values = checked(s, mel);
                std::vector<float> embedding;
                {
                    const WithoutGil without_gil;
                    embedding = s.embed(values, mel.shape(0));
                }
                return to_numpy(std::move(embedding));
            },
            py::arg("mel"))
        .def(
            "_probe",
            [](const SpeakerEncoder& s, const py::array& mel) {
                const std::vector<float> values = checked(s, mel);
                std::map<std::string, std::vector<float>> found;
                {
                    const WithoutGil without_gil;
                    found = s.probe(values, mel.shape(0));
                }
                py::dict out;
                for (auto& [name, probed] : found) out[py::str(name)] = to_numpy(probed);
                return out;
            },
            py::arg("mel"));
}

}  // namespace dualar::bindings
