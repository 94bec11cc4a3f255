"""Each kind of layer as a stream: any chunks give the whole, later input changes nothing before it, and the whole is
what the plain numpy codec computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from core_testing import testing
from dualar import _core
from reference.gguf_weights import Weights
from reference.s2 import BlockConfig, Codec, gelu, softmax

ATOL = 3e-5
RUNTIME = _core.Runtime(threads=1)


class Plain(Weights):
    """Named float64 arrays in the place of a model file, for the reference's layers."""

    def __init__(self, tensors: dict[str, np.ndarray]) -> None:
        self.dtype = np.dtype(np.float64)
        self._tensors = tensors

    def __contains__(self, name: object) -> bool:
        return name in self._tensors


def reference(weights: dict[str, np.ndarray]) -> Codec:
    """The reference codec's layer methods on `weights`."""
    codec = object.__new__(Codec)
    codec.w = Plain({name: value.astype(np.float64) for name, value in weights.items()})
    return codec


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    values: np.ndarray = rng.standard_normal(shape) / np.sqrt(max(int(np.prod(shape[1:])), 1))
    return values.astype(np.float32)


class Layer:
    """A layer to make anew, its input width, what it makes of one column and what the reference says."""

    def __init__(self, make: Callable[[], Any], channels: int, multiple: int, want: Callable[[np.ndarray], np.ndarray]):
        self.make, self.channels, self.multiple, self.want = make, channels, multiple, want


def activate(x: np.ndarray, kind: str, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """x [C, T]; snake with its alpha and beta [C], ELU, or as it is."""
    if kind == "snake":
        waves: np.ndarray = np.sin(alpha[:, None] * x) ** 2
        return x + waves / (beta[:, None] + 1e-9)
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0))) if kind == "elu" else x


