// Every GGUF key and tensor name of the S2 family: Slow-AR, Fast-AR, codec. Prefixes end in a dot.
#pragma once

#include "models/names.h"

namespace dualar::names {

inline constexpr const char* kArchitecture = "fish-speech";

// Slow-AR
inline constexpr const char* kContextLength = "fish-speech.context_length";
inline constexpr const char* kVocabSize = "fish-speech.vocab_size";
inline constexpr const char* kEmbeddingLength = "fish-speech.embedding_length";
inline constexpr const char* kFeedForwardLength = "fish-speech.feed_forward_length";
inline constexpr const char* kBlockCount = "fish-speech.block_count";
inline constexpr const char* kHeadCount = "fish-speech.attention.head_count";
inline constexpr const char* kHeadCountKv = "fish-speech.attention.head_count_kv";
inline constexpr const char* kKeyLength = "fish-speech.attention.key_length";
inline constexpr const char* kRopeFreqBase = "fish-speech.rope.freq_base";
inline constexpr const char* kRmsEpsilon = "fish-speech.attention.layer_norm_rms_epsilon";
// both transformers
inline constexpr const char* kCodebookSize = "fish_speech.codebook_size";
inline constexpr const char* kNumCodebooks = "fish_speech.num_codebooks";
inline constexpr const char* kSemanticBeginId = "fish_speech.semantic_begin_id";
inline constexpr const char* kSemanticEndId = "fish_speech.semantic_end_id";
inline constexpr const char* kScaleCodebookEmbeddings = "fish_speech.scale_codebook_embeddings";
inline constexpr const char* kNormFastlayerInput = "fish_speech.norm_fastlayer_input";
inline constexpr const char* kTieWordEmbeddings = "fish_speech.tie_word_embeddings";
inline constexpr const char* kQkNorm = "fish_speech.attention_qk_norm";
inline constexpr const char* kQkvBias = "fish_speech.attention_qkv_bias";
inline constexpr const char* kOBias = "fish_speech.attention_o_bias";
inline constexpr const char* kSingleTurn = "dualar.single_turn";
inline constexpr const char* kPieceSize = "dualar.piece_size";
inline constexpr const char* kTextFrontend = "dualar.text_frontend";
inline constexpr const char* kAlignmentHeads = "dualar.alignment_heads";
inline constexpr const char* kSilentCodes = "dualar.silent_codes";
inline constexpr const char* kPrompt = "dualar.prompt";
inline constexpr const char* kTemperature = "dualar.sampling.temperature";
inline constexpr const char* kResidualTemperature = "dualar.sampling.residual_temperature";
inline constexpr const char* kRasWindow = "dualar.sampling.ras_window";
// Fast-AR
inline constexpr const char* kFastContextLength = "fish_speech.fast_context_length";
inline constexpr const char* kFastEmbeddingLength = "fish_speech.fast_embedding_length";
inline constexpr const char* kFastFeedForwardLength = "fish_speech.fast_feed_forward_length";
inline constexpr const char* kFastBlockCount = "fish_speech.fast_block_count";
inline constexpr const char* kFastHeadCount = "fish_speech.fast_head_count";
inline constexpr const char* kFastHeadCountKv = "fish_speech.fast_head_count_kv";
inline constexpr const char* kFastHeadDim = "fish_speech.fast_head_dim";
inline constexpr const char* kFastRopeFreqBase = "fish_speech.fast_rope_freq_base";
inline constexpr const char* kFastRmsEpsilon = "fish_speech.fast_layer_norm_rms_eps";
inline constexpr const char* kFastQkNorm = "fish_speech.fast_attention_qk_norm";
inline constexpr const char* kFastQkvBias = "fish_speech.fast_attention_qkv_bias";
inline constexpr const char* kFastOBias = "fish_speech.fast_attention_o_bias";
inline constexpr const char* kFastProjectIn = "fish_speech.fast_project_in";
// codec
inline constexpr const char* kCodec = "fish_speech.codec.";
inline constexpr const char* kSampleRate = "fish_speech.codec.sample_rate";
inline constexpr const char* kHopLength = "fish_speech.codec.hop_length";
inline constexpr const char* kEncoderDim = "fish_speech.codec.encoder_dim";
inline constexpr const char* kDecoderDim = "fish_speech.codec.decoder_dim";
inline constexpr const char* kLatentDim = "fish_speech.codec.latent_dim";
inline constexpr const char* kEncoderRates = "fish_speech.codec.encoder_rates";
inline constexpr const char* kDecoderRates = "fish_speech.codec.decoder_rates";
inline constexpr const char* kEncoderTransformerLayers = "fish_speech.codec.encoder_transformer_layers";
inline constexpr const char* kDownsampleFactor = "fish_speech.codec.quantizer_downsample_factor";
inline constexpr const char* kQuantizerInputDim = "fish_speech.codec.quantizer_input_dim";
inline constexpr const char* kCodebookDim = "fish_speech.codec.quantizer_codebook_dim";
inline constexpr const char* kResidualCodebooks = "fish_speech.codec.quantizer_residual_codebooks";
inline constexpr const char* kResidualCodebookSize = "fish_speech.codec.quantizer_residual_codebook_size";
inline constexpr const char* kSemanticCodebookSize = "fish_speech.codec.quantizer_semantic_codebook_size";
// the encoder's transformers, then those around the quantizer
inline constexpr const char* kEncoderTransformer = "fish_speech.codec.transformer.";
inline constexpr const char* kRvqTransformer = "fish_speech.codec.rvq_transformer.";

// Tensors. A prefix ends in a dot; the parts below follow it.
inline constexpr const char* kEmbeddings = "embeddings.weight";
inline constexpr const char* kCodebookEmbeddings = "codebook_embeddings.weight";
inline constexpr const char* kOutput = "output.weight";
inline constexpr const char* kFastLayer = "fast_layers.";
inline constexpr const char* kFastEmbeddings = "fast_embeddings.weight";
inline constexpr const char* kFastNorm = "fast_norm.weight";
inline constexpr const char* kFastOutput = "fast_output.weight";
inline constexpr const char* kFastProjectInWeight = "fast_project_in.weight";
inline constexpr const char* kFastProjectInBias = "fast_project_in.bias";

inline constexpr const char* kCodecTensors = "c.";
inline constexpr const char* kQuantizer = "c.quantizer.";
inline constexpr const char* kSemanticQuantizer = "c.quantizer.semantic_quantizer.quantizers.0.";
inline constexpr const char* kResidualQuantizer = "c.quantizer.quantizer.quantizers.";
inline constexpr const char* kCodebook = "codebook.weight";
inline constexpr const char* kInProj = "in_proj";
inline constexpr const char* kOutProj = "out_proj";
inline constexpr const char* kPostModule = "c.quantizer.post_module.";
inline constexpr const char* kPreModule = "c.quantizer.pre_module.";
inline constexpr const char* kUpsample = "c.quantizer.upsample.";
inline constexpr const char* kDownsample = "c.quantizer.downsample.";
inline constexpr const char* kDecoder = "c.decoder.model.";
inline constexpr const char* kEncoder = "c.encoder.block.";

}  // namespace dualar::names
