"""`dualar say` with a long text: one file or stream, jobs that go on, what is said of pieces that failed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

import dualar
import numpy as np
import pytest
from dualar.audio.wav import encode_wav
from dualar.cli import narrating
from dualar.cli.output import Levels, Output
from dualar.narration.config import NarrationConfig
from dualar.narration.result import Narration

from cli.test_cli import run

TEXT = (
    "The kettle is on. It sings, and the cat listens to it from the top of the stove, as every day at this hour, for "
    "it is warm there and smells of bread. Do we have milk? No, there is none left.\n\n"
    "<|speaker:1|>Good evening, said the man at the door."
)
OPTIONS = ["--min-tokens-before-end", "8", "--threads", "1", "--seed", "5"]


@pytest.fixture(autouse=True)
def default_model(monkeypatch: pytest.MonkeyPatch, toy_model: Path) -> None:
    monkeypatch.setenv("DUALAR_MODEL", str(toy_model))


@pytest.fixture(scope="module")
def spoken(toy_model: Path) -> Narration:
    with dualar.load(toy_model, threads=1) as engine:
        return engine.narrate(TEXT, seed=5, min_tokens_before_end=8)


def test_a_long_text_simply_works(spoken: Narration, tmp_path: Path) -> None:
    out, codes = tmp_path / "a.wav", tmp_path / "a.npy"
    result = run("say", TEXT, "-o", out, "--codes", codes, *OPTIONS)
    assert result.exit_code == 0 and result.stdout == "", result.output
    assert out.read_bytes() == encode_wav(spoken.samples, spoken.sample_rate)
    np.testing.assert_array_equal(np.load(codes), spoken.codes)
    assert sorted(os.listdir(tmp_path)) == ["a.npy", "a.wav"]
    count = len(spoken.pieces)
    assert count > 1 and f"piece {count} of {count}: " in result.stderr and "left" in result.stderr
    assert f"{count} pieces, {spoken.codes.shape[1]} frames, seed 5" in result.stderr
    assert run("say", TEXT, "-o", tmp_path / "b.wav", "-q", *OPTIONS).output == ""


def test_a_long_text_is_one_stream(spoken: Narration, tmp_path: Path) -> None:
    wanted = encode_wav(spoken.samples, spoken.sample_rate)
    result = run("say", TEXT, "-o", "-", "-q", *OPTIONS)
    assert result.exit_code == 0 and result.stdout_bytes == wanted[44:]
    result = run("say", TEXT, "--stream", "-o", tmp_path / "a.wav", *OPTIONS)
    assert result.exit_code == 0 and (tmp_path / "a.wav").read_bytes() == wanted
    assert os.listdir(tmp_path) == ["a.wav"] and "first sound after" in result.stderr


def test_options_reach_the_pieces(toy_model: Path, tmp_path: Path) -> None:
    config = NarrationConfig(pause_ms={"sentence": 10, "paragraph": 20, "turn": 0}, context_tokens=0, retries=0)
    with dualar.load(toy_model, threads=1) as engine:
        wanted = engine.narrate(TEXT, seed=5, min_tokens_before_end=8, config=config)
    result = run(
        "say", TEXT, "-o", tmp_path / "a.wav", "--pause", "sentence=10,paragraph=20,turn=0", "--context", "0",
        "--retries", "0", *OPTIONS,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert (tmp_path / "a.wav").read_bytes() == encode_wav(wanted.samples, wanted.sample_rate)
    levelled = run(
        "say", TEXT, "-o", tmp_path / "b.wav", "--pause", "sentence=10,paragraph=20,turn=0", "--context", "0",
        "--peak", "-3", "--trim-silence", *OPTIONS,
    )  # fmt: skip
    assert levelled.exit_code == 0
    audio = wanted.audio.trim_silence().normalize_peak(-3)
    assert (tmp_path / "b.wav").read_bytes() == encode_wav(audio.samples, audio.sample_rate)
    assert sorted(os.listdir(tmp_path)) == ["a.wav", "b.wav"]


def test_several_pieces_at_once(toy_model: Path, tmp_path: Path) -> None:
    with dualar.load(toy_model, threads=1) as engine:
        wanted = engine.narrate(TEXT, seed=5, min_tokens_before_end=8, config=NarrationConfig(rows=2))
        assert engine.narrate(TEXT, seed=5, min_tokens_before_end=8).codes.shape != wanted.codes.shape
    result = run("say", TEXT, "-o", tmp_path / "a.wav", "--rows", "3", *OPTIONS)
    assert result.exit_code == (1 if wanted.failed else 0), result.output
    assert (tmp_path / "a.wav").read_bytes() == encode_wav(wanted.samples, wanted.sample_rate)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--pause", "long"], "--pause: expected milliseconds"),
        (["--pause", "breath=3"], "got 'breath'"),
        (["--pause=-1"], "got -1"),
        (["--continue-from", "none.job"], "none.job does not exist"),
    ],
)
def test_options_that_are_wrong(tmp_path: Path, options: list[str], words: str) -> None:
    result = run("say", TEXT, "-o", tmp_path / "a.wav", *options, *OPTIONS)
    assert result.exit_code == 2 and words in result.stderr.replace("\n", " ")
    assert os.listdir(tmp_path) == []


# ------------------------------------------------------------------ failures
def test_pieces_that_fail_are_named_and_the_rest_is_written(tmp_path: Path) -> None:
    out, job = tmp_path / "a.wav", tmp_path / "a.wav.job"
    options = ["--max-new-tokens", "70", "--context", "0", *OPTIONS]
    result = run("say", TEXT, "-o", out, *options, "--retries", "0")
    assert result.exit_code == 1
    assert "warning: piece 2 of " in result.stderr and "70, before its end): 'It sings" in result.stderr
    assert f"{job} keeps the others" in result.stderr
    first = out.read_bytes()
    assert len(first) > 44 and sorted(os.listdir(tmp_path)) == ["a.wav", "a.wav.job"]
    result = run("say", TEXT, "-o", out, *options, "--retries", "1", "--continue-from", job)
    assert result.exit_code == 2 and "--force" in result.stderr
    result = run("say", TEXT, "-o", out, *options, "--retries", "1", "--continue-from", job, "--force")
    assert result.exit_code == 1 and "after 2 attempts" in result.stderr
    assert out.read_bytes() == first


def test_where_no_piece_can_be_spoken_nothing_is_written(tmp_path: Path) -> None:
    result = run("say", TEXT, "-o", tmp_path / "a.wav", "--max-new-tokens", "9", *OPTIONS)
    assert result.exit_code == 1 and "no piece of " in result.stderr and "seed 5" in result.stderr
    assert os.listdir(tmp_path) == ["a.wav.job"]


# ------------------------------------------------------------------ jobs
def interrupted(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A run that is stopped once a few pieces are on the disk."""
    command = [sys.executable, "-m", "dualar", "say", TEXT * 5, "-o", "a.wav", *OPTIONS, *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    job, deadline = tmp_path / "a.wav.job", time.monotonic() + 60
    while not (job.exists() and job.read_bytes().count(b"\n") > 3):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, "", stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("way", ["part", "stream", "no part", "keep"])
def test_an_interrupted_run_goes_on_to_the_same_bytes(
    toy_model: Path, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"stream": ["--stream"], "keep": ["--keep-partial"]}.get(way, [])
    done = interrupted(tmp_path, "--context", "0", *options)
    assert done.returncode == 130, done.stderr
    assert "--continue-from a.wav.job" in done.stderr
    expected = {"stream": ["a.wav", "a.wav.job"], "keep": ["a.wav", "a.wav.job", "a.wav.part"]}
    assert sorted(os.listdir(tmp_path)) == expected.get(way, ["a.wav.job", "a.wav.part"])
    kept = (tmp_path / "a.wav.job").read_bytes().count(b"\n") - 1
    if way == "keep":
        samples, _ = dualar.read_audio(tmp_path / "a.wav")
        assert samples.size > 0
    if way == "no part":
        (tmp_path / "a.wav.part").unlink()
    monkeypatch.chdir(tmp_path)
    again = run("say", TEXT * 5, "-o", "a.wav", *OPTIONS, "--context", "0", *options)
    assert again.exit_code == 2 and "force" in again.stderr
    force = ["--force"] if way in ("stream", "keep") else []
    stop = ["--context", "0", *options, "--continue-from", "a.wav.job", *force]
    result = run("say", TEXT * 5, "-o", "a.wav", *OPTIONS, *stop)
    assert result.exit_code == 0, result.output
    assert f"piece {kept} of" not in result.stderr and f"piece {kept + 1} of" in result.stderr
    with dualar.load(toy_model, threads=1) as engine:
        whole = engine.narrate(TEXT * 5, seed=5, min_tokens_before_end=8, config=NarrationConfig(context_tokens=0))
    assert (tmp_path / "a.wav").read_bytes() == encode_wav(whole.samples, whole.sample_rate)
    assert os.listdir(tmp_path) == ["a.wav"]


def test_a_partial_file_takes_its_place_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A further Ctrl-C while --keep-partial copies leaves what was there."""
    output = Output.of(
        tmp_path / "a.wav", codes=None, subtitles=None, subtype="PCM_16", stream=False, frames_per_chunk=None,
        stdout_format=None, levels=Levels(),
    )  # fmt: skip
    files = narrating.Files(output=output, job=None, continued=False)
    output.path.write_bytes(b"before")
    (tmp_path / "a.wav.part").write_bytes(b"half of it")

    def interrupt(_: BinaryIO, file: BinaryIO) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfileobj", interrupt)
        with pytest.raises(KeyboardInterrupt):
            narrating._interrupted(files, keep_partial=True)
    assert output.path.read_bytes() == b"before"
    narrating._interrupted(files, keep_partial=True)
    assert output.path.read_bytes() == b"half of it"
    assert sorted(os.listdir(tmp_path)) == ["a.wav", "a.wav.part"]


def test_a_job_that_is_there_is_not_begun_anew_unasked(spoken: Narration, tmp_path: Path) -> None:
    job = tmp_path / "a.wav.job"
    job.write_text("something\nelse")
    result = run("say", TEXT, "-o", tmp_path / "a.wav", *OPTIONS)
    assert result.exit_code == 2 and f"--continue-from {job}" in result.stderr and job.read_text() == "something\nelse"
    result = run("say", TEXT, "-o", tmp_path / "a.wav", "--continue-from", job, *OPTIONS)
    assert result.exit_code == 2 and "line 1" in result.stderr and job.read_text() == "something\nelse"
    result = run("say", TEXT, "-o", tmp_path / "a.wav", "--force", *OPTIONS)
    assert result.exit_code == 0 and not job.exists()
    assert (tmp_path / "a.wav").read_bytes() == encode_wav(spoken.samples, spoken.sample_rate)
