"""Reads sound files into float samples, averages their channels, and converts sample rates.

Owns `read_audio` (WAV, FLAC, Ogg Vorbis and Opus, MP3), the refusal of files that were cut short, and
`mix_and_resample`. Leaves decoding to libsndfile, resampling to soxr, and writing to `wav.py`.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dualar.audio.kinds import kind_of
from dualar.config import whole_number

Float32 = npt.NDArray[np.float32]

_FORMATS = {"WAV": "WAV", "WAVEX": "WAV", "RF64": "WAV", "FLAC": "FLAC", "OGG": "OGG", "MP3": "MP3"}
_BLOCK = 1 << 18  # samples a channel that are read at a time
# Sizes that programs which write a WAV stream (ffmpeg, arecord, sox, others) put where they cannot know the real one.
_UNKNOWN_SIZES = (0xFFFFFFFF, 0xFFFFFFDB, 0x80000000, 0x7FFFFFFF, 0x7FFFFFDB, 0x7FFFF000)
_MAX_RATE = 2**24
_HEAD_BYTES = 64  # enough to tell what a file that cannot be read seems to be


def read_audio(
    source: str | os.PathLike[str] | bytes | BinaryIO, *, sample_rate: int | None = None, mono: bool = True
) -> tuple[Float32, int]:
    """A sound file -> its samples, float32 [n] in about [-1, 1], and their rate in Hz.

    source: a path, a file's bytes, or a file open for binary reading. WAV (PCM of 8, 16, 24 and 32 bits, float of 32
    and 64, A-law, mu-law; also with the extensible header), FLAC, OGG and MP3. sample_rate: resample to this many Hz,
    by default leave the file's. mono: average the channels; False gives [n, channels].

    Errors: OSError, naming the path, where a file cannot be opened; ValueError for a file of another format, without
    samples, cut short (by its header or its last page) or with samples that are not finite.
    """
    if sample_rate is not None:
        sample_rate = check_rate(sample_rate)
    with _opened(source) as (file, name):
        _refuse_cut_container(file, name)
        samples, rate = _decode(file, name)
        wanted = sample_rate or rate
        return mix_and_resample(samples, rate, wanted, mono=mono, name=f" in {name}"), wanted


def mix_and_resample(samples: npt.ArrayLike, rate: int, wanted: int, *, mono: bool = True, name: str = "") -> Float32:
    """Float samples [n] or [n, channels] at one rate -> float32 at another: [n'], or [n', channels] if not mono.

    n' is n * wanted / rate, rounded; both rates in Hz. name: stands in error texts. ValueError for another shape or
    type, values that are not finite, or an impossible rate.
    """
    values: npt.NDArray[Any] = np.asarray(samples)
    if values.ndim not in (1, 2) or (values.ndim == 2 and values.shape[1] == 0):
        raise ValueError(f"[audio] expected samples of shape [n] or [n, channels], got {list(values.shape)}")
    if values.dtype.kind != "f":
        raise ValueError(f"[audio] expected float samples in [-1, 1], got dtype {values.dtype}")
    if values.ndim == 2 and values.shape[1] > max(64, values.shape[0]):
        raise ValueError(f"[audio] expected samples of shape [n, channels], got {list(values.shape)}: transposed?")
    rate, wanted = check_rate(rate), check_rate(wanted)
    bad = ~np.isfinite(values)
    if bad.any():
        place = [int(i) for i in np.argwhere(bad)[0]]
        raise ValueError(
            f"[audio] expected finite samples{name}, got {int(bad.sum())} that are not; the first is "
            f"{values[tuple(place)]} at sample {place[0]}"
        )
    if mono and values.ndim == 2:
        values = values.mean(axis=1, dtype=np.float64) if values.shape[1] > 1 else values[:, 0]
    if values.shape[0] and np.abs(values).max() > np.finfo(np.float32).max:
        raise ValueError(f"[audio] expected samples that float32 can hold{name}, got {np.abs(values).max():g}")
    mixed = np.ascontiguousarray(values, dtype=np.float32)
    if rate == wanted or mixed.shape[0] == 0:
        return mixed
    import soxr

    resampled = np.asarray(soxr.resample(mixed, rate, wanted, quality="HQ"), dtype=np.float32)
    return _of_length(resampled, max(1, round(mixed.shape[0] * wanted / rate)))


def check_rate(rate: object) -> int:
    """A sample rate in Hz as an int; ValueError unless it is a whole number from 1 to 2^24."""
    return whole_number("audio.sample_rate", rate, 1, _MAX_RATE)


def _of_length(samples: Float32, length: int) -> Float32:
    """soxr's own rounding of the length differs by a sample at times: cut it, or repeat zeros at the end."""
    if samples.shape[0] >= length:
        return samples[:length]
    missing = [(0, length - samples.shape[0])] + [(0, 0)] * (samples.ndim - 1)
    return np.pad(samples, missing)


