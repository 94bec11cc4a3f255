"""S2 checkpoints (config.json of model_type fish_qwen3_omni or dual_ar): what of them goes into a model file.

Owns the reading of config.json, the plan of Slow-AR and Fast-AR, and where the files of a checkpoint's folder are.
Leaves the codec to `s2_codec.py`, checking and writing to `plan.py` and `model_file.py`.

Both layouts hold the same model. In `dual_ar` the tensors have the names of the model file and the config is flat; in
`fish_qwen3_omni` the Slow-AR's are under `text_model.model.`, the Fast-AR's under `audio_decoder.`, and the config has
an object for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualar._native import _core
from dualar.convert.checkpoint import Checkpoint, TorchCheckpoint, open_checkpoint, read_json
from dualar.convert.gguf_writer import Value
from dualar.convert.model_file import ModelFile
from dualar.convert.plan import Part, Planned, Storage, same, vector
from dualar.convert.s2_codec import CodecSettings, codec_metadata, codec_plan
from dualar.convert.settings import Settings
from dualar.gguf import names
from dualar.text.tokenizer import FILE_NAME, Tokenizer

OMNI, DUAL_AR = "fish_qwen3_omni", "dual_ar"
CODEC_CONFIG = "codec_config"
"""An object of config.json with what the codec's tensors do not tell; published checkpoints have none."""

_BUFFERS = ("freqs_cis", "causal_mask")  # computed, not learnt; some checkpoints hold them
_WIDTH = 1 << 20


@dataclass(frozen=True, kw_only=True)
class _Stack:
    """A stack of transformer blocks. prefix: what the tensors outside its layers begin with."""

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
class _Config:
    slow: _Stack
    fast: _Stack
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
    semantic: tuple[int, int] | None  # first and last id; None where only the tokenizer tells


def model_file(folder: Path) -> ModelFile:
    """What the checkpoint in `folder` becomes. One ModelError for all that its config lacks."""
    values = read_json(folder / "config.json")
    config = Settings(values, source=str(folder / "config.json"))
    omni = config.text("model_type", (OMNI, DUAL_AR)) == OMNI
    found = _read_omni(config) if omni else _read_dual_ar(config)
    codec = _read_codec(config.inside(CODEC_CONFIG)) if CODEC_CONFIG in config else CodecSettings()
    config.require()
    tokenizer_json = _read_tokenizer(folder)
    metadata = _metadata(found, _semantic_ids(found, tokenizer_json, folder))
    language = _open(folder, "model", _renamed_omni if omni else _renamed_dual_ar)
    sound = _open(folder, "codec", _renamed_codec)
    metadata |= codec_metadata(sound, codec)
    metadata[names.TOKENIZER] = tokenizer_json
    return ModelFile(
        metadata, [Part(language, _plan(found), _is_buffer), Part(sound, codec_plan(sound, codec), _is_buffer)]
    )


# ------------------------------------------------------------------ config.json
def _read_omni(config: Settings) -> _Config:
    text, audio = config.inside("text_config"), config.inside("audio_decoder_config")
    begin, end = (config.integer(f"semantic_{part}_token_id", 0) for part in ("start", "end"))
    return _Config(
        slow=_stack("", text, "n_layer", ""),
        fast=_stack("fast_", audio, "n_layer", ""),
        vocab_size=text.integer("vocab_size"),
        context_length=text.integer("max_seq_len"),
        codebook_size=audio.integer("vocab_size"),
        num_codebooks=audio.integer("num_codebooks", 1, 1024),
        rope_base=text.real("rope_base", 1.0, 1e12),  # the Fast-AR is built with the Slow-AR's base and eps
        eps=text.real("norm_eps", 0.0, 1.0),
        tied=_flag(text, "tie_word_embeddings", True),
        scaled=True,
        normed=True,
        single_turn=False,
        piece_size=None,
        semantic=(begin, end),
    )


def _read_dual_ar(config: Settings) -> _Config:
    slow = _stack("", config, "n_layer", "")
    return _Config(
        slow=slow,
        fast=_stack("fast_", config, "n_fast_layer", "fast_", slow),
        vocab_size=config.integer("vocab_size"),
        context_length=config.integer("max_seq_len"),
        codebook_size=config.integer("codebook_size"),
        num_codebooks=config.integer("num_codebooks", 1, 1024),
        rope_base=config.real("rope_base", 1.0, 1e12),
        eps=config.real("norm_eps", 0.0, 1.0),
        tied=_flag(config, "tie_word_embeddings", True),
        scaled=_flag(config, "scale_codebook_embeddings", False),
        normed=_flag(config, "norm_fastlayer_input", False),
        single_turn=_flag(config, "single_turn", False),
        piece_size=None if config.is_null("piece_size") else config.integer("piece_size"),
        semantic=None,
    )


