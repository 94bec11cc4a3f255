#include "models/ar_checks.h"

#include <cmath>

#include "models/names.h"
#include "runtime/error.h"

namespace dualar {

void check_architecture(const GgufFile& file, const char* architecture) {
    const std::string found = file.string(names::kArchitectureKey);
    if (found != architecture)
        throw ModelError(
            message("[", names::kArchitectureKey, "] expected \"", architecture, "\", got ", quoted(found)));
}

void check_hidden(const std::vector<float>& hidden, int64_t dim) {
    if (static_cast<int64_t>(hidden.size()) != dim)
        throw std::invalid_argument(message("[hidden] expected ", dim, " values, got ", hidden.size()));
    for (size_t i = 0; i < hidden.size(); ++i)
        if (!std::isfinite(hidden[i]))
            throw std::invalid_argument(message("[hidden] expected finite values, got ", hidden[i], " at ", i));
}

void check_prefix(const std::vector<int32_t>& prefix, int64_t num_codebooks, int64_t codebook_size) {
    const auto count = static_cast<int64_t>(prefix.size());
    if (count < 1 || count >= num_codebooks)
        throw std::invalid_argument(message("[prefix] expected 1 to ", num_codebooks - 1, " codes, got ", count));
    for (size_t i = 0; i < prefix.size(); ++i)
        if (prefix[i] < 0 || prefix[i] >= codebook_size)
            throw std::invalid_argument(
                message("[prefix] expected codes from 0 to ", codebook_size - 1, ", got ", prefix[i], " at ", i));
}

void check_code(int64_t code, int64_t codebook_size) {
    if (code < 0 || code >= codebook_size)
        throw std::invalid_argument(message("[code] expected 0 to ", codebook_size - 1, ", got ", code));
}

void check_room(int64_t count, int64_t position, int64_t max_positions) {
    if (count > max_positions - position)
        throw std::invalid_argument(message("[prompt] expected at most ", max_positions - position, " columns (",
                                            position, " of ", max_positions, " positions are taken), got ", count));
}

void check_fast_step(int64_t fast_position, int64_t num_codebooks) {
    if (fast_position == 0) throw std::invalid_argument("[fast_step] expected fast_begin first");
    if (fast_position >= num_codebooks)
        throw std::invalid_argument(message("[fast_step] expected at most ", num_codebooks - 2,
                                            " steps after fast_begin: the frame is complete"));
}

void check_truncate(int64_t positions, int64_t position) {
    if (positions < 0 || positions > position)
        throw std::invalid_argument(message("[truncate] expected 0 to ", position, " positions, got ", positions));
}

void check_sampler(const nn::Sampler& s) {
    const auto check = [](const char* name, double value, double low, double high) {
        if (!(value >= low && value <= high))
            throw std::invalid_argument(message("[", name, "] expected ", low, " to ", high, ", got ", value));
    };
    check("temperature", s.temperature, 0.0, 100.0);
    check("top_p", s.top_p, 0.0, 1.0);
    check("repetition_penalty", s.repetition_penalty, 0.01, 100.0);
    check("redraw_temperature", s.redraw_temperature, 0.0, 100.0);
    check("redraw_top_p", s.redraw_top_p, 0.0, 1.0);
    if (std::isnan(s.repeat_threshold)) throw std::invalid_argument("[repeat_threshold] expected a number, got NaN");
}

std::string cannot_draw(uint64_t step, size_t book, int64_t drawn) {
    return message("[generate] frame ", step, ", codebook ", book, ": expected logits to draw from, got ",
                   drawn == nn::kNotANumber ? "NaN" : "none above -inf",
                   " (a weight of the file is broken, or a computation overflowed)");
}

}  // namespace dualar
