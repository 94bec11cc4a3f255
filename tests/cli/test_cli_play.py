"""`dualar say` without a file: speech led into a player, here a program that keeps what it is given."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.audio.wav import pcm_bytes

from cli.test_cli import run, run_python

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX programs")

SIX = ["--max-new-tokens", "6", "--min-tokens-before-end", "6", "--threads", "1", "--seed", "5"]
KEEPS = """
import sys
with open(sys.argv[0] + ".said", "wb") as file:
    file.write(repr(sys.argv[1:]).encode() + b"\\n" + sys.stdin.buffer.read())
"""
SILENT = 'import sys\nprint("ALSA lib: no.", file=sys.stderr)\nsys.exit("aplay: audio open error")\n'


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch, toy_model: Path, tmp_path: Path) -> Path:
    """A folder for programs, the only one that they are looked for in; and no library."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("DUALAR_MODEL", str(toy_model))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    monkeypatch.chdir(tmp_path)
    return folder


def put(folder: Path, name: str, code: str) -> Path:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{code}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path.with_name(f"{name}.said")


@pytest.fixture(scope="module")
def spoken(toy_model: Path) -> dualar.Audio:
    with dualar.load(toy_model, threads=1) as engine, engine.stream(
        "hello", seed=5, max_new_tokens=6, min_tokens_before_end=6, frames_per_chunk=(1, 2, 4)
    ) as stream:  # fmt: skip
        chunks = list(stream)
    samples = np.concatenate([chunk.samples for chunk in chunks])
    return SimpleNamespace(samples=samples, sample_rate=chunks[0].sample_rate)  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["paplay", "aplay", "ffplay", "afplay"])
def test_the_program_that_is_there_plays(programs: Path, tmp_path: Path, spoken: dualar.Audio, name: str) -> None:
    code = KEEPS.replace("sys.stdin.buffer.read()", "open(sys.argv[1], 'rb').read()") if name == "afplay" else KEEPS
    said = put(programs, name, code)
    result = run("say", "hello", *SIX)
    assert result.exit_code == 0 and result.stdout == "", result.output
    assert "played: " in result.stderr and "6 frames, seed 5" in result.stderr
    arguments, _, data = said.read_bytes().partition(b"\n")
    if name in ("ffplay", "afplay"):
        assert data.startswith(b"RIFF")
        data = data[44:]
    else:
        assert str(spoken.sample_rate).encode() in arguments
    assert data == pcm_bytes(spoken.samples, "PCM_16")
    assert sorted(os.listdir(tmp_path)) == ["programs"]


def test_a_long_text_is_played_and_leaves_no_job(programs: Path, tmp_path: Path) -> None:
    said = put(programs, "aplay", KEEPS)
    text = "The kettle is on, and it sings to the cat. " * 9
    wanted = run("say", text, "-o", "-", "--min-tokens-before-end", "8", "--threads", "1", "--seed", "5")
    result = run("say", text, "--min-tokens-before-end", "8", "--threads", "1", "--seed", "5")
    assert result.exit_code == wanted.exit_code == 0, result.output
    assert said.read_bytes().partition(b"\n")[2] == wanted.stdout_bytes != b""
    assert sorted(os.listdir(tmp_path)) == ["programs"]


def test_one_that_cannot_play_is_passed_over(programs: Path, spoken: dualar.Audio) -> None:
    put(programs, "paplay", SILENT)
    said = put(programs, "aplay", KEEPS)
    assert run("say", "hello", *SIX).exit_code == 0
    assert said.read_bytes().endswith(pcm_bytes(spoken.samples, "PCM_16"))


def test_where_nothing_plays_it_says_what_to_do(programs: Path) -> None:
    result = run("say", "hello", *SIX)
    assert result.exit_code == 1 and "nothing is there to play sound with" in result.stderr
    assert "-o speech.wav" in result.stderr and "dualar[play]" in result.stderr
    put(programs, "aplay", SILENT)
    result = run("say", "hello", *SIX)
    assert result.exit_code == 1 and "no sound device to play through (aplay: aplay: audio open error)" in result.stderr
    assert "-o speech.wav" in result.stderr and "frames" not in result.stderr


def test_a_player_that_stops_is_a_failure(programs: Path) -> None:
    put(programs, "ffplay", 'import sys\nsys.exit("the cable is out")\n')
    result = run("say", "hello " * 9, "--max-new-tokens", "200", "--min-tokens-before-end", "200")
    assert result.exit_code == 1 and "ffplay stopped: the cable is out." in result.stderr
    put(programs, "ffplay", 'import sys\nsys.stdin.buffer.read()\nprint("audio open failed", file=sys.stderr)\n')
    result = run("say", "hello", *SIX)
    assert result.exit_code == 1 and "ffplay stopped: audio open failed." in result.stderr


class Library:
    """As much of sounddevice as is used."""

    class PortAudioError(Exception):
        pass

    def __init__(self, *, works: bool = True, breaks: bool = False) -> None:
        self.works, self.breaks = works, breaks
        self.heard: list[Any] = []

    def query_devices(self, *, kind: str) -> object:
        if not self.works:
            raise self.PortAudioError("Error querying device -1")
        return {"name": kind}

    def RawOutputStream(self, **options: object) -> Any:  # noqa: N802 (its name)
        library = self

        class Stream:
            def __enter__(self) -> Stream:
                library.heard.append(options)
                return self

            def __exit__(self, *_: object) -> None:
                library.heard.append("closed")

            def write(self, data: bytes) -> None:
                if library.breaks:
                    raise library.PortAudioError("unplugged")
                library.heard.append(data)

            def stop(self) -> None:
                library.heard.append("stopped")

        return Stream()


def test_the_library_plays(monkeypatch: pytest.MonkeyPatch, spoken: dualar.Audio) -> None:
    library = Library()
    monkeypatch.setitem(sys.modules, "sounddevice", library)
    assert run("say", "hello", *SIX).exit_code == 0
    assert library.heard[0] == {"samplerate": spoken.sample_rate, "channels": 1, "dtype": "int16"}
    assert library.heard[-2:] == ["stopped", "closed"]
    assert b"".join(library.heard[1:-2]) == pcm_bytes(spoken.samples, "PCM_16")
    monkeypatch.setitem(sys.modules, "sounddevice", Library(breaks=True))
    result = run("say", "hello", *SIX)
    assert result.exit_code == 1 and "the sound device stopped: unplugged." in result.stderr
    monkeypatch.setitem(sys.modules, "sounddevice", Library(works=False))
    result = run("say", "hello", *SIX)
    assert result.exit_code == 1 and "(sounddevice: Error querying device -1)" in result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--peak", "-1"], "--trim-silence, --peak and --loudness need the whole speech"),
        (["--format", "wav"], "--format is for -o -"),
        (["--subtype", "FLOAT"], "--subtype is for -o"),
    ],
)
def test_options_of_files_are_refused(programs: Path, options: list[str], words: str) -> None:
    put(programs, "aplay", KEEPS)
    result = run("say", "hello", *options, *SIX)
    assert result.exit_code == 2 and words in " ".join(result.stderr.split())


def test_a_process_plays(programs: Path, spoken: dualar.Audio) -> None:
    said = put(programs, "aplay", KEEPS)
    environment = {**os.environ, "PATH": str(programs)}
    result = run_python("-c", "import sys; sys.modules['sounddevice'] = None; from dualar.cli import main; main()",
                        "say", "hello", *SIX, env=environment)  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert said.read_bytes().endswith(pcm_bytes(spoken.samples, "PCM_16"))
