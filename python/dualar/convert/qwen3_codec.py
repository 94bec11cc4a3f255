"""Qwen3-TTS checkpoints: which keys and tensors of speech tokenizer (codec) and speaker encoder go into a model file.

Owns the reading of their configs and the plan of their tensors. Leaves the rest of the checkpoint to `qwen3_tts.py`,
checking and writing to `plan.py` and `model_file.py`.

What can be computed once is stored computed: a codebook's row is embedding_sum / max(cluster_usage, 1e-5), and the
snakes' alpha and beta are exp of the checkpoint's values. Of the encoder's quantizers only those that make codes are
kept, without the projections back, which encoding does not need.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dualar.convert.checkpoint import open_checkpoint
from dualar.convert.gguf_writer import Value
from dualar.convert.plan import Part, Planned, Storage, same, vector
from dualar.convert.published import read_json
from dualar.convert.qwen3_layers import (
    codebook,
    conv,
    gated_blocks,
    linear,
    plain_blocks,
    snake,
    squeezed,
    transformer,
    transformer_keys,
)
from dualar.convert.settings import Settings
from dualar.gguf import names
from dualar.gguf import qwen3_codec_names as keys

FOLDER = "speech_tokenizer"
SPEAKER_PREFIX = "speaker_encoder."

_MAX_DIM = 1 << 20
_MAX_RATE = 4096
_UNIT_KERNEL, _EDGE_KERNEL = 7, 7  # of the decoder's residual units, and of its first and last convolution
# In the encoder's list of layers: the first convolution, then for each rate a residual unit, an activation and a
# strided convolution; an activation; the last convolution.
_LAYERS_PER_RATE = 3
_NOT_NEEDED = re.compile(
    r"decoder\.quantizer\.\w+\.input_proj\.weight"
    r"|encoder\.quantizer\.\w+\.output_proj\.weight"
    r"|encoder\.quantizer\.\w+\.layers\.\d+\.codebook\.initialized"
)


def codec_part(folder: Path, *, codebooks: int, codebook_size: int) -> tuple[dict[str, Value], Part]:
    """The codec of the checkpoint in `folder`: keys and tensors. codebooks, codebook_size: those of the codes that the
    talker and the code predictor make. One ModelError for all that its config lacks."""
    path = folder / FOLDER / "config.json"
    config = Settings(read_json(path), source=str(path))
    metadata, plan, ignored = codec_plan(config, codebooks=codebooks, codebook_size=codebook_size)
    config.require()
    return metadata, Part(open_checkpoint(folder / FOLDER), plan, ignored)


def codec_plan(
    config: Settings, *, codebooks: int, codebook_size: int
) -> tuple[dict[str, Value], list[Planned], Callable[[str], bool]]:
    """`codec_part` without the checkpoint: keys, tensors, and which others may be there. Problems stay in `config`."""
    config.text("model_type", ("qwen3_tts_tokenizer_12hz",))
    frame = config.integer("decode_upsample_rate", 1, 1 << 16)
    if config.integer("encode_downsample_rate") != frame:
        config.note("encode_downsample_rate", str(frame), str(config.integer("encode_downsample_rate")))
    rate = config.integer("output_sample_rate", 1000, 1_000_000)
    if config.integer("input_sample_rate", 1000, 1_000_000) != rate:
        config.note("input_sample_rate", str(rate), str(config.integer("input_sample_rate")))
    metadata: dict[str, Value] = {keys.SAMPLE_RATE: rate}
    decoder = config.inside("decoder_config")
    for key, value in (("num_quantizers", codebooks), ("codebook_size", codebook_size)):
        if decoder.integer(key, 1, _MAX_DIM) != value:
            decoder.note(key, f"{value}, as the talker's codes need", str(decoder.integer(key, 1, _MAX_DIM)))
    plan = _decoder(decoder, metadata, frame)
    if config.integer("encoder_valid_num_quantizers") != codebooks:
        config.note("encoder_valid_num_quantizers", str(codebooks), str(config.integer("encoder_valid_num_quantizers")))
    encoder, unused = _encoder(config.inside("encoder_config"), metadata, frame, codebooks)

    def ignored(name: str) -> bool:
        return _NOT_NEEDED.fullmatch(name) is not None or name.startswith(unused)

    return metadata, plan + encoder, ignored


def _decoder(config: Settings, metadata: dict[str, Value], frame: int) -> list[Planned]:
    config.only("attention_bias", False)
    config.only("hidden_act", "silu")
    config.only("num_semantic_quantizers", 1)
    t = transformer(config)
    latent, dim = config.integer("latent_dim", 1, _MAX_DIM), config.integer("codebook_dim", 2, _MAX_DIM)
    books, size = config.integer("num_quantizers", 2, 1024), config.integer("codebook_size", 1, _MAX_DIM)
    channels = config.integer("decoder_dim", 1, _MAX_DIM)
    ratios = config.integers("upsampling_ratios", 1, _MAX_RATE)
    rates = config.integers("upsample_rates", 1, _MAX_RATE)
    if np.prod([*ratios, *rates], dtype=object) != frame:
        config.note("upsample_rates", f"{frame} samples a frame with upsampling_ratios", f"{rates} with {ratios}")
    if channels % 2 ** len(rates) != 0:
        config.note("decoder_dim", f"a multiple of 2^{len(rates)}", str(channels))
    row = dim // 2  # the published code halves it
    metadata |= {
        keys.NUM_CODEBOOKS: books,
        keys.CODEBOOK_SIZE: size,
        keys.CODEBOOK_DIM: row,
        keys.QUANTIZER_DIM: dim,
        keys.LATENT_DIM: latent,
        keys.DECODER_DIM: channels,
        keys.UPSAMPLING_RATIOS: ratios,
        keys.DECODER_RATES: rates,
        keys.TRANSFORMER + names.WINDOW_SIZE: config.integer("sliding_window", 1, 1 << 14),
        **transformer_keys(keys.TRANSFORMER, t, config, "rms_norm_eps"),
    }
    of = "decoder.quantizer."
    plan = [
        codebook(
            f"{keys.CODEBOOK}{q}.weight",
            f"{of}rvq_first.vq.layers.0._codebook." if q == 0 else f"{of}rvq_rest.vq.layers.{q - 1}._codebook.",
            "embedding_sum",
            (size, row),
        )
        for q in range(books)
    ]
    plan += [
        squeezed(keys.SEMANTIC_OUT_PROJ, f"{of}rvq_first.output_proj.weight", dim, row),
        squeezed(keys.ACOUSTIC_OUT_PROJ, f"{of}rvq_rest.output_proj.weight", dim, row),
        *conv(keys.PRE_CONV, "decoder.pre_conv.conv", (latent, dim, 3), latent),
        *linear(keys.TRANSFORMER_IN_PROJ, "decoder.pre_transformer.input_proj", t.dim, latent),
        *gated_blocks(keys.TRANSFORMER_BLOCKS, "decoder.pre_transformer.", t),
        vector(keys.TRANSFORMER_BLOCKS + names.NORM, "decoder.pre_transformer.norm.weight", t.dim),
        *linear(keys.TRANSFORMER_OUT_PROJ, "decoder.pre_transformer.output_proj", latent, t.dim),
    ]
    for i, ratio in enumerate(ratios):
        to, of = f"{keys.UPSAMPLE}{i}.", f"decoder.upsample.{i}."
        plan += [
            *conv(f"{to}0.conv", f"{of}0.conv", (latent, latent, ratio), latent),
            *conv(f"{to}1.dwconv.conv", f"{of}1.dwconv.conv", (latent, 1, 7), latent),
            *(vector(f"{to}1.{name}", f"{of}1.{name}", latent) for name in ("norm.weight", "norm.bias", "gamma")),
            *linear(f"{to}1.pwconv1", f"{of}1.pwconv1", 4 * latent, latent),
            *linear(f"{to}1.pwconv2", f"{of}1.pwconv2", latent, 4 * latent),
        ]
    return plan + _waveform(channels, latent, rates)


def _waveform(channels: int, latent: int, rates: Sequence[int]) -> list[Planned]:
    """The convolutions from the latent to samples: a block with three residual units for each rate."""
    of = "decoder.decoder."
    plan = conv(f"{keys.DECODER}0.conv", f"{of}0.conv", (channels, latent, _EDGE_KERNEL), channels)
    for b, rate in enumerate(rates, 1):
        half = channels // 2
        to, of_block = f"{keys.DECODER}{b}.block.", f"{of}{b}.block."
        plan += snake(f"{to}0.", f"{of_block}0.", channels)
        plan += conv(f"{to}1.conv", f"{of_block}1.conv", (channels, half, 2 * rate), half)
        for u in (2, 3, 4):
            plan += [
                *snake(f"{to}{u}.{keys.UNIT_FIRST_SNAKE}", f"{of_block}{u}.act1.", half),
                *conv(f"{to}{u}.{keys.UNIT_FIRST}", f"{of_block}{u}.conv1.conv", (half, half, _UNIT_KERNEL), half),
                *snake(f"{to}{u}.{keys.UNIT_SECOND_SNAKE}", f"{of_block}{u}.act2.", half),
                *conv(f"{to}{u}.{keys.UNIT_SECOND}", f"{of_block}{u}.conv2.conv", (half, half, 1), half),
            ]
        channels = half
    end = len(rates) + 1
    plan += snake(f"{keys.DECODER}{end}.", f"{of}{end}.", channels)
    plan += conv(f"{keys.DECODER}{end + 1}.conv", f"{of}{end + 1}.conv", (1, channels, _EDGE_KERNEL), 1)
    return plan


def _encoder(
    config: Settings, metadata: dict[str, Value], frame: int, books: int
) -> tuple[list[Planned], tuple[str, ...]]:
    """Keys and tensors of the encoder, and what the names of the quantizers that are not used begin with."""
    for key, value in {
        "attention_bias": False,
        "audio_channels": 1,
        "compress": 2,
        "hidden_act": "gelu",
        "kernel_size": 7,
        "last_kernel_size": 3,
        "normalize": False,
        "num_residual_layers": 1,
        "num_semantic_quantizers": 1,
        "pad_mode": "constant",
        "residual_kernel_size": 3,
        "use_causal_conv": True,
        "use_conv_shortcut": False,
    }.items():
        config.only(key, value)
    t = transformer(config)
    filters = config.integer("num_filters", 2, _MAX_DIM)
    if filters % 2 != 0:
        config.note("num_filters", "an even number", str(filters))
    rates = config.integers("upsampling_ratios", 1, _MAX_RATE)[::-1]  # listed as the decoder's
    dim, size = config.integer("codebook_dim", 1, _MAX_DIM), config.integer("codebook_size", 1, _MAX_DIM)
    all_books = config.integer("num_quantizers", books, 1024)
    if size != metadata[keys.CODEBOOK_SIZE]:
        config.note("codebook_size", f"{metadata[keys.CODEBOOK_SIZE]}, as the decoder has", str(size))
    product = int(np.prod(rates, dtype=object))
    if frame % product != 0:
        config.note("upsampling_ratios", f"a product that divides the {frame} samples of a frame", str(rates))
    factor = max(frame // product, 1)
    metadata |= {
        keys.ENCODER_FILTERS: filters,
        keys.ENCODER_RATES: rates,
        keys.ENCODER_CODEBOOK_DIM: dim,
        **transformer_keys(keys.ENCODER_TRANSFORMER, t, config, "norm_eps"),
    }
    of = "encoder.encoder.layers."
    plan = conv(f"{keys.ENCODER}0.conv", f"{of}0.conv", (filters, 1, 7), filters)
    channels = filters
    for b, rate in enumerate(rates):
        unit, down, half = _LAYERS_PER_RATE * b + 1, _LAYERS_PER_RATE * (b + 1), channels // 2
        plan += [
            *conv(f"{keys.ENCODER}{unit}.block.1.conv", f"{of}{unit}.block.1.conv", (half, channels, 3), half),
            *conv(f"{keys.ENCODER}{unit}.block.3.conv", f"{of}{unit}.block.3.conv", (channels, half, 1), channels),
            *conv(f"{keys.ENCODER}{down}.conv", f"{of}{down}.conv", (2 * channels, channels, 2 * rate), 2 * channels),
        ]
        channels *= 2
    last = _LAYERS_PER_RATE * len(rates) + 2
    plan += conv(f"{keys.ENCODER}{last}.conv", f"{of}{last}.conv", (t.dim, channels, 3), t.dim)
    plan += plain_blocks(keys.ENCODER_TRANSFORMER_BLOCKS, "encoder.encoder_transformer.", t)
    plan.append(
        same(f"{keys.DOWNSAMPLE}.weight", "encoder.downsample.conv.weight", (t.dim, t.dim, 2 * factor), Storage.CODEC)
    )
    of = "encoder.quantizer."
    semantic, acoustic = (f"{of}{kind}_residual_vector_quantizer." for kind in ("semantic", "acoustic"))
    plan += [
        squeezed(keys.SEMANTIC_IN_PROJ, f"{semantic}input_proj.weight", dim, t.dim),
        squeezed(keys.ACOUSTIC_IN_PROJ, f"{acoustic}input_proj.weight", dim, t.dim),
    ]
    for q in range(books):
        prefix = f"{semantic}layers.0.codebook." if q == 0 else f"{acoustic}layers.{q - 1}.codebook."
        plan.append(codebook(f"{keys.ENCODER_CODEBOOK}{q}.weight", prefix, "embed_sum", (size, dim)))
    return plan, tuple(f"{acoustic}layers.{i}." for i in range(books - 1, all_books - 1))


def speaker_part(config: Settings, *, dim: int) -> tuple[dict[str, Value], list[Planned]]:
    """The speaker encoder of a "base" checkpoint, whose tensors lie in the main file. dim: the talker's width, which
    its vectors must have. Problems are left in `config`."""
    channels = config.integers("enc_channels", 1, _MAX_DIM)
    kernels = config.integers("enc_kernel_sizes", 1, 1023)
    dilations = config.integers("enc_dilations", 1, 1023)
    if len(channels) < 3 or len({len(channels), len(kernels), len(dilations)}) != 1:
        config.note("enc_channels", "at least 3 values, as many as enc_kernel_sizes and enc_dilations", str(channels))
        return {}, []
    mel = config.integer("mel_dim", 1, 4096)
    if config.integer("enc_dim", 1, _MAX_DIM) != dim:
        config.note("enc_dim", f"{dim}, the talker's hidden_size", str(config.integer("enc_dim", 1, _MAX_DIM)))
    attention = config.integer("enc_attention_channels", 1, _MAX_DIM)
    squeeze = config.integer("enc_se_channels", 1, _MAX_DIM)
    scale = config.integer("enc_res2net_scale", 2, 1024)
    width, total = channels[0], channels[-1]
    if any(c != width for c in channels[:-1]):  # each block adds its input to its output
        config.note("enc_channels", f"{width} in all blocks", str(channels))
    if width % scale != 0:
        config.note("enc_res2net_scale", f"a divisor of the {width} channels", str(scale))
    metadata: dict[str, Value] = {
        keys.SPEAKER_SAMPLE_RATE: config.integer("sample_rate", 1000, 1_000_000),
        keys.SPEAKER_MEL_DIM: mel,
        keys.SPEAKER_DIM: dim,
        keys.SPEAKER_CHANNELS: channels,
        keys.SPEAKER_KERNEL_SIZES: kernels,
        keys.SPEAKER_DILATIONS: dilations,
        keys.SPEAKER_ATTENTION_CHANNELS: attention,
        keys.SPEAKER_SCALE: scale,
        keys.SPEAKER_SQUEEZE_CHANNELS: squeeze,
    }

    def same_name(name: str, out: int, columns: int, kernel: int = 1) -> list[Planned]:
        return conv(name, SPEAKER_PREFIX + name.removeprefix(keys.SPEAKER), (out, columns, kernel), out)

    group = width // scale
    plan = same_name(f"{keys.SPEAKER_BLOCK}0.{keys.SPEAKER_CONV}", width, mel, kernels[0])
    for b in range(1, len(channels) - 1):
        prefix = f"{keys.SPEAKER_BLOCK}{b}."
        plan += same_name(prefix + keys.SPEAKER_IN, width, width)
        for i in range(scale - 1):
            plan += same_name(f"{prefix}{keys.SPEAKER_GROUP}{i}.{keys.SPEAKER_CONV}", group, group, kernels[b])
        plan += same_name(prefix + keys.SPEAKER_MIX, width, width)
        plan += same_name(prefix + keys.SPEAKER_SQUEEZE, squeeze, width)
        plan += same_name(prefix + keys.SPEAKER_EXCITE, width, squeeze)
    plan += same_name(keys.SPEAKER_AGGREGATION, total, width * (len(channels) - 2), kernels[-1])
    plan += same_name(keys.SPEAKER_ATTENTION, attention, 3 * total)
    plan += same_name(keys.SPEAKER_ATTENTION_OUT, total, attention)
    plan += same_name(keys.SPEAKER_OUT, dim, 2 * total)
    return metadata, plan
