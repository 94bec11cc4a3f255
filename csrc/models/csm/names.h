// Every GGUF key and tensor name of the CSM family, as python/dualar/gguf/csm_names.py has them; a test checks it. A
// prefix ends in a dot. The parts of a transformer's keys and of its blocks, below such a prefix, are those of names.h.
#pragma once

namespace dualar::csm_names {

inline constexpr const char* kArchitecture = "csm";
// backbone
inline constexpr const char* kContextLength = "csm.context_length";
inline constexpr const char* kTextVocabSize = "csm.text_vocab_size";
inline constexpr const char* kEmbeddingLength = "csm.embedding_length";
inline constexpr const char* kFeedForwardLength = "csm.feed_forward_length";
inline constexpr const char* kBlockCount = "csm.block_count";
inline constexpr const char* kHeadCount = "csm.attention.head_count";
inline constexpr const char* kHeadCountKv = "csm.attention.head_count_kv";
inline constexpr const char* kKeyLength = "csm.attention.key_length";
inline constexpr const char* kRmsEpsilon = "csm.attention.layer_norm_rms_epsilon";
inline constexpr const char* kRopeFreqBase = "csm.rope.freq_base";
inline constexpr const char* kRopeScaling = "csm.rope.scaling.";
inline constexpr const char* kNumCodebooks = "csm.num_codebooks";
inline constexpr const char* kCodebookSize = "csm.codebook_size";
// depth decoder
inline constexpr const char* kDepthEmbeddingLength = "csm.depth.embedding_length";
inline constexpr const char* kDepthFeedForwardLength = "csm.depth.feed_forward_length";
inline constexpr const char* kDepthBlockCount = "csm.depth.block_count";
inline constexpr const char* kDepthHeadCount = "csm.depth.attention.head_count";
inline constexpr const char* kDepthHeadCountKv = "csm.depth.attention.head_count_kv";
inline constexpr const char* kDepthKeyLength = "csm.depth.attention.key_length";
inline constexpr const char* kDepthRmsEpsilon = "csm.depth.attention.layer_norm_rms_epsilon";
inline constexpr const char* kDepthRopeFreqBase = "csm.depth.rope.freq_base";
inline constexpr const char* kDepthRopeScaling = "csm.depth.rope.scaling.";
// behind a prefix of rope scaling; all four are there, or none
inline constexpr const char* kScalingFactor = "factor";
inline constexpr const char* kScalingLow = "low_freq_factor";
inline constexpr const char* kScalingHigh = "high_freq_factor";
inline constexpr const char* kScalingOriginal = "original_context_length";
// the defaults that the model was published with
inline constexpr const char* kTemperature = "csm.sampling.temperature";
inline constexpr const char* kTopK = "csm.sampling.top_k";
inline constexpr const char* kTopP = "csm.sampling.top_p";
inline constexpr const char* kDepthTemperature = "csm.sampling.depth_temperature";
inline constexpr const char* kDepthTopK = "csm.sampling.depth_top_k";
inline constexpr const char* kDepthTopP = "csm.sampling.depth_top_p";
// codec (Mimi) and its encoder
inline constexpr const char* kSampleRate = "csm.codec.sample_rate";
inline constexpr const char* kCodebookDim = "csm.codec.codebook_dim";
inline constexpr const char* kLatentDim = "csm.codec.latent_dim";
inline constexpr const char* kDecoderDim = "csm.codec.decoder_dim";
inline constexpr const char* kUpsamplingRatio = "csm.codec.upsampling_ratio";
inline constexpr const char* kDecoderRates = "csm.codec.decoder_rates";
inline constexpr const char* kTransformer = "csm.codec.transformer.";
inline constexpr const char* kEncoderFilters = "csm.codec.encoder_filters";
inline constexpr const char* kEncoderRates = "csm.codec.encoder_rates";
inline constexpr const char* kEncoderTransformer = "csm.codec.encoder_transformer.";

// Tensors of the backbone. The codes' vectors of all codebooks lie under one another, those of codebook 0 first; they
// are the depth decoder's too.
inline constexpr const char* kTextEmbeddings = "text_embeddings.weight";
inline constexpr const char* kCodeEmbeddings = "code_embeddings.weight";
inline constexpr const char* kLayer = "layers.";
inline constexpr const char* kNorm = "norm.weight";
inline constexpr const char* kOutput = "output.weight";
// of the depth decoder; the heads of codebooks 1 to N - 1, one under another
inline constexpr const char* kDepth = "depth.";
inline constexpr const char* kDepthCodeEmbeddings = "depth.code_embeddings.weight";
inline constexpr const char* kDepthProjectIn = "depth.project_in.weight";
inline constexpr const char* kDepthLayer = "depth.layers.";
inline constexpr const char* kDepthNorm = "depth.norm.weight";
inline constexpr const char* kDepthOutput = "depth.output.weight";
// of the codec, which all begin with the first of these; the encoder uses the same codebooks
inline constexpr const char* kCodec = "codec.";
inline constexpr const char* kCodebook = "codec.codebook.";
inline constexpr const char* kSemanticOutProj = "codec.semantic.out_proj.weight";
inline constexpr const char* kAcousticOutProj = "codec.acoustic.out_proj.weight";
inline constexpr const char* kUpsample = "codec.upsample.conv";
inline constexpr const char* kTransformerBlocks = "codec.transformer.";
inline constexpr const char* kDecoder = "codec.decoder.";
inline constexpr const char* kEncoder = "codec.encoder.";
inline constexpr const char* kEncoderTransformerBlocks = "codec.encoder_transformer.";
inline constexpr const char* kDownsample = "codec.downsample.conv";
inline constexpr const char* kSemanticInProj = "codec.semantic.in_proj.weight";
inline constexpr const char* kAcousticInProj = "codec.acoustic.in_proj.weight";

}  // namespace dualar::csm_names
