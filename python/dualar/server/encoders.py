"""Samples to the bytes of a format, as the samples come.

Owns what each format's stream looks like, and which rate it takes. Leaves compressing to libsndfile (soundfile), AAC to
PyAV where that is installed, and resampling to soxr.

libsndfile writes a file, whose header it corrects at its end. A stream cannot go back, so its header says that the
length is unknown; an MP3 stream begins without the frame that would hold the length, and has a constant bit rate, from
which players reckon the time.
"""

from __future__ import annotations

import ctypes
import importlib.util
import io
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from dualar.audio.wav import encode_wav, pcm_bytes, wav_header

Float32 = npt.NDArray[np.float32]

MEDIA_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
PCM_RATE = 24000  # of OpenAI's headerless format
_MP3_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
_OPUS_RATE = 48000
_PIECE = 2048  # samples that libsndfile is given at a time: its Ogg writer fails on long ones
_SET_OGG_PAGE_LATENCY_MS = 0x1302  # of libsndfile's sf_command
_OPUS_PAGE_MS = 20.0


def has_aac() -> bool:
    """Whether AAC can be written."""
    return importlib.util.find_spec("av") is not None


class Encoder(ABC):
    """One stream of one format. One thread at a time."""

    def __init__(self, rate: int, wanted: int) -> None:
        """rate: of the samples that come; wanted: that the format is given."""
        self.rate = wanted
        self._resampler: Any = None
        if rate != wanted:
            import soxr

            self._resampler = soxr.ResampleStream(rate, wanted, 1, dtype="float32", quality="HQ")

    def write(self, samples: Float32) -> bytes:
        """The bytes that these samples [n] add; maybe none yet."""
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples)
        return self._encode(samples)

    def finish(self) -> bytes:
        """The bytes that are left."""
        rest = b""
        if self._resampler is not None:
            rest = self._encode(self._resampler.resample_chunk(np.zeros(0, np.float32), last=True))
        return rest + self._end()

    @abstractmethod
    def _encode(self, samples: Float32) -> bytes: ...

    def _end(self) -> bytes:
        return b""


def encoder(kind: str, rate: int) -> Encoder:
    """The encoder of a stream; kind: a key of MEDIA_TYPES."""
    if kind in ("wav", "pcm"):
        return _Pcm(rate, header=kind == "wav")
    if kind == "aac":
        return _Aac(rate)
    return _Sndfile(kind, rate)


def encode_whole(kind: str, samples: Float32, rate: int) -> bytes:
    """All samples as one file, whose header says its length where the format has a place for it."""
    if kind == "wav":
        return encode_wav(samples, rate)
    whole = _Sndfile(kind, rate, whole=True) if kind in ("mp3", "flac") else encoder(kind, rate)
    return whole.write(samples) + whole.finish()


class _Pcm(Encoder):
    """Signed 16 bits, little-endian: with a WAV header of unknown length at the model's rate, or bare at PCM_RATE."""

    def __init__(self, rate: int, *, header: bool) -> None:
        super().__init__(rate, rate if header else PCM_RATE)
        self._header = wav_header(rate, "PCM_16", None) if header else b""

    def _encode(self, samples: Float32) -> bytes:
        header, self._header = self._header, b""
        return header + pcm_bytes(samples, "PCM_16")

    def _end(self) -> bytes:
        return self._header


class _Sink:
    """A file that libsndfile writes to. What it corrects at its end is left out of a stream, which was sent."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = io.BytesIO() if whole else None
        self._new = bytearray()
        self._size = self._at = 0

    def write(self, data: Any) -> int:
        block = bytes(data)
        if self._whole is not None:
            self._whole.seek(self._at)
            self._whole.write(block)
        elif self._at + len(block) > self._size:
            self._new += block[max(0, self._size - self._at) :]
        self._at += len(block)
        self._size = max(self._size, self._at)
        return len(block)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = {0: 0, 1: self._at, 2: self._size}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Nothing is kept back."""

    def taken(self) -> bytes:
        """What was written since."""
        new, self._new = bytes(self._new), bytearray()
        return new

    def all(self) -> bytes:
        return b"" if self._whole is None else self._whole.getvalue()


class _Sndfile(Encoder):
    """MP3, FLAC and Opus."""

    def __init__(self, kind: str, rate: int, *, whole: bool = False) -> None:
        import soundfile

        options: dict[str, Any]
        if kind == "opus":
            wanted, options = _OPUS_RATE, {"format": "OGG", "subtype": "OPUS"}
        elif kind == "flac":
            wanted, options = rate, {"format": "FLAC", "subtype": "PCM_16"}
        else:
            wanted = rate if rate in _MP3_RATES else PCM_RATE
            # Both are needed: without a level, libsndfile passes over the mode.
            options = {"format": "MP3", "bitrate_mode": "CONSTANT", "compression_level": 0.5}
        super().__init__(rate, wanted)
        self._is_whole = whole
        self._sink = _Sink(whole=whole)
        self._file = soundfile.SoundFile(self._sink, "w", samplerate=wanted, channels=1, **options)
        self._drop = kind == "mp3" and not whole
        if kind == "opus":
            _set_page_length(soundfile, self._file)

    def _encode(self, samples: Float32) -> bytes:
        for start in range(0, samples.shape[0], _PIECE):
            self._file.write(samples[start : start + _PIECE])
        return self._sent()

    def _end(self) -> bytes:
        self._file.close()
        return self._sink.all() if self._is_whole else self._sent()

    def _sent(self) -> bytes:
        data = self._sink.taken()
        if self._drop and data:
            self._drop = False
            return data[_mp3_frame_bytes(data) :]  # where the length would be filled in
        return data


def _set_page_length(soundfile: Any, file: Any) -> None:
    """Have an Ogg page written every 20 ms, else the first comes after a second. Where a later soundfile has no such
    inside, pages are as long as before."""
    try:
        value = soundfile._ffi.new("double*", _OPUS_PAGE_MS)
        soundfile._snd.sf_command(file._file, _SET_OGG_PAGE_LATENCY_MS, value, ctypes.sizeof(ctypes.c_double))
    except AttributeError:
        return


def _mp3_frame_bytes(data: bytes) -> int:
    """How long the Layer III frame is that stands at the beginning of data (ISO 11172-3 and 13818-3, 2.4.2.3)."""
    version, bits, rate_index, padding = data[1] >> 3 & 3, data[2] >> 4, data[2] >> 2 & 3, data[2] >> 1 & 1
    first = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)  # kbit/s, MPEG-1
    later = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)  # MPEG-2 and 2.5
    rate = (44100, 48000, 32000)[rate_index] >> {3: 0, 2: 1, 0: 2}[version]
    return (144000 * first[bits] if version == 3 else 72000 * later[bits]) // rate + padding


class _Aac(Encoder):
    """AAC in ADTS frames, by PyAV."""

    def __init__(self, rate: int) -> None:
        import av  # type: ignore[import-not-found, unused-ignore]

        super().__init__(rate, PCM_RATE)
        self._sink = _Sink(whole=False)
        self._av = av
        self._container = av.open(self._sink, "w", format="adts")
        self._stream = self._container.add_stream("aac", rate=PCM_RATE, layout="mono", bit_rate=96000)

    def _encode(self, samples: Float32) -> bytes:
        if samples.shape[0]:
            frame = self._av.AudioFrame.from_ndarray(samples[None], format="fltp", layout="mono")
            frame.sample_rate = PCM_RATE
            self._container.mux(self._stream.encode(frame))
        return self._sink.taken()

    def _end(self) -> bytes:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._sink.taken()
