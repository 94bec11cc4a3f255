#include "models/registry.h"

#include "models/csm/codec.h"
#include "models/csm/names.h"
#include "models/csm/recipe.h"
#include "models/qwen3_tts/codec.h"
#include "models/qwen3_tts/names.h"
#include "models/qwen3_tts/recipe.h"
#include "models/qwen3_tts/speaker.h"
#include "models/s2/codec.h"
#include "models/s2/names.h"
#include "models/s2/recipe.h"
#include "runtime/error.h"

namespace dualar {

namespace {

template <class FamilyRecipe>
std::unique_ptr<const Recipe> make_recipe(Weights& weights, std::optional<int64_t> end_id) {
    return std::make_unique<FamilyRecipe>(weights, end_id);
}

// Part is a Codec or a SpeakerEncoder, FamilyPart the family's own.
template <class Part, class FamilyPart>
std::shared_ptr<Part> make_part(std::shared_ptr<const GgufFile> file, std::shared_ptr<Backend> backend) {
    return std::make_shared<FamilyPart>(std::move(file), std::move(backend));
}

bool no_speaker(const GgufFile&) { return false; }

constexpr Family kFamilies[] = {
    {names::kArchitecture, names::kCodecTensors, make_recipe<S2Recipe>, make_part<Codec, Dac>, no_speaker, nullptr},
    {qwen3_names::kArchitecture, qwen3_names::kCodec, make_recipe<Qwen3Recipe>, make_part<Codec, Qwen3Codec>,
     Qwen3Speaker::present, make_part<SpeakerEncoder, Qwen3Speaker>},
    {csm_names::kArchitecture, csm_names::kCodec, make_recipe<CsmRecipe>, make_part<Codec, CsmCodec>, no_speaker,
     nullptr},
};

}  // namespace

const Family& family_of(const GgufFile& file) {
    const std::string found = file.string(names::kArchitectureKey);
    std::string known;
    for (const Family& family : kFamilies) {
        if (found == family.architecture) return family;
        known += message(known.empty() ? "" : " or ", quoted(family.architecture));
    }
    throw ModelError(message("[", names::kArchitectureKey, "] expected ", known, ", got ", quoted(found)));
}

}  // namespace dualar
