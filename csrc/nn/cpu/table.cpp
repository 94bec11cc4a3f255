// The table of one variant's kernels, which dispatch.cpp chooses among.
#include "nn/cpu/vectors.h"

namespace dualar::nn {

extern const CpuKernels DUALAR_JOIN(kernels_, DUALAR_VARIANT);

namespace variant = DUALAR_VARIANT_NAMESPACE;

// clang-format off
const CpuKernels DUALAR_JOIN(kernels_, DUALAR_VARIANT) = {
    DUALAR_TEXT(DUALAR_VARIANT), kWidth, variant::product, variant::snake, variant::elu, variant::gate,
    variant::exponential, kLanes, variant::quantize, variant::panel_bytes, variant::pack, variant::quantized_product,
    variant::attention};
// clang-format on

}  // namespace dualar::nn
