"""The layers that Qwen3-TTS's codec and speaker encoder are made of, as planned tensors.

Owns their names in a checkpoint and their tensors in a model file. Leaves which layers there are to `qwen3_codec.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualar.convert.checkpoint import Float32
from dualar.convert.gguf_writer import Value
from dualar.convert.plan import Planned, Source, Storage, same, stacked, vector
from dualar.convert.settings import Settings
from dualar.gguf import names
from dualar.gguf import qwen3_codec_names as keys

_MAX_DIM = 1 << 20
_MIN_USAGE = 1e-5


@dataclass(frozen=True)
class TransformerSizes:
    """Sizes of a stack of transformer blocks."""

    dim: int
    feed_forward: int
    layers: int
    heads: int
    head_dim: int

    @property
    def width(self) -> int:
        return self.heads * self.head_dim


def transformer(config: Settings) -> TransformerSizes:
    heads = config.integer("num_attention_heads", 1, 1024)
    if config.integer("num_key_value_heads", 1, 1024) != heads:
        config.note("num_key_value_heads", str(heads), str(config.integer("num_key_value_heads", 1, 1024)))
    head_dim = config.integer("head_dim", 2, 65536)
    if head_dim % 2 != 0:
        config.note("head_dim", "an even number", str(head_dim))
    return TransformerSizes(
        dim=config.integer("hidden_size", 1, _MAX_DIM),
        feed_forward=config.integer("intermediate_size", 1, _MAX_DIM),
        layers=config.integer("num_hidden_layers", 1, 1024),
        heads=heads,
        head_dim=head_dim,
    )


def transformer_keys(prefix: str, t: TransformerSizes, config: Settings, eps: str) -> dict[str, Value]:
    return {
        prefix + names.DIM: t.dim,
        prefix + names.TRANSFORMER_FEED_FORWARD: t.feed_forward,
        prefix + names.LAYERS: t.layers,
        prefix + names.HEADS: t.heads,
        prefix + names.LOCAL_HEADS: t.heads,
        prefix + names.HEAD_DIM: t.head_dim,
        prefix + names.TRANSFORMER_ROPE_BASE: config.real("rope_theta", 1.0, 1e12),
        prefix + names.TRANSFORMER_EPSILON: config.real(eps, 0.0, 1.0),
    }


def attention(to: str, of: str, t: TransformerSizes) -> list[Planned]:
    qkv = [(f"{of}self_attn.{part}_proj.weight", t.width) for part in ("q", "k", "v")]
    return [
        vector(to + names.ATTENTION_NORM, f"{of}input_layernorm.weight", t.dim),
        stacked(f"{to}{names.WQKV}.weight", qkv, t.dim, Storage.CODEC),
        same(f"{to}{names.WO}.weight", f"{of}self_attn.o_proj.weight", (t.dim, t.width), Storage.CODEC),
        vector(to + names.ATTENTION_SCALE, f"{of}self_attn_layer_scale.scale", t.dim),
        vector(to + names.FFN_NORM, f"{of}post_attention_layernorm.weight", t.dim),
        vector(to + names.FFN_SCALE, f"{of}mlp_layer_scale.scale", t.dim),
    ]


def gated_blocks(target: str, source: str, t: TransformerSizes) -> list[Planned]:
    plan = []
    for i in range(t.layers):
        to, of = f"{target}{names.LAYER}{i}.", f"{source}layers.{i}."
        plan += [
            *attention(to, of, t),
            same(to + names.W1, f"{of}mlp.gate_proj.weight", (t.feed_forward, t.dim), Storage.CODEC),
            same(to + names.W3, f"{of}mlp.up_proj.weight", (t.feed_forward, t.dim), Storage.CODEC),
            same(to + names.W2, f"{of}mlp.down_proj.weight", (t.dim, t.feed_forward), Storage.CODEC),
        ]
    return plan


def plain_blocks(target: str, source: str, t: TransformerSizes) -> list[Planned]:
    plan = []
    for i in range(t.layers):
        to, of = f"{target}{names.LAYER}{i}.", f"{source}layers.{i}."
        plan += [
            *attention(to, of, t),
            vector(to + names.ATTENTION_NORM_BIAS, f"{of}input_layernorm.bias", t.dim),
            vector(to + names.FFN_NORM_BIAS, f"{of}post_attention_layernorm.bias", t.dim),
            same(to + names.W1, f"{of}mlp.fc1.weight", (t.feed_forward, t.dim), Storage.CODEC),
            same(to + names.W2, f"{of}mlp.fc2.weight", (t.dim, t.feed_forward), Storage.CODEC),
        ]
    return plan


def linear(target: str, source: str, rows: int, columns: int) -> list[Planned]:
    return conv(target, source, (rows, columns), rows)


def conv(target: str, source: str, shape: Sequence[int], out: int) -> list[Planned]:
    """Weight and bias."""
    return [
        same(f"{target}.weight", f"{source}.weight", shape, Storage.CODEC),
        vector(f"{target}.bias", f"{source}.bias", out),
    ]


def squeezed(target: str, source: str, rows: int, columns: int) -> Planned:
    """A 1x1 convolution as a matrix."""
    shape = (rows, columns)
    return Planned(target, (Source(source, (*shape, 1)),), shape, Storage.CODEC, lambda v: v[0][..., 0])


def snake(target: str, source: str, channels: int) -> list[Planned]:
    return [
        Planned(target + name, (Source(source + name, (channels,)),), (channels,), Storage.VECTOR, _exp)
        for name in (keys.ALPHA, keys.BETA)
    ]


def _exp(values: list[Float32]) -> Float32:
    with np.errstate(over="ignore"):  # an infinity is found where the tensor is written
        found: Float32 = np.exp(values[0])
    return found


def codebook(target: str, source: str, sums: str, shape: tuple[int, int]) -> Planned:
    found = (Source(source + sums, shape), Source(f"{source}cluster_usage", shape[:1]))
    # Rows that training hardly used are huge: always F32.
    return Planned(target, found, shape, Storage.VECTOR, _divide)


def _divide(values: list[Float32]) -> Float32:
    usage: Float32 = np.maximum(values[1], np.float32(_MIN_USAGE), dtype=np.float32)
    return values[0] / usage[:, None]
