// The families that can be run, each found by what its files call their architecture. A new family is one entry here,
// and a folder with its recipes.
#pragma once

#include <memory>
#include <optional>

#include "models/codec.h"
#include "models/recipe.h"

namespace dualar {

struct Family {
    const char* architecture;
    std::unique_ptr<const Recipe> (*recipe)(Weights& weights, std::optional<int64_t> end_id);
    // ModelError for what is wrong with the file.
    std::shared_ptr<Codec> (*codec)(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend);
};

// The family that a file's architecture names; ModelError for one that none of them has.
const Family& family_of(const GgufFile& file);

}  // namespace dualar
