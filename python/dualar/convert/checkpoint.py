"""Reads published checkpoints: names, shapes, and values as float32, some rows of a tensor at a time.

Owns `Stored` (a tensor in a file), the reading of safetensors (one file, or several with an index), and `Renamed` (a
checkpoint whose tensors get other names). Nothing in a file is trusted: a header is checked against the file's length
before anything is allocated. Leaves PyTorch's files to `torch_file.py`, which tensors a model needs to `plan.py`.

A safetensors file is eight bytes (little-endian length of the header), the header (JSON: name -> dtype, shape, first
and last byte of the data), the data. It is read here, not by the library of that name, whose numpy side has no BF16.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from dualar._native import _core
from dualar.convert.published import listed, read_json, refuse_pointer, shown
from dualar.files import POINTER_SIZE

Float32 = npt.NDArray[np.float32]

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

ITEM_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1),
}
"""Bytes of a value, by the names of safetensors."""

_NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_MAX_HEADER = 100_000_000
MAX_DIMENSIONS = 8


@dataclass(frozen=True)
class Stored:
    """A tensor in a mapped file. start: its first byte in `data`. strides: in values, one for each axis."""

    data: mmap.mmap
    start: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def rows(self, first: int, last: int) -> Float32:
        """The rows [first, last) of the first axis as float32, copied. Only for tensors of floats."""
        kind = np.dtype(_NUMPY[self.dtype])
        shape = (last - first, *self.shape[1:])
        if 0 in shape:
            return np.zeros(shape, np.float32)
        start = self.start + first * self.strides[0] * kind.itemsize
        reach = 1 + sum((size - 1) * stride for size, stride in zip(shape, self.strides, strict=True))
        flat = np.frombuffer(self.data, kind, reach, start)
        strides = [stride * kind.itemsize for stride in self.strides]
        view = np.lib.stride_tricks.as_strided(flat, shape, strides, writeable=False)
        if self.dtype == "BF16":  # the upper half of a float32
            wide = view.astype(np.uint32, order="C")
            wide <<= 16
            return wide.view(np.float32)
        with np.errstate(over="ignore"):  # an infinity is found where the tensor is written
            return view.astype(np.float32, order="C")


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in values, of a tensor whose last axis is the fastest."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


class Checkpoint(Protocol):
    """Tensors by name. source: the file's name for error texts."""

    @property
    def source(self) -> str: ...
    @property
    def tensors(self) -> Mapping[str, Stored]: ...


def not_floats(name: str, dtype: str, source: str) -> str | None:
    """The error text for a tensor whose dtype is not a plain float; None where it is."""
    if dtype in _NUMPY:
        return None
    more = " (8-bit floats, whose scales are elsewhere: take the checkpoint in BF16)" if dtype.startswith("F8_") else ""
    return f"[{shown(name)}] expected floats, got {dtype}{more} in {source}"


def open_checkpoint(folder: Path, *, single: str = SINGLE, index: str = INDEX) -> Checkpoint:
    """The safetensors of a folder: the files that `index` names, else `single`. ModelError where there are none."""
    if (folder / index).is_file():
        weight_map = read_json(folder / index).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
            raise _core.ModelError(f"[checkpoint] {folder / index}: expected weight_map, an object of file names")
        files = sorted(set(weight_map.values()))
        strange = [file for file in files if Path(file).name != file]
        if strange:
            raise _core.ModelError(
                f"[checkpoint] {folder / index}: expected names of files beside it, got {listed(strange)}"
            )
        return Joined([Safetensors(folder / file) for file in files], source=str(folder / index), names=set(weight_map))
    if (folder / single).is_file():
        return Safetensors(folder / single)
    raise _core.ModelError(f"[checkpoint] expected {single} or {index} in {folder}, found neither")


