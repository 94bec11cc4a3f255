"""Every GGUF key and tensor name of Qwen3-TTS's codec and speaker encoder.

They equal those in csrc/models/qwen3_tts/codec_names.h; a test compares them. A prefix ends in a dot. The parts of a
transformer's keys and of its blocks, below such a prefix, are those of `names.py`.
"""

from __future__ import annotations

# codec
SAMPLE_RATE = "qwen3-tts.codec.sample_rate"
NUM_CODEBOOKS = "qwen3-tts.codec.num_codebooks"
CODEBOOK_SIZE = "qwen3-tts.codec.codebook_size"
QUANTIZER_DIM = "qwen3-tts.codec.quantizer_dim"
CODEBOOK_DIM = "qwen3-tts.codec.codebook_dim"
LATENT_DIM = "qwen3-tts.codec.latent_dim"
DECODER_DIM = "qwen3-tts.codec.decoder_dim"
UPSAMPLING_RATIOS = "qwen3-tts.codec.upsampling_ratios"
DECODER_RATES = "qwen3-tts.codec.decoder_rates"
TRANSFORMER = "qwen3-tts.codec.transformer."
# its encoder
ENCODER_FILTERS = "qwen3-tts.codec.encoder_filters"
ENCODER_RATES = "qwen3-tts.codec.encoder_rates"
ENCODER_CODEBOOK_DIM = "qwen3-tts.codec.encoder_codebook_dim"
ENCODER_TRANSFORMER = "qwen3-tts.codec.encoder_transformer."
# speaker encoder
SPEAKER_SAMPLE_RATE = "qwen3-tts.speaker_encoder.sample_rate"
SPEAKER_MEL_DIM = "qwen3-tts.speaker_encoder.mel_dim"
SPEAKER_DIM = "qwen3-tts.speaker_encoder.embedding_length"
SPEAKER_CHANNELS = "qwen3-tts.speaker_encoder.channels"
SPEAKER_KERNEL_SIZES = "qwen3-tts.speaker_encoder.kernel_sizes"
SPEAKER_DILATIONS = "qwen3-tts.speaker_encoder.dilations"
SPEAKER_ATTENTION_CHANNELS = "qwen3-tts.speaker_encoder.attention_channels"
SPEAKER_SCALE = "qwen3-tts.speaker_encoder.res2net_scale"
SPEAKER_SQUEEZE_CHANNELS = "qwen3-tts.speaker_encoder.se_channels"

# Tensors. The codec's all begin with the first of these.
CODEC = "codec."
CODEBOOK = "codec.codebook."
SEMANTIC_OUT_PROJ = "codec.semantic.out_proj.weight"
ACOUSTIC_OUT_PROJ = "codec.acoustic.out_proj.weight"
PRE_CONV = "codec.pre_conv.conv"
TRANSFORMER_IN_PROJ = "codec.transformer.in_proj"
TRANSFORMER_OUT_PROJ = "codec.transformer.out_proj"
TRANSFORMER_BLOCKS = "codec.transformer."
UPSAMPLE = "codec.upsample."
DECODER = "codec.decoder."
ENCODER = "codec.encoder."
ENCODER_TRANSFORMER_BLOCKS = "codec.encoder_transformer."
DOWNSAMPLE = "codec.encoder_downsample.conv"
ENCODER_CODEBOOK = "codec.encoder_codebook."
SEMANTIC_IN_PROJ = "codec.semantic.in_proj.weight"
ACOUSTIC_IN_PROJ = "codec.acoustic.in_proj.weight"
# in a decoder block
ALPHA = "alpha"
BETA = "beta"
UNIT_FIRST = "conv1.conv"
UNIT_SECOND = "conv2.conv"
UNIT_FIRST_SNAKE = "act1."
UNIT_SECOND_SNAKE = "act2."
# The speaker encoder's all begin with the first of these.
SPEAKER = "speaker."
SPEAKER_BLOCK = "speaker.blocks."
SPEAKER_AGGREGATION = "speaker.mfa.conv"
SPEAKER_ATTENTION = "speaker.asp.tdnn.conv"
SPEAKER_ATTENTION_OUT = "speaker.asp.conv"
SPEAKER_OUT = "speaker.fc"
# in a block
SPEAKER_CONV = "conv"
SPEAKER_IN = "tdnn1.conv"
SPEAKER_GROUP = "res2net_block.blocks."
SPEAKER_MIX = "tdnn2.conv"
SPEAKER_SQUEEZE = "se_block.conv1"
SPEAKER_EXCITE = "se_block.conv2"
