"""What decoding one frame with the codec costs at least: FLOP, weights and sines, by kind of layer.

Owns counting from a file's tensors and metadata (names as in the GGUF layout of `fish-speech`); measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from dualar import _core

_KEY = "fish_speech.codec."

PARTS = ("transformer", "ConvNeXt", "conv, k 1", "conv, k > 1", "transposed conv", "snake")


@dataclass(frozen=True)
class Cost:
    """Of one kind of layer for one frame of codes: multiply-adds count as 2 FLOP; a snake's value is one sine."""

    flop: int = 0
    weights: int = 0
    values: int = 0  # float32 values that its layers write

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flop + other.flop, self.weights + other.weights, self.values + other.values)


def frame_cost(file: _core.ModelFile) -> dict[str, Cost]:
    """The kinds of layers in the order of `PARTS`."""
    parts = dict.fromkeys(PARTS, Cost())
    for part, cost in _layers(file):
        parts[part] += cost
    return parts


def _layers(file: _core.ModelFile) -> Iterator[tuple[str, Cost]]:
    """Each layer on the way from codes to samples, with its cost at the positions of one frame."""
    shapes = {name: shape for name, _, shape in file.tensors() if name.startswith("c.")}
    last = f"c.decoder.model.{len(file.get(_KEY + 'decoder_rates')) + 2}.conv.weight"

    def product(name: str, positions: int) -> Cost:
        """A matrix, or a convolution's kernel, applied at so many positions of its output."""
        out = 1 if name == last else shapes[name][0]  # a leading dimension of 1 may be missing from the shape
        weights = prod(shapes[name])
        return Cost(2 * weights * positions, weights, out * positions)

    def conv(name: str, positions: int) -> tuple[str, Cost]:
        return ("conv, k 1" if shapes[name][-1] == 1 else "conv, k > 1"), product(name, positions)

    def transposed(name: str, positions: int, stride: int) -> tuple[str, Cost]:
        weights = prod(shapes[name])
        return "transposed conv", Cost(2 * weights * positions, weights, shapes[name][1] * positions * stride)

    def snake(name: str, positions: int) -> tuple[str, Cost]:
        channels = prod(shapes[name])
        return "snake", Cost(0, channels, channels * positions)

    for name in shapes:
        if name.startswith("c.quantizer.") and name.endswith("out_proj.weight"):
            yield conv(name, 1)
    yield from _transformer(file, shapes)
    positions = 1
    for i, factor in enumerate(reversed(file.get(_KEY + "quantizer_downsample_factor"))):
        p = f"c.quantizer.upsample.{i}."
        yield transposed(p + "0.conv.weight", positions, factor)
        positions *= factor
        for name in ("dwconv.conv", "pwconv1", "pwconv2"):
            yield "ConvNeXt", product(f"{p}1.{name}.weight", positions)
    p = "c.decoder.model."
    yield conv(p + "0.conv.weight", positions)
    rates = file.get(_KEY + "decoder_rates")
    for i, rate in enumerate(rates, 1):
        yield snake(f"{p}{i}.block.0.alpha", positions)
        yield transposed(f"{p}{i}.block.1.conv.weight", positions, rate)
        positions *= rate
        for unit in (2, 3, 4):
            q = f"{p}{i}.block.{unit}.block."
            yield snake(q + "0.alpha", positions)
            yield conv(q + "1.conv.weight", positions)
            yield snake(q + "2.alpha", positions)
            yield conv(q + "3.conv.weight", positions)
    yield snake(f"{p}{len(rates) + 1}.alpha", positions)
    yield conv(last, positions)


def _transformer(file: _core.ModelFile, shapes: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, Cost]]:
    """`post_module`: its matrices, and attention over a full window (scores and weighted sum)."""
    p = "c.quantizer.post_module.layers."
    for name, shape in shapes.items():
        if name.startswith(p) and len(shape) == 2:
            weights = prod(shape)
            yield "transformer", Cost(2 * weights, weights, shape[0])
            if name.endswith("attention.wo.weight"):
                window = int(file.get(_KEY + "rvq_transformer.window_size"))
                yield "transformer", Cost(2 * 2 * window * shape[1], 0, shape[1])
