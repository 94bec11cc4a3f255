"""PyTorch's .pth and .pt files, read without PyTorch: both formats that `torch.save` has written, memory-mapped.

Owns both. No code in a file is run (`pickle_data.py`), and a tensor that reaches beyond the file's end is refused.
Leaves values to `checkpoint.Stored`.

Since version 1.6 a file is a zip archive: NAME/data.pkl, a pickle of the object that was saved, whose storages are
entries NAME/data/KEY, not compressed. Before, it was five pickles in a row (a magic number, a version, the machine's
sizes, the object, the keys of its storages), then each storage in that order: eight bytes with its number of values,
and the values. In both, a tensor is a call of `_rebuild_tensor_v2` with a storage, the number of its first value, its
shape and strides.
"""

from __future__ import annotations

import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from dualar._native import _core
from dualar.convert.checkpoint import ITEM_BYTES, MAX_DIMENSIONS, Stored, map_file
from dualar.convert.pickle_data import Call, PickleError, UnlistedError, read_pickle
from dualar.convert.published import shown

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_STORAGES = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
    "UntypedStorage": "U8",
}
_DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
_ZIP, _LOCAL_HEADER = b"PK\x03\x04", 30
_OBJECT = "/data.pkl"


@dataclass
class _Storage:
    """A run of values in the file; start: its first byte, set when its place in the file is found."""

    dtype: str
    size: int  # in values
    start: int | None = None

    @property
    def nbytes(self) -> int:
        return self.size * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    dtype: str
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class TorchFile:
    """The tensors of a .pth file."""

    def __init__(self, path: Path, *, pick: Callable[[Any], Any] = lambda loaded: loaded) -> None:
        """pick: finds the dict of tensors in what the file holds. ModelError for a file that has none, is damaged, or
        holds anything besides tensors, plain values and containers."""
        self.source = str(path)
        self._data = map_file(path)
        self._storages: dict[str, _Storage] = {}
        try:
            loaded = self._read_zip(path) if self._data[:4] == _ZIP else self._read_old()
        except UnlistedError as error:
            raise _core.ModelError(
                f"[checkpoint] {path}: expected tensors, plain values and containers, got an object of the class or "
                f"function {error.name}, which dualar does not run"
            ) from error
        except (PickleError, zipfile.BadZipFile, NotImplementedError, OSError, struct.error) as error:
            raise _core.ModelError(
                f"[checkpoint] {path}: expected a whole PyTorch checkpoint, got {shown(error) or type(error).__name__}"
            ) from error
        found = pick(loaded)
        if not isinstance(found, Mapping):
            raise _core.ModelError(f"[checkpoint] {path}: expected a dict of tensors, got {type(found).__name__}")
        named = {
            name: tensor for name, tensor in found.items() if isinstance(name, str) and isinstance(tensor, _Tensor)
        }
        self.tensors = {name: self._stored(name, tensor) for name, tensor in named.items()}

    # ------------------------------------------------------------------ the zip archive
    def _read_zip(self, path: Path) -> Any:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
        roots = [name[: -len(_OBJECT)] for name in entries if name.endswith(_OBJECT) and name.count("/") == 1]
        if len(roots) != 1:
            raise PickleError(f"a zip archive with {len(roots)} entries NAME{_OBJECT}")
        order = entries.get(f"{roots[0]}/byteorder")
        if order is not None and self._content(order) != b"little":
            raise PickleError("values in big-endian order")
        pickled = BytesIO(self._content(entries[roots[0] + _OBJECT]))
        loaded = read_pickle(pickled, allowed=_ALLOWED, persistent=self._storage)
        for key, storage in self._storages.items():
            entry = entries.get(f"{roots[0]}/data/{key}")
            if entry is None:
                raise PickleError(f"no entry data/{key}")
            storage.start = self._start(entry)
            if storage.nbytes > entry.file_size:
                raise PickleError(f"{entry.file_size} bytes in data/{key} where {storage.nbytes} belong")
        return loaded

    def _start(self, entry: zipfile.ZipInfo) -> int:
        """Where an entry's bytes begin: behind its local header, a name and an extra field."""
        header = entry.header_offset
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise PickleError(f"the entry {entry.filename} compressed or encrypted")
        if not 0 <= header <= len(self._data) - _LOCAL_HEADER or self._data[header : header + 4] != _ZIP:
            raise PickleError(f"no entry at byte {header}")
        name, extra = struct.unpack_from("<HH", self._data, header + 26)
        start = header + _LOCAL_HEADER + int(name) + int(extra)
        if start + entry.file_size > len(self._data):
            raise PickleError(f"{len(self._data) - start} bytes where the {entry.file_size} of {entry.filename} belong")
        return start

    def _content(self, entry: zipfile.ZipInfo) -> bytes:
        start = self._start(entry)
        return self._data[start : start + entry.file_size]

    # ------------------------------------------------------------------ the older format
    def _read_old(self) -> Any:
        file, nothing = self._data, _refuse
        try:
            magic = read_pickle(file, allowed={}, persistent=nothing)
        except PickleError:
            magic = None
        if magic != _MAGIC:
            raise PickleError("neither a zip archive nor the older format")
        if read_pickle(file, allowed={}, persistent=nothing) != _PROTOCOL:
            raise PickleError("another version of the older format")
        machine = read_pickle(file, allowed={}, persistent=nothing)
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise PickleError("values in big-endian order")
        loaded = read_pickle(file, allowed=_ALLOWED, persistent=self._storage)
        keys = read_pickle(file, allowed={}, persistent=nothing)
        at = file.tell()
        for key in keys if isinstance(keys, list) else []:
            storage = self._storages.get(key) if isinstance(key, str) else None
            if storage is None:
                raise PickleError(f"a storage {shown(key)} that no tensor has")
            (size,) = struct.unpack_from("<q", self._data, at)
            storage.start = at + 8
            at = storage.start + storage.nbytes
            if size != storage.size or at > len(self._data):
                raise PickleError(f"{size} values in a file of {len(self._data)} bytes where {storage.size} belong")
        return loaded

    # ------------------------------------------------------------------ tensors
    def _storage(self, name: Any) -> _Storage:
        """The storage of a persistent id: ("storage", its type, its key, a device, its number of values)."""
        if not isinstance(name, tuple) or len(name) < 5 or name[0] != "storage":
            raise PickleError("an id that is no storage's")
        dtype, key, size = getattr(name[1], "call", None), name[2], name[4]
        if not isinstance(dtype, _StorageType) or not isinstance(key, str) or type(size) is not int or size < 0:
            raise PickleError("a storage without a type, a key and a size")
        if len(name) > 5 and name[5] is not None:
            raise PickleError("a storage that is a part of another")
        return self._storages.setdefault(key, _Storage(dtype.dtype, size))

    def _stored(self, name: Any, tensor: _Tensor) -> Stored:
        storage = tensor.storage
        item = ITEM_BYTES[tensor.dtype]
        last = tensor.first + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
        if storage.start is None or (0 not in tensor.shape and (last + 1) * item > storage.nbytes):
            raise _core.ModelError(
                f"[checkpoint] {self.source}: expected {shown(name)!r} within its storage of {storage.nbytes} bytes, "
                f"got values up to number {last}"
            )
        return Stored(self._data, storage.start + tensor.first * item, tensor.dtype, tensor.shape, tensor.strides)


