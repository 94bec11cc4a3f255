// The tensors of one file as a recipe asks for them: each by name with the shape it must have, on the device, in the
// file's own bytes where the device can read them. Problems are collected, so that one error lists them all.
// Knows no architecture: names and shapes come from the caller.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/backend.h"
#include "runtime/gguf_file.h"
#include "runtime/host_table.h"

namespace dualar {

using Shape = std::vector<int64_t>;  // numpy order

// The whole tensor as float32. Only for types that is_supported() accepts.
std::vector<float> to_float(const FileTensor& tensor);

// Weight types of the published files: F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K.
bool is_supported(ggml_type type);
// The supported type of that name, in any case ("q8_0"); std::invalid_argument for another.
ggml_type supported_type(const std::string& name);

class Weights {
  public:
    Weights(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend);

    // Each returns a tensor that has its data after load(), or nullptr with the problem noted.
    // matrix: the file's type, in the file's bytes where the device can read them. The others: float32, converted
    // where needed.
    ggml_tensor* matrix(const std::string& name, int64_t rows, int64_t columns);
    ggml_tensor* vector(const std::string& name, int64_t n);
    ggml_tensor* vector3(const std::string& name, int64_t n);  // numpy [1, n, 1] in the file
    // Float32 values made from the named file tensors (already checked with require()) when load() runs; ggml shape.
    using Fill = std::function<void(float* out)>;
    ggml_tensor* prepared(const std::string& name, int64_t ne0, int64_t ne1, Fill fill);

    // Run `action` when load() runs: for weights that a caller keeps in a form of its own.
    void on_load(std::function<void()> action) { actions_.push_back(std::move(action)); }
    bool on_cpu() const { return backend_->is_cpu(); }
    int threads() const { return backend_->threads(); }

    // The file's tensor if it is there in this shape and a supported type; else nullptr with the problem noted.
    const FileTensor* require(const std::string& name, const Shape& shape);
    HostTable table(const std::string& name, int64_t rows, int64_t columns);
    bool has(const std::string& name) const { return file_->find(name) != nullptr; }

    // What was asked for and is missing, misshapen or of another type, so far.
    const std::vector<std::string>& problems() const { return problems_; }
    // Bring the data to the device. ModelError if there are problems, ProgramExit where the program ends meanwhile.
    void load();

    // Names under `prefix` ("" for all) that nothing asked for.
    std::vector<std::string> unused() const;
    bool asked(const std::string& name) const { return asked_.count(name) != 0; }
    const GgufFile& file() const { return *file_; }
    const std::shared_ptr<const GgufFile>& shared_file() const { return file_; }

  private:
    void place();
    ggml_tensor* mapped(const FileTensor* source, int64_t ne0, int64_t ne1);
    ggml_tensor* converted(const std::string& name, const Shape& shape, int64_t ne0, int64_t ne1);

    struct Prepared {
        ggml_tensor* tensor;
        Fill fill;
    };

    std::shared_ptr<const GgufFile> file_;
    std::shared_ptr<Backend> backend_;
    std::set<std::string> asked_;
    std::vector<std::string> problems_;
    ggml_context_ptr mapped_context_;    // tensors that use the file's bytes
    ggml_context_ptr prepared_context_;  // tensors with bytes of their own
    std::vector<std::pair<ggml_tensor*, const FileTensor*>> mapped_;
    std::vector<Prepared> prepared_;
    std::vector<std::function<void()>> actions_;
    bool placed_ = false;
    ggml_backend_buffer_ptr mapped_buffer_;
    ggml_backend_buffer_ptr prepared_buffer_;
};

// Throws ModelError listing the problems, if there are any.
void check_tensors(const std::string& path, const std::vector<std::string>& problems);

// "(2, 3)"
std::string to_text(const Shape& shape);

}  // namespace dualar
