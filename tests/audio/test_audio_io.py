"""`dualar.read_audio`: every kind of file that is promised, what is wrong with one, and channels and rates made one."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
import soundfile
from dualar.audio.read import mix_and_resample, read_audio

RATE = 16000


def tone(seconds: float = 0.5, *, rate: int = RATE, hertz: float = 440.0, channels: int = 1) -> np.ndarray:
    """float64 [n] or [n, channels]: a sine, louder in each further channel."""
    wave = 0.1 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)
    return wave if channels == 1 else np.stack([wave * (c + 1) for c in range(channels)], axis=1)


def file_bytes(samples: Any, *, rate: int = RATE, kind: str = "WAV", subtype: str = "PCM_16") -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind, subtype=subtype)
    return buffer.getvalue()


# ------------------------------------------------------------------ kinds of file
@pytest.mark.parametrize(
    ("subtype", "atol"),
    [
        ("PCM_U8", 2.0**-7),
        ("PCM_16", 2.0**-15),
        ("PCM_24", 2.0**-23),
        ("PCM_32", 2.0**-24),
        ("FLOAT", 2.0**-24),
        ("DOUBLE", 2.0**-24),
        ("ALAW", 0.005),
        ("ULAW", 0.005),
    ],
)
@pytest.mark.parametrize("kind", ["WAV", "WAVEX"])
def test_wav_of_every_subtype(kind: str, subtype: str, atol: float) -> None:
    data = file_bytes(tone(), kind=kind, subtype=subtype)
    tag = struct.unpack_from("<H", data, data.index(b"fmt ") + 8)[0]
    assert (tag == 0xFFFE) == (kind == "WAVEX")
    samples, rate = read_audio(data)
    assert (samples.dtype, samples.ndim, rate) == (np.dtype(np.float32), 1, RATE)
    np.testing.assert_allclose(samples, tone(), rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("kind", "subtype", "atol"),
    [
        ("FLAC", "PCM_16", 2.0**-15),
        ("FLAC", "PCM_24", 2.0**-23),
        ("RF64", "PCM_16", 2.0**-15),
        ("OGG", "VORBIS", 0.02),
        ("MP3", "MPEG_LAYER_III", 0.05),
    ],
)
def test_other_kinds(kind: str, subtype: str, atol: float) -> None:
    samples, rate = read_audio(file_bytes(tone(), kind=kind, subtype=subtype))
    assert rate == RATE and samples.shape == tone().shape
    np.testing.assert_allclose(samples, tone(), rtol=0, atol=atol)


def test_big_endian_wav() -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, tone(), RATE, format="WAV", subtype="PCM_16", endian="BIG")
    assert buffer.getvalue()[:4] == b"RIFX"
    np.testing.assert_allclose(read_audio(buffer.getvalue())[0], tone(), rtol=0, atol=2.0**-15)
    with pytest.raises(ValueError, match="cut short"):
        read_audio(buffer.getvalue()[:-2])


def test_paths_bytes_and_files_are_the_same(tmp_path: Path) -> None:
    data = file_bytes(tone())
    path = tmp_path / "größe 音声.wav"
    path.write_bytes(data)
    wanted = read_audio(data)[0]

    class NoSeek(io.RawIOBase):
        """What a pipe is: it can be read once."""

        def __init__(self) -> None:
            self._left = io.BytesIO(data)

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            return self._left.readinto(buffer)

    with open(path, "rb") as file:
        for source in (path, str(path), file, io.BytesIO(data), io.BufferedReader(NoSeek())):
            np.testing.assert_array_equal(dualar.read_audio(source)[0], wanted)


# ------------------------------------------------------------------ channels and rates
def test_channels_are_averaged_or_kept() -> None:
    for channels in (2, 8):
        wave = tone(channels=channels)
        data = file_bytes(wave, subtype="FLOAT")
        np.testing.assert_allclose(read_audio(data)[0], wave.mean(axis=1), rtol=0, atol=1e-6)
        both, _ = read_audio(data, mono=False)
        np.testing.assert_allclose(both, wave, rtol=0, atol=1e-6)
    assert read_audio(file_bytes(tone()), mono=False)[0].shape == (tone().shape[0], 1)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 24000, 44100, 48000, 96000, 192000])
def test_rates_become_the_one_asked_for(rate: int) -> None:
    data = file_bytes(tone(1.0, rate=rate), rate=rate, subtype="FLOAT")
    assert read_audio(data)[1] == rate
    samples, got = read_audio(data, sample_rate=44100)
    assert got == 44100 and samples.shape == (44100,) and samples.dtype == np.float32
    middle = slice(4410, -4410)  # the ends ring
    np.testing.assert_allclose(samples[middle], tone(1.0, rate=44100)[middle], rtol=0, atol=1e-3)
    stereo, _ = read_audio(
        file_bytes(tone(1.0, rate=rate, channels=2), rate=rate, subtype="FLOAT"), sample_rate=44100, mono=False
    )
    assert stereo.shape == (44100, 2)
    np.testing.assert_allclose(stereo[:, 0], samples, rtol=0, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 100, 12345])
def test_lengths_after_resampling_are_rounded(n: int) -> None:
    for wanted in (8000, 22050, 44100, 48000):
        out = mix_and_resample(np.zeros(n), RATE, wanted)
        assert out.shape == (max(1, round(n * wanted / RATE)),)
    assert mix_and_resample(np.zeros(0), RATE, 44100).shape == (0,)


def test_what_is_above_the_new_band_does_not_fold_down() -> None:
    high = mix_and_resample(tone(1.0, rate=48000, hertz=15000), 48000, 16000)
    assert np.abs(high[800:-800]).max() < 1e-4


def test_silence_is_sound() -> None:
    samples, _ = read_audio(file_bytes(np.zeros(1000)), sample_rate=44100)
    assert samples.size and not samples.any()


# ------------------------------------------------------------------ what is refused
@pytest.mark.parametrize("kind", ["WAV", "WAVEX", "RF64", "FLAC", "OGG", "MP3"])
def test_a_file_that_was_cut_short_is_refused(kind: str) -> None:
    subtype = {"OGG": "VORBIS", "MP3": "MPEG_LAYER_III"}.get(kind, "PCM_16")
    data = file_bytes(tone(3.0), kind=kind, subtype=subtype)
    read_audio(data)
    for length in (len(data) - 1, len(data) - 2, len(data) * 3 // 4, len(data) // 2, 300, 60, 30, 11, 1):
        with pytest.raises(ValueError, match=f"{length} bytes"):
            read_audio(data[:length])


def test_an_ogg_that_ends_at_a_page_is_refused() -> None:
    data = file_bytes(tone(3.0), kind="OGG", subtype="VORBIS")
    last = data.rindex(b"OggS")
    with pytest.raises(ValueError, match="last page"):
        read_audio(data[:last])


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000])
def test_the_header_of_a_stream_promises_nothing(size: int) -> None:
    data = bytearray(file_bytes(tone()))
    for at in (4, 40):
        data[at : at + 4] = struct.pack("<I", size)
    np.testing.assert_array_equal(read_audio(bytes(data))[0], read_audio(file_bytes(tone()))[0])


def test_chunks_around_the_samples_do_not_matter() -> None:
    data = file_bytes(tone())
    odd = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    dressed = data[:36] + odd + data[36:] + odd
    dressed = dressed[:4] + struct.pack("<I", len(dressed) - 8) + dressed[8:]
    np.testing.assert_array_equal(read_audio(dressed)[0], read_audio(data)[0])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "empty"),
        (b"not a sound at all, whatever its name says", "WAV, FLAC, OGG or MP3"),
        (b"RIFF\x04\0\0\0WAVE", "end before"),
        (file_bytes(np.zeros(0)), "no samples"),
        (file_bytes(tone(), kind="AIFF"), "got AIFF"),
    ],
)
def test_what_is_no_sound_is_refused(tmp_path: Path, data: bytes, text: str) -> None:
    (tmp_path / "a.wav").write_bytes(data)
    with pytest.raises(ValueError, match=text) as caught:
        read_audio(tmp_path / "a.wav")
    assert "a.wav" in str(caught.value) and str(caught.value).startswith("[audio]")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_samples_that_are_not_finite_are_refused(value: float) -> None:
    wave = tone()
    wave[7] = value
    with pytest.raises(ValueError, match="sample 7"):
        read_audio(file_bytes(wave, subtype="DOUBLE"))


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.wav"):
        read_audio(tmp_path / "nothing.wav")
    with pytest.raises(IsADirectoryError):
        read_audio(tmp_path)


@pytest.mark.parametrize("source", [3, None, io.StringIO("text")])
def test_other_sources_are_refused(source: Any) -> None:
    with pytest.raises(ValueError, match=r"\[audio\] expected a"):
        read_audio(source)


@pytest.mark.parametrize("rate", [0, -1, 44100.5, "44100", True, 2**25])
def test_rates_that_are_none_are_refused(rate: Any) -> None:
    with pytest.raises(ValueError, match="sample_rate"):
        read_audio(file_bytes(tone()), sample_rate=rate)
    with pytest.raises(ValueError, match="sample_rate"):
        mix_and_resample(tone(), rate, 44100)


@pytest.mark.parametrize(
    "samples", [np.zeros(5, np.int16), np.zeros((2, 2, 2)), np.zeros((5, 0)), np.float64(1), np.zeros((2, 4000))]
)
def test_arrays_that_are_no_clip_are_refused(samples: Any) -> None:
    with pytest.raises(ValueError, match=r"\[audio\] expected"):
        mix_and_resample(samples, RATE, RATE)