def map_file(path: Path) -> mmap.mmap:
    """A file's bytes, memory-mapped; ModelError for one that cannot be read, is empty, or is a Git LFS pointer."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise _core.ModelError(f"[checkpoint] {path}: expected tensors, got an empty file")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or error
        raise _core.ModelError(f"[checkpoint] cannot read {shown(path)}: {reason}") from error
    refuse_pointer(path, data[:POINTER_SIZE])
    return data


class Safetensors:
    """One safetensors file, memory-mapped."""

    def __init__(self, path: Path) -> None:
        """ModelError for a file that cannot be read, is cut short, or whose header contradicts its length."""
        self.source = str(path)
        self._data = map_file(path)
        size = len(self._data)
        if size < 8:
            raise self._error("at least 8 bytes", str(size))
        (length,) = struct.unpack_from("<Q", self._data)
        if length > min(size - 8, _MAX_HEADER):
            raise self._error(f"a header within the file's {size} bytes", f"a length of {length}")
        header = self._header(self._data[8 : 8 + length])
        self.tensors: dict[str, Stored] = {}
        spans = []
        for name, entry in header.items():
            if name != "__metadata__":
                dtype, shape, first, last = self._entry(name, entry, size - 8 - length)
                self.tensors[name] = Stored(self._data, 8 + length + first, dtype, shape, contiguous(shape))
                spans.append((first, last, name))
        end = 0
        for first, last, name in sorted(spans):
            if first < end:
                raise self._error(f"tensors beside one another, {shown(name)} from byte {end} on", str(first))
            end = last

    def _header(self, text: bytes) -> dict[str, Any]:
        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            found = dict(pairs)
            if len(found) != len(pairs):
                raise ValueError("a name twice")
            return found

        try:
            header = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
        except (ValueError, RecursionError) as error:
            raise self._error("a header in JSON", str(error) or type(error).__name__) from error
        if not isinstance(header, dict):
            raise self._error("a JSON object as header", type(header).__name__)
        return header

    def _entry(self, name: str, entry: Any, room: int) -> tuple[str, tuple[int, ...], int, int]:
        called = repr(shown(name))
        if not isinstance(entry, dict):
            raise self._error(f"an object for {called}", type(entry).__name__)
        dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
            raise self._error(f"a dtype among {', '.join(ITEM_BYTES)} for {called}", repr(dtype)[:80])
        if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS:
            raise self._error(f"a shape for {called}", repr(shape)[:80])
        if not _are_sizes(offsets) or len(offsets) != 2:
            raise self._error(f"two data_offsets for {called}", repr(offsets)[:80])
        count = 1
        for size in shape:
            count *= size
        first, last = offsets
        if not first <= last <= room:
            raise self._error(f"{called} within {room} bytes of data", f"bytes {first} to {last}")
        if last - first != count * ITEM_BYTES[dtype]:
            raise self._error(f"{count * ITEM_BYTES[dtype]} bytes for {called} ({dtype} {shape})", str(last - first))
        return dtype, tuple(shape), first, last

    def _error(self, expected: str, got: str) -> _core.ModelError:
        return _core.ModelError(f"[checkpoint] {self.source}: expected {expected}, got {got}")


class Joined:
    """Several checkpoints as one."""

    def __init__(self, parts: list[Safetensors], *, source: str, names: set[str]) -> None:
        """names: those in the index; ModelError where the files have others."""
        self.source = source
        self.tensors: dict[str, Stored] = {}
        homes: dict[str, str] = {}
        for part in parts:
            for name, tensor in part.tensors.items():
                if name in homes:
                    raise _core.ModelError(
                        f"[checkpoint] {source}: expected each tensor once, got {shown(name)!r} in {homes[name]} and "
                        f"{part.source}"
                    )
                homes[name] = part.source
                self.tensors[name] = tensor
        differing = sorted(names ^ set(homes))
        if differing:
            raise _core.ModelError(
                f"[checkpoint] {source}: expected the tensors of its files, got {len(differing)} that only one of them "
                f"has: {listed(differing)}"
            )


class Renamed:
    """A checkpoint whose tensors get other names; some may be left out."""

    def __init__(self, checkpoint: Checkpoint, rename: Callable[[str], str | None]) -> None:
        """rename: gives a tensor's new name, or None to leave it out. ModelError where two get the same name."""
        self.source = checkpoint.source
        self.tensors: dict[str, Stored] = {}
        self.left_out: list[str] = []
        originals: dict[str, str] = {}
        for original, tensor in checkpoint.tensors.items():
            name = rename(original)
            if name is None:
                self.left_out.append(original)
                continue
            if name in originals:
                raise _core.ModelError(
                    f"[checkpoint] {self.source}: expected one tensor for {shown(name)!r}, got "
                    f"{shown(originals[name])!r} and {shown(original)!r}"
                )
            originals[name] = original
            self.tensors[name] = tensor


def _are_sizes(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**48 for v in values)
