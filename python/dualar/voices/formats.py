"""The bytes of voice files: dualar's own format, and version 1 of the `.s2voice` of s2.cpp.

Owns both layouts, and the refusal of files that contradict themselves. How much memory is allocated depends on a file's
length, which is limited, and never on a number in it. Leaves what a voice may hold to `voice.py`.

dualar's own format, `.voice`, version 1; all numbers little-endian:

    offset  bytes  what
    0       8      magic "DUALARV\0"
    8       4      u32 version, 1
    12      4      u32 J, bytes of the description
    16      8      u64 C, bytes of the codes
    24      J      the description: a JSON object in UTF-8
    24+J    C      the codes, int32 [N, T], row by row
    24+J+C  32     SHA-256 of all bytes before; the file ends here

The description has "shape" ([N, T]), "transcript", "sample_rate", "codebook_size", "samples_per_frame", "fingerprint"
and "name", as the fields of `Voice`; the last three may be null; and "speaker", an array of numbers, where there is
one. A reader passes over keys that it does not know.

`.s2voice`, version 1, is: magic "S2VOICE\0"; u32 version, 1; i32 N, T, sample_rate, codebook_size; u64 bytes of the
transcript with its final NUL; u64 bytes of the codes; the transcript; the codes, int32 [N, T]. It has no checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol, get_args

import numpy as np
import numpy.typing as npt

VoiceFormat = Literal["voice", "s2voice"]


SUFFIXES: dict[str, VoiceFormat] = {".voice": "voice", ".s2voice": "s2voice"}
MAX_BYTES = 1 << 26  # of a voice file: a day of speech

_MAGIC, _S2_MAGIC = b"DUALARV\0", b"S2VOICE\0"
MAGICS = (_MAGIC, _S2_MAGIC)
_HEAD, _S2_HEAD = struct.Struct("<8sIIQ"), struct.Struct("<8sIiiiiQQ")
_HASH_BYTES = 32


class VoiceFields(Protocol):
    """What a file holds of a voice: the fields of `dualar.Voice`."""

    @property
    def codes(self) -> npt.NDArray[np.int32]: ...
    @property
    def transcript(self) -> str: ...
    @property
    def sample_rate(self) -> int: ...
    @property
    def codebook_size(self) -> int: ...
    @property
    def samples_per_frame(self) -> int | None: ...
    @property
    def fingerprint(self) -> str | None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def speaker(self) -> npt.NDArray[np.float32] | None: ...


def format_of(path: str | os.PathLike[str], format: str | None = None) -> VoiceFormat:
    """The format to write: `format`, by default that of the file name's suffix. ValueError for an unknown one."""
    if format is not None:
        if format not in get_args(VoiceFormat):
            raise ValueError(f"[voice] expected format 'voice' or 's2voice', got {format!r}")
        return "voice" if format == "voice" else "s2voice"
    found = SUFFIXES.get(Path(path).suffix.lower())
    if found is None:
        raise ValueError(f"[voice] expected a file name ending in .voice or .s2voice, got {os.fspath(path)!r}")
    return found


def encode_voice(voice: VoiceFields, format: VoiceFormat = "voice") -> bytes:
    """The bytes of a voice's file. ValueError where they would be more than MAX_BYTES."""
    codes = voice.codes.astype("<i4").tobytes()
    rows, frames = voice.codes.shape
    if format == "s2voice":
        if frames == 0:
            raise ValueError("[voice] expected a voice with a recording, as .s2voice files have, got a vector alone")
        text = voice.transcript.encode() + b"\0"
        head = (_S2_MAGIC, 1, rows, frames, voice.sample_rate, voice.codebook_size, len(text), len(codes))
        data = _S2_HEAD.pack(*head) + text + codes
    else:
        description = {
            "shape": [rows, frames],
            "transcript": voice.transcript,
            "sample_rate": voice.sample_rate,
            "codebook_size": voice.codebook_size,
            "samples_per_frame": voice.samples_per_frame,
            "fingerprint": voice.fingerprint,
            "name": voice.name,
        }
        if voice.speaker is not None:
            description["speaker"] = [float(number) for number in voice.speaker]  # exact: 17 digits hold a float32
        text = json.dumps(description, ensure_ascii=False).encode()
        data = _HEAD.pack(_MAGIC, 1, len(text), len(codes)) + text + codes
        data += hashlib.sha256(data).digest()
    if len(data) > MAX_BYTES:
        raise ValueError(f"[voice] expected a voice of at most {MAX_BYTES} bytes, got {len(data)}")
    return data


def decode_fields(data: bytes, *, source: str) -> dict[str, Any]:
    """The fields of the voice in a file's bytes, of either format, their values not checked yet.

    ValueError, naming `source`, for a file of another kind or version, cut short or damaged.
    """
    magic = data[:8]
    if magic == _MAGIC:
        return _decode_own(data, source)
    if magic == _S2_MAGIC:
        return _decode_s2(data, source)
    if len(data) < 8 and (_MAGIC.startswith(magic) or _S2_MAGIC.startswith(magic)):
        _fail(source, "a voice file", f"{len(data)} bytes: it is cut short")
    _fail(source, "a voice file (.voice or .s2voice)", f"one that begins with {magic!r}")


