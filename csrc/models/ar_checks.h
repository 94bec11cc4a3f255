// The checks of a file's architecture and of the arguments of a session's calls, for every family. Each error names
// what was expected and what came.
#pragma once

#include <string>
#include <vector>

#include "nn/sampling.h"
#include "runtime/gguf_file.h"

namespace dualar {

// ModelError where the file is of another architecture.
void check_architecture(const GgufFile& file, const char* architecture);

// std::invalid_argument from here on. hidden: `dim` finite values. prefix: 1 to N - 1 codes.
void check_hidden(const std::vector<float>& hidden, int64_t dim);
void check_prefix(const std::vector<int32_t>& prefix, int64_t num_codebooks, int64_t codebook_size);
void check_code(int64_t code, int64_t codebook_size);
// Throws unless `count` more positions fit behind `position`.
void check_room(int64_t count, int64_t position, int64_t max_positions);
// Throws unless a step may follow in a frame whose cache holds `fast_position` positions.
void check_fast_step(int64_t fast_position, int64_t num_codebooks);
void check_truncate(int64_t positions, int64_t position);
void check_sampler(const nn::Sampler& sampler);
// What to say of a row that nn::draw() could not draw from.
std::string cannot_draw(uint64_t step, size_t book, int64_t drawn);

}  // namespace dualar
