"""Published checkpoints as they lie on disk: names, shapes and float32 values, one tensor at a time.

Owns the reading of safetensors (one file, or several with an index) and of PyTorch's .pth and .pt files. Nothing in
them is trusted: a header is held against the bytes that are there, before anything is allocated. Leaves what tensors a
model should have to `plan.py`.

A safetensors file is eight bytes (little-endian length of the header), the header (JSON: name -> dtype, shape, first
and last byte of the data), the data. It is read here, not by the library of that name, whose numpy side has no BF16.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from dualar._native import _core

Float32 = npt.NDArray[np.float32]

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_FLOATS = ("F64", "F32", "F16", "BF16")
_MAX_HEADER = 100_000_000
_MAX_DIMENSIONS = 8


class Checkpoint(Protocol):
    """Tensors by name. `source` is what errors call it."""

    @property
    def source(self) -> str: ...
    @property
    def shapes(self) -> dict[str, tuple[int, ...]]: ...
    def read(self, name: str) -> Float32:
        """The values, in memory of their own; ModelError where they are no floats."""
        ...


def open_checkpoint(folder: Path, *, single: str = SINGLE, index: str = INDEX) -> Checkpoint:
    """The safetensors of a folder: the files that `index` names, else `single`. ModelError where there are none."""
    if (folder / index).is_file():
        listed = read_json(folder / index).get("weight_map")
        if not isinstance(listed, dict) or not all(isinstance(file, str) for file in listed.values()):
            raise _core.ModelError(f"[checkpoint] {folder / index}: expected weight_map, an object of file names")
        files = sorted(set(listed.values()))
        strange = [file for file in files if Path(file).name != file]
        if strange:
            raise _core.ModelError(f"[checkpoint] {folder / index}: expected names of files beside it, got {strange}")
        return Joined([Safetensors(folder / file) for file in files], source=str(folder / index), listed=set(listed))
    if (folder / single).is_file():
        return Safetensors(folder / single)
    raise _core.ModelError(f"[checkpoint] expected {single} or {index} in {folder}, found neither")


class Safetensors:
    """One safetensors file, memory-mapped."""

    def __init__(self, path: Path) -> None:
        """ModelError for a file that cannot be read, is cut short, or whose header lies."""
        self.source = str(path)
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < 8:
                    raise self._error("at least 8 bytes", str(size))
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise _core.ModelError(f"[checkpoint] cannot read {path}: {error.strerror or error}") from error
        (length,) = struct.unpack_from("<Q", self._data)
        if length > min(size - 8, _MAX_HEADER):
            raise self._error(f"a header within the file's {size} bytes", f"a length of {length}")
        header = self._header(self._data[8 : 8 + length])
        self._start = 8 + length
        self._tensors: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
        for name, entry in header.items():
            if name != "__metadata__":
                self._tensors[name] = self._entry(name, entry, size - self._start)
        end = 0
        for name, (_, _, first, last) in sorted(self._tensors.items(), key=lambda item: item[1][2:]):
            if first < end:
                raise self._error(f"tensors beside one another, {name} from byte {end} on", str(first))
            end = last

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Numpy shape of each tensor."""
        return {name: shape for name, (_, shape, _, _) in self._tensors.items()}

    def read(self, name: str) -> Float32:
        """The values as float32; ModelError for a tensor of integers."""
        dtype, shape, first, last = self._tensors[name]
        if dtype not in _FLOATS:
            raise self._error(f"floats in {name}", dtype)
        data = self._data[self._start + first : self._start + last]
        if dtype == "BF16":  # the upper half of a float32
            return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
        kind = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype]
        with np.errstate(over="ignore"):  # an infinity is found where the tensor is written
            return np.array(np.frombuffer(data, kind), np.float32).reshape(shape)

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
        if not isinstance(entry, dict):
            raise self._error(f"an object for {name[:80]!r}", type(entry).__name__)
        dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if not isinstance(dtype, str) or dtype not in _BYTES:
            raise self._error(f"a dtype among {', '.join(_BYTES)} for {name[:80]!r}", repr(dtype)[:80])
        if not _are_sizes(shape) or len(shape) > _MAX_DIMENSIONS:
            raise self._error(f"a shape for {name[:80]!r}", repr(shape)[:80])
        if not _are_sizes(offsets) or len(offsets) != 2:
            raise self._error(f"two data_offsets for {name[:80]!r}", repr(offsets)[:80])
        count = 1
        for size in shape:
            count *= size
        first, last = offsets
        if not first <= last <= room:
            raise self._error(f"{name[:80]!r} within {room} bytes of data", f"bytes {first} to {last}")
        if last - first != count * _BYTES[dtype]:
            raise self._error(f"{count * _BYTES[dtype]} bytes for {name[:80]!r} ({dtype} {shape})", str(last - first))
        return dtype, tuple(shape), first, last

    def _error(self, expected: str, got: str) -> _core.ModelError:
        return _core.ModelError(f"[checkpoint] {self.source}: expected {expected}, got {got}")


