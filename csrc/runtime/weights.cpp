#include "runtime/weights.h"

#include <strings.h>

#include <algorithm>

#include "runtime/error.h"
#include "runtime/program_exit.h"

namespace dualar {

namespace {

// Contexts hold only the tensors' descriptions; every tensor of a file may be asked for, and prepared ones besides.
ggml_context_ptr make_context(size_t tensors) {
    const ggml_init_params params{/*mem_size=*/ggml_tensor_overhead() * tensors, /*mem_buffer=*/nullptr,
                                  /*no_alloc=*/true};
    ggml_context_ptr context(ggml_init(params));
    if (!context) throw BackendError("[memory] no room for the tensors' descriptions");
    return context;
}

// ggml drops outer dimensions of 1, so shapes are compared without them.
Shape trimmed(const Shape& shape) {
    const auto first = std::find_if(shape.begin(), shape.end(), [](int64_t n) { return n != 1; });
    return Shape(first, shape.end());
}

}  // namespace

std::string to_text(const Shape& shape) {
    std::string out = "(";
    for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
    return out + ")";
}

bool is_supported(ggml_type type) {
    switch (type) {
        case GGML_TYPE_F32:
        case GGML_TYPE_F16:
        case GGML_TYPE_BF16:
        case GGML_TYPE_Q8_0:
        case GGML_TYPE_Q4_0:
        case GGML_TYPE_Q4_K:
        case GGML_TYPE_Q5_K:
        case GGML_TYPE_Q6_K:
            return true;
        default:
            return false;
    }
}

ggml_type supported_type(const std::string& name) {
    std::string known;
    for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
        const auto type = static_cast<ggml_type>(i);
        if (!is_supported(type)) continue;
        if (strcasecmp(ggml_type_name(type), name.c_str()) == 0) return type;
        known += message(known.empty() ? "" : ", ", ggml_type_name(type));
    }
    throw std::invalid_argument(message("[type] expected one of ", known, ", got ", name));
}

std::vector<float> to_float(const FileTensor& tensor) {
    int64_t n = 1;
    for (const int64_t size : tensor.shape) n *= size;
    std::vector<float> out(static_cast<size_t>(n));
    to_float(tensor.data, tensor.type, out.data(), n);
    return out;
}

Weights::Weights(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend)
    : file_(std::move(file)),
      backend_(std::move(backend)),
      mapped_context_(make_context(file_->tensors().size() + 1)),
      prepared_context_(make_context(2 * file_->tensors().size() + 64)) {}

const FileTensor* Weights::require(const std::string& name, const Shape& shape) {
    asked_.insert(name);
    const FileTensor* tensor = file_->find(name);
    if (tensor == nullptr) {
        problems_.push_back(message(name, ": expected ", to_text(shape), ", missing"));
        return nullptr;
    }
    if (trimmed(tensor->shape) != trimmed(shape)) {
        problems_.push_back(message(name, ": expected ", to_text(shape), ", got ", to_text(tensor->shape)));
        return nullptr;
    }
    if (!is_supported(tensor->type)) {
        problems_.push_back(message(name, ": expected F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K or Q6_K, got ",
                                    ggml_type_name(tensor->type)));
        return nullptr;
    }
    return tensor;
}

ggml_tensor* Weights::matrix(const std::string& name, int64_t rows, int64_t columns) {
    const FileTensor* source = require(name, {rows, columns});
    return source == nullptr ? nullptr : mapped(source, columns, rows);
}

ggml_tensor* Weights::mapped(const FileTensor* source, int64_t ne0, int64_t ne1) {
    ggml_tensor* tensor = ggml_new_tensor_2d(mapped_context_.get(), source->type, ne0, ne1);
    ggml_set_name(tensor, source->name.c_str());
    mapped_.emplace_back(tensor, source);
    return tensor;
}

