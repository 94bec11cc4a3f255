// The codec and its streams.
#include <pybind11/stl.h>

#include <algorithm>

#include "bindings/arrays.h"
#include "models/dac.h"
#include "runtime/error.h"

namespace dualar::bindings {

void bind_codec(py::module_& m) {
    py::class_<DacStream>(m, "CodecStream", "Streaming decoder state; one thread at a time.")
        .def_property_readonly("max_frames", &DacStream::max_frames)
        .def_property_readonly("nbytes", &DacStream::nbytes)
        .def_property_readonly("graph_builds", &DacStream::graph_builds)
        .def(
            "push",
            [](DacStream& s, const py::array& codes) {
                const IntegerArray array = integers(codes, "codes", 2);
                std::vector<float> samples;
                {
                    const py::gil_scoped_release release;
                    samples = s.push(array.values, array.shape[0], array.shape[1]);
                }
                return to_numpy(std::move(samples));
            },
            py::arg("codes"))
        .def("reset", &DacStream::reset)
        .def(
            "_profile",
            [](DacStream& s, const py::array& codes) {
                const IntegerArray array = integers(codes, "codes", 2);
                const py::gil_scoped_release release;
                return s.profile(array.values, array.shape[0], array.shape[1]);
            },
            py::arg("codes"));

    py::class_<DacEncodeStream>(m, "CodecEncoder", "Encoder state of one clip; one thread at a time.")
        .def_property_readonly("max_frames", &DacEncodeStream::max_frames)
        .def_property_readonly("nbytes", &DacEncodeStream::nbytes)
        .def_property_readonly("graph_builds", &DacEncodeStream::graph_builds)
        .def(
            "push",
            [](DacEncodeStream& s, const py::array& samples) {
                const std::vector<float> values = floats(samples, "samples");
                std::vector<int32_t> codes;
                {
                    const py::gil_scoped_release release;
                    codes = s.push(values);
                }
                const int64_t rows = s.codebooks();
                py::array_t<int32_t> out({rows, static_cast<int64_t>(codes.size()) / rows});
                std::copy(codes.begin(), codes.end(), out.mutable_data());
                return out;
            },
            py::arg("samples"))
        .def("reset", &DacEncodeStream::reset)
        .def("_latent", [](const DacEncodeStream& s) { return to_numpy(s.latent()); });

    py::class_<Dac, std::shared_ptr<Dac>>(m, "Codec", "The codec's weights.")
        .def(py::init([](std::shared_ptr<GgufFile> file, std::shared_ptr<Backend> runtime) {
                 const py::gil_scoped_release release;
                 return std::make_shared<Dac>(std::move(file), std::move(runtime));
             }),
             py::arg("file"), py::arg("runtime"))
        .def_static("present", &Dac::present, py::arg("file"))
        .def_property_readonly("sample_rate", [](const Dac& d) { return d.config.sample_rate; })
        .def_property_readonly("samples_per_frame", [](const Dac& d) { return d.config.samples_per_frame(); })
        .def_property_readonly("num_codebooks", [](const Dac& d) { return d.config.num_codebooks(); })
        .def_property_readonly("codebook_sizes",
                               [](const Dac& d) {
                                   std::vector<int64_t> sizes;
                                   for (int q = 0; q < d.config.num_codebooks(); ++q)
                                       sizes.push_back(d.config.codebook_size(q));
                                   return sizes;
                               })
        .def_property_readonly("unused_tensors", &Dac::unused_tensors)
        .def(
            "stream",
            [](std::shared_ptr<Dac> codec, int64_t max_frames) {
                const py::gil_scoped_release release;
                return std::make_unique<DacStream>(std::move(codec), max_frames);
            },
            py::kw_only(), py::arg("max_frames") = 8)
        .def_property_readonly("can_encode", [](const Dac& d) { return d.encoder() != nullptr; })
        .def(
            "encoder",
            [](std::shared_ptr<Dac> codec, int64_t max_frames) {
                const py::gil_scoped_release release;
                return std::make_unique<DacEncodeStream>(std::move(codec), max_frames);
            },
            py::kw_only(), py::arg("max_frames") = 16);
}

}  // namespace dualar::bindings
