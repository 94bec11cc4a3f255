#include "models/wavenet/state.h"

#include <algorithm>
#include <cmath>

#include "runtime/error.h"
#include "runtime/program_exit.h"

namespace dualar {

namespace {

constexpr int64_t kMaxBatch = 65536;
constexpr int64_t kMaxFloats = int64_t{1} << 31;  // 8 GiB
// Steps whose known parts are computed at once: enough to read those weights rarely, and their results stay small.
constexpr int64_t kStepsAhead = 8;
constexpr const char* kName = "WaveNet state";

// One sequence's rings and what a step writes, at most.
int64_t floats_per_sequence(const WaveNetConfig& c) {
    const int64_t block = kStepsAhead * (c.kernel_size + 4) * c.channels + 3 * c.channels;
    return c.history() * c.channels + static_cast<int64_t>(c.dilations.size()) * block + c.channels +
           3 * c.skip_channels + c.levels;
}

int64_t checked_batch(const WaveNetConfig& c, int64_t batch) {
    const int64_t most = std::clamp(kMaxFloats / floats_per_sequence(c), int64_t{1}, kMaxBatch);
    if (batch < 1 || batch > most)
        throw std::invalid_argument(message("[batch] expected 1 to ", most, " sequences, got ", batch));
    return batch;
}

void relu(float* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] < 0.0F ? 0.0F : x[i];  // a NaN stays
}

// `scratch` has room for n values.
int32_t draw(const float* logits, int64_t n, double temperature, double uniform, float* scratch) {
    int64_t best = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; ++i) {
        finite = finite && std::isfinite(logits[i]);
        if (logits[i] > logits[best]) best = i;
    }
    if (!finite)
        throw ModelError(
            "[wavenet] expected finite logits, got NaN or inf: the weights are damaged, or a value overflowed");
    if (temperature == 0) return static_cast<int32_t>(best);
    for (int64_t i = 0; i < n; ++i)
        scratch[i] =
            static_cast<float>((static_cast<double>(logits[i]) - static_cast<double>(logits[best])) / temperature);
    nn::cpu_kernels().front()->exponential(scratch, n);
    double total = 0;
    for (int64_t i = 0; i < n; ++i) total += static_cast<double>(scratch[i]);
    const double target = uniform * total;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
        sum += static_cast<double>(scratch[i]);
        if (sum > target) return static_cast<int32_t>(i);
    }
    return static_cast<int32_t>(best);  // only by rounding, where `uniform` is next to 1
}

}  // namespace

WaveNetState::WaveNetState(std::shared_ptr<const WaveNet> model, int64_t batch)
    : model_(std::move(model)), batch_(checked_batch(model_->config, batch)) {
    const WaveNetConfig& c = model_->config;
    for (const nn::WaveNetBlock& block : model_->blocks) blocks_.emplace_back(block, batch, kStepsAhead);
    sums_.resize(static_cast<size_t>(batch * (c.channels + c.skip_channels)));
    skips_.resize(static_cast<size_t>(batch * c.skip_channels));
    hidden_.resize(skips_.size());
    logits_.resize(static_cast<size_t>(batch * c.levels));
}

std::unique_ptr<WaveNetState> WaveNetState::copy() const {
    const OneThread::Use use(one_thread_, kName);
    progress_.check(kName);
    auto other = std::make_unique<WaveNetState>(model_, batch_);
    other->blocks_ = blocks_;
    other->position_ = position_;
    return other;
}

size_t WaveNetState::nbytes() const {
    size_t bytes = 0;
    for (const nn::WaveNetSteps& block : blocks_) bytes += block.ring().nbytes();
    return bytes;
}

void WaveNetState::reset() {
    const OneThread::Use use(one_thread_, kName);
    for (nn::WaveNetSteps& block : blocks_) block.ring().reset();
    position_ = 0;
    progress_.restart();
}

void WaveNetState::begin(const float* condition, int64_t steps) {
    for (nn::WaveNetSteps& block : blocks_) block.begin(condition, steps);
}

