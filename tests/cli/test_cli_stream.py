"""The command line's streams, levels and `encode`: bytes as they are made, into files and pipes that may go away."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.audio.wav import encode_wav, pcm_bytes

from cli.test_cli import run, run_python

SIX = ["--max-new-tokens", "6", "--min-tokens-before-end", "6", "--threads", "1", "--seed", "5"]
LONG = ["--max-new-tokens", "200", "--min-tokens-before-end", "200", "--seed", "5"]
needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and pipes")


@pytest.fixture(autouse=True)
def default_model(monkeypatch: pytest.MonkeyPatch, toy_model: Path) -> None:
    monkeypatch.setenv("DUALAR_MODEL", str(toy_model))


@pytest.fixture(scope="module")
def spoken(toy_model: Path) -> dualar.Audio:
    with dualar.load(toy_model, threads=1) as engine:
        return engine.synthesize("hello", seed=5, max_new_tokens=6, min_tokens_before_end=6)


def assert_same_sound(got: bytes, wanted: bytes, *, step: int = 1) -> None:
    """16-bit samples, but for rounding, and for nothing else."""
    a, b = (np.frombuffer(data, "<i2").astype(int) for data in (got, wanted))
    assert a.shape == b.shape and np.abs(a - b).max() <= step


# ------------------------------------------------------------------ say --stream
def test_a_streamed_file_is_the_whole_one(spoken: dualar.Audio, tmp_path: Path) -> None:
    out, codes = tmp_path / "a.wav", tmp_path / "a.npy"
    result = run("say", "hello", "--stream", "-o", out, "--codes", codes, *SIX)
    assert result.exit_code == 0 and result.stdout == "", result.output
    assert "6 frames" in result.stderr and "seed 5" in result.stderr and "first sound after" in result.stderr
    np.testing.assert_array_equal(np.load(codes), spoken.codes)
    wanted = encode_wav(spoken.samples, spoken.sample_rate)
    assert out.read_bytes()[:44] == wanted[:44]
    assert_same_sound(out.read_bytes()[44:], wanted[44:])


@pytest.mark.parametrize("cadence", ["1", "4", "1,2,4", "100"])
def test_standard_output_gets_samples_alone(spoken: dualar.Audio, cadence: str) -> None:
    result = run("say", "hello", "-o", "-", "--frames-per-chunk", cadence, *SIX)
    assert result.exit_code == 0, result.stderr
    assert_same_sound(result.stdout_bytes, pcm_bytes(spoken.samples, "PCM_16"))
    assert "standard output" in result.stderr


def test_standard_output_gets_one_header_on_request(spoken: dualar.Audio) -> None:
    result = run("say", "hello", "-o", "-", "--format", "wav", "-q", *SIX)
    assert result.exit_code == 0 and result.stderr == ""
    assert result.stdout_bytes.count(b"RIFF") == 1
    samples, rate = dualar.read_audio(result.stdout_bytes)
    assert rate == spoken.sample_rate
    np.testing.assert_allclose(samples, spoken.samples, rtol=0, atol=2.0**-14)


def test_samples_may_be_stored_in_other_ways(spoken: dualar.Audio, tmp_path: Path) -> None:
    result = run("say", "hello", "-o", "-", "--subtype", "float", *SIX)
    np.testing.assert_allclose(np.frombuffer(result.stdout_bytes, "<f4"), spoken.samples, rtol=0, atol=3e-5)
    assert run("say", "hello", "-o", tmp_path / "a.wav", "--subtype", "PCM_24", *SIX).exit_code == 0
    assert (tmp_path / "a.wav").read_bytes() == encode_wav(spoken.samples, spoken.sample_rate, subtype="PCM_24")
    np.save(tmp_path / "a.npy", spoken.codes)
    assert run("decode", tmp_path / "a.npy", "-o", tmp_path / "b.wav", "--subtype", "PCM_24", "-t", "1").exit_code == 0
    assert (tmp_path / "b.wav").read_bytes() == (tmp_path / "a.wav").read_bytes()


@needs_posix
def test_a_redirected_stream_is_appended_and_never_rewound(spoken: dualar.Audio, tmp_path: Path) -> None:
    out = tmp_path / "all"
    out.write_bytes(b"before")
    with open(out, "ab") as file:
        command = [sys.executable, "-m", "dualar", "say", "hello", "-o", "-", "--format", "wav", "-q", *SIX]
        subprocess.run(command, stdout=file, check=True, timeout=60)
    data = out.read_bytes()
    assert data[:10] == b"beforeRIFF" and len(data) == 6 + 44 + 2 * spoken.samples.shape[0]


@needs_posix
def test_a_reader_that_goes_away_stops_the_work(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dualar", "say", "hello", "-o", "-", "--codes", str(tmp_path / "a.npy"), *LONG]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    assert len(process.stdout.read(100)) == 100
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 1, stderr
    assert b"standard output went away after" in stderr
    assert b"Traceback" not in stderr and b"Exception" not in stderr
    assert list(tmp_path.iterdir()) == []


@needs_posix
def test_a_named_pipe_gets_a_wav(spoken: dualar.Audio, tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    assert run("say", "hello", "--stream", "-o", pipe, "--force", *SIX).exit_code == 0
    reader.join(30)
    samples, _ = dualar.read_audio(got[0])
    np.testing.assert_allclose(samples, spoken.samples, rtol=0, atol=2.0**-14)


@needs_posix
def test_an_interrupted_stream_leaves_a_whole_file_of_what_was_said(tmp_path: Path) -> None:
    program = """if True:
        import os, signal
        from dualar.cli import common, main
        real = common.SpeechProgress.on_frame
        def on_frame(self, frame):
            real(self, frame)
            if frame.index == 2:
                os.kill(os.getpid(), signal.SIGINT)
        common.SpeechProgress.on_frame = on_frame
        main()
    """
    out = tmp_path / "a.wav"
    done = run_python("-c", program, "say", "hello", "--stream", "--frames-per-chunk", "1", "-o", out, *LONG)
    assert done.returncode == 130, done.stderr
    assert b"interrupted" in done.stderr and b"Traceback" not in done.stderr
    samples, _ = dualar.read_audio(out)
    assert 3 * 256 <= samples.shape[0] < 100 * 256


def test_a_stream_touches_its_file_with_the_first_sound(tmp_path: Path) -> None:
    out = tmp_path / "a.wav"
    out.write_bytes(b"mine")
    assert run("say", " ", "--stream", "-o", out, "--force", *SIX).exit_code == 2
    assert run("say", "hello", "--stream", "-o", out, *SIX).exit_code == 2
    assert out.read_bytes() == b"mine"
    assert run("say", "hello", "--stream", "-o", out, "--force", *SIX).exit_code == 0
    assert dualar.read_audio(out)[0].size > 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_a_failure(tmp_path: Path) -> None:
    result = run("say", "hello", "--stream", "-o", "/dev/full", *SIX)
    assert result.exit_code == 1 and "/dev/full" in result.stderr and "space" in result.stderr
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "dualar", "say", "hello", "-o", "-", *SIX]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == 1 and b"space" in done.stderr and b"Traceback" not in done.stderr


@needs_posix
def test_a_terminal_is_not_written_to() -> None:
    import pty

    main_end, terminal = pty.openpty()
    try:
        command = [sys.executable, "-m", "dualar", "say", "hello", "-o", "-", *SIX]
        done = subprocess.run(command, stdout=terminal, stderr=subprocess.PIPE, check=False, timeout=60)
    finally:
        os.close(main_end)
        os.close(terminal)
    assert done.returncode == 2 and b"player" in done.stderr


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--stream", "-o", "a.wav", "--trim-silence"], "whole speech"),
        (["-o", "-", "--peak", "-1"], "whole speech"),
        (["-o", "-", "--loudness", "-23"], "whole speech"),
        (["-o", "a.wav", "--frames-per-chunk", "2"], "--stream"),
        (["-o", "-", "--frames-per-chunk", "1,0"], "'1,0'"),
        (["-o", "-", "--frames-per-chunk", "fast"], "'fast'"),
        (["--stream", "-o", "a.wav", "--format", "raw"], "--format"),
        (["-o", "a.wav", "--subtype", "PCM_8"], "pcm_16"),
        (["-o", "a.wav", "--peak", "3"], "--peak"),
        (["-o", "a.wav", "--loudness", "-90"], "--loudness"),
    ],
    ids=" ".join,
)
def test_options_that_would_do_nothing_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("say", "hello", *args, *SIX)
    assert result.exit_code == 2 and text in result.stderr, result.stderr
    assert list(tmp_path.iterdir()) == [] and result.stdout_bytes == b""


# ------------------------------------------------------------------ levels
@pytest.mark.parametrize(
    ("args", "change"),
    [
        (["--trim-silence"], lambda a: a.trim_silence()),
        (["--peak", "-6"], lambda a: a.normalize_peak(-6)),
        (["--loudness", "-30"], lambda a: a.normalize_loudness(-30)),
        (["--loudness", "-3", "--peak", "-9"], lambda a: a.normalize_loudness(-3, peak_db=-9)),
    ],
    ids=["trim", "peak", "loudness", "both"],
)
def test_levels_are_off_until_asked_for(spoken: dualar.Audio, tmp_path: Path, args: list[str], change: Any) -> None:
    plain, changed = tmp_path / "a.wav", tmp_path / "b.wav"
    assert run("say", "hello", "-o", plain, *SIX).exit_code == 0
    assert plain.read_bytes() == encode_wav(spoken.samples, spoken.sample_rate)
    assert run("say", "hello", "-o", changed, *args, *SIX).exit_code == 0
    assert changed.read_bytes() == encode_wav(change(spoken).samples, spoken.sample_rate)


# ------------------------------------------------------------------ encode
@pytest.fixture
def clip(spoken: dualar.Audio, tmp_path: Path) -> Path:
    path = tmp_path / "größe.wav"
    spoken.save(path)
    return path


def test_encode_writes_the_codecs_codes(toy_model: Path, clip: Path, tmp_path: Path) -> None:
    out = tmp_path / "codes.npy"
    result = run("encode", clip, "-o", out, "--threads", "1")
    assert result.exit_code == 0 and result.stdout == "", result.output
    assert "6 frames" in result.stderr and "codes.npy" in result.stderr
    samples, rate = dualar.read_audio(clip)
    wanted = dualar.Codec.load(toy_model, threads=1).encode(samples, sample_rate=rate)
    np.testing.assert_array_equal(np.load(out), wanted)
    assert run("decode", out, "-o", tmp_path / "again.wav", "-q").exit_code == 0
    assert run("encode", clip, "-o", out).exit_code == 2  # exists
    assert run("encode", clip, "-o", out, "--force", "-q").output == ""


def test_encode_refuses_what_is_no_sound(clip: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.wav"
    cut.write_bytes(clip.read_bytes()[:-100])
    for source, text in ((cut, "cut short"), (tmp_path / "none.wav", "none.wav"), (tmp_path, "no file")):
        result = run("encode", source, "-o", tmp_path / "codes.npy")
        assert result.exit_code == 2 and text in result.stderr, result.stderr
    result = run("encode", clip, "-o", tmp_path / "codes.txt")
    assert result.exit_code == 2 and ".npy" in result.stderr
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".wav", ".wav"]