def read_file(path: str | os.PathLike[str], *, follow_links: bool = True) -> bytes:
    """The bytes of a voice file; without follow_links, a ValueError where the path is a symbolic link."""
    source = os.fspath(path)
    info = os.stat(path, follow_symlinks=follow_links)
    if not stat.S_ISREG(info.st_mode):  # not opened: that may block, as a pipe does
        kind = "a symbolic link" if stat.S_ISLNK(info.st_mode) else "a folder" if stat.S_ISDIR(info.st_mode) else "none"
        _fail(source, "a plain file", kind)
    # Should the file change between stat and open, these flags keep open from waiting for a pipe or following a link.
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    if not follow_links:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(path, flags), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES:
            _fail(source, f"a voice of at most {MAX_BYTES} bytes", f"{size}")
        return file.read(MAX_BYTES + 1)


def _decode_own(data: bytes, source: str) -> dict[str, Any]:
    if len(data) < _HEAD.size:
        _fail(source, f"a header of {_HEAD.size} bytes", f"{len(data)}: the file is cut short")
    _, version, text_bytes, code_bytes = _HEAD.unpack_from(data)
    _require_version(version, source)
    codes_at = _HEAD.size + text_bytes
    end = codes_at + code_bytes
    _require_length(end + _HASH_BYTES, len(data), source)
    if hashlib.sha256(memoryview(data)[:end]).digest() != data[end:]:
        _fail(source, "bytes that give its checksum", "others: the file is damaged")
    try:
        description = json.loads(data[_HEAD.size : codes_at].decode())
    except (ValueError, RecursionError) as error:
        _fail(source, "a description in JSON", f"what cannot be read: {error}")
    if not isinstance(description, dict):
        _fail(source, "a description that is a JSON object", type(description).__name__)
    missing = [key for key in ("shape", "transcript", "sample_rate", "codebook_size") if key not in description]
    if missing:
        _fail(source, "a description with " + ", ".join(missing), "one without")
    shape = description["shape"]
    if not (isinstance(shape, list) and len(shape) == 2 and all(type(n) is int and n >= 0 for n in shape)):
        _fail(source, "a shape [codebooks, frames]", f"{_shown(shape)}")
    return {
        "codes": _codes(data, codes_at, code_bytes, shape[0], shape[1], source),
        **{key: description[key] for key in ("transcript", "sample_rate", "codebook_size")},
        **{key: description.get(key) for key in ("samples_per_frame", "fingerprint", "name", "speaker")},
    }


def _decode_s2(data: bytes, source: str) -> dict[str, Any]:
    if len(data) < _S2_HEAD.size:
        _fail(source, f"a header of {_S2_HEAD.size} bytes", f"{len(data)}: the file is cut short")
    _, version, rows, frames, rate, size, text_bytes, code_bytes = _S2_HEAD.unpack_from(data)
    _require_version(version, source)
    if rows < 1 or frames < 1:
        _fail(source, "at least one codebook and one frame", f"{rows} and {frames}")
    if text_bytes < 1:
        _fail(source, "a transcript with its final NUL", "0 bytes of it")
    codes_at = _S2_HEAD.size + text_bytes
    _require_length(codes_at + code_bytes, len(data), source)
    codes = _codes(data, codes_at, code_bytes, rows, frames, source)
    text = data[_S2_HEAD.size : codes_at]
    if text.index(0) != len(text) - 1 if 0 in text else True:
        _fail(source, "a transcript with one NUL, at its end", "a NUL within it" if 0 in text else "one without")
    try:
        transcript = text[:-1].decode()
    except UnicodeDecodeError as error:
        _fail(source, "a transcript in UTF-8", f"byte 0x{text[error.start]:02x} at {error.start}")
    return {"codes": codes, "transcript": transcript, "sample_rate": rate, "codebook_size": size}


def _require_version(version: int, source: str) -> None:
    if version != 1:
        _fail(source, "version 1", f"version {version}")


def _require_length(expected: int, got: int, source: str) -> None:
    if expected != got:
        what = "cut short" if got < expected else "longer than it says"
        _fail(source, f"{expected} bytes by its header", f"{got}: the file is {what} or damaged")


def _codes(data: bytes, start: int, nbytes: int, rows: int, frames: int, source: str) -> npt.NDArray[np.int32]:
    if nbytes != rows * frames * 4:
        _fail(source, f"{rows} x {frames} codes of 4 bytes", f"{nbytes} bytes of them")
    return np.frombuffer(data, "<i4", count=rows * frames, offset=start).reshape(rows, frames).astype(np.int32)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fail(source: str, expected: str, got: str) -> NoReturn:
    raise ValueError(f"[voice] expected {expected} in {source}, got {got}")
