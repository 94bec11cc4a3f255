"""What a model file holds, tensor by tensor, and which of a checkpoint's tensors each is made of.

Owns the comparison of a plan with a checkpoint, which lists all that is wrong at once, and the ways of combining
tensors. Leaves types to `quantize.py`, bytes to `gguf_writer.py`, each family's plan to its own module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from dualar._native import _core
from dualar.convert.checkpoint import Checkpoint, Float32

Combine = Callable[[list[Float32]], Float32]


class Storage(Enum):
    """What a tensor is used as, which decides the type it is kept in."""

    MATRIX = "matrix"  # of a matrix product in the transformers
    TABLE = "table"  # read row by row
    VECTOR = "vector"  # always F32
    CODEC = "codec"  # a weight of the codec's convolutions and transformers


@dataclass(frozen=True)
class Source:
    """A tensor of the checkpoint and the shape that it must have."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Planned:
    """A tensor of the model file. shape is what `combine` makes of the sources' values."""

    target: str
    sources: tuple[Source, ...]
    shape: tuple[int, ...]
    storage: Storage
    combine: Combine = lambda values: values[0]

    def read(self, checkpoint: Checkpoint) -> Float32:
        """The tensor's values; ModelError where one is NaN or infinite."""
        values = np.ascontiguousarray(self.combine([checkpoint.read(source.name) for source in self.sources]))
        if values.shape != self.shape:  # a fault of the plan
            raise AssertionError(f"{self.target}: planned {self.shape}, made {values.shape}")
        if not np.isfinite(values).all():
            bad = int(values.size - np.count_nonzero(np.isfinite(values)))
            raise _core.ModelError(
                f"[checkpoint] {checkpoint.source}: expected finite values, got {bad} of {values.size} that are NaN or "
                f"infinite in {', '.join(source.name for source in self.sources)}"
            )
        return values


@dataclass(frozen=True)
class Part:
    """A checkpoint and what is taken from it. ignored: says of a name that it may be there and is not needed."""

    checkpoint: Checkpoint
    plan: Sequence[Planned]
    ignored: Callable[[str], bool] = lambda name: False


def same(target: str, source: str, shape: Sequence[int], storage: Storage) -> Planned:
    """One tensor as it is."""
    return Planned(target, (Source(source, tuple(shape)),), tuple(shape), storage)


def vector(target: str, source: str, size: int) -> Planned:
    """A norm's weight, a bias: F32 whatever the rest is kept in."""
    return same(target, source, (size,), Storage.VECTOR)


def stacked(target: str, sources: Iterable[tuple[str, int]], columns: int, storage: Storage) -> Planned:
    """Matrices [rows_i, columns], given with their rows, under one another."""
    found = tuple(Source(name, (rows, columns)) for name, rows in sources)
    rows = sum(source.shape[0] for source in found)
    return Planned(target, found, (rows, columns), storage, lambda values: np.concatenate(values, axis=0))


def weight_normed(target: str, gain: Source, direction: Source, storage: Storage) -> Planned:
    """gain * direction / |direction|, the norm over all axes but the first (Salimans and Kingma, 2016)."""
    return Planned(target, (gain, direction), direction.shape, storage, _fold_weight_norm)


def _fold_weight_norm(values: list[Float32]) -> Float32:
    gain, direction = (value.astype(np.float64) for value in values)
    axes = tuple(range(1, direction.ndim))
    norm = np.sqrt(np.square(direction).sum(axis=axes, keepdims=True))
    folded: Float32 = (gain.reshape(norm.shape) * direction / norm).astype(np.float32)
    return folded


def require(parts: Sequence[Part]) -> None:
    """One ModelError for every tensor that is missing, misshapen or not expected."""
    problems: list[str] = []
    for part in parts:
        problems += _compare(part)
    if problems:
        raise _core.ModelError(f"[checkpoint] {len(problems)} tensors are not as expected:\n" + "\n".join(problems))


def _compare(part: Part) -> list[str]:
    shapes, source = part.checkpoint.shapes, part.checkpoint.source
    wanted = {s.name: s.shape for planned in part.plan for s in planned.sources}
    problems = []
    for name, shape in wanted.items():
        if name not in shapes:
            problems.append(f"[{name}] expected shape {list(shape)}, found no such tensor in {source}")
        elif shapes[name] != shape:
            problems.append(f"[{name}] expected shape {list(shape)}, got {list(shapes[name])} in {source}")
    for name in sorted(set(shapes) - set(wanted)):
        if not part.ignored(name):
            problems.append(f"[{name}] expected no such tensor, got shape {list(shapes[name])} in {source}")
    return problems
