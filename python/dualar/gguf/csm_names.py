"""Every GGUF key and tensor name of the CSM family.

They equal those in csrc/models/csm/names.h; a test compares them. A prefix ends in a dot. The parts of a transformer's
keys and of its blocks, below such a prefix, are those of `names.py`.
"""

from __future__ import annotations

ARCHITECTURE = "csm"
# backbone
CONTEXT_LENGTH = "csm.context_length"
TEXT_VOCAB_SIZE = "csm.text_vocab_size"
EMBEDDING_LENGTH = "csm.embedding_length"
FEED_FORWARD_LENGTH = "csm.feed_forward_length"
BLOCK_COUNT = "csm.block_count"
HEAD_COUNT = "csm.attention.head_count"
HEAD_COUNT_KV = "csm.attention.head_count_kv"
KEY_LENGTH = "csm.attention.key_length"
RMS_EPSILON = "csm.attention.layer_norm_rms_epsilon"
ROPE_FREQ_BASE = "csm.rope.freq_base"
ROPE_SCALING = "csm.rope.scaling."
NUM_CODEBOOKS = "csm.num_codebooks"
CODEBOOK_SIZE = "csm.codebook_size"
# depth decoder
DEPTH_EMBEDDING_LENGTH = "csm.depth.embedding_length"
DEPTH_FEED_FORWARD_LENGTH = "csm.depth.feed_forward_length"
DEPTH_BLOCK_COUNT = "csm.depth.block_count"
DEPTH_HEAD_COUNT = "csm.depth.attention.head_count"
DEPTH_HEAD_COUNT_KV = "csm.depth.attention.head_count_kv"
DEPTH_KEY_LENGTH = "csm.depth.attention.key_length"
DEPTH_RMS_EPSILON = "csm.depth.attention.layer_norm_rms_epsilon"
DEPTH_ROPE_FREQ_BASE = "csm.depth.rope.freq_base"
DEPTH_ROPE_SCALING = "csm.depth.rope.scaling."
# behind a prefix of rope scaling; all four are there, or none
SCALING_FACTOR = "factor"
SCALING_LOW = "low_freq_factor"
SCALING_HIGH = "high_freq_factor"
SCALING_ORIGINAL = "original_context_length"
# the defaults that the model was published with
TEMPERATURE = "csm.sampling.temperature"
TOP_K = "csm.sampling.top_k"
TOP_P = "csm.sampling.top_p"
DEPTH_TEMPERATURE = "csm.sampling.depth_temperature"
DEPTH_TOP_K = "csm.sampling.depth_top_k"
DEPTH_TOP_P = "csm.sampling.depth_top_p"
# codec (Mimi) and its encoder
SAMPLE_RATE = "csm.codec.sample_rate"
CODEBOOK_DIM = "csm.codec.codebook_dim"
LATENT_DIM = "csm.codec.latent_dim"
DECODER_DIM = "csm.codec.decoder_dim"
UPSAMPLING_RATIO = "csm.codec.upsampling_ratio"
DECODER_RATES = "csm.codec.decoder_rates"
TRANSFORMER = "csm.codec.transformer."
ENCODER_FILTERS = "csm.codec.encoder_filters"
ENCODER_RATES = "csm.codec.encoder_rates"
ENCODER_TRANSFORMER = "csm.codec.encoder_transformer."

# Tensors of the backbone. The codes' vectors of all codebooks lie under one another, those of codebook 0 first; they
# are the depth decoder's too.
TEXT_EMBEDDINGS = "text_embeddings.weight"
CODE_EMBEDDINGS = "code_embeddings.weight"
LAYER = "layers."
NORM = "norm.weight"
OUTPUT = "output.weight"
# of the depth decoder; the heads of codebooks 1 to N - 1, one under another
DEPTH = "depth."
DEPTH_CODE_EMBEDDINGS = "depth.code_embeddings.weight"
DEPTH_PROJECT_IN = "depth.project_in.weight"
DEPTH_LAYER = "depth.layers."
DEPTH_NORM = "depth.norm.weight"
DEPTH_OUTPUT = "depth.output.weight"
# of the codec, which all begin with the first of these; the encoder uses the same codebooks
CODEC = "codec."
CODEBOOK = "codec.codebook."
SEMANTIC_OUT_PROJ = "codec.semantic.out_proj.weight"
ACOUSTIC_OUT_PROJ = "codec.acoustic.out_proj.weight"
UPSAMPLE = "codec.upsample.conv"
TRANSFORMER_BLOCKS = "codec.transformer."
DECODER = "codec.decoder."
ENCODER = "codec.encoder."
ENCODER_TRANSFORMER_BLOCKS = "codec.encoder_transformer."
DOWNSAMPLE = "codec.downsample.conv"
SEMANTIC_IN_PROJ = "codec.semantic.in_proj.weight"
ACOUSTIC_IN_PROJ = "codec.acoustic.in_proj.weight"
