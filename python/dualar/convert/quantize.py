"""Chooses the type of each tensor of a model file, and makes its bytes in that type.

Owns the policy behind `--type`; leaves the quantizing itself to ggml. Vectors are always F32. A quantized type is used
for the matrices of the transformers alone: with it, tables, of which one row is read at a time, are Q8_0, and the
codec's weights, whose errors are heard, F16. A matrix whose rows are no multiple of the type's block gets a finer type.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dualar._native import _core
from dualar.convert.checkpoint import Float32
from dualar.convert.plan import Storage

BLOCKS = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q6_k": (256, 210),
    "q5_k": (256, 176),
    "q4_k": (256, 144),
    "q4_0": (32, 18),
}
"""Values and bytes of a block, by type; the names are those of `--type`."""

GGML_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "q4_k": 12, "q5_k": 13, "q6_k": 14, "bf16": 30}
"""ggml's numbers of the types."""

_PLAIN = ("f32", "f16", "bf16")
_LARGEST_HALF = 65504.0


def check_type(name: str) -> str:
    """A type's name in lower case; ValueError for an unknown one."""
    if name.lower() not in BLOCKS:
        raise ValueError(f"[convert] expected a type among {', '.join(BLOCKS)}, got {name!r}")
    return name.lower()


def type_of(storage: Storage, shape: tuple[int, ...], wanted: str) -> str:
    """The type that a tensor is kept in where `wanted` is asked for."""
    if storage is Storage.VECTOR:
        return "f32"
    if wanted in _PLAIN:
        return wanted
    if storage is Storage.CODEC:
        return "f16"
    for finer in ("q8_0",) if storage is Storage.TABLE else (wanted, "q8_0"):
        if shape[-1] % BLOCKS[finer][0] == 0:
            return finer
    return "f16"


def nbytes(shape: tuple[int, ...], kind: str) -> int:
    """Bytes of a tensor in a type."""
    values, size = BLOCKS[kind]
    return int(np.prod(shape, dtype=np.int64)) // values * size


def to_bytes(values: Float32, kind: str, *, name: str) -> npt.NDArray[np.uint8]:
    """The bytes of some of a tensor's rows, little-endian. ModelError for values too large for F16, which is also the
    type of a quantized block's scale."""
    if kind == "f32":
        return np.frombuffer(values.astype("<f4").tobytes(), np.uint8)
    largest = float(np.abs(values).max()) if values.size else 0.0
    if largest > _LARGEST_HALF and kind != "bf16":
        raise _core.ModelError(
            f"[{name}] expected values up to {_LARGEST_HALF:g}, which {kind} can hold, got {largest:g}: use --type f32 "
            "or bf16"
        )
    if kind == "f16":
        return np.frombuffer(values.astype("<f2").tobytes(), np.uint8)
    return _core.quantize(np.ascontiguousarray(values.reshape(-1, values.shape[-1])), kind)
