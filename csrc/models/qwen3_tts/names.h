// Every GGUF key and tensor name of the Qwen3-TTS family, as python/dualar/gguf/qwen3_names.py has them; a test
// checks it. A tensor prefix ends in a dot. The parts of a transformer block, below such a prefix, are those of
// names.h.
#pragma once

namespace dualar::qwen3_names {

inline constexpr const char* kArchitecture = "qwen3-tts";
inline constexpr const char* kModelKind = "qwen3-tts.model_type";
inline constexpr const char* kModelSize = "qwen3-tts.model_size";
// talker
inline constexpr const char* kContextLength = "qwen3-tts.context_length";
inline constexpr const char* kVocabSize = "qwen3-tts.vocab_size";
inline constexpr const char* kTextVocabSize = "qwen3-tts.text_vocab_size";
inline constexpr const char* kTextEmbeddingLength = "qwen3-tts.text_embedding_length";
inline constexpr const char* kEmbeddingLength = "qwen3-tts.embedding_length";
inline constexpr const char* kFeedForwardLength = "qwen3-tts.feed_forward_length";
inline constexpr const char* kBlockCount = "qwen3-tts.block_count";
inline constexpr const char* kHeadCount = "qwen3-tts.attention.head_count";
inline constexpr const char* kHeadCountKv = "qwen3-tts.attention.head_count_kv";
inline constexpr const char* kKeyLength = "qwen3-tts.attention.key_length";
inline constexpr const char* kRopeFreqBase = "qwen3-tts.rope.freq_base";
inline constexpr const char* kRmsEpsilon = "qwen3-tts.attention.layer_norm_rms_epsilon";
inline constexpr const char* kNumCodebooks = "qwen3-tts.num_codebooks";
inline constexpr const char* kCodebookSize = "qwen3-tts.codebook_size";
// code predictor
inline constexpr const char* kPredictorEmbeddingLength = "qwen3-tts.predictor.embedding_length";
inline constexpr const char* kPredictorFeedForwardLength = "qwen3-tts.predictor.feed_forward_length";
inline constexpr const char* kPredictorBlockCount = "qwen3-tts.predictor.block_count";
inline constexpr const char* kPredictorHeadCount = "qwen3-tts.predictor.attention.head_count";
inline constexpr const char* kPredictorHeadCountKv = "qwen3-tts.predictor.attention.head_count_kv";
inline constexpr const char* kPredictorKeyLength = "qwen3-tts.predictor.attention.key_length";
inline constexpr const char* kPredictorRopeFreqBase = "qwen3-tts.predictor.rope.freq_base";
inline constexpr const char* kPredictorRmsEpsilon = "qwen3-tts.predictor.attention.layer_norm_rms_epsilon";
// control ids: of the talker's vocabulary, then of the text's
inline constexpr const char* kCodecPadId = "qwen3-tts.codec_pad_id";
inline constexpr const char* kCodecBosId = "qwen3-tts.codec_bos_id";
inline constexpr const char* kCodecEosId = "qwen3-tts.codec_eos_id";
inline constexpr const char* kCodecThinkId = "qwen3-tts.codec_think_id";
inline constexpr const char* kCodecNothinkId = "qwen3-tts.codec_nothink_id";
inline constexpr const char* kCodecThinkBosId = "qwen3-tts.codec_think_bos_id";
inline constexpr const char* kCodecThinkEosId = "qwen3-tts.codec_think_eos_id";
inline constexpr const char* kTtsPadId = "qwen3-tts.tts_pad_id";
inline constexpr const char* kTtsBosId = "qwen3-tts.tts_bos_id";
inline constexpr const char* kTtsEosId = "qwen3-tts.tts_eos_id";
// languages and speakers: lists of one length each; a dialect is a language's name or ""
inline constexpr const char* kLanguageNames = "qwen3-tts.language.names";
inline constexpr const char* kLanguageIds = "qwen3-tts.language.ids";
inline constexpr const char* kSpeakerNames = "qwen3-tts.speaker.names";
inline constexpr const char* kSpeakerIds = "qwen3-tts.speaker.ids";
inline constexpr const char* kSpeakerDialects = "qwen3-tts.speaker.dialects";
// the defaults that the model was published with
inline constexpr const char* kTemperature = "qwen3-tts.sampling.temperature";
inline constexpr const char* kTopK = "qwen3-tts.sampling.top_k";
inline constexpr const char* kTopP = "qwen3-tts.sampling.top_p";
inline constexpr const char* kRepetitionPenalty = "qwen3-tts.sampling.repetition_penalty";
inline constexpr const char* kPredictorTemperature = "qwen3-tts.sampling.predictor_temperature";
inline constexpr const char* kPredictorTopK = "qwen3-tts.sampling.predictor_top_k";
inline constexpr const char* kPredictorTopP = "qwen3-tts.sampling.predictor_top_p";

// Tensors of the talker
inline constexpr const char* kTextEmbeddings = "text_embeddings.weight";
inline constexpr const char* kTextProjectionIn = "text_projection.in";
inline constexpr const char* kTextProjectionOut = "text_projection.out";
inline constexpr const char* kEmbeddings = "embeddings.weight";
inline constexpr const char* kLayer = "layers.";
inline constexpr const char* kNorm = "norm.weight";
inline constexpr const char* kOutput = "output.weight";
// of the code predictor; tables and heads of all codebooks but the first, one under another
inline constexpr const char* kPredictor = "predictor.";
inline constexpr const char* kPredictorEmbeddings = "predictor.embeddings.weight";
inline constexpr const char* kPredictorProjectIn = "predictor.project_in";
inline constexpr const char* kPredictorLayer = "predictor.layers.";
inline constexpr const char* kPredictorNorm = "predictor.norm.weight";
inline constexpr const char* kPredictorOutput = "predictor.output.weight";
// what other parts of the file begin with
inline constexpr const char* kCodec = "codec.";
inline constexpr const char* kSpeakerEncoder = "speaker.";

}  // namespace dualar::qwen3_names
