"""`dualar.audio`: samples to WAV bytes, and files that are written whole or not at all."""

from __future__ import annotations

import io
import os
import stat
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from dualar.audio.clip import Audio
from dualar.audio.read import read_audio
from dualar.audio.wav import WavWriter, encode_wav, pcm_bytes, to_pcm, write_wav
from dualar.files import write_file
from dualar.generation.frames import Timings

needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX files")


def make_audio(samples: Any, *, sample_rate: int = 8000) -> Audio:
    return Audio(
        samples=np.asarray(samples, np.float32),
        sample_rate=sample_rate,
        codes=np.zeros((2, 1), np.int32),
        finish_reason="end",
        seed=5,
        timings=Timings(prefill_ms=1.0, loop_ms=1.0, ms_per_frame=1.0),
    )


@pytest.mark.parametrize(("subtype", "step"), [("PCM_16", 2.0**-15), ("PCM_24", 2.0**-23), ("FLOAT", 0.0)])
def test_round_trip(tmp_path: Path, subtype: Any, step: float) -> None:
    samples = np.sin(np.arange(1000) / 7, dtype=np.float32)
    make_audio(samples, sample_rate=44100).save(tmp_path / "a.wav", subtype=subtype)
    info = soundfile.info(tmp_path / "a.wav")
    assert (info.format, info.subtype, info.samplerate, info.channels) == ("WAV", subtype, 44100, 1)
    read, _ = soundfile.read(tmp_path / "a.wav", dtype="float64")
    assert read.shape == samples.shape
    # The scale is 2^n - 1 here and 2^n in the reader: up to one step more than the rounding.
    np.testing.assert_allclose(read, samples, rtol=0, atol=1.5 * step)


def test_samples_beyond_one_are_clipped_and_never_wrap() -> None:
    loud = np.array([1.0, 1.0001, 7.5, 3e38, -1.0, -1.0001, -3e38, 0.0], np.float32)
    np.testing.assert_array_equal(
        to_pcm(loud, "PCM_16"), np.array([32767, 32767, 32767, 32767, -32767, -32767, -32767, 0], np.int16)
    )
    top = (2**23 - 1) << 8
    np.testing.assert_array_equal(to_pcm(loud, "PCM_24"), np.array([top] * 4 + [-top] * 3 + [0], np.int32))
    np.testing.assert_array_equal(to_pcm(loud, "FLOAT"), np.clip(loud, -1, 1))


def test_pcm_is_rounded_to_nearest() -> None:
    np.testing.assert_array_equal(to_pcm(np.array([0.4, 0.6, -0.6]) / 32767, "PCM_16"), np.array([0, 1, -1], np.int16))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    samples = np.zeros(10, np.float32)
    samples[4] = value
    with pytest.raises(ValueError, match="sample 4"):
        make_audio(samples).save(tmp_path / "a.wav")
    assert list(tmp_path.iterdir()) == []


def test_no_samples_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"at least one sample.*seed 5"):
        make_audio([]).save(tmp_path / "a.wav")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("samples", [np.zeros((2, 3), np.float32), np.zeros(3, np.int16), np.float32(1)])
def test_other_shapes_and_types_are_refused(samples: Any) -> None:
    with pytest.raises(ValueError, match="float samples of shape"):
        encode_wav(samples, 8000)


def test_unknown_subtype_is_refused() -> None:
    with pytest.raises(ValueError, match="PCM_8"):
        encode_wav(np.zeros(3, np.float32), 8000, subtype="PCM_8")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a.mp3", "a", "wav", "a.wav.txt"])
def test_names_of_other_formats_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"ending in \.wav"):
        write_wav(tmp_path / name, np.zeros(3, np.float32), 8000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.WAV", "with space.wav", "größe-音声-🐟.wav"])
def test_names_are_taken_as_they_are(tmp_path: Path, name: str) -> None:
    make_audio([0.5, -0.5]).save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert soundfile.info(tmp_path / name).frames == 2


def test_saving_replaces_and_is_deterministic(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"something longer than the file to come" * 100)
    make_audio([0.25] * 10).save(path)
    first = path.read_bytes()
    make_audio([0.25] * 10).save(path)
    assert path.read_bytes() == first == encode_wav(np.full(10, 0.25, np.float32), 8000)
    assert [p.name for p in tmp_path.iterdir()] == ["a.wav"]


def test_missing_folder_and_folder_as_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere"):
        write_file(tmp_path / "nowhere" / "a.wav", b"x")
    with pytest.raises(IsADirectoryError, match="folder"):
        write_file(tmp_path, b"x")
    (tmp_path / "plain").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="plain"):
        write_file(tmp_path / "plain" / "a.wav", b"x")


