"""A model file to a smaller one: which type each tensor gets, and the writing, a piece of a tensor in memory at a time.

Owns the rules behind `dualar quantize`, and the recipe that the new file keeps in its metadata. Leaves what a type can
hold, and the making of its bytes, to `quantize.py`, the file to `gguf_writer.py`.

The rules, the first that fits:

- `keep`: a matrix whose whole name fits a pattern gets the type given for it.
- Vectors (norms, biases, scales) and Qwen3-TTS's codebooks stay as they are: they are small, and every value counts.
- The codec and the speaker encoder become F16 where they are wider: their errors are heard.
- Tables, of which one row is read at a time, and the head become Q8_0.
- So do the first and the last layer of the Slow-AR (the talker): the first errors go through all layers, the last ones
  straight into the choice of codes, and two layers of many cost little.
- Every other matrix becomes the type that was asked for.

Where a matrix's rows are no multiple of its type's block it becomes Q8_0, or F16.

A tensor is never made wider than it was, but by `keep`.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dualar._native import _core
from dualar._version import __version__
from dualar.convert.gguf_writer import Encoded, Tensor, Value, file_size, write_gguf
from dualar.convert.plan import PIECE, Storage
from dualar.convert.quantize import BLOCKS, GGML_TYPES, check_type, nbytes, to_bytes, type_of
from dualar.gguf import names, qwen3_codec_names, qwen3_names

RECIPE_KEY = "dualar.quantized"
"""Metadata of the new file: JSON with the type and patterns that were given, and the dualar that wrote it."""

SOURCES = ("f32", "f16", "bf16", "q8_0")
"""Types that can be made into another."""

_LEFT_OUT = ("general.alignment", "general.file_type")  # the writer has its own; the other would no longer be true
_LAYER = re.compile(re.escape(names.LAYER) + r"(\d+)\.")
_CODEBOOKS = (qwen3_codec_names.CODEBOOK, qwen3_codec_names.ENCODER_CODEBOOK)
_TABLES = {
    names.EMBEDDINGS, names.CODEBOOK_EMBEDDINGS, names.FAST_EMBEDDINGS, names.OUTPUT, qwen3_names.TEXT_EMBEDDINGS,
    qwen3_names.PREDICTOR_EMBEDDINGS,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """A smaller model file that is yet to be written.

    nbytes: of the file. changed: name -> (type before, type after) of the tensors that get another. recipe: what the
    file keeps under RECIPE_KEY.
    """

    architecture: str
    metadata: dict[str, Value | Encoded]
    tensors: Sequence[Tensor]
    nbytes: int
    changed: dict[str, tuple[str, str]]
    recipe: dict[str, Any]

    def write(self, output: Path, *, on_progress: Callable[[int, int], object] | None = None) -> None:
        """Write it to `output`, whole or not at all. on_progress is called with (bytes of tensors written, of all).
        ModelError for values that are NaN, infinite or too large for their type; OSError where writing fails."""
        write_gguf(output, self.metadata, self.tensors, on_progress=on_progress)


def prepare(file: _core.ModelFile, *, weight_type: str, keep: Mapping[str, str] | None = None) -> Quantization:
    """What an open model file becomes; nothing is written, and no tensor is read.

    weight_type: one of `quantize.BLOCKS`. keep: types by pattern of tensor names (`*` any characters, `?` one, `[ab]`
    one of these), the first that fits counts. Errors: ValueError for an unknown type and for a pattern that gives no
    matrix its type; ModelError for an unknown architecture, and for a tensor of a type other
    than SOURCES that would need another.
    """
    wanted = check_type(weight_type)
    patterns = {pattern: check_type(kind) for pattern, kind in (keep or {}).items()}
    architecture = file.architecture
    apart = (_core.codec_tensors(file), qwen3_names.SPEAKER_ENCODER)
    found = [(name, kind.lower(), shape) for name, kind, shape in file.tensors()]
    layers = [int(match.group(1)) for name, _, _ in found if (match := _LAYER.match(name))]
    rules = _Rules(apart, wanted, patterns, max(layers, default=0))
    tensors, changed = [], {}
    for name, kind, shape in found:
        target = rules.type_of(name, kind, shape)
        if target != kind:
            if kind not in SOURCES:
                raise _core.ModelError(
                    f"[{name}] expected {', '.join(SOURCES)}, which can be made into {target}, got {kind}: quantize "
                    "the file that this one was made of"
                )
            changed[name] = kind, target
        elif kind not in GGML_TYPES:
            raise _core.ModelError(f"[{name}] expected one of {', '.join(GGML_TYPES)} in {file.path}, got {kind}")
        tensors.append(Tensor(name, shape, target, partial(_pieces, file, name, kind, shape, target)))
    for pattern, kept in patterns.items():
        if not any(rules.pattern_of(tensor.name) == pattern and tensor.kind == kept for tensor in tensors):
            raise ValueError(
                f"[keep] expected a pattern that fits a matrix of {file.path}, whose rows hold blocks of the type, got "
                f"{pattern!r} with {kept}"
            )
    recipe = {"type": wanted, "keep": patterns, "dualar": __version__}
    before = file.get(RECIPE_KEY)
    if before is not None:
        recipe["before"] = before
    metadata: dict[str, Value | Encoded] = {
        key: Encoded(file.metadata_bytes(key)) for key in file.metadata if key not in (*_LEFT_OUT, RECIPE_KEY)
    }
    metadata[RECIPE_KEY] = json.dumps(recipe, sort_keys=True)
    return Quantization(
        architecture=architecture,
        metadata=metadata,
        tensors=tensors,
        nbytes=file_size(metadata, tensors),
        changed=changed,
        recipe=recipe,
    )


@dataclass(frozen=True)
class _Rules:
    apart: tuple[str, ...]  # beginnings of the names of tensors that belong to neither transformer
    wanted: str
    keep: Mapping[str, str]
    last_layer: int

    def type_of(self, name: str, kind: str, shape: tuple[int, ...]) -> str:
        """The type that a tensor of that name, type and shape gets."""
        storage, pattern = self._storage(name, shape), self.pattern_of(name)
        if pattern is not None and len(shape) > 1:
            return type_of(Storage.MATRIX, shape, self.keep[pattern])
        if storage is Storage.VECTOR:
            return kind
        wanted = self.wanted
        if storage is Storage.MATRIX and self._is_outer(name) and _bits(wanted) < _bits("q8_0"):
            wanted = "q8_0"
        target = type_of(storage, shape, wanted)
        return kind if kind not in BLOCKS or _bits(target) >= _bits(kind) else target

    def pattern_of(self, name: str) -> str | None:
        """The first pattern of `keep` that fits the name."""
        return next((pattern for pattern in self.keep if fnmatch.fnmatchcase(name, pattern)), None)

    def _storage(self, name: str, shape: tuple[int, ...]) -> Storage:
        if len(shape) < 2 or name.endswith(".alpha") or name.startswith(_CODEBOOKS):
            return Storage.VECTOR
        if name.startswith(self.apart):
            return Storage.CODEC
        return Storage.TABLE if name in _TABLES else Storage.MATRIX

    def _is_outer(self, name: str) -> bool:
        """Whether a tensor is of the Slow-AR's first or last layer."""
        match = _LAYER.match(name)
        return match is not None and int(match.group(1)) in (0, self.last_layer)


def _bits(kind: str) -> float:
    """Bits of a value in a type."""
    values, size = BLOCKS[kind]
    return 8 * size / values


def _pieces(
    file: _core.ModelFile, name: str, kind: str, shape: tuple[int, ...], target: str
) -> Iterator[npt.NDArray[np.uint8]]:
    """The tensor's bytes in the target type, some rows at a time."""
    rows = shape[0] if shape else 1
    step = max(1, PIECE * rows // max(1, int(np.prod(shape, dtype=np.int64))))
    for first in range(0, rows, step):
        last = min(first + step, rows)
        if target == kind:
            yield file.row_bytes(name, first, last)
            continue
        values = file.rows(name, first, last)
        if not np.isfinite(values).all():
            raise _core.ModelError(f"[{name}] expected finite values in rows {first} to {last - 1} of {file.path}")
        made = to_bytes(values, target, name=name)
        assert made.nbytes == nbytes((last - first, *shape[1:]), target)
        yield made
    file.forget(name)
