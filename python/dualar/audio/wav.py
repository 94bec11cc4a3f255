"""Float samples to WAV: the header, the conversion to PCM, and a writer for sound that is still being made.

Owns `write_wav`, `encode_wav` and `WavWriter`. Leaves the replacing of files to `dualar.files` and reading to
`read.py`.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from dualar.audio.read import check_rate
from dualar.files import write_file

Subtype = Literal["PCM_16", "PCM_24", "FLOAT"]

_SUBTYPES = ("PCM_16", "PCM_24", "FLOAT")
_WAV_SUFFIXES = (".wav", ".wave")
_SAMPLE_BYTES = {"PCM_16": 2, "PCM_24": 3, "FLOAT": 4}
_MAX_WAV_BYTES = 2**32 - 1  # RIFF sizes are 32-bit; in a header, this one stands for an unknown size


def write_wav(
    path: str | os.PathLike[str], samples: npt.ArrayLike, sample_rate: int, *, subtype: Subtype = "PCM_16"
) -> None:
    """Write float samples [n], mono, as WAV. Errors as for `Audio.save`, except that there may be no samples."""
    check_wav_path(path)
    write_file(path, encode_wav(samples, sample_rate, subtype=subtype))


def encode_wav(samples: npt.ArrayLike, sample_rate: int, *, subtype: Subtype = "PCM_16") -> bytes:
    """The bytes of a WAV file holding float samples [n], mono; clipped to [-1, 1]. ValueError for a NaN or inf."""
    if subtype not in _SUBTYPES:
        raise ValueError(f"[wav] expected subtype one of {', '.join(_SUBTYPES)}, got {subtype!r}")
    data = pcm_bytes(samples, subtype)
    if len(data) > _MAX_WAV_BYTES - 128:
        raise ValueError(f"[wav] expected at most {_MAX_WAV_BYTES - 128} bytes of samples, got {len(data)}")
    return wav_header(sample_rate, subtype, len(data)) + data + b"\0" * (len(data) % 2)


def wav_header(sample_rate: int, subtype: Subtype, data_bytes: int | None) -> bytes:
    """The header of a mono WAV file with data_bytes bytes of samples; None for a stream of unknown length."""
    sample_rate, size = check_rate(sample_rate), _SAMPLE_BYTES[subtype]
    fmt = struct.pack("<HHIIHH", 3 if subtype == "FLOAT" else 1, 1, sample_rate, sample_rate * size, size, 8 * size)
    chunks = b"fmt " + struct.pack("<I", len(fmt)) + fmt
    if subtype == "FLOAT":  # formats other than PCM also state the number of samples
        samples = _MAX_WAV_BYTES if data_bytes is None else data_bytes // size
        chunks = b"fmt " + struct.pack("<I", 18) + fmt + b"\0\0" + b"fact" + struct.pack("<II", 4, samples)
    if data_bytes is None:
        riff_bytes = data_bytes = _MAX_WAV_BYTES
    else:
        riff_bytes = 4 + len(chunks) + 8 + data_bytes + data_bytes % 2
    return b"RIFF" + struct.pack("<I", riff_bytes) + b"WAVE" + chunks + b"data" + struct.pack("<I", data_bytes)


def pcm_bytes(samples: npt.ArrayLike, subtype: Subtype) -> bytes:
    """Float samples [n] as a WAV file of the subtype stores them, little-endian. Errors as for `encode_wav`."""
    if subtype not in _SUBTYPES:
        raise ValueError(f"[wav] expected subtype one of {', '.join(_SUBTYPES)}, got {subtype!r}")
    values = np.asarray(samples)
    if values.ndim != 1 or values.dtype.kind != "f":
        raise ValueError(
            f"[wav] expected float samples of shape [n], got dtype {values.dtype}, shape {list(values.shape)}"
        )
    pcm = to_pcm(values, subtype)
    little = pcm.astype(pcm.dtype.newbyteorder("<"))
    if subtype == "PCM_24":
        return little.view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()
    return little.tobytes()


class WavWriter:
    """A mono WAV that is written as its samples come: one header, then samples alone.

    In a file that can seek, the header is corrected with each write, so what was written is a whole file whatever comes
    next; elsewhere (a pipe), and without in_place, it says that the length is unknown. `raw` leaves the header out.
    Nothing is written before the first samples. The file stays the caller's, to close.
    """

    def __init__(
        self,
        file: BinaryIO,
        sample_rate: int,
        *,
        subtype: Subtype = "PCM_16",
        raw: bool = False,
        in_place: bool = True,
        written: int = 0,
    ) -> None:
        """file: open for binary writing; at its beginning, if in_place.

        written: continue after this many samples, which an earlier writer left in the file; the rest is cut off.
        """
        self._file = file
        self._sample_rate = sample_rate
        self._subtype = subtype
        self._raw = raw
        self._seekable = in_place and not raw and file.seekable()
        self._data_bytes = 0
        self._begun = False
        if written:
            self._begun, self._data_bytes = True, written * _SAMPLE_BYTES[subtype]
            self._file.truncate(len(self._header(0)) + self._data_bytes)
            self._end_file()

    def write(self, samples: npt.ArrayLike) -> None:
        """Add float samples [n]. Errors: ValueError as for `encode_wav`, before anything is written; OSError."""
        data = pcm_bytes(samples, self._subtype)
        total = self._data_bytes + len(data)
        if self._seekable and total > _MAX_WAV_BYTES - 128:
            raise ValueError(f"[wav] expected at most {_MAX_WAV_BYTES - 128} bytes of samples, got {total}")
        if not self._begun and not self._raw:
            self._file.write(self._header(0))
        self._begun = True
        self._file.write(data)
        self._data_bytes = total
        if self._seekable:
            self._end_file()
        self._file.flush()

    def _end_file(self) -> None:
        """Correct the header for the samples so far, and seek to where the next ones go."""
        header = self._header(self._data_bytes)
        self._file.seek(len(header) + self._data_bytes)
        self._file.write(b"\0" * (self._data_bytes % 2))
        self._file.seek(0)
        self._file.write(header)
        self._file.seek(len(header) + self._data_bytes)

    def _header(self, data_bytes: int) -> bytes:
        return wav_header(self._sample_rate, self._subtype, data_bytes if self._seekable else None)


def written_samples(path: str | os.PathLike[str], sample_rate: int, subtype: Subtype) -> int:
    """How many samples a `WavWriter` of this rate and subtype has left in a file; 0 where there is no such file."""
    header = wav_header(sample_rate, subtype, 0)
    try:
        with open(path, "rb") as file:
            found = file.read(len(header))
            size = file.seek(0, os.SEEK_END)
    except FileNotFoundError:
        return 0
    kind = slice(8, 36)  # from WAVE to the end of fmt: what no writing changes
    if len(found) < len(header) or found[:4] != header[:4] or found[kind] != header[kind]:
        return 0
    return (size - len(header)) // _SAMPLE_BYTES[subtype]


def to_pcm(samples: npt.NDArray[Any], subtype: Subtype) -> npt.NDArray[Any]:
    """Float samples to what the WAV subtype stores; symmetric scale, rounded, clipped and never wrapped.

    Done here rather than by the library so that the same samples give the same bytes with every version of it.
    """
    bad = ~np.isfinite(samples)
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(
            f"[wav] expected finite samples, got {int(bad.sum())} that are not; the first is "
            f"{samples[first]} at sample {first}"
        )
    clipped = np.clip(samples.astype(np.float64), -1.0, 1.0)
    if subtype == "FLOAT":
        return clipped.astype(np.float32)
    if subtype == "PCM_24":
        return np.rint(clipped * (2**23 - 1)).astype(np.int32) << 8  # the upper 24 of 32 bits, as libraries have it
    return np.rint(clipped * (2**15 - 1)).astype(np.int16)


def check_wav_path(path: str | os.PathLike[str]) -> None:
    """ValueError for a name that promises another format. Devices and pipes have no such names and pass."""
    target = Path(path)
    if target.suffix.lower() in _WAV_SUFFIXES or (target.exists() and not target.is_file()):
        return
    raise ValueError(f"[wav] expected a file name ending in .wav (WAV is what is written), got {str(target)!r}")
