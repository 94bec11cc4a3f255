"""CSM checkpoints: which keys and tensors of backbone, depth decoder and tokenizer go into a model file.

Owns the reading of config.json in either spelling, the plan of those parts, and the two layouts: that of transformers,
and the original one, which has other names and keeps each head's rotated pairs side by side. Leaves the codec to
`csm_codec.py`, checking and writing to `plan.py` and `model_file.py`.

Rows for ids that the codec has no codeword for (the last three of 2051) are left out: such a code could not become
sound, so that with these rows gone nothing can draw one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dualar.convert.checkpoint import INDEX, ITEM_BYTES, SINGLE, Renamed, Stored, open_checkpoint
from dualar.convert.csm_codec import codec_plan
from dualar.convert.gguf_writer import Value
from dualar.convert.model_file import ModelFile
from dualar.convert.plan import Part, Planned, Source, Storage, same, vector
from dualar.convert.published import read_json, read_text
from dualar.convert.settings import Settings
from dualar.gguf import csm_names as keys
from dualar.gguf import names

_MAX_DIM = 1 << 20
_TRANSFORMERS_INDEX = "transformers.safetensors.index.json"
_TABLE = "backbone_model.embed_tokens.embed_audio_tokens.weight"
_DEPTH_TABLE = "depth_decoder.model.embed_tokens.weight"
_ORIGINAL = {
    "text_embeddings.weight": "embed_text_tokens.weight",
    "audio_embeddings.weight": _TABLE,
    "codebook0_head.weight": "lm_head.weight",
    "audio_head": "depth_decoder.codebooks_head.weight",
    "projection.weight": "depth_decoder.model.inputs_embeds_projector.weight",
}
_ORIGINAL_PARTS = {
    "attn.q_proj": "self_attn.q_proj",
    "attn.k_proj": "self_attn.k_proj",
    "attn.v_proj": "self_attn.v_proj",
    "attn.output_proj": "self_attn.o_proj",
    "mlp.w1": "mlp.gate_proj",
    "mlp.w2": "mlp.down_proj",
    "mlp.w3": "mlp.up_proj",
    "sa_norm.scale": "input_layernorm.weight",
    "mlp_norm.scale": "post_attention_layernorm.weight",
    "norm.scale": "norm.weight",
}


@dataclass(frozen=True)
class _Stack:
    """Sizes of a stack of Llama blocks, and the four numbers of its rope scaling, where it has any."""

    dim: int
    feed_forward: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_base: float
    eps: float
    scaling: dict[str, float]


def model_file(folder: Path) -> ModelFile:
    """The model file of the checkpoint in `folder`. One ModelError for all that its config lacks."""
    config = Settings(read_json(folder / "config.json"), source=str(folder / "config.json"))
    index = _TRANSFORMERS_INDEX if (folder / _TRANSFORMERS_INDEX).is_file() else INDEX
    checkpoint = open_checkpoint(folder, single=SINGLE, index=index)
    original = "text_embeddings.weight" in checkpoint.tensors
    if original:
        checkpoint = Renamed(checkpoint, _published_name)
    metadata, plan = describe(config, checkpoint.tensors, pairs_apart=not original)
    codec_ignores: Callable[[str], bool] = lambda name: False  # noqa: E731
    if not original:  # the original files have no codec inside
        codec_metadata, codec, codec_ignores = codec_plan(
            config.inside("codec_config"),
            codebooks=config.integer("num_codebooks", 2, 1024),
        )
        metadata |= codec_metadata
        plan += codec
    config.require()
    metadata |= _sampling(folder)
    tokenizer = folder / "tokenizer.json"
    metadata[names.TOKENIZER] = read_text(tokenizer)
    return ModelFile(metadata, [Part(checkpoint, plan, lambda name: name == _DEPTH_TABLE or codec_ignores(name))])


def describe(config: Settings, stored: Collection[str], *, pairs_apart: bool) -> tuple[dict[str, Value], list[Planned]]:
    """Keys and tensors of backbone and depth decoder; problems stay in `config`. stored: names of the checkpoint's
    tensors, which tell under which name the table of codes is. pairs_apart: whether the two values that rope turns
    together stand half a head apart, as here, or side by side."""
    config.only("tie_word_embeddings", False)
    depth_config = config.inside("depth_decoder_config")
    backbone, depth = _stack(config), _stack(depth_config)
    text_vocab = config.integer("text_vocab_size")
    vocab, books = config.integer("vocab_size"), config.integer("num_codebooks", 2, 1024)
    codes = config.inside("codec_config").integer("codebook_size", 2, vocab)
    for key, value in (("num_codebooks", books), ("vocab_size", vocab), ("backbone_hidden_size", backbone.dim)):
        if depth_config.integer(key) != value:
            depth_config.note(key, f"{value}, as the backbone has", str(depth_config.integer(key)))
    metadata: dict[str, Value] = {
        names.ARCHITECTURE_KEY: keys.ARCHITECTURE,
        keys.CONTEXT_LENGTH: config.integer("max_position_embeddings"),
        keys.TEXT_VOCAB_SIZE: text_vocab,
        keys.NUM_CODEBOOKS: books,
        keys.CODEBOOK_SIZE: codes,
        **_sizes(backbone, depth),
    }

    def table(target: str, name: str) -> Planned:
        whole = (books * vocab, backbone.dim)
        cuts = tuple(Source(name, whole, _rows_of(book * vocab, codes)) for book in range(books))
        return Planned(target, cuts, (books * codes, backbone.dim), Storage.TABLE, stacked=True)

    heads = tuple(
        Source("depth_decoder.codebooks_head.weight", (books - 1, depth.dim, vocab), _turned(book, codes))
        for book in range(books - 1)
    )
    # One table for both stacks is stored under either name, or under both, of which one is then left out.
    apart = not config.boolean("tie_codebooks_embeddings", default=True)
    plan = [
        same(keys.TEXT_EMBEDDINGS, "embed_text_tokens.weight", (text_vocab, backbone.dim), Storage.TABLE),
        table(keys.CODE_EMBEDDINGS, _TABLE if apart or _TABLE in stored else _DEPTH_TABLE),
        *([table(keys.DEPTH_CODE_EMBEDDINGS, _DEPTH_TABLE)] if apart else []),
        *_blocks(keys.LAYER, "backbone_model.layers.", backbone, pairs_apart=pairs_apart),
        vector(keys.NORM, "backbone_model.norm.weight", backbone.dim),
        Planned(
            keys.OUTPUT,
            (Source("lm_head.weight", (vocab, backbone.dim), _rows_of(0, codes)),),
            (codes, backbone.dim),
            Storage.MATRIX,
        ),
        same(
            keys.DEPTH_PROJECT_IN,
            "depth_decoder.model.inputs_embeds_projector.weight",
            (depth.dim, backbone.dim),
            Storage.MATRIX,
        ),
        *_blocks(keys.DEPTH_LAYER, "depth_decoder.model.layers.", depth, pairs_apart=pairs_apart),
        vector(keys.DEPTH_NORM, "depth_decoder.model.norm.weight", depth.dim),
        Planned(keys.DEPTH_OUTPUT, heads, ((books - 1) * codes, depth.dim), Storage.MATRIX, stacked=True),
    ]
    return metadata, plan


def _sizes(backbone: _Stack, depth: _Stack) -> dict[str, Value]:
    return {
        keys.EMBEDDING_LENGTH: backbone.dim,
        keys.FEED_FORWARD_LENGTH: backbone.feed_forward,
        keys.BLOCK_COUNT: backbone.layers,
        keys.HEAD_COUNT: backbone.heads,
        keys.HEAD_COUNT_KV: backbone.kv_heads,
        keys.KEY_LENGTH: backbone.head_dim,
        keys.ROPE_FREQ_BASE: backbone.rope_base,
        keys.RMS_EPSILON: backbone.eps,
        **{keys.ROPE_SCALING + name: value for name, value in backbone.scaling.items()},
        keys.DEPTH_EMBEDDING_LENGTH: depth.dim,
        keys.DEPTH_FEED_FORWARD_LENGTH: depth.feed_forward,
        keys.DEPTH_BLOCK_COUNT: depth.layers,
        keys.DEPTH_HEAD_COUNT: depth.heads,
        keys.DEPTH_HEAD_COUNT_KV: depth.kv_heads,
        keys.DEPTH_KEY_LENGTH: depth.head_dim,
        keys.DEPTH_ROPE_FREQ_BASE: depth.rope_base,
        keys.DEPTH_RMS_EPSILON: depth.eps,
        **{keys.DEPTH_ROPE_SCALING + name: value for name, value in depth.scaling.items()},
    }


def _stack(config: Settings) -> _Stack:
    config.only("attention_bias", False)
    config.only("mlp_bias", False)
    config.only("hidden_act", "silu")
    heads = config.integer("num_attention_heads", 1, 1024)
    kv_heads = config.integer("num_key_value_heads", 1, 1024)
    if heads % kv_heads != 0:
        config.note("num_key_value_heads", f"a divisor of the {heads} heads", str(kv_heads))
    dim = config.integer("hidden_size", 1, _MAX_DIM)
    head_dim = config.integer("head_dim", 2, 65536, default=max(dim // heads, 2))
    if head_dim % 2 != 0:
        config.note("head_dim", "an even number", str(head_dim))
    # New files have all of it in rope_parameters, older ones in rope_theta and rope_scaling.
    new = "rope_parameters" in config
    rope = config.inside("rope_parameters") if new else config
    return _Stack(
        dim=dim,
        feed_forward=config.integer("intermediate_size", 1, _MAX_DIM),
        layers=config.integer("num_hidden_layers", 1, 1024),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rope_base=rope.real("rope_theta", 1.0, 1e12),
        eps=config.real("rms_norm_eps", 0.0, 1.0),
        scaling=_scaling(config, "rope_parameters" if new else "rope_scaling"),
    )


def _scaling(config: Settings, key: str) -> dict[str, float]:
    if config.is_null(key):
        return {}
    rope = config.inside(key)
    kind = rope.text("rope_type" if "rope_type" in rope else "type", ("llama3", "default"))
    if kind == "default":
        return {}
    return {
        keys.SCALING_FACTOR: rope.real("factor", 1e-3, 1e6),
        keys.SCALING_LOW: rope.real("low_freq_factor", 1e-6, 1e6),
        keys.SCALING_HIGH: rope.real("high_freq_factor", 1e-6, 1e6),
        keys.SCALING_ORIGINAL: rope.real("original_max_position_embeddings", 1, 1e9),
    }


def _blocks(target: str, source: str, d: _Stack, *, pairs_apart: bool) -> list[Planned]:
    plan = []
    for i in range(d.layers):
        to, of = f"{target}{i}.", f"{source}{i}."
        q, kv = d.heads * d.head_dim, d.kv_heads * d.head_dim
        qkv = [
            *_turned_rows(f"{of}self_attn.q_proj.weight", d, d.heads, pairs_apart=pairs_apart),
            *_turned_rows(f"{of}self_attn.k_proj.weight", d, d.kv_heads, pairs_apart=pairs_apart),
            Source(f"{of}self_attn.v_proj.weight", (kv, d.dim)),
        ]
        plan += [
            vector(to + names.ATTENTION_NORM, f"{of}input_layernorm.weight", d.dim),
            Planned(f"{to}{names.WQKV}.weight", tuple(qkv), (q + 2 * kv, d.dim), Storage.MATRIX, stacked=True),
            same(f"{to}{names.WO}.weight", f"{of}self_attn.o_proj.weight", (d.dim, q), Storage.MATRIX),
            vector(to + names.FFN_NORM, f"{of}post_attention_layernorm.weight", d.dim),
            same(to + names.W1, f"{of}mlp.gate_proj.weight", (d.feed_forward, d.dim), Storage.MATRIX),
            same(to + names.W3, f"{of}mlp.up_proj.weight", (d.feed_forward, d.dim), Storage.MATRIX),
            same(to + names.W2, f"{of}mlp.down_proj.weight", (d.dim, d.feed_forward), Storage.MATRIX),
        ]
    return plan


def _turned_rows(name: str, d: _Stack, heads: int, *, pairs_apart: bool) -> Sequence[Source]:
    """The rows of a query or key matrix such that a pair stands half a head apart: of those that have it side by side,
    each head's even rows, then its odd ones."""
    shape = (heads * d.head_dim, d.dim)
    if pairs_apart:
        return [Source(name, shape)]
    half = d.head_dim // 2
    return [Source(name, shape, _rows_of(h * d.head_dim + odd, half, every=2)) for h in range(heads) for odd in (0, 1)]


