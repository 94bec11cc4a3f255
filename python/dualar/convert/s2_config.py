"""The config.json of an S2 or S1 checkpoint (model_type fish_qwen3_omni or dual_ar): the sizes of both transformers.

Owns reading it, and the published code's defaults for absent keys. Leaves the tensors to `s2.py`.

In `dual_ar` the config is flat, the Fast-AR's keys begin with `fast_`, and each key has a default. In `fish_qwen3_omni`
there is an object for each transformer, whose sizes must be there. Settings that the Fast-AR lacks are those of the
Slow-AR, whose rope base and epsilon it always has.
"""

from __future__ import annotations

from dataclasses import dataclass

from dualar.convert.s2_codec import CodecSettings
from dualar.convert.settings import Settings
from dualar.text.frontend import FRONTENDS

OMNI, DUAL_AR = "fish_qwen3_omni", "dual_ar"
CODEC_CONFIG = "codec_config"
"""An object of config.json with what the codec's tensors do not tell; published checkpoints have none."""

_WIDTH, _HEADS, _LAYERS, _CODEBOOKS = 1 << 20, 1 << 16, 1024, 1024  # the most of each
_HEAD_DIM = 64


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A stack of transformer blocks. prefix: the beginning of the names of tensors outside its layers."""

    prefix: str
    dim: int
    feed_forward: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    qk_norm: bool
    qkv_bias: bool
    o_bias: bool


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole config. semantic: first and last id of the semantic tokens, None where only the tokenizer has them."""

    omni: bool
    slow: Stack
    fast: Stack
    vocab_size: int
    context_length: int
    codebook_size: int
    num_codebooks: int
    rope_base: float
    eps: float
    tied: bool
    scaled: bool
    normed: bool
    single_turn: bool
    piece_size: int | None
    text_frontend: str | None
    temperature: float | None
    residual_temperature: float | None
    ras_window: int | None
    alignment_heads: list[int]
    silent_codes: list[int]
    semantic: tuple[int | None, int | None]
    codec: CodecSettings


def read_config(config: Settings) -> Config:
    """The whole config; one ModelError for all that is wrong with it."""
    found = _read_omni(config) if config.text("model_type", (OMNI, DUAL_AR)) == OMNI else _read_dual_ar(config)
    config.require()
    return found


def _read_omni(config: Settings) -> Config:
    text, audio = config.inside("text_config"), config.inside("audio_decoder_config")
    slow = _slow(text)
    return Config(
        omni=True,
        slow=slow,
        fast=_fast(audio, slow, audio.integer("n_layer", 1, _LAYERS), key=""),
        vocab_size=text.integer("vocab_size"),
        context_length=_context_length(text),
        codebook_size=audio.integer("vocab_size"),
        num_codebooks=audio.integer("num_codebooks", 1, _CODEBOOKS),
        rope_base=_rope_base(text),
        eps=_eps(text),
        tied=_tied(text),
        scaled=True,
        normed=True,
        single_turn=False,
        piece_size=None,
        text_frontend=None,
        temperature=None,
        residual_temperature=None,
        ras_window=None,
        alignment_heads=[],
        silent_codes=[],
        semantic=(_id(config, "semantic_start_token_id"), _id(config, "semantic_end_token_id")),
        codec=_codec(config),
    )


def _read_dual_ar(config: Settings) -> Config:
    slow = _slow(config, layers=32, heads=32, dim=4096)
    return Config(
        omni=False,
        slow=slow,
        fast=_fast(config, slow, config.integer("n_fast_layer", 1, _LAYERS, default=4), key="fast_"),
        vocab_size=config.integer("vocab_size", default=32000),
        context_length=_context_length(config),
        codebook_size=config.integer("codebook_size", default=160),
        num_codebooks=config.integer("num_codebooks", 1, _CODEBOOKS, default=4),
        rope_base=_rope_base(config),
        eps=_eps(config),
        tied=_tied(config),
        scaled=config.boolean("scale_codebook_embeddings", default=False),
        normed=config.boolean("norm_fastlayer_input", default=False),
        single_turn=config.boolean("single_turn", default=False),
        piece_size=None if config.is_null("piece_size") else config.integer("piece_size"),
        text_frontend=None if config.is_null("text_frontend") else config.text("text_frontend", tuple(FRONTENDS)),
        temperature=_temperature(config, "temperature"),
        residual_temperature=_temperature(config, "residual_temperature"),
        ras_window=None if config.is_null("ras_window") else config.integer("ras_window", 0),
        alignment_heads=[] if config.is_null("alignment_heads") else config.integers("alignment_heads", 0),
        silent_codes=[] if config.is_null("silent_codes") else config.integers("silent_codes", 0),
        semantic=(None, None),
        codec=_codec(config),
    )


