"""A GGUF file (version 3), written front to back with a piece of a tensor in memory at a time.

Owns the byte format; the file appears whole or not at all. Leaves types and values to the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dualar.convert.quantize import GGML_TYPES, nbytes
from dualar.files import replacing

Value = bool | int | float | str | Sequence[int] | Sequence[float] | Sequence[str]

_ALIGNMENT = 32
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9


@dataclass(frozen=True)
class Encoded:
    """A metadata value as another file has it: its type, then its bytes."""

    data: bytes


@dataclass(frozen=True)
class Tensor:
    """One tensor of the file: its name, numpy shape, type (as `quantize.py` names it), and a function that gives its
    bytes, some rows at a time."""

    name: str
    shape: tuple[int, ...]
    kind: str
    pieces: Callable[[], Iterable[npt.NDArray[np.uint8]]]

    @property
    def nbytes(self) -> int:
        """Its bytes in the file."""
        return nbytes(self.shape, self.kind)


def write_gguf(
    path: Path,
    metadata: Mapping[str, Value | Encoded],
    tensors: Sequence[Tensor],
    *,
    on_progress: Callable[[int, int], object] | None = None,
) -> None:
    """Write the file; an existing one is replaced once the new one is whole. OSError where that fails.

    metadata: int becomes UINT32 (INT32 where negative or in arrays), float FLOAT32; bool, str, their sequences and what
    is Encoded stay what they are. on_progress is called with (bytes of tensors written, of all) after each piece.
    """
    done, total = 0, sum(tensor.nbytes for tensor in tensors)
    with replacing(path) as file:
        file.write(_head(metadata, tensors))
        for tensor in tensors:
            begun = done
            for piece in tensor.pieces():
                file.write(piece.data)
                done += piece.nbytes
                if on_progress is not None:
                    on_progress(done, total)
            assert done - begun == tensor.nbytes, f"{tensor.name}: {done - begun} bytes, not {tensor.nbytes}"
            file.write(b"\0" * (_padded(tensor.nbytes) - tensor.nbytes))


def file_size(metadata: Mapping[str, Value | Encoded], tensors: Sequence[Tensor]) -> int:
    """The bytes of the file that `write_gguf` would write."""
    return len(_head(metadata, tensors)) + sum(_padded(tensor.nbytes) for tensor in tensors)


def _head(metadata: Mapping[str, Value | Encoded], tensors: Sequence[Tensor]) -> bytes:
    """The bytes before those of the tensors."""
    parts = [b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    parts += [_string(key) + _value(key, value) for key, value in metadata.items()]
    offset = 0
    for tensor in tensors:
        dimensions = tensor.shape[::-1]  # the fastest first
        parts.append(_string(tensor.name) + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions))
        parts.append(struct.pack("<IQ", GGML_TYPES[tensor.kind], offset))
        offset += _padded(tensor.nbytes)
    head = b"".join(parts)
    return head.ljust(_padded(len(head)), b"\0")


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(key: str, value: Value | Encoded) -> bytes:
    if isinstance(value, Encoded):
        return value.data
    if isinstance(value, bool):
        return struct.pack("<IB", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value) if value >= 0 else struct.pack("<Ii", _INT32, value)
    if isinstance(value, float):
        return struct.pack("<If", _FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    kind, parts = _array(key, list(value))
    return struct.pack("<IIQ", _ARRAY, kind, len(value)) + b"".join(parts)


def _array(key: str, values: Sequence[object]) -> tuple[int, list[bytes]]:
    if all(isinstance(v, str) for v in values) and values:
        return _STRING, [_string(str(v)) for v in values]
    if all(type(v) is int for v in values):
        return _INT32, [struct.pack("<i", v) for v in values]
    if all(isinstance(v, float) for v in values):
        return _FLOAT32, [struct.pack("<f", v) for v in values]
    raise TypeError(f"{key}: expected an array of one type, got {values!r}")