ggml_tensor* Weights::converted(const std::string& name, const Shape& shape, int64_t ne0, int64_t ne1) {
    const FileTensor* source = require(name, shape);
    if (source == nullptr) return nullptr;
    if (source->type == GGML_TYPE_F32) return mapped(source, ne0, ne1);
    return prepared(name, ne0, ne1, [=](float* out) { to_float(source->data, source->type, out, ne0 * ne1); });
}

ggml_tensor* Weights::vector(const std::string& name, int64_t n) { return converted(name, {n}, n, 1); }

ggml_tensor* Weights::vector3(const std::string& name, int64_t n) { return converted(name, {1, n, 1}, n, 1); }

ggml_tensor* Weights::prepared(const std::string& name, int64_t ne0, int64_t ne1, Fill fill) {
    ggml_tensor* tensor = ggml_new_tensor_2d(prepared_context_.get(), GGML_TYPE_F32, ne0, ne1);
    ggml_set_name(tensor, name.c_str());
    prepared_.push_back({tensor, std::move(fill)});
    return tensor;
}

HostTable Weights::table(const std::string& name, int64_t rows, int64_t columns) {
    const FileTensor* source = require(name, {rows, columns});
    return source == nullptr ? HostTable() : HostTable(source->data, source->type, rows, columns);
}

void check_tensors(const std::string& path, const std::vector<std::string>& problems) {
    if (problems.empty()) return;
    constexpr size_t kShown = 50;
    std::string all = message("[", path, "] ", problems.size(), " tensor(s) are not as expected:");
    for (size_t i = 0; i < std::min(kShown, problems.size()); ++i) all += "\n  " + problems[i];
    if (problems.size() > kShown) all += message("\n  and ", problems.size() - kShown, " more");
    throw ModelError(all);
}

void Weights::place() {
    if (backend_->is_cpu()) {
        mapped_buffer_.reset(ggml_backend_cpu_buffer_from_ptr(file_->mapping(), file_->nbytes()));
        if (!mapped_buffer_) throw BackendError("[memory] the mapped file could not serve as a buffer");
        for (const auto& [tensor, source] : mapped_)
            if (ggml_backend_tensor_alloc(mapped_buffer_.get(), tensor, const_cast<void*>(source->data)) !=
                GGML_STATUS_SUCCESS)
                throw BackendError(message("[", source->name, "] could not be placed in the mapped file"));
    } else {
        mapped_buffer_ = backend_->allocate(mapped_context_.get(), "the model's weights");
    }
    if (mapped_buffer_) ggml_backend_buffer_set_usage(mapped_buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    prepared_buffer_ = backend_->allocate(prepared_context_.get(), "converted weights");
    placed_ = true;
}

// What was done stays done when the end of the program breaks it off, so that another thread's load() goes on from
// there.
void Weights::load() {
    check_tensors(file_->path(), problems_);
    if (!placed_) place();
    if (!backend_->is_cpu()) {
        for (const auto& [tensor, source] : mapped_) {
            check_exit();
            ggml_backend_tensor_set(tensor, source->data, 0, source->nbytes);
        }
    }
    std::vector<float> staging;
    for (Prepared& item : prepared_) {
        if (!item.fill) continue;
        check_exit();
        staging.resize(static_cast<size_t>(ggml_nelements(item.tensor)));
        item.fill(staging.data());
        ggml_backend_tensor_set(item.tensor, staging.data(), 0, ggml_nbytes(item.tensor));
        item.fill = nullptr;
    }
    for (std::function<void()>& action : actions_) {
        if (!action) continue;
        check_exit();
        action();
        action = nullptr;
    }
    if (prepared_buffer_) ggml_backend_buffer_set_usage(prepared_buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
}

std::vector<std::string> Weights::unused() const {
    std::vector<std::string> names;
    for (const FileTensor& tensor : file_->tensors())
        if (asked_.count(tensor.name) == 0) names.push_back(tensor.name);
    return names;
}

}  // namespace dualar
