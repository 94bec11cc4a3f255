// The codecs and their streams.
#include <pybind11/stl.h>

#include <algorithm>

#include "bindings/arrays.h"
#include "bindings/without_gil.h"
#include "models/registry.h"
#include "runtime/error.h"

namespace dualar::bindings {

namespace {

py::dict to_dict(const std::map<std::string, std::vector<float>>& arrays) {
    py::dict out;
    for (const auto& [name, values] : arrays) out[py::str(name)] = to_numpy(values);
    return out;
}

using Encode = std::vector<int32_t> (CodecEncoder::*)(const std::vector<float>&);

py::array_t<int32_t> encode(CodecEncoder& encoder, Encode step, const py::array& samples) {
    const std::vector<float> values = floats(samples, "samples");
    std::vector<int32_t> codes;
    {
        const WithoutGil without_gil;
        codes = (encoder.*step)(values);
    }
    const int64_t rows = encoder.codebooks();
    py::array_t<int32_t> out({rows, static_cast<int64_t>(codes.size()) / rows});
    std::copy(codes.begin(), codes.end(), out.mutable_data());
    return out;
}

}  // namespace

void bind_codec(py::module_& m) {
    py::class_<CodecSnapshot>(m, "CodecSnapshot", "Where a stream was after some frames.")
        .def_property_readonly("nbytes", &CodecSnapshot::nbytes);

    py::class_<CodecStream>(m, "CodecStream", "Streaming decoder state; one thread at a time.")
        .def_property_readonly("max_frames", &CodecStream::max_frames)
        .def_property_readonly("nbytes", &CodecStream::nbytes)
        .def_property_readonly("graph_builds", &CodecStream::graph_builds)
        .def(
            "push",
            [](CodecStream& s, const py::array& codes) {
                const IntegerArray array = integers(codes, "codes", 2);
                std::vector<float> samples;
                {
                    const WithoutGil without_gil;
                    samples = s.push(array.values, array.shape[0], array.shape[1]);
                }
                return to_numpy(std::move(samples));
            },
            py::arg("codes"))
        .def("reset", &CodecStream::reset)
        .def("snapshot", &CodecStream::snapshot, py::call_guard<WithoutGil>())
        .def("restore", &CodecStream::restore, py::arg("snapshot"), py::call_guard<WithoutGil>())
        .def(
            "_profile",
            [](CodecStream& s, const py::array& codes) {
                const IntegerArray array = integers(codes, "codes", 2);
                const WithoutGil without_gil;
                return s.profile(array.values, array.shape[0], array.shape[1]);
            },
            py::arg("codes"))
        .def(
            "_probe",
            [](CodecStream& s, const py::array& codes) {
                const IntegerArray array = integers(codes, "codes", 2);
                std::map<std::string, std::vector<float>> found;
                {
                    const WithoutGil without_gil;
                    found = s.probe(array.values, array.shape[0], array.shape[1]);
                }
                return to_dict(found);
            },
            py::arg("codes"));

    py::class_<CodecEncoder>(m, "CodecEncoder", "Encoder state of one clip; one thread at a time.")
        .def_property_readonly("max_frames", &CodecEncoder::max_frames)
        .def_property_readonly("nbytes", &CodecEncoder::nbytes)
        .def_property_readonly("graph_builds", &CodecEncoder::graph_builds)
        .def(
            "push", [](CodecEncoder& e, const py::array& samples) { return encode(e, &CodecEncoder::push, samples); },
            py::arg("samples"))
        .def(
            "finish",
            [](CodecEncoder& e, const py::array& samples) { return encode(e, &CodecEncoder::finish, samples); },
            py::arg("samples"))
        .def("reset", &CodecEncoder::reset)
        .def("_probes", [](const CodecEncoder& e) { return to_dict(e.probes()); });

    m.def(
        "codec_tensors", [](const GgufFile& file) { return family_of(file).codec_tensors; }, py::arg("file"),
        "How the names of a codec's tensors begin in files of this architecture; ModelError for an unknown one.");

    py::class_<Codec, std::shared_ptr<Codec>>(m, "Codec", "A codec's weights, of the file's family.")
        .def(py::init([](std::shared_ptr<GgufFile> file, std::shared_ptr<Backend> runtime) {
                 const WithoutGil without_gil;
                 return family_of(*file).codec(file, std::move(runtime));
             }),
             py::arg("file"), py::arg("runtime"))
        .def_property_readonly("sample_rate", &Codec::sample_rate)
        .def_property_readonly("samples_per_frame", &Codec::samples_per_frame)
        .def_property_readonly("num_codebooks", &Codec::num_codebooks)
        .def_property_readonly("codebook_sizes", &Codec::codebook_sizes)
        .def_property_readonly("clamps_codes", &Codec::clamps_codes)
        .def_property_readonly("can_encode", &Codec::can_encode)
        .def_property_readonly("unused_tensors", &Codec::unused_tensors)
        .def("load", &Codec::load, py::call_guard<WithoutGil>())
        .def("stream", &Codec::stream, py::kw_only(), py::arg("max_frames") = 8, py::call_guard<WithoutGil>())
        .def("encoder", &Codec::encode_stream, py::kw_only(), py::arg("max_frames") = 16, py::call_guard<WithoutGil>());
}

}  // namespace dualar::bindings