@needs_posix
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere")
def test_folder_without_write_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match="can be written"):
            write_file(tmp_path / "a.wav", b"x")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failure_in_the_middle_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"old")

    def fail(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)) as caught:
        write_file(path, b"new")
    if isinstance(error, OSError):
        assert "a.wav" in str(caught.value) and "No space left" in str(caught.value)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.wav"]


@needs_posix
def test_links_and_permissions_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.wav", tmp_path / "link.wav"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_file(link, b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


@needs_posix
def test_new_files_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_file(tmp_path / "a.wav", b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.wav").stat().st_mode) == 0o640


@needs_posix
def test_devices_are_written_to_and_not_replaced() -> None:
    before = os.stat("/dev/null")
    write_wav("/dev/null", np.zeros(3, np.float32), 8000)
    after = os.stat("/dev/null")
    assert stat.S_ISCHR(after.st_mode) and before.st_ino == after.st_ino


def test_duration() -> None:
    assert make_audio(np.zeros(4000)).duration == 0.5


# ------------------------------------------------------------------ sizes, and files that grow
@pytest.mark.parametrize(("subtype", "size"), [("PCM_16", 2), ("PCM_24", 3), ("FLOAT", 4)])
@pytest.mark.parametrize("n", [0, 1, 2, 101])
def test_sizes_are_exact(subtype: Any, size: int, n: int) -> None:
    data = encode_wav(np.full(n, 0.25, np.float32), 22050, subtype=subtype)
    assert data[:4] == b"RIFF" and data[8:16] == b"WAVEfmt " and len(data) % 2 == 0
    assert struct.unpack_from("<I", data, 4) == (len(data) - 8,)
    at = data.index(b"data")
    assert struct.unpack_from("<I", data, at + 4) == (n * size,)
    assert len(data) == at + 8 + n * size + n * size % 2
    tag, channels, rate, per_second, align, bits = struct.unpack_from("<HHIIHH", data, 20)
    assert (tag, channels, rate) == (3 if subtype == "FLOAT" else 1, 1, 22050)
    assert (per_second, align, bits) == (22050 * size, size, 8 * size)
    assert soundfile.info(io.BytesIO(data)).frames == n


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT"])
def test_a_growing_file_is_whole_after_each_write(tmp_path: Path, subtype: Any) -> None:
    samples = np.sin(np.arange(1000) / 9, dtype=np.float32)
    with open(tmp_path / "a.wav", "wb") as file:
        writer = WavWriter(file, 8000, subtype=subtype)
        assert (tmp_path / "a.wav").read_bytes() == b""
        for start, end in ((0, 1), (1, 4), (4, 4), (4, 1000)):  # odd numbers: 24 bits then need a byte more
            writer.write(samples[start:end])
            assert (tmp_path / "a.wav").read_bytes() == encode_wav(samples[:end], 8000, subtype=subtype)
    assert read_audio(tmp_path / "a.wav")[0].shape == (1000,)


class Pipe(io.RawIOBase):
    """A file that cannot seek; what was written is in `parts`."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.parts.append(bytes(data))
        return len(data)


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT"])
def test_a_pipe_gets_one_header(subtype: Any) -> None:
    samples = np.sin(np.arange(900) / 9, dtype=np.float32)
    pipe, raw = Pipe(), Pipe()
    writers = [WavWriter(pipe, 8000, subtype=subtype), WavWriter(raw, 8000, subtype=subtype, raw=True)]  # type: ignore[arg-type]
    for part in np.split(samples, 3):
        for writer in writers:
            writer.write(part)
    data = b"".join(pipe.parts)
    assert b"".join(raw.parts) == pcm_bytes(samples, subtype) and data.endswith(pcm_bytes(samples, subtype))
    assert data.count(b"RIFF") == 1 and data[4:8] == b"\xff" * 4
    read, rate = read_audio(data)
    assert rate == 8000 and read.shape == (900,)
    np.testing.assert_allclose(read, samples, rtol=0, atol=2.0**-14)


def test_a_growing_file_refuses_samples_before_it_writes_them() -> None:
    file = io.BytesIO()
    writer = WavWriter(file, 8000)
    writer.write(np.zeros(3, np.float32))
    before = file.getvalue()
    with pytest.raises(ValueError, match="sample 1"):
        writer.write(np.array([0, np.nan], np.float32))
    assert file.getvalue() == before


def test_rates_that_no_header_holds_are_refused() -> None:
    for rate in (0, -1, 2**32, 44100.5):
        with pytest.raises(ValueError, match="sample_rate"):
            encode_wav(np.zeros(3, np.float32), rate)  # type: ignore[arg-type]
