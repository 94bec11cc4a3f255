"""Each kind of layer as a stream: any chunks give the whole, later input changes nothing before it, and the whole is
what the plain numpy codec computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dualar import _core
from reference.s2 import BlockConfig, Codec

ATOL = 3e-5
RUNTIME = _core.Runtime(threads=1)


class Plain(dict):
    """Named float64 arrays in the place of a model file, for the reference's layers."""

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        y = x @ self[name + ".weight"].T
        return y + self[name + ".bias"] if name + ".bias" in self else y

    def scalar(self, value: float) -> np.float64:
        return np.float64(value)


def reference(weights: dict[str, np.ndarray]) -> Codec:
    """The reference codec's layer methods on `weights`."""
    codec = object.__new__(Codec)
    codec.w = Plain({name: value.astype(np.float64) for name, value in weights.items()})
    return codec


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))).astype(np.float32)


class Layer:
    """A layer to make anew, its input width, what it makes of one column and what the reference says."""

    def __init__(self, make: Callable[[], Any], channels: int, multiple: int, want: Callable[[np.ndarray], np.ndarray]):
        self.make, self.channels, self.multiple, self.want = make, channels, multiple, want


def conv(kind: str, *, packed: bool, extras: bool = False, **shape: int) -> Layer:
    rng = np.random.default_rng(0)
    channels, out, taps = shape["channels"], shape["out"], shape["taps"]
    stride, dilation = shape.get("stride", 1), shape.get("dilation", 1)
    weight = random(rng, *((channels, out, taps) if kind == "transposed" else
                           (channels, 1, taps) if kind == "depthwise" else (out, channels, taps)))  # fmt: skip
    weights = {"p.weight": weight, "p.bias": random(rng, out), "s.alpha": random(rng, 1, channels, 1) * 3}
    alpha = weights["s.alpha"].reshape(-1) if extras else None

    def make() -> Any:
        return _core._ConvStream(RUNTIME, kind, weight, weights["p.bias"], stride=stride, dilation=dilation,
                                 packed=packed, alpha=alpha, residual=extras)  # fmt: skip

    def want(x: np.ndarray) -> np.ndarray:
        codec, a = reference(weights), x.T.astype(np.float64)
        seen = codec.snake("s", a) if extras else a
        if kind == "transposed":
            y = codec.transposed_conv("p", seen, stride=stride)
        else:
            y = codec.conv("p", seen, stride=stride, dilation=dilation)
        return ((y + a) if extras else y).T

    return Layer(make, channels, stride if kind != "transposed" else 1, want)


def convnext() -> Layer:
    rng, C = np.random.default_rng(1), 24
    shapes = {"dwconv.conv.weight": (C, 1, 7), "dwconv.conv.bias": (C,), "norm.weight": (C,), "norm.bias": (C,),
              "pwconv1.weight": (4 * C, C), "pwconv1.bias": (4 * C,), "pwconv2.weight": (C, 4 * C),
              "pwconv2.bias": (C,), "gamma": (C,)}  # fmt: skip
    weights = {name: random(rng, *shape) for name, shape in shapes.items()}

    def want(x: np.ndarray) -> np.ndarray:
        return reference({"p." + name: value for name, value in weights.items()}).convnext("p", x.T.astype(float)).T

    return Layer(lambda: _core._ConvNextStream(RUNTIME, weights), C, 1, want)


def transformer(*, window: int) -> Layer:
    rng, D, H, KV, hd, F = np.random.default_rng(2), 32, 4, 2, 8, 48
    shapes = {"attention_norm.weight": (D,), "attention.wqkv.weight": ((H + 2 * KV) * hd, D),
              "attention.wo.weight": (D, H * hd), "ffn_norm.weight": (D,), "feed_forward.w1.weight": (F, D),
              "feed_forward.w2.weight": (D, F), "feed_forward.w3.weight": (F, D),
              "attention_layer_scale.gamma": (D,), "ffn_layer_scale.gamma": (D,), "norm.weight": (D,)}  # fmt: skip
    weights = {name: random(rng, *shape) for name, shape in shapes.items()}
    options = {"heads": H, "kv_heads": KV, "head_dim": hd, "rope_base": 1e4, "eps": 1e-5, "window": window}
    config = BlockConfig(H, KV, hd, 1e4, 1e-5, window=window, layer_scale=True)

    def want(x: np.ndarray) -> np.ndarray:
        named = {f"p.layers.0.{name}" if name != "norm.weight" else "p.norm.weight": w for name, w in weights.items()}
        return reference(named).transformer("p", x.T.astype(np.float64), 1, config).T

    return Layer(lambda: _core._TransformerStream(RUNTIME, weights, max_positions=64, **options), D, 1, want)


def both(**shape: Any) -> dict[str, Layer]:
    kind, name = shape.pop("kind"), shape.pop("name")
    return {f"{name}, {form}": conv(kind, packed=form == "packed", **shape) for form in ("packed", "taps")}


LAYERS = {
    **both(name="conv", kind="conv", channels=12, out=20, taps=7),
    **both(name="dilated", kind="conv", channels=12, out=12, taps=7, dilation=9),
    **both(name="pointwise", kind="conv", channels=12, out=33, taps=1),
    **both(name="snake, conv and residual", kind="conv", channels=12, out=12, taps=7, dilation=3, extras=True),
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
}
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
