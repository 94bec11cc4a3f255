// Every GGUF key and tensor name of Qwen3-TTS's codec and speaker encoder, as
// python/dualar/gguf/qwen3_codec_names.py has them; a test checks it. A prefix ends in a dot. The parts of a
// transformer's keys and of its blocks, below such a prefix, are those of names.h.
#pragma once

namespace dualar::qwen3_codec_names {

// codec
inline constexpr const char* kSampleRate = "qwen3-tts.codec.sample_rate";
inline constexpr const char* kNumCodebooks = "qwen3-tts.codec.num_codebooks";
inline constexpr const char* kCodebookSize = "qwen3-tts.codec.codebook_size";
inline constexpr const char* kQuantizerDim = "qwen3-tts.codec.quantizer_dim";
inline constexpr const char* kCodebookDim = "qwen3-tts.codec.codebook_dim";
inline constexpr const char* kLatentDim = "qwen3-tts.codec.latent_dim";
inline constexpr const char* kDecoderDim = "qwen3-tts.codec.decoder_dim";
inline constexpr const char* kUpsamplingRatios = "qwen3-tts.codec.upsampling_ratios";
inline constexpr const char* kDecoderRates = "qwen3-tts.codec.decoder_rates";
inline constexpr const char* kTransformer = "qwen3-tts.codec.transformer.";
// its encoder
inline constexpr const char* kEncoderFilters = "qwen3-tts.codec.encoder_filters";
inline constexpr const char* kEncoderRates = "qwen3-tts.codec.encoder_rates";
inline constexpr const char* kEncoderCodebookDim = "qwen3-tts.codec.encoder_codebook_dim";
inline constexpr const char* kEncoderTransformer = "qwen3-tts.codec.encoder_transformer.";
// speaker encoder
inline constexpr const char* kSpeakerSampleRate = "qwen3-tts.speaker_encoder.sample_rate";
inline constexpr const char* kSpeakerMelDim = "qwen3-tts.speaker_encoder.mel_dim";
inline constexpr const char* kSpeakerDim = "qwen3-tts.speaker_encoder.embedding_length";
inline constexpr const char* kSpeakerChannels = "qwen3-tts.speaker_encoder.channels";
inline constexpr const char* kSpeakerKernelSizes = "qwen3-tts.speaker_encoder.kernel_sizes";
inline constexpr const char* kSpeakerDilations = "qwen3-tts.speaker_encoder.dilations";
inline constexpr const char* kSpeakerAttentionChannels = "qwen3-tts.speaker_encoder.attention_channels";
inline constexpr const char* kSpeakerScale = "qwen3-tts.speaker_encoder.res2net_scale";
inline constexpr const char* kSpeakerSqueezeChannels = "qwen3-tts.speaker_encoder.se_channels";

// Tensors. The codec's all begin with the first of these.
inline constexpr const char* kCodec = "codec.";
inline constexpr const char* kCodebook = "codec.codebook.";
inline constexpr const char* kSemanticOutProj = "codec.semantic.out_proj.weight";
inline constexpr const char* kAcousticOutProj = "codec.acoustic.out_proj.weight";
inline constexpr const char* kPreConv = "codec.pre_conv.conv";
inline constexpr const char* kTransformerInProj = "codec.transformer.in_proj";
inline constexpr const char* kTransformerOutProj = "codec.transformer.out_proj";
inline constexpr const char* kTransformerBlocks = "codec.transformer.";
inline constexpr const char* kUpsample = "codec.upsample.";
inline constexpr const char* kDecoder = "codec.decoder.";
inline constexpr const char* kEncoder = "codec.encoder.";
inline constexpr const char* kEncoderTransformerBlocks = "codec.encoder_transformer.";
inline constexpr const char* kDownsample = "codec.encoder_downsample.conv";
inline constexpr const char* kEncoderCodebook = "codec.encoder_codebook.";
inline constexpr const char* kSemanticInProj = "codec.semantic.in_proj.weight";
inline constexpr const char* kAcousticInProj = "codec.acoustic.in_proj.weight";
// in a decoder block
inline constexpr const char* kAlpha = "alpha";
inline constexpr const char* kBeta = "beta";
inline constexpr const char* kUnitFirst = "conv1.conv";
inline constexpr const char* kUnitSecond = "conv2.conv";
inline constexpr const char* kUnitFirstSnake = "act1.";
inline constexpr const char* kUnitSecondSnake = "act2.";
// The speaker encoder's all begin with the first of these.
inline constexpr const char* kSpeaker = "speaker.";
inline constexpr const char* kSpeakerBlock = "speaker.blocks.";
inline constexpr const char* kSpeakerAggregation = "speaker.mfa.conv";
inline constexpr const char* kSpeakerAttention = "speaker.asp.tdnn.conv";
inline constexpr const char* kSpeakerAttentionOut = "speaker.asp.conv";
inline constexpr const char* kSpeakerOut = "speaker.fc";
// in a block
inline constexpr const char* kSpeakerConv = "conv";
inline constexpr const char* kSpeakerIn = "tdnn1.conv";
inline constexpr const char* kSpeakerGroup = "res2net_block.blocks.";
inline constexpr const char* kSpeakerMix = "tdnn2.conv";
inline constexpr const char* kSpeakerSqueeze = "se_block.conv1";
inline constexpr const char* kSpeakerExcite = "se_block.conv2";

}  // namespace dualar::qwen3_codec_names