@dataclass(frozen=True)
class _StorageType:
    dtype: str

    def __call__(self, *_: Any) -> Any:
        raise PickleError("a storage that is made by a call")


def _tensor(storage: Any, first: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    return _typed_tensor(storage, first, shape, strides, getattr(storage, "dtype", None))


def _tensor_with_dtype(
    storage: Any, first: Any, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: Any, *_: Any
) -> _Tensor:
    return _typed_tensor(storage, first, shape, strides, getattr(getattr(dtype, "call", None), "dtype", None))


def _typed_tensor(storage: Any, first: Any, shape: Any, strides: Any, dtype: Any) -> _Tensor:
    sizes = isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides) <= MAX_DIMENSIONS
    if not isinstance(storage, _Storage) or dtype not in ITEM_BYTES or not sizes:
        raise PickleError("a tensor without a storage, a type and a shape")
    if not all(type(n) is int and 0 <= n < 2**48 for n in (first, *shape, *strides)):
        raise PickleError(f"a tensor of shape {shown(shape)}")
    return _Tensor(storage, dtype, first, shape, strides)


def _parameter(tensor: Any, *_: Any) -> Any:
    return tensor


def _refuse(*_: Any) -> Any:
    raise PickleError("an id of a storage where there is none")


def _plain(*_: Any) -> None:
    """A device, a size: not needed."""


_ALLOWED: Mapping[tuple[str, str], Call] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_with_dtype,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch", "Size"): _plain,
    ("torch", "device"): _plain,
    ("torch.storage", "UntypedStorage"): _StorageType("U8"),
    **{("torch", name): _StorageType(dtype) for name, dtype in _STORAGES.items()},
    **{("torch", name): _StorageType(dtype) for name, dtype in _DTYPES.items()},
}