class Joined:
    """Several checkpoints as one."""

    def __init__(self, parts: list[Safetensors], *, source: str, listed: set[str]) -> None:
        """listed: the names that the index has; ModelError where they are not those of the files."""
        self.source = source
        self._homes: dict[str, Safetensors] = {}
        for part in parts:
            for name in part.shapes:
                if name in self._homes:
                    raise _core.ModelError(
                        f"[checkpoint] {source}: expected each tensor once, got {name!r} in "
                        f"{self._homes[name].source} and {part.source}"
                    )
                self._homes[name] = part
        differing = sorted(listed ^ set(self._homes))
        if differing:
            raise _core.ModelError(
                f"[checkpoint] {source}: expected the tensors of its files, got {len(differing)} that only one of them "
                f"has: {', '.join(differing[:8])}"
            )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Numpy shape of each tensor."""
        return {name: part.shapes[name] for name, part in self._homes.items()}

    def read(self, name: str) -> Float32:
        """As `Safetensors.read`."""
        return self._homes[name].read(name)


class TorchCheckpoint:
    """A .pth or .pt file, read by PyTorch; nothing in it is run."""

    def __init__(self, path: Path, *, pick: Callable[[Any], Any] = lambda loaded: loaded) -> None:
        """pick: finds the dict of tensors in what the file holds. ModelError for a file that has none; ImportError,
        saying what to install, where PyTorch is absent."""
        try:
            import torch  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            raise ImportError(f"[checkpoint] expected PyTorch to read {path}: pip install torch") from error
        self.source = str(path)
        try:
            loaded = pick(torch.load(path, map_location="cpu", weights_only=True, mmap=True))
        except OSError as error:
            raise _core.ModelError(f"[checkpoint] cannot read {path}: {error.strerror or error}") from error
        except Exception as error:  # PyTorch's own, of many kinds
            raise _core.ModelError(f"[checkpoint] expected a PyTorch checkpoint in {path}, got {error}") from error
        if not isinstance(loaded, dict):
            raise _core.ModelError(f"[checkpoint] {path}: expected a dict of tensors, got {type(loaded).__name__}")
        self._tensors = {str(name): t for name, t in loaded.items() if isinstance(t, torch.Tensor)}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Numpy shape of each tensor."""
        return {name: tuple(t.shape) for name, t in self._tensors.items()}

    def read(self, name: str) -> Float32:
        """As `Safetensors.read`."""
        tensor = self._tensors[name]
        if not tensor.is_floating_point():
            raise _core.ModelError(f"[checkpoint] {self.source}: expected floats in {name}, got {tensor.dtype}")
        return np.array(tensor.detach().float().numpy(), np.float32)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; ModelError where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _core.ModelError(f"[checkpoint] cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise _core.ModelError(f"[checkpoint] expected JSON in {path}, got {error or type(error).__name__}") from error
    if not isinstance(found, dict):
        raise _core.ModelError(f"[checkpoint] expected a JSON object in {path}, got {type(found).__name__}")
    return found


def _are_sizes(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**48 for v in values)
