"""CSM's codec, Mimi: which keys and tensors of it go into a model file.

Owns the reading of its config and the plan of its tensors, in the names of transformers. What can be computed once is
stored computed: a codebook's row is embed_sum / max(cluster_usage, 1e-5). Its decoder and encoder share the codebooks.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from dualar.convert.gguf_writer import Value
from dualar.convert.plan import Planned, Storage, same
from dualar.convert.qwen3_layers import codebook, conv, plain_blocks, squeezed, transformer, transformer_keys
from dualar.convert.settings import Settings
from dualar.gguf import csm_names as keys
from dualar.gguf import names

PREFIX = "codec_model."

_MAX_DIM = 1 << 20
_MAX_RATE = 4096
_FRAMES_A_SECOND = 12.5
_NOT_NEEDED = re.compile(r"codec_model\.quantizer\.\w+\.layers\.\d+\.codebook\.initialized")
_ONLY = {
    "attention_bias": False,
    "audio_channels": 1,
    "compress": 2,
    "hidden_act": "gelu",
    "kernel_size": 7,
    "last_kernel_size": 3,
    "model_type": "mimi",
    "normalize": False,
    "num_residual_layers": 1,
    "num_semantic_quantizers": 1,
    "pad_mode": "constant",
    "residual_kernel_size": 3,
    "trim_right_ratio": 1.0,
    "use_causal_conv": True,
    "use_conv_shortcut": False,
}


def codec_plan(config: Settings, *, codebooks: int) -> tuple[dict[str, Value], list[Planned], Callable[[str], bool]]:
    """Keys, tensors, and which others of the checkpoint may be there. Problems stay in `config`."""
    for key, value in _ONLY.items():
        config.only(key, value)
    rate = config.integer("sampling_rate", 1000, 1_000_000)
    rates = config.integers("upsampling_ratios", 1, _MAX_RATE)
    product = int(np.prod(rates, dtype=object))
    frame = "frame_rate" if "frame_rate" in config else "_frame_rate"
    frames = config.real(frame, 0.1, 1000.0, default=_FRAMES_A_SECOND)
    if round(rate / frames) % product != 0:
        config.note("upsampling_ratios", f"a product that divides the {rate / frames:g} samples of a frame", str(rates))
    ratio = max(round(rate / frames) // product, 1)
    t = transformer(config)
    filters = config.integer("num_filters", 2, _MAX_DIM)
    row, size = config.integer("codebook_dim", 1, _MAX_DIM), config.integer("codebook_size", 2, _MAX_DIM)
    if config.integer("num_quantizers", 1, 1024) < codebooks:
        config.note("num_quantizers", f"at least {codebooks}", str(config.integer("num_quantizers", 1, 1024)))
    stack = transformer_keys("", t, config, "norm_eps")
    stack[names.WINDOW_SIZE] = config.integer("sliding_window", 1, 1 << 14)
    channels = filters << len(rates)
    metadata: dict[str, Value] = {
        keys.SAMPLE_RATE: rate,
        keys.CODEBOOK_DIM: row,
        keys.LATENT_DIM: t.dim,
        keys.DECODER_DIM: channels,
        keys.UPSAMPLING_RATIO: ratio,
        keys.DECODER_RATES: rates,
        keys.ENCODER_FILTERS: filters,
        keys.ENCODER_RATES: rates[::-1],
        **{keys.TRANSFORMER + name: value for name, value in stack.items()},
        **{keys.ENCODER_TRANSFORMER + name: value for name, value in stack.items()},
    }
    of = f"{PREFIX}quantizer."
    semantic, acoustic = (f"{of}{kind}_residual_vector_quantizer." for kind in ("semantic", "acoustic"))
    plan = [
        codebook(
            f"{keys.CODEBOOK}{q}.weight",
            f"{semantic}layers.0.codebook." if q == 0 else f"{acoustic}layers.{q - 1}.codebook.",
            "embed_sum",
            (size, row),
        )
        for q in range(codebooks)
    ]
    plan += [
        squeezed(keys.SEMANTIC_OUT_PROJ, f"{semantic}output_proj.weight", t.dim, row),
        squeezed(keys.ACOUSTIC_OUT_PROJ, f"{acoustic}output_proj.weight", t.dim, row),
        squeezed(keys.SEMANTIC_IN_PROJ, f"{semantic}input_proj.weight", row, t.dim),
        squeezed(keys.ACOUSTIC_IN_PROJ, f"{acoustic}input_proj.weight", row, t.dim),
        same(f"{keys.UPSAMPLE}.weight", f"{PREFIX}upsample.conv.weight", (t.dim, 1, 2 * ratio), Storage.CODEC),
        same(f"{keys.DOWNSAMPLE}.weight", f"{PREFIX}downsample.conv.weight", (t.dim, t.dim, 2 * ratio), Storage.CODEC),
        *plain_blocks(keys.TRANSFORMER_BLOCKS, f"{PREFIX}decoder_transformer.", t),
        *plain_blocks(keys.ENCODER_TRANSFORMER_BLOCKS, f"{PREFIX}encoder_transformer.", t),
        *_decoder(channels, t.dim, rates),
        *_encoder(filters, t.dim, rates[::-1]),
    ]

    books = config.integer("num_quantizers", 1, 1024)
    unused = tuple(f"{acoustic}layers.{i}." for i in range(codebooks - 1, books - 1))
    return metadata, plan, lambda name: _NOT_NEEDED.fullmatch(name) is not None or name.startswith(unused)


# Both published lists of layers count activations: they stand before each strided convolution and before the last one.
def _decoder(channels: int, latent: int, rates: list[int]) -> list[Planned]:
    to, of, index = keys.DECODER, f"{PREFIX}decoder.layers.", 0
    plan = conv(f"{to}0.conv", f"{of}0.conv", (channels, latent, 7), channels)
    for rate in rates:
        index += 2
        half = channels // 2
        plan += conv(f"{to}{index}.conv", f"{of}{index}.conv", (channels, half, 2 * rate), half)
        channels, index = half, index + 1
        plan += _unit(f"{to}{index}.", f"{of}{index}.", channels)
    return plan + conv(f"{to}{index + 2}.conv", f"{of}{index + 2}.conv", (1, channels, 3), 1)


def _encoder(channels: int, latent: int, rates: list[int]) -> list[Planned]:
    to, of, index = keys.ENCODER, f"{PREFIX}encoder.layers.", 0
    plan = conv(f"{to}0.conv", f"{of}0.conv", (channels, 1, 7), channels)
    for rate in rates:
        plan += _unit(f"{to}{index + 1}.", f"{of}{index + 1}.", channels)
        index += 3
        plan += conv(f"{to}{index}.conv", f"{of}{index}.conv", (2 * channels, channels, 2 * rate), 2 * channels)
        channels *= 2
    return plan + conv(f"{to}{index + 2}.conv", f"{of}{index + 2}.conv", (latent, channels, 3), latent)


def _unit(to: str, of: str, channels: int) -> list[Planned]:
    half = channels // 2
    return [
        *conv(f"{to}block.1.conv", f"{of}block.1.conv", (half, channels, 3), half),
        *conv(f"{to}block.3.conv", f"{of}block.3.conv", (channels, half, 1), channels),
    ]
