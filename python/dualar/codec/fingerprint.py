"""The fingerprint of a codec: a short text that two files share when the codes of one mean the same in the other.

Owns `codec_fingerprint` and the reading of the tensors it needs. Leaves the check of a file to the compiled core, which
has accepted the file before this module reads it, and the comparing to `dualar.voices.find`.

A code means the row of a codebook. So the fingerprint is a hash of the codec's geometry and of its codebooks, rounded
to half precision: the F32 and F16 files of one codec share it, whatever the types of their other tensors. Codebooks of
another type (BF16, quantized) were rounded differently, and get another fingerprint.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import struct
from collections.abc import Iterable

import numpy as np

from dualar._native import ModelFile, _core

_CODEBOOK = re.compile(r"c\.quantizer\..*\.codebook\.weight|codec\.codebook\.\d+\.weight")
_DEFAULT_ALIGNMENT = 32  # of GGUF, where the file names none
_INFO_AFTER_NAME = 1 << 10  # bytes; more than the rest of one tensor's entry has


def codec_fingerprint(file: ModelFile, *, geometry: Iterable[int]) -> str:
    """ "c1-" and 32 hexadecimal digits for the codec in an open GGUF file.

    geometry: the codec's rates and sizes. Only the file's list of tensors and its codebooks are read. ModelError where
    the file on disk is no longer the one that was opened.
    """
    digest = hashlib.sha256(repr([int(number) for number in geometry]).encode())
    tensors = file.tensors()
    with open(file.path, "rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
        # The data follow the list of tensors, so the end of its last entry is needed; each is found by name and shape.
        position, entries = 0, []
        for name, kind, shape in tensors:
            position, offset = _entry(data, position, name, shape, file.path)
            if _CODEBOOK.fullmatch(name):
                entries.append((name, kind, shape, offset))
        alignment = int(file.get("general.alignment") or _DEFAULT_ALIGNMENT)
        start = -(-position // alignment) * alignment
        for name, kind, shape, offset in sorted(entries):
            digest.update(f"{name} {list(shape)} ".encode())
            digest.update(_rounded(data, start + offset, kind, shape, name))
    return f"c1-{digest.hexdigest()[:32]}"


def _entry(data: mmap.mmap, position: int, name: str, shape: tuple[int, ...], path: str) -> tuple[int, int]:
    """The end of a tensor's entry, searched from `position` on, and the offset of the tensor's data."""
    encoded = name.encode()
    # Name, number of dimensions, dimensions (the fastest first); then the type and the offset.
    dimensions = list(reversed(shape))
    while True:
        found = data.find(struct.pack("<Q", len(encoded)) + encoded, position)
        if found < 0:
            raise _core.ModelError(f"[fingerprint] expected tensor {name} in {path}, found none: the file was changed")
        at = found + 8 + len(encoded)
        rest = data[at : at + _INFO_AFTER_NAME]
        if len(rest) >= 4:
            (count,) = struct.unpack_from("<I", rest)
            size = 4 + 8 * count + 12
            if 1 <= count <= 4 and len(rest) >= size:
                found_shape = list(struct.unpack_from(f"<{count}Q", rest, 4))
                while len(found_shape) > len(dimensions) and found_shape[-1] == 1:
                    found_shape.pop()
                if found_shape == dimensions:
                    (offset,) = struct.unpack_from("<Q", rest, size - 8)
                    return at + size, int(offset)
        position = at  # the name stood somewhere else, such as in the metadata


def _rounded(data: mmap.mmap, start: int, kind: str, shape: tuple[int, ...], name: str) -> bytes:
    """A tensor's values in half precision, little-endian; of other types than F32 and F16, the type and some bytes."""
    count = int(np.prod(shape, dtype=np.int64))
    # How long other types are is known to the core alone: half a byte a value is read, enough to tell codecs apart.
    size = {"f32": 4 * count, "f16": 2 * count}.get(kind, count // 2)
    found = data[start : start + size]
    if len(found) != size:
        raise _core.ModelError(f"[fingerprint] expected {size} bytes of {name} at {start}, got {len(found)}")
    if kind == "f32":
        with np.errstate(over="ignore"):
            return np.frombuffer(found, "<f4").astype("<f2").tobytes()
    return found if kind == "f16" else kind.encode() + found
