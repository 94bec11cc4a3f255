"""The plan of a model file: its tensors, and which tensors of a checkpoint each of them is made of.

Owns the comparison of a plan with a checkpoint, which lists all that is wrong at once, and the ways of combining
tensors. Values are read, combined and written some rows at a time, so that memory does not grow with a tensor's size.
Leaves types to `quantize.py`, bytes to `gguf_writer.py`, each family's plan to its own module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod

import numpy as np

from dualar._native import _core
from dualar.convert.checkpoint import Checkpoint, Float32, Stored, not_floats
from dualar.convert.published import shown

Combine = Callable[[list[Float32]], Float32]
"""Some rows of each source -> the same rows of the tensor."""

PIECE = 1 << 20
"""Values that are read at a time; more where a single row is longer."""

_UNEXPECTED = 100  # tensors that one error lists


class Storage(Enum):
    """What a tensor is used as, which decides the type it is kept in."""

    MATRIX = "matrix"  # of a matrix product in the transformers
    TABLE = "table"  # read row by row
    VECTOR = "vector"  # always F32
    CODEC = "codec"  # a weight of the codec's convolutions and transformers


@dataclass(frozen=True)
class Source:
    """A tensor of the checkpoint and the shape that it must have. cut: the part of it that is taken, by default all."""

    name: str
    shape: tuple[int, ...]
    cut: Callable[[Stored], Stored] = lambda whole: whole


@dataclass(frozen=True)
class Planned:
    """A tensor of the model file. Its rows are made by `combine` of those of the sources, or, where it is `stacked`,
    are the rows of one source after the other."""

    target: str
    sources: tuple[Source, ...]
    shape: tuple[int, ...]
    storage: Storage
    combine: Combine = lambda values: values[0]
    stacked: bool = False

    def pieces(self, checkpoint: Checkpoint, *, values: int = PIECE) -> Iterator[Float32]:
        """The tensor's values float32, some rows at a time, so that at most `values` of a source are read at a time
        (or one row). ModelError where one is NaN or infinite."""
        groups = [(source,) for source in self.sources] if self.stacked else [self.sources]
        for group in groups:
            found = [source.cut(checkpoint.tensors[source.name]) for source in group]
            rows = found[0].shape[0]
            step = max(1, values // max(1, *(prod(stored.shape[1:]) for stored in found)))
            for first in range(0, rows, step):
                last = min(first + step, rows)
                made = self.combine([stored.rows(first, last) for stored in found])
                self._check(made, first, last, group, checkpoint.source)
                yield np.ascontiguousarray(made)

    def _check(self, made: Float32, first: int, last: int, group: tuple[Source, ...], source: str) -> None:
        if made.shape != (last - first, *self.shape[1:]):  # a fault of the plan
            raise AssertionError(f"{self.target}: planned rows of {self.shape}, made {made.shape}")
        bad = made.size - int(np.count_nonzero(np.isfinite(made)))
        if bad:
            raise _core.ModelError(
                f"[checkpoint] {source}: expected finite values, got {bad} of {made.size} that are NaN or infinite in "
                f"rows {first} to {last - 1} of {', '.join(part.name for part in group)}"
            )


@dataclass(frozen=True)
class Part:
    """A checkpoint and the plan of what is taken from it. ignored: whether a tensor of that name may be there without
    being needed. left_out: names of tensors in its file that `checkpoint` does not have any more."""

    checkpoint: Checkpoint
    plan: Sequence[Planned]
    ignored: Callable[[str], bool] = lambda name: False
    left_out: Sequence[str] = ()


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
    return Planned(target, found, (rows, columns), storage, stacked=True)


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
    """One ModelError for every tensor that is missing, misshapen, no floats or not expected."""
    wrong: list[str] = []
    unexpected: list[str] = []
    for part in parts:
        wrong += _wrong(part)
        unexpected += _unexpected(part)
    if wrong or unexpected:
        more = len(unexpected) - _UNEXPECTED
        listed = [*wrong, *unexpected[:_UNEXPECTED], *([f"and {more} more that are not expected"] if more > 0 else [])]
        count = len(wrong) + len(unexpected)
        raise _core.ModelError(f"[checkpoint] {count} tensors are not as expected:\n" + "\n".join(listed))


def left_out(part: Part) -> list[str]:
    """The tensors of a checkpoint that go into no tensor of the model file."""
    wanted = _wanted(part)
    return [*part.left_out, *(name for name in part.checkpoint.tensors if name not in wanted)]


def _wrong(part: Part) -> list[str]:
    tensors, source = part.checkpoint.tensors, part.checkpoint.source
    problems = []
    for name, shape in _wanted(part).items():
        if name not in tensors:
            problems.append(f"[{name}] expected shape {list(shape)}, found no such tensor in {source}")
        elif tensors[name].shape != shape:
            problems.append(f"[{name}] expected shape {list(shape)}, got {list(tensors[name].shape)} in {source}")
        elif problem := not_floats(name, tensors[name].dtype, source):
            problems.append(problem)
    return problems


def _unexpected(part: Part) -> list[str]:
    tensors, wanted = part.checkpoint.tensors, _wanted(part)
    names = sorted(name for name in tensors if name not in wanted and not part.ignored(name))
    return [
        f"[{shown(name)}] expected no such tensor, got shape {list(tensors[name].shape)} in {part.checkpoint.source}"
        for name in names
    ]


def _wanted(part: Part) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor that the plan reads."""
    return {source.name: source.shape for planned in part.plan for source in planned.sources}
