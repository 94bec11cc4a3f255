#include "models/codec_weights.h"

#include <algorithm>
#include <type_traits>

#include "models/block_weights.h"
#include "models/names.h"
#include "runtime/error.h"

namespace dualar {

namespace {

// A weight of `n` rows of `depth`, rearranged from the published tensor: packed on the CPU, else a tensor.
struct Matrix {
    ggml_tensor* tensor = nullptr;
    std::shared_ptr<const nn::PackedMatrix> packed;
};

// arrange(published, rows, arranged): some rows, of float or ggml_fp16_t.
template <class Arrange>
nn::PackedMatrix pack(const FileTensor& source, int64_t n, int64_t depth, int threads, const Arrange& arrange) {
    if (source.type == GGML_TYPE_F16) {
        const auto* published = static_cast<const ggml_fp16_t*>(source.data);
        const auto fill = [&](int64_t first, int64_t count, void* rows) {
            arrange(published, nn::Rows{first, count}, static_cast<ggml_fp16_t*>(rows));
        };
        return nn::PackedMatrix(nn::PackedMatrix::Fill(fill), GGML_TYPE_F16, n, depth, threads);
    }
    const std::vector<float> converted = source.type == GGML_TYPE_F32 ? std::vector<float>{} : to_float(source);
    const float* published = converted.empty() ? static_cast<const float*>(source.data) : converted.data();
    const auto fill = [&](int64_t first, int64_t count, void* rows) {
        arrange(published, nn::Rows{first, count}, static_cast<float*>(rows));
    };
    return nn::PackedMatrix(nn::PackedMatrix::Fill(fill), GGML_TYPE_F32, n, depth, threads);
}

template <class Arrange>
Matrix read_matrix(Weights& weights, const std::string& name, const Shape& published, int64_t n, int64_t depth,
                   const Arrange& arrange) {
    const FileTensor* source = weights.require(name, published);
    if (source == nullptr) return {};
    if (!weights.on_cpu()) {
        const auto fill = [=](float* out) { arrange(to_float(*source).data(), nn::Rows{0, n}, out); };
        return {weights.prepared(name, depth, n, fill), nullptr};
    }
    auto packed = std::make_shared<nn::PackedMatrix>();
    weights.on_load([=, &file = weights.file(), threads = weights.threads()] {
        *packed = pack(*source, n, depth, threads, arrange);
        file.forget(*source);
    });
    return {nullptr, packed};
}

void set_weight(nn::Conv& conv, Matrix matrix) {
    conv.weight = matrix.tensor;
    conv.packed = std::move(matrix.packed);
}

}  // namespace

nn::Conv read_conv(Weights& weights, const std::string& name, int64_t in, int64_t out, int taps, int dilation,
                   int stride, bool bias) {
    nn::Conv conv;
    conv.in = in;
    conv.out = out;
    conv.taps = taps;
    conv.dilation = dilation;
    conv.stride = stride;
    set_weight(conv, read_matrix(weights, name + ".weight", {out, in, taps}, out, in * taps,
                                 [=](const auto* from, nn::Rows rows, auto* to) {
                                     nn::arrange_conv(from, in, taps, rows, to);
                                 }));
    if (bias) conv.bias = weights.vector(name + ".bias", out);
    return conv;
}

nn::Conv read_depthwise(Weights& weights, const std::string& name, int64_t channels, int taps) {
    nn::Conv conv;
    conv.in = conv.out = channels;
    conv.taps = taps;
    conv.depthwise = true;
    const FileTensor* source = weights.require(name + ".weight", {channels, 1, taps});
    if (source != nullptr)
        conv.weight = weights.prepared(name, channels, taps, [=](float* out) {
            const std::vector<float> published = to_float(*source);
            for (int64_t c = 0; c < channels; ++c)
                for (int64_t tap = 0; tap < taps; ++tap)
                    out[tap * channels + c] = published[static_cast<size_t>(c * taps + tap)];
        });
    conv.bias = weights.vector(name + ".bias", channels);
    return conv;
}

nn::Conv read_transposed(Weights& weights, const std::string& name, int64_t in, int64_t out, int kernel, int stride) {
    nn::Conv conv;
    conv.in = in;
    conv.out = out;
    conv.taps = kernel / stride;
    conv.upsample = stride;
    set_weight(conv, read_matrix(weights, name + ".weight", {in, out, kernel}, out * stride, in * conv.taps,
                                 [=](const auto* from, nn::Rows rows, auto* to) {
                                     nn::arrange_transposed(from, in, out, kernel, stride, rows, to);
                                 }));
    conv.bias = weights.vector(name + ".bias", out);
    return conv;
}

nn::Conv read_depthwise_transposed(Weights& weights, const std::string& name, int64_t channels, int kernel,
                                   int stride) {
    nn::Conv conv;
    conv.in = conv.out = channels;
    conv.taps = kernel / stride;
    conv.upsample = stride;
    const int taps = conv.taps;
    // Row (r, c) reads channel c alone: its tap m steps back is published[c, r + m * stride].
    set_weight(conv, read_matrix(weights, name + ".weight", {channels, 1, kernel}, channels * stride, channels * taps,
                                 [=](const auto* from, nn::Rows rows, auto* to) {
                                     using Value = std::remove_reference_t<decltype(*to)>;
                                     std::fill_n(to, rows.count * channels * taps, Value{});
                                     for (int64_t row = rows.first; row < rows.first + rows.count; ++row)
                                         for (int tap = 0; tap < taps; ++tap, to += channels) {
                                             const int64_t back = taps - 1 - tap;  // oldest tap first
                                             const int64_t channel = row % channels;
                                             to[channel] = from[channel * kernel + row / channels + back * stride];
                                         }
                                 }));
    return conv;
}

nn::Linear read_codec_linear(Weights& weights, const std::string& name, int64_t rows, int64_t columns) {
    const Matrix matrix =
        read_matrix(weights, name, {rows, columns}, rows, columns, [=](const auto* from, nn::Rows some, auto* to) {
            std::copy_n(from + some.first * columns, some.count * columns, to);
        });
    return {matrix.tensor, nullptr, matrix.packed};
}

nn::ConvNext read_convnext(Weights& weights, const std::string& prefix, int64_t channels) {
    const auto linear = [&](const char* name, int64_t in, int64_t out) {
        nn::Linear layer = read_codec_linear(weights, prefix + name + ".weight", out, in);
        layer.bias = weights.vector(prefix + name + ".bias", out);
        return layer;
    };
    nn::ConvNext block;
    block.depthwise = read_depthwise(weights, prefix + ".dwconv.conv", channels, 7);
    block.norm_weight = weights.vector(prefix + ".norm.weight", channels);
    block.norm_bias = weights.vector(prefix + ".norm.bias", channels);
    block.expand = linear(".pwconv1", channels, 4 * channels);
    block.project = linear(".pwconv2", 4 * channels, channels);
    block.gamma = weights.vector(prefix + ".gamma", channels);
    return block;
}

std::vector<int64_t> read_rates(const GgufFile& file, const char* key) {
    std::vector<int64_t> rates = file.integers(key, 1, 4096);
    if (rates.empty() || rates.size() > 16)
        throw ModelError(message("[", key, "] expected 1 to 16 values, got ", rates.size()));
    return rates;
}

int64_t product(const std::vector<int64_t>& rates) {
    int64_t result = 1;
    for (const int64_t rate : rates) result = std::min(result * rate, int64_t{1} << 40);
    return result;
}

int64_t read_window(const GgufFile& file, const std::string& prefix, const nn::BlockConfig& block, int layers) {
    constexpr int64_t kMaxWindow = 1 << 14;
    constexpr size_t kMaxWindowBytes = 64 << 20;
    const int64_t window = file.integer(prefix + names::kWindowSize, 1, kMaxWindow);
    // Nothing in the tensors' shapes holds the window down, and every stream keeps that many keys and values.
    const size_t nbytes = nn::KvCache::nbytes(layers, block.kv_dim(), window, GGML_TYPE_F32);
    if (nbytes > kMaxWindowBytes + file.nbytes())
        throw ModelError(message("[", prefix, names::kWindowSize,
                                 "] expected a window that needs less memory than the ", "file, got ", window, " (",
                                 nbytes, " bytes)"));
    return window;
}

nn::BlockConfig read_transformer(const GgufFile& file, const std::string& prefix, int64_t heads) {
    nn::BlockConfig block;
    block.heads = static_cast<int>(heads);
    const int64_t local = file.integer(prefix + names::kLocalHeads, -1, heads);
    block.kv_heads = local == -1 ? block.heads : static_cast<int>(local);
    if (block.kv_heads == 0 || block.heads % block.kv_heads != 0)
        throw ModelError(message("[", prefix, names::kLocalHeads, "] expected -1 or a divisor of the ", block.heads,
                                 " heads, got ", local));
    block.head_dim = static_cast<int>(file.integer(prefix + names::kHeadDim, 2, 65536));
    if (block.head_dim % 2 != 0)
        throw ModelError(message("[", prefix, names::kHeadDim, "] expected an even number, got ", block.head_dim));
    block.rope_base = static_cast<float>(file.real(prefix + names::kTransformerRopeBase, 1.0, 1e12));
    block.eps = static_cast<float>(file.real(prefix + names::kTransformerEpsilon, 0.0, 1.0));
    return block;
}

CodecTransformer read_codec_transformer(const GgufFile& file, const std::string& prefix) {
    const auto dim = [&](const char* name) { return file.integer(prefix + name, 1, kMaxCodecDim); };
    CodecTransformer t;
    t.block = read_transformer(file, prefix, dim(names::kHeads));
    t.block.rope_neox = true;
    t.dim = dim(names::kDim);
    t.feed_forward = dim(names::kTransformerFeedForward);
    t.layers = static_cast<int>(file.integer(prefix + names::kLayers, 1, 1024));
    return t;
}

nn::WindowedTransformer read_plain_windowed(Weights& weights, const std::string& prefix, const CodecTransformer& sizes,
                                            int64_t window) {
    BlockTensors tensors;
    tensors.dim = sizes.dim;
    tensors.feed_forward = sizes.feed_forward;
    tensors.layer_scale = true;
    tensors.layer_norm = true;
    tensors.gated = false;
    tensors.read_matrix = read_codec_linear;
    nn::WindowedTransformer transformer;
    transformer.config = sizes.block;
    transformer.window = window;
    for (int i = 0; i < sizes.layers; ++i)
        transformer.blocks.push_back(
            read_block(weights, names::indexed((prefix + names::kLayer).c_str(), i), sizes.block, tensors));
    return transformer;
}

nn::WindowedTransformer read_windowed(Weights& weights, const std::string& prefix, const nn::BlockConfig& config,
                                      int64_t dim, int64_t feed_forward, int layers, int64_t window) {
    BlockTensors tensors;
    tensors.dim = dim;
    tensors.feed_forward = feed_forward;
    tensors.layer_scale = true;
    tensors.read_matrix = read_codec_linear;
    nn::WindowedTransformer transformer;
    transformer.config = config;
    transformer.window = window;
    for (int i = 0; i < layers; ++i)
        transformer.blocks.push_back(
            read_block(weights, names::indexed((prefix + names::kLayer).c_str(), i), config, tensors));
    transformer.norm = weights.vector(prefix + names::kNorm, dim);
    return transformer;
}

ResidualUnit read_residual_unit(Weights& weights, const std::string& prefix, int64_t channels, int dilation) {
    return {nn::Activation::snake(weights.vector3(prefix + "0.alpha", channels)),
            read_conv(weights, prefix + "1.conv", channels, channels, 7, dilation),
            nn::Activation::snake(weights.vector3(prefix + "2.alpha", channels)),
            read_conv(weights, prefix + "3.conv", channels, channels, 1, 1)};
}

ResidualUnit read_elu_unit(Weights& weights, const std::string& prefix, int64_t channels) {
    return {nn::Activation::elu(), read_conv(weights, prefix + "1.conv", channels, channels / 2, 3, 1),
            nn::Activation::elu(), read_conv(weights, prefix + "3.conv", channels / 2, channels, 1, 1)};
}

nn::Rvq read_split_rvq(Weights& weights, const SplitRvqNames& names, int num_codebooks, int64_t codebook_size,
                       int64_t codebook_dim, int64_t dim) {
    nn::Rvq rvq;
    rvq.codebook_dim = codebook_dim;
    for (int q = 0; q < num_codebooks; ++q)
        rvq.add(weights.table(names::indexed(names.codebook, q) + "weight", codebook_size, codebook_dim),
                q == 0 ? 0 : 1);
    std::vector<const FileTensor*> projections;
    for (const char* name : {names.semantic_out_proj, names.acoustic_out_proj})
        projections.push_back(weights.require(name, {dim, codebook_dim}));
    rvq.out_proj.weight = weights.prepared("out_proj.weight", rvq.columns(), dim, [=](float* out) {
        for (size_t group = 0; group < projections.size(); ++group) {
            const std::vector<float> published = to_float(*projections[group]);
            for (int64_t row = 0; row < dim; ++row)
                std::copy_n(published.begin() + row * codebook_dim, codebook_dim,
                            out + (row * 2 + static_cast<int64_t>(group)) * codebook_dim);
        }
    });
    return rvq;
}

ggml_tensor* ConvSequence::operator()(ggml_tensor* x, const nn::Conv& conv, const nn::ConvExtras& extras) {
    return nn::causal_conv(g_, x, conv, state_.tensor(next_++), extras);
}

ggml_tensor* ConvSequence::operator()(ggml_tensor* x, const nn::ConvNext& block) {
    return nn::convnext(g_, x, block, state_.tensor(next_++));
}

ggml_tensor* ConvSequence::operator()(ggml_tensor* x, const ResidualUnit& unit) {
    ggml_tensor* y = (*this)(x, unit.dilated, {unit.in});
    return (*this)(y, unit.pointwise, {unit.out, x});
}

void add_state(std::vector<nn::ConvState::Size>& sizes, const nn::Conv& conv) {
    sizes.push_back({conv.in, conv.history()});
}

void add_state(std::vector<nn::ConvState::Size>& sizes, const ResidualUnit& unit) {
    add_state(sizes, unit.dilated);
    add_state(sizes, unit.pointwise);
}

int64_t checked_frames(int64_t max_frames) {
    if (max_frames < 1 || max_frames > 4096)
        throw std::invalid_argument(message("[max_frames] expected 1 to 4096, got ", max_frames));
    return max_frames;
}

}  // namespace dualar
