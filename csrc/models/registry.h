// The families that can be run, each found by what its files call their architecture. A new family is one entry here,
// and a folder with its recipes.
#pragma once

#include <memory>
#include <optional>

#include "models/codec.h"
#include "models/recipe.h"
#include "models/speaker_encoder.h"

namespace dualar {

struct Family {
    const char* architecture;
    const char* codec_tensors;  // how the names of its codec's tensors begin
    std::unique_ptr<const Recipe> (*recipe)(Weights& weights, std::optional<int64_t> end_id);
    // ModelError for what is wrong with the file.
    std::shared_ptr<Codec> (*codec)(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend);
    // Does a file of the family hold a speaker encoder? speaker is nullptr where none of them does.
    bool (*has_speaker)(const GgufFile& file);
    std::shared_ptr<SpeakerEncoder> (*speaker)(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend);
};

// The family that a file's architecture names; ModelError for one that none of them has.
const Family& family_of(const GgufFile& file);

}  // namespace dualar