def _id(config: Settings, key: str) -> int | None:
    return None if config.is_null(key) else config.integer(key, 0)


def _temperature(config: Settings, key: str) -> float | None:
    return None if config.is_null(key) else config.real(key, 0.0, 100.0)


def _context_length(config: Settings) -> int:
    return config.integer("max_seq_len", default=2048)


def _rope_base(config: Settings) -> float:
    return config.real("rope_base", 1.0, 1e12, default=10000.0)


def _eps(config: Settings) -> float:
    return config.real("norm_eps", 0.0, 1.0, default=1e-5)


def _tied(config: Settings) -> bool:
    return config.boolean("tie_word_embeddings", default=True)


def _slow(config: Settings, *, layers: int | None = None, heads: int | None = None, dim: int | None = None) -> Stack:
    """layers, heads, dim: what a flat config may leave out."""
    heads = config.integer("n_head", 1, _HEADS, default=heads)
    flat, dim = dim is not None, config.integer("dim", 1, _WIDTH, default=dim)
    said_null = flat and "head_dim" in config and config.is_null("head_dim")  # null there differs from an absent key
    return Stack(
        prefix="",
        dim=dim,
        feed_forward=config.integer("intermediate_size", 1, _WIDTH, default=_feed_forward(dim)),
        layers=config.integer("n_layer", 1, _LAYERS, default=layers),
        heads=heads,
        kv_heads=_kv_heads(config, "n_local_heads", heads, default=heads),
        head_dim=_head_dim(config, "head_dim", default=dim // heads if said_null else _HEAD_DIM),
        qk_norm=config.boolean("attention_qk_norm", default=False),
        qkv_bias=config.boolean("attention_qkv_bias", default=False),
        o_bias=config.boolean("attention_o_bias", default=False),
    )


def _fast(config: Settings, slow: Stack, layers: int, *, key: str) -> Stack:
    """key: the beginning of the settings' names."""
    heads = config.integer(f"{key}n_head", 1, _HEADS, default=slow.heads)
    return Stack(
        prefix="fast_",
        dim=config.integer(f"{key}dim", 1, _WIDTH, default=slow.dim),
        feed_forward=config.integer(f"{key}intermediate_size", 1, _WIDTH, default=slow.feed_forward),
        layers=layers,
        heads=heads,
        kv_heads=_kv_heads(config, f"{key}n_local_heads", heads, default=slow.kv_heads),
        head_dim=_head_dim(config, f"{key}head_dim", default=slow.head_dim),
        qk_norm=config.boolean(f"{key}attention_qk_norm", default=slow.qk_norm),
        qkv_bias=config.boolean(f"{key}attention_qkv_bias", default=slow.qkv_bias),
        o_bias=config.boolean(f"{key}attention_o_bias", default=slow.o_bias),
    )


def _feed_forward(dim: int) -> int:
    """Two thirds of four times the width, the next multiple of 256."""
    return -(-(2 * 4 * dim // 3) // 256) * 256


def _kv_heads(config: Settings, key: str, heads: int, *, default: int) -> int:
    found = config.integer(key, -1, _HEADS, default=default)
    found = heads if found == -1 else found
    if found < 1 or heads % found != 0:
        config.note(key, f"-1 or a divisor of the {heads} heads", str(found))
        return heads
    return found


def _head_dim(config: Settings, key: str, *, default: int) -> int:
    found = config.integer(key, 2, _HEADS, default=default)
    if found < 2 or found % 2 != 0:
        config.note(key, "an even number", str(found))
    return found


def _codec(config: Settings) -> CodecSettings:
    if CODEC_CONFIG not in config:
        return CodecSettings()
    inside = config.inside(CODEC_CONFIG)
    return CodecSettings(
        sample_rate=inside.integer("sample_rate", 1000, 1000000),
        head_dim=inside.integer("head_dim", 2, 65536),
        encoder_head_dim=inside.integer("encoder_head_dim", 2, 65536),
        window=inside.integer("window_size", 1, 16384),
        rope_base=inside.real("rope_base", 1.0, 1e12),
        eps=inside.real("norm_eps", 0.0, 1.0),
    )