void WaveNetState::advance(const int32_t* classes) {
    const WaveNet& net = *model_;
    const int64_t channels = net.config.channels;
    const int64_t skips = net.config.skip_channels;
    std::fill(sums_.begin(), sums_.end(), 0.0F);
    for (int64_t b = 0; b < batch_; ++b) net.embedding.read(classes[b], sums_.data() + b * (channels + skips));
    for (nn::WaveNetSteps& block : blocks_) block.step(sums_.data());
    for (int64_t b = 0; b < batch_; ++b)
        std::copy_n(sums_.data() + b * (channels + skips) + channels, skips, skips_.data() + b * skips);
    relu(skips_.data(), batch_ * skips);
    nn::linear_rows(net.head[0], skips_.data(), batch_, nullptr, hidden_.data());
    relu(hidden_.data(), batch_ * skips);
    nn::linear_rows(net.head[1], hidden_.data(), batch_, nullptr, logits_.data());
    ++position_;
}

void WaveNetState::step(const std::vector<int32_t>& classes, const std::vector<float>& condition, float* logits) {
    const OneThread::Use use(one_thread_, kName);
    model_->check_classes(classes);
    WaveNet::check_condition(condition);
    progress_.begin(kName);
    begin(condition.data(), 1);
    advance(classes.data());
    progress_.end();
    std::copy(logits_.begin(), logits_.end(), logits);
}

void WaveNetState::prime(const std::vector<int32_t>& classes, const std::vector<float>& condition) {
    const OneThread::Use use(one_thread_, kName);
    model_->check_classes(classes);
    WaveNet::check_condition(condition);
    const int64_t samples = static_cast<int64_t>(classes.size()) / batch_;
    progress_.begin(kName);
    WaveNet::Queues queues;
    for (const nn::WaveNetSteps& block : blocks_)
        queues.emplace_back(static_cast<size_t>(block.ring().columns() * model_->config.channels));
    for (int64_t b = 0; b < batch_; ++b) {
        for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i].ring().read(b, queues[i].data());
        model_->run(classes.data() + b * samples, condition.data() + b * samples * model_->config.condition_channels,
                    samples, &queues, nullptr);
        for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i].ring().write(b, queues[i].data());
    }
    position_ += samples;
    progress_.end();
}

std::vector<int32_t> WaveNetState::generate(const std::vector<int32_t>& first, const std::vector<float>& condition,
                                            int64_t count, double temperature, const std::vector<double>& uniforms) {
    const OneThread::Use use(one_thread_, kName);
    if (!std::isfinite(temperature) || temperature < 0)
        throw std::invalid_argument(message("[temperature] expected a finite value >= 0, got ", temperature));
    for (const double uniform : uniforms)
        if (!(uniform >= 0 && uniform < 1))
            throw std::invalid_argument(message("[uniforms] expected values in [0, 1), got ", uniform));
    model_->check_classes(first);
    WaveNet::check_condition(condition);

    const int64_t width = model_->config.condition_channels;
    const int64_t levels = model_->config.levels;
    std::vector<float> columns(condition.size());  // [count, B, H]: a step reads one row
    for (int64_t row = 0; row < batch_ * width; ++row)
        for (int64_t t = 0; t < count; ++t)
            columns[static_cast<size_t>(t * batch_ * width + row)] = condition[static_cast<size_t>(row * count + t)];
    std::vector<int32_t> current = first;
    std::vector<int32_t> classes(static_cast<size_t>(batch_ * count));
    std::vector<float> scratch(static_cast<size_t>(levels));
    progress_.begin(kName);
    for (int64_t t = 0; t < count; ++t) {
        check_exit();
        if (t % kStepsAhead == 0) begin(columns.data() + t * batch_ * width, std::min(kStepsAhead, count - t));
        advance(current.data());
        for (int64_t b = 0; b < batch_; ++b) {
            const auto at = static_cast<size_t>(b * count + t);
            classes[at] = current[static_cast<size_t>(b)] = draw(logits_.data() + b * levels, levels, temperature,
                                                                 temperature == 0 ? 0.0 : uniforms[at], scratch.data());
        }
    }
    progress_.end();
    return classes;
}

}  // namespace dualar