def _rows_of(first: int, count: int, *, every: int = 1) -> Callable[[Stored], Stored]:
    """`count` rows of a matrix from `first` on."""

    def cut(whole: Stored) -> Stored:
        item = ITEM_BYTES[whole.dtype]
        row, column = whole.strides
        return replace(
            whole,
            start=whole.start + first * row * item,
            shape=(count, whole.shape[1]),
            strides=(every * row, column),
        )

    return cut


def _turned(index: int, count: int) -> Callable[[Stored], Stored]:
    """The first `count` columns of matrix `index` as rows."""

    def cut(whole: Stored) -> Stored:
        matrix, row, column = whole.strides
        start = whole.start + index * matrix * ITEM_BYTES[whole.dtype]
        return replace(whole, start=start, shape=(count, whole.shape[1]), strides=(column, row))

    return cut


def _published_name(name: str) -> str:
    """The transformers name of a tensor of the original layout."""
    if name in _ORIGINAL:
        return _ORIGINAL[name]
    for of, to in (("backbone.", "backbone_model."), ("decoder.", "depth_decoder.model.")):
        if name.startswith(of):
            rest = name.removeprefix(of)
            for part, published in _ORIGINAL_PARTS.items():
                if rest == part or rest.endswith((f".{part}", f".{part}.weight")):
                    ending = ".weight" if rest.endswith(".weight") else ""
                    return to + rest.removesuffix(part + ending) + published + ending
    return name


def _sampling(folder: Path) -> dict[str, Value]:
    """The options in generation_config.json. A top_k that it does not name is not off: the family's default counts."""
    path = folder / "generation_config.json"
    if not path.exists():
        return {}
    config = Settings(read_json(path), source=str(path))
    found: dict[str, Value] = {}
    for prefix, temperature, top_k, top_p in (
        ("", keys.TEMPERATURE, keys.TOP_K, keys.TOP_P),
        ("depth_decoder_", keys.DEPTH_TEMPERATURE, keys.DEPTH_TOP_K, keys.DEPTH_TOP_P),
    ):
        if f"{prefix}temperature" in config:
            found[temperature] = config.real(f"{prefix}temperature", 0.0, 100.0)
        if f"{prefix}do_sample" in config and not config.boolean(f"{prefix}do_sample"):
            found[temperature] = 0.0
        if f"{prefix}top_k" in config:
            found[top_k] = config.integer(f"{prefix}top_k", 0)
        if f"{prefix}top_p" in config:
            found[top_p] = config.real(f"{prefix}top_p", 0.0, 1.0)
    config.require()
    return found
