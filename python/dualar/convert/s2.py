"""S2 and S1 checkpoints: which keys and tensors of a folder go into a model file.

Owns the model file's keys, the plan of Slow-AR and Fast-AR, and the choice of the tokenizer's files. Leaves config.json
to `s2_config.py`, the files of tensors and their names to `s2_tensors.py`, the codec to `s2_codec.py`, checking and
writing to `plan.py` and `model_file.py`.
"""

from __future__ import annotations

from pathlib import Path

from dualar._native import _core
from dualar.convert.checkpoint import Checkpoint
from dualar.convert.gguf_writer import Value
from dualar.convert.model_file import ModelFile
from dualar.convert.plan import Part, Planned, Storage, same, stacked, vector
from dualar.convert.published import read_json, read_text
from dualar.convert.s2_codec import codec_metadata, codec_plan
from dualar.convert.s2_config import Config, Stack, read_config
from dualar.convert.s2_tensors import codec_ignored, codec_tensors, language_ignored, language_tensors
from dualar.convert.settings import Settings
from dualar.convert.tiktoken_files import SPECIAL, TIKTOKEN, tiktoken_json
from dualar.gguf import names
from dualar.text.tokenizer import CHAT, FILE_NAME, Tokenizer


def model_file(folder: Path) -> ModelFile:
    """The model file of the checkpoint in `folder`. One ModelError for all that is wrong with its config."""
    source = folder / "config.json"
    config = read_config(Settings(read_json(source), source=str(source)))
    tokenizer_json = _read_tokenizer(folder, config)
    tokenizer = Tokenizer(tokenizer_json, source=f"{folder}, its tokenizer")
    metadata = _metadata(config, _semantic_ids(config, tokenizer))
    metadata[names.PROMPT] = CHAT if config.omni else tokenizer.prompt_kind
    language, sound = language_tensors(folder), codec_tensors(folder)
    metadata |= codec_metadata(sound, config.codec)
    metadata[names.TOKENIZER] = tokenizer_json
    return ModelFile(
        metadata,
        [
            Part(language, _plan(config, language), language_ignored(tied=config.tied), language.left_out),
            Part(sound, codec_plan(sound, config.codec), codec_ignored, sound.left_out),
        ],
    )


# ------------------------------------------------------------------ the tokenizer
def _read_tokenizer(folder: Path, config: Config) -> str:
    if (folder / FILE_NAME).exists():
        return read_text(folder / FILE_NAME)
    if (folder / TIKTOKEN).exists():
        return tiktoken_json(folder, vocab_size=config.vocab_size)
    raise _core.ModelError(f"[tokenizer] expected {FILE_NAME}, or {TIKTOKEN} and {SPECIAL}, in {folder}, found neither")


def _semantic_ids(config: Config, tokenizer: Tokenizer) -> tuple[int, int]:
    begin, end = config.semantic
    begin = tokenizer.semantic_begin_id if begin is None else begin
    end = tokenizer.semantic_end_id if end is None else end
    if begin is None or end is None:
        raise _core.ModelError(f"[tokenizer] {tokenizer.source}: expected <|semantic:0|> and on, got none")
    if end - begin + 1 != config.codebook_size:
        raise _core.ModelError(
            f"[tokenizer] {tokenizer.source}: expected {config.codebook_size} semantic ids, the codebook's size, got "
            f"{end - begin + 1} ({begin} to {end})"
        )
    tokenizer.check_model(vocab_size=config.vocab_size, semantic_begin_id=begin, semantic_end_id=end)
    return begin, end


# ------------------------------------------------------------------ the model file
def _metadata(c: Config, semantic: tuple[int, int]) -> dict[str, Value]:
    slow, fast = c.slow, c.fast
    optional = {
        names.SINGLE_TURN: c.single_turn or None,
        names.PIECE_SIZE: c.piece_size,
        names.ALIGNMENT_HEADS: c.alignment_heads or None,
        names.SILENT_CODES: c.silent_codes or None,
        names.TEXT_FRONTEND: c.text_frontend,
        names.TEMPERATURE: c.temperature,
        names.RESIDUAL_TEMPERATURE: c.residual_temperature,
        names.RAS_WINDOW: c.ras_window,
    }
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
        **{key: value for key, value in optional.items() if value is not None},
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


def _plan(c: Config, checkpoint: Checkpoint) -> list[Planned]:
    slow, fast = c.slow, c.fast
    plan = [
        _as_it_is(names.EMBEDDINGS, (c.vocab_size, slow.dim), Storage.TABLE),
        _as_it_is(names.CODEBOOK_EMBEDDINGS, (c.num_codebooks * c.codebook_size, slow.dim), Storage.TABLE),
        *_blocks(slow, checkpoint),
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
        *_blocks(fast, checkpoint),
        vector(names.FAST_NORM, names.FAST_NORM, fast.dim),
        _as_it_is(names.FAST_OUTPUT, (c.codebook_size, fast.dim), Storage.MATRIX),
    ]


def _blocks(s: Stack, checkpoint: Checkpoint) -> list[Planned]:
    q, qkv = s.heads * s.head_dim, (s.heads + 2 * s.kv_heads) * s.head_dim
    plan = []
    for i in range(s.layers):
        at = f"{s.prefix}{names.LAYER}{i}."
        plan += [
            vector(at + names.ATTENTION_NORM, at + names.ATTENTION_NORM, s.dim),
            _wqkv(at, s, checkpoint),
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


def _wqkv(at: str, s: Stack, checkpoint: Checkpoint) -> Planned:
    """The projections of a layer's attention, which older checkpoints hold as three tensors."""
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    apart = [(f"{at}attention.w{part}.weight", rows) for part, rows in (("q", q), ("k", kv), ("v", kv))]
    if any(name in checkpoint.tensors for name, _ in apart):
        return stacked(f"{at}{names.WQKV}.weight", apart, s.dim, Storage.MATRIX)
    return _as_it_is(f"{at}{names.WQKV}.weight", (q + 2 * kv, s.dim), Storage.MATRIX)


def _as_it_is(name: str, shape: tuple[int, ...], storage: Storage) -> Planned:
    return same(name, name, shape, storage)