def _stack(prefix: str, config: Settings, layers: str, key: str, other: _Stack | None = None) -> _Stack:
    """key: what the settings' names begin with. other: whose values are taken where one is absent or null."""

    def integer(name: str, default: int | None, low: int = 1, high: int = _WIDTH) -> int:
        absent = default is not None and config.is_null(key + name)
        return default if absent and default is not None else config.integer(key + name, low, high)

    heads = integer("n_head", other.heads if other else None, 1, 65536)
    kv_heads = integer("n_local_heads", other.kv_heads if other else -1, -1, 65536)
    kv_heads = heads if kv_heads == -1 else kv_heads
    if kv_heads < 1 or heads % kv_heads != 0:
        config.note(f"{key}n_local_heads", f"-1 or a divisor of the {heads} heads", str(kv_heads))
        kv_heads = heads
    dim = integer("dim", other.dim if other else None)
    head_dim = integer("head_dim", other.head_dim if other else dim // heads, 2, 65536)
    if head_dim % 2 != 0:
        config.note(f"{key}head_dim", "an even number", str(head_dim))
    return _Stack(
        prefix=prefix,
        dim=dim,
        feed_forward=integer("intermediate_size", other.feed_forward if other else None),
        layers=config.integer(layers, 1, 1024),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        qk_norm=_flag(config, f"{key}attention_qk_norm", other.qk_norm if other else False),
        qkv_bias=_flag(config, f"{key}attention_qkv_bias", other.qkv_bias if other else False),
        o_bias=_flag(config, f"{key}attention_o_bias", other.o_bias if other else False),
    )


def _flag(config: Settings, key: str, default: bool) -> bool:
    return default if config.is_null(key) else config.boolean(key)


def _read_codec(config: Settings) -> CodecSettings:
    return CodecSettings(
        sample_rate=config.integer("sample_rate", 1000, 1000000),
        head_dim=config.integer("head_dim", 2, 65536),
        encoder_head_dim=config.integer("encoder_head_dim", 2, 65536),
        window=config.integer("window_size", 1, 16384),
        rope_base=config.real("rope_base", 1.0, 1e12),
        eps=config.real("norm_eps", 0.0, 1.0),
    )


# ------------------------------------------------------------------ the tokenizer
def _read_tokenizer(folder: Path) -> str:
    try:
        return (folder / FILE_NAME).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _core.ModelError(f"[tokenizer] expected a readable {FILE_NAME} in {folder}, got {error}") from error


def _semantic_ids(config: _Config, tokenizer_json: str, folder: Path) -> tuple[int, int]:
    tokenizer = Tokenizer(tokenizer_json, source=str(folder / FILE_NAME))
    begin, end = config.semantic or (tokenizer.semantic_begin_id, tokenizer.semantic_end_id)
    if begin is None or end is None:
        raise _core.ModelError(f"[tokenizer] {folder / FILE_NAME}: expected <|semantic:0|> and on, got none")
    if end - begin + 1 != config.codebook_size:
        raise _core.ModelError(
            f"[tokenizer] {folder}: expected {config.codebook_size} semantic ids, the codebook's size, got "
            f"{end - begin + 1} ({begin} to {end})"
        )
    tokenizer.check_model(vocab_size=config.vocab_size, semantic_begin_id=begin, semantic_end_id=end)
    return begin, end


# ------------------------------------------------------------------ the model file
def _metadata(c: _Config, semantic: tuple[int, int]) -> dict[str, Value]:
    slow, fast = c.slow, c.fast
    return {
        names.ARCHITECTURE_KEY: names.ARCHITECTURE,
        names.CONTEXT_LENGTH: c.context_length,
        names.VOCAB_SIZE: c.vocab_size,
        names.EMBEDDING_LENGTH: slow.dim,
        names.FEED_FORWARD_LENGTH: slow.feed_forward,
        names.BLOCK_COUNT: slow.layers,
        names.HEAD_COUNT: slow.heads,
        names.HEAD_COUNT_KV: slow.kv_heads,
        names.KEY_LENGTH: slow.head_dim,
        names.ROPE_FREQ_BASE: c.rope_base,
        names.RMS_EPSILON: c.eps,
        names.CODEBOOK_SIZE: c.codebook_size,
        names.NUM_CODEBOOKS: c.num_codebooks,
        names.SEMANTIC_BEGIN_ID: semantic[0],
        names.SEMANTIC_END_ID: semantic[1],
        names.SCALE_CODEBOOK_EMBEDDINGS: c.scaled,
        names.NORM_FASTLAYER_INPUT: c.normed,
        names.TIE_WORD_EMBEDDINGS: c.tied,
        names.QK_NORM: slow.qk_norm,
        names.QKV_BIAS: slow.qkv_bias,
        names.O_BIAS: slow.o_bias,
        **({names.SINGLE_TURN: True} if c.single_turn else {}),
        **({} if c.piece_size is None else {names.PIECE_SIZE: c.piece_size}),
        names.FAST_CONTEXT_LENGTH: c.num_codebooks + 1,
        names.FAST_EMBEDDING_LENGTH: fast.dim,
        names.FAST_FEED_FORWARD_LENGTH: fast.feed_forward,
        names.FAST_BLOCK_COUNT: fast.layers,
        names.FAST_HEAD_COUNT: fast.heads,
        names.FAST_HEAD_COUNT_KV: fast.kv_heads,
        names.FAST_HEAD_DIM: fast.head_dim,
        names.FAST_ROPE_FREQ_BASE: c.rope_base,
        names.FAST_RMS_EPSILON: c.eps,
        names.FAST_QK_NORM: fast.qk_norm,
        names.FAST_QKV_BIAS: fast.qkv_bias,
        names.FAST_O_BIAS: fast.o_bias,
        names.FAST_PROJECT_IN: fast.dim != slow.dim,
    }


def _plan(c: _Config) -> list[Planned]:
    slow, fast = c.slow, c.fast
    plan = [
        _as_it_is(names.EMBEDDINGS, (c.vocab_size, slow.dim), Storage.TABLE),
        _as_it_is(names.CODEBOOK_EMBEDDINGS, (c.num_codebooks * c.codebook_size, slow.dim), Storage.TABLE),
        *_blocks(slow),
        vector(names.NORM, names.NORM, slow.dim),
    ]
    if not c.tied:
        plan.append(_as_it_is(names.OUTPUT, (c.vocab_size, slow.dim), Storage.MATRIX))
    if fast.dim != slow.dim:
        plan.append(_as_it_is(names.FAST_PROJECT_IN_WEIGHT, (fast.dim, slow.dim), Storage.MATRIX))
        plan.append(vector(names.FAST_PROJECT_IN_BIAS, names.FAST_PROJECT_IN_BIAS, fast.dim))
    return [
        *plan,
        _as_it_is(names.FAST_EMBEDDINGS, (c.codebook_size, fast.dim), Storage.TABLE),
        *_blocks(fast),
        vector(names.FAST_NORM, names.FAST_NORM, fast.dim),
        _as_it_is(names.FAST_OUTPUT, (c.codebook_size, fast.dim), Storage.MATRIX),
    ]


def _blocks(s: _Stack) -> list[Planned]:
    q, qkv = s.heads * s.head_dim, (s.heads + 2 * s.kv_heads) * s.head_dim
    plan = []
    for i in range(s.layers):
        at = f"{s.prefix}{names.LAYER}{i}."
        plan += [
            vector(at + names.ATTENTION_NORM, at + names.ATTENTION_NORM, s.dim),
            _as_it_is(f"{at}{names.WQKV}.weight", (qkv, s.dim), Storage.MATRIX),
            _as_it_is(f"{at}{names.WO}.weight", (s.dim, q), Storage.MATRIX),
            vector(at + names.FFN_NORM, at + names.FFN_NORM, s.dim),
            _as_it_is(at + names.W1, (s.feed_forward, s.dim), Storage.MATRIX),
            _as_it_is(at + names.W2, (s.dim, s.feed_forward), Storage.MATRIX),
            _as_it_is(at + names.W3, (s.feed_forward, s.dim), Storage.MATRIX),
        ]
        for there, part, size in (
            (s.qk_norm, names.Q_NORM, s.head_dim),
            (s.qk_norm, names.K_NORM, s.head_dim),
            (s.qkv_bias, f"{names.WQKV}.bias", qkv),
            (s.o_bias, f"{names.WO}.bias", s.dim),
        ):
            if there:
                plan.append(vector(at + part, at + part, size))
    return plan


def _as_it_is(name: str, shape: tuple[int, ...], storage: Storage) -> Planned:
    return same(name, name, shape, storage)


# ------------------------------------------------------------------ the folder's files
class _Renamed:
    """A checkpoint whose tensors are known by other names."""

    def __init__(self, checkpoint: Checkpoint, rename: Callable[[str], str]) -> None:
        self.source = checkpoint.source
        self._checkpoint = checkpoint
        self._names = {rename(name): name for name in checkpoint.shapes}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = self._checkpoint.shapes
        return {name: shapes[original] for name, original in self._names.items()}

    def read(self, name: str) -> Any:
        return self._checkpoint.read(self._names[name])


def _open(folder: Path, stem: str, rename: Callable[[str], str]) -> Checkpoint:
    """`stem`.safetensors, in one file or several, else `stem`.pth."""
    single, index = f"{stem}.safetensors", f"{stem}.safetensors.index.json"
    if (folder / single).is_file() or (folder / index).is_file():
        return _Renamed(open_checkpoint(folder, single=single, index=index), rename)
    if (folder / f"{stem}.pth").is_file():
        return _Renamed(TorchCheckpoint(folder / f"{stem}.pth", pick=_state_dict), rename)
    raise _core.ModelError(f"[checkpoint] expected {single}, {index} or {stem}.pth in {folder}, found none of them")


def _state_dict(loaded: Any) -> Any:
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        return dict(loaded["state_dict"])
    return loaded


def _renamed_dual_ar(name: str) -> str:
    return name.removeprefix("model.")


def _renamed_omni(name: str) -> str:
    if name.startswith("audio_decoder."):
        rest = name.removeprefix("audio_decoder.")
        return rest if rest.startswith("codebook_embeddings.") else f"fast_{rest}"
    return name.removeprefix("text_model.model.")


def _renamed_codec(name: str) -> str:
    return name.removeprefix("generator.")


def _is_buffer(name: str) -> bool:
    return name.rsplit(".", 1)[-1] in _BUFFERS