def conv(
    kind: str,
    *,
    packed: bool,
    activation: str = "",
    residual: bool = False,
    bias: bool = True,
    replicate: bool = False,
    **shape: int,
) -> Layer:
    rng = np.random.default_rng(0)
    channels, out, taps = shape["channels"], shape["out"], shape["taps"]
    stride, dilation = shape.get("stride", 1), shape.get("dilation", 1)
    weight = random(rng, *((channels, out, taps) if kind == "transposed" else
                           (channels, 1, taps) if kind == "depthwise" else (out, channels, taps)))  # fmt: skip
    weights = {"p.weight": weight, "p.bias": random(rng, out) * bias}
    alpha, beta = random(rng, channels) * 3, np.abs(random(rng, channels)) + 0.2

    def make() -> Any:
        options: dict[str, Any] = {"activation": activation, "residual": residual, "replicate": replicate}
        if activation == "snake":
            options |= {"alpha": alpha, "beta": beta}
        return testing.ConvStream(RUNTIME, kind, weight, weights["p.bias"] if bias else None, stride=stride,
                                 dilation=dilation, packed=packed, **options)  # fmt: skip

    def want(x: np.ndarray) -> np.ndarray:
        codec, a = reference(weights), x.T.astype(np.float64)
        seen = activate(a, activation, alpha.astype(np.float64), beta.astype(np.float64))
        if kind == "transposed":
            y = codec.transposed_conv("p", seen, stride=stride)
        elif replicate:
            left = (taps - 1) * dilation + 1 - stride
            edges = np.pad(seen, ((0, 0), (left, -seen.shape[1] % stride)), mode="edge")
            y = codec.conv("p", edges, stride=stride, dilation=dilation)[:, left // stride :]
        else:
            y = codec.conv("p", seen, stride=stride, dilation=dilation)
        return ((y + a) if residual else y).T

    return Layer(make, channels, stride if kind != "transposed" else 1, want)


def convnext() -> Layer:
    rng, C = np.random.default_rng(1), 24
    shapes = {"dwconv.conv.weight": (C, 1, 7), "dwconv.conv.bias": (C,), "norm.weight": (C,), "norm.bias": (C,),
              "pwconv1.weight": (4 * C, C), "pwconv1.bias": (4 * C,), "pwconv2.weight": (C, 4 * C),
              "pwconv2.bias": (C,), "gamma": (C,)}  # fmt: skip
    weights = {name: random(rng, *shape) for name, shape in shapes.items()}

    def want(x: np.ndarray) -> np.ndarray:
        return reference({"p." + name: value for name, value in weights.items()}).convnext("p", x.T.astype(float)).T

    return Layer(lambda: testing.ConvNextStream(RUNTIME, weights), C, 1, want)


def transformer(*, window: int, plain: bool = False) -> Layer:
    """plain: LayerNorms with bias and an ungated feed-forward with GELU, rope on halves, no final norm."""
    rng, D, H, KV, hd, F = np.random.default_rng(2), 32, 4, 2, 8, 48
    shapes = {"attention_norm.weight": (D,), "attention.wqkv.weight": ((H + 2 * KV) * hd, D),
              "attention.wo.weight": (D, H * hd), "ffn_norm.weight": (D,), "feed_forward.w1.weight": (F, D),
              "feed_forward.w2.weight": (D, F), "feed_forward.w3.weight": (F, D),
              "attention_layer_scale.gamma": (D,), "ffn_layer_scale.gamma": (D,), "norm.weight": (D,)}  # fmt: skip
    if plain:
        shapes |= {"attention_norm.bias": (D,), "ffn_norm.bias": (D,)}
        del shapes["feed_forward.w3.weight"], shapes["norm.weight"]
    weights = {name: random(rng, *shape) for name, shape in shapes.items()}
    options = {"heads": H, "kv_heads": KV, "head_dim": hd, "rope_base": 1e4, "eps": 1e-5, "window": window}
    config = BlockConfig(H, KV, hd, 1e4, 1e-5, window=window, layer_scale=True)

    def want(x: np.ndarray) -> np.ndarray:
        if plain:
            return plain_block(
                {name: w.astype(np.float64) for name, w in weights.items()}, x.astype(np.float64), config
            )
        named = {f"p.layers.0.{name}" if name != "norm.weight" else "p.norm.weight": w for name, w in weights.items()}
        return reference(named).transformer("p", x.T.astype(np.float64), 1, config).T

    def make() -> Any:
        return testing.TransformerStream(RUNTIME, weights, max_positions=64, rope_neox=plain, **options)

    return Layer(make, D, 1, want)


def plain_block(w: dict[str, np.ndarray], x: np.ndarray, c: BlockConfig) -> np.ndarray:
    """One block with LayerNorm, rope on halves and an ungated feed-forward, x [T, D]."""

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt(x.var(-1, keepdims=True) + c.eps)
        out: np.ndarray = scaled * w[name + ".weight"] + w[name + ".bias"]
        return out

    def rotated(x: np.ndarray) -> np.ndarray:  # [T, heads, hd]
        angle = np.arange(len(x))[:, None, None] * c.rope_base ** (-np.arange(0, c.head_dim, 2) / c.head_dim)
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)

    T, H, KV, hd = len(x), c.heads, c.kv_heads, c.head_dim
    q, k, v = np.split(norm("attention_norm", x) @ w["attention.wqkv.weight"].T, [H * hd, (H + KV) * hd], -1)
    q, k, v = rotated(q.reshape(T, H, hd)), rotated(k.reshape(T, KV, hd)), v.reshape(T, KV, hd)
    k, v = np.repeat(k, H // KV, axis=1), np.repeat(v, H // KV, axis=1)
    age = np.arange(T)[:, None] - np.arange(T)
    seen = (age >= 0) & (age < (c.window or 0))
    scores = np.where(seen, np.einsum("thd,shd->hts", q, k) / np.sqrt(hd), -np.inf)
    mixed = np.einsum("hts,shd->thd", softmax(scores), v).reshape(T, -1)
    x = x + (mixed @ w["attention.wo.weight"].T) * w["attention_layer_scale.gamma"]
    hidden = gelu(norm("ffn_norm", x) @ w["feed_forward.w1.weight"].T)
    out: np.ndarray = x + (hidden @ w["feed_forward.w2.weight"].T) * w["ffn_layer_scale.gamma"]
    return out


def both(**shape: Any) -> dict[str, Layer]:
    kind, name = shape.pop("kind"), shape.pop("name")
    return {f"{name}, {form}": conv(kind, packed=form == "packed", **shape) for form in ("packed", "taps")}


LAYERS = {
    **both(name="conv", kind="conv", channels=12, out=20, taps=7),
    **both(name="dilated", kind="conv", channels=12, out=12, taps=7, dilation=9),
    **both(name="pointwise", kind="conv", channels=12, out=33, taps=1),
    **both(name="snake, conv and residual", kind="conv", channels=12, out=12, taps=7, dilation=3, activation="snake",
           residual=True),
    **both(name="elu and conv", kind="conv", channels=12, out=6, taps=3, activation="elu"),
    **both(name="snake and transposed", kind="transposed", channels=24, out=12, taps=8, stride=4, activation="snake"),
    **both(name="replicating, without bias", kind="conv", channels=12, out=9, taps=4, stride=2, bias=False,
           replicate=True),
    **both(name="to one channel", kind="conv", channels=12, out=1, taps=7),
    **both(name="from one channel", kind="conv", channels=1, out=8, taps=7),
    **both(name="strided", kind="conv", channels=12, out=24, taps=8, stride=4),
    **both(name="kernel is stride", kind="conv", channels=12, out=12, taps=3, stride=3),
    **both(name="transposed", kind="transposed", channels=24, out=12, taps=8, stride=4),
    **both(name="transposed, kernel is stride", kind="transposed", channels=12, out=12, taps=2, stride=2),
    "depthwise": conv("depthwise", packed=False, channels=12, out=12, taps=7),
    "convnext": convnext(),
    "transformer": transformer(window=5),
    "transformer, window of one": transformer(window=1),
    "transformer, plain": transformer(window=5, plain=True),
}  # fmt: skip
layers = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS.keys())


