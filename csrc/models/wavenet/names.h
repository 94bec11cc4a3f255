// Every GGUF key and tensor name of WaveNet.
#pragma once

#include "models/names.h"

namespace dualar::names {

// WaveNet
inline constexpr const char* kWavenet = "wavenet";  // its architecture
inline constexpr const char* kWavenetChannels = "wavenet.channels";
inline constexpr const char* kWavenetConditionChannels = "wavenet.condition_channels";
inline constexpr const char* kWavenetSkipChannels = "wavenet.skip_channels";
inline constexpr const char* kWavenetQuantizationLevels = "wavenet.quantization_levels";
inline constexpr const char* kWavenetKernelSize = "wavenet.kernel_size";
inline constexpr const char* kWavenetDilations = "wavenet.dilations";
inline constexpr const char* kWavenetSampleRate = "wavenet.sample_rate";
inline constexpr const char* kWavenetEmbedding = "embedding.weight";
inline constexpr const char* kWavenetBlock = "blocks.";
inline constexpr const char* kWavenetConv = "conv";
inline constexpr const char* kWavenetCond = "cond";
inline constexpr const char* kWavenetResidual = "residual";
inline constexpr const char* kWavenetSkip = "skip";
inline constexpr const char* kWavenetHead = "head.";

}  // namespace dualar::names