@contextlib.contextmanager
def _opened(source: str | os.PathLike[str] | bytes | BinaryIO) -> Iterator[tuple[BinaryIO, str]]:
    """The source as a file that can seek, at its beginning, and a name for it."""
    if isinstance(source, bytes | bytearray | memoryview):
        yield io.BytesIO(bytes(source)), f"{len(source)} bytes"
    elif isinstance(source, str | os.PathLike):
        with open(source, "rb") as file:
            if file.seekable():
                yield file, os.fspath(source)
            else:
                yield io.BytesIO(file.read()), os.fspath(source)
    elif hasattr(source, "read"):
        data = source.read()  # from its position on: what lies before it may not belong to the sound
        if not isinstance(data, bytes):
            raise ValueError(f"[audio] expected a file open for binary reading, got one that reads {type(data)}")
        yield io.BytesIO(data), str(getattr(source, "name", "") or "file")
    else:
        raise ValueError(f"[audio] expected a path, bytes or a binary file, got {type(source)}")


def _decode(file: BinaryIO, name: str) -> tuple[Float32, int]:
    """All samples float32 [n, channels] and the rate."""
    import soundfile

    kinds = "WAV, FLAC, OGG or MP3"
    try:
        with soundfile.SoundFile(file) as sound:
            if sound.format not in _FORMATS:
                raise ValueError(f"[audio] expected {kinds} in {name}, got {sound.format}")
            announced = int(sound.frames)
            parts = []
            while len(part := sound.read(_BLOCK, dtype="float32", always_2d=True)):
                parts.append(part)
            channels, rate, kind = int(sound.channels), int(sound.samplerate), _FORMATS[sound.format]
    except soundfile.LibsndfileError as error:
        file.seek(0)
        seems = kind_of(file.read(_HEAD_BYTES))
        got = error.error_string.rstrip(".") if seems is None else f"what seems to be {seems}"
        raise ValueError(f"[audio] expected {kinds} in {name}, got {got}") from error
    samples: Float32 = np.concatenate(parts) if parts else np.zeros((0, channels), np.float32)
    if samples.shape[0] < announced < 2**62:  # a larger number stands for an unknown length
        raise ValueError(_cut(name, f"{announced} samples by its {kind} header", f"{samples.shape[0]}"))
    if samples.shape[0] == 0:
        raise ValueError(f"[audio] expected sound in {name}, got no samples")
    return samples, rate


# ------------------------------------------------------------------ what libsndfile reads without complaint
def _refuse_cut_container(file: BinaryIO, name: str) -> None:
    """ValueError for a WAV or OGG file that ends before it should; leaves the file at its beginning."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(12)
    if size == 0:
        raise ValueError(f"[audio] expected sound in {name}, got an empty file")
    if head[:4] in (b"RIFF", b"RIFX", b"RF64") and head[8:] == b"WAVE":
        _check_wav(file, name, size, "big" if head[:4] == b"RIFX" else "little")
    elif head[:4] == b"OggS":
        _check_ogg(file, name, size)
    file.seek(0)


def _check_wav(file: BinaryIO, name: str, size: int, order: Any) -> None:
    """Walk the chunks: the samples must all be there, and so must the two chunks that make a WAV."""
    at, long_size, has_format = 12, None, False
    while at + 8 <= size:
        file.seek(at)
        head = file.read(8)
        kind, length = head[:4], int.from_bytes(head[4:], order)
        start = at + 8
        if kind == b"ds64":  # RF64: the sizes that 32 bits cannot hold
            long_size = int.from_bytes(file.read(16)[8:], "little")
        has_format |= kind == b"fmt "
        if kind == b"data":
            if not has_format:
                raise ValueError(f"[audio] expected a format before the samples in {name}, got none")
            if length == 0xFFFFFFFF and long_size is not None:
                length = long_size
            elif length in _UNKNOWN_SIZES:  # a stream that was saved: it goes on to the file's end
                return
            if start + length > size:
                raise ValueError(_cut(name, f"{length} bytes of samples by its WAV header", f"{size - start}"))
            return
        at = start + length + length % 2
    raise ValueError(_cut(name, "a WAV file with samples", f"{size} bytes that end before them"))


def _check_ogg(file: BinaryIO, name: str, size: int) -> None:
    """Walk the pages: the last one must be whole, and be marked as the last of its stream."""
    at, open_streams = 0, set()
    while at < size:
        file.seek(at)
        head = file.read(27)
        if len(head) < 27 or head[:4] != b"OggS":
            break
        segments = file.read(head[26])
        end = at + 27 + head[26] + sum(segments)
        if len(segments) < head[26] or end > size:
            raise ValueError(_cut(name, f"an OGG page of {end - at} bytes at byte {at}", f"{size - at}"))
        serial = head[14:18]
        if head[5] & 4:
            open_streams.discard(serial)
        else:
            open_streams.add(serial)
        at = end
    if open_streams or at < size:
        raise ValueError(_cut(name, "an OGG stream up to its last page", f"{at} bytes without it"))


def _cut(name: str, expected: str, got: str) -> str:
    return f"[audio] expected {expected} in {name}, got {got}: the file is cut short or damaged"