@layers
def test_whole_is_the_reference(layer: Layer) -> None:
    x = np.random.default_rng(3).standard_normal((12 * layer.multiple, layer.channels)).astype(np.float32)
    np.testing.assert_allclose(layer.make().push(x), layer.want(x), atol=ATOL, rtol=0)


@layers
def test_any_chunks_give_the_whole(layer: Layer) -> None:
    rng, columns = np.random.default_rng(4), 60
    x = rng.standard_normal((columns * layer.multiple, layer.channels)).astype(np.float32)
    whole = layer.make().push(x)
    for _ in range(5):
        stream, pieces, at = layer.make(), [], 0
        while at < columns:
            k = min(int(rng.integers(1, 9)), columns - at)
            pieces.append(stream.push(x[at * layer.multiple : (at + k) * layer.multiple]))
            at += k
        np.testing.assert_allclose(np.concatenate(pieces), whole, atol=ATOL, rtol=0)


@layers
def test_later_input_changes_nothing_before_it(layer: Layer) -> None:
    columns, at = 20, 11
    x = np.random.default_rng(5).standard_normal((columns * layer.multiple, layer.channels)).astype(np.float32)
    changed = x.copy()
    changed[at * layer.multiple :] += 1
    a, b = layer.make().push(x), layer.make().push(changed)
    edge = at * len(a) // columns
    np.testing.assert_array_equal(a[:edge], b[:edge])
    assert np.abs(a[edge:] - b[edge:]).max() > 1e-4


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("replicate", [True, False])
@pytest.mark.parametrize("columns", [1, 5, 6, 7])
def test_a_last_piece_that_does_not_fill_the_stride(packed: bool, replicate: bool, columns: int) -> None:
    layer = conv("conv", packed=packed, channels=8, out=5, taps=6, stride=3, activation="elu", replicate=replicate)
    x = np.random.default_rng(6).standard_normal((columns, 8)).astype(np.float32)
    want = layer.want(x)
    assert len(want) == -(-columns // 3)
    np.testing.assert_allclose(layer.make().push(x), want, atol=ATOL, rtol=0)
    if columns > 3:
        stream = layer.make()
        pieces = [stream.push(x[:3]), stream.push(x[3:])]
        np.testing.assert_allclose(np.concatenate(pieces), want, atol=ATOL, rtol=0)
