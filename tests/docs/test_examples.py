"""Runs the examples as they are, each as a program of its own, with the package's voice or a toy model."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import soundfile
from docs.pages import ROOT
from docs.stand_ins import MAKERS

EXAMPLES = ROOT / "examples"


def run(name: str, *arguments: str | Path, text: str | None = None, programs: Path | None = None) -> str:
    """The standard output of an example that must end well."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}" if programs else os.environ["PATH"]
    command = [sys.executable, EXAMPLES / name, *arguments]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=120, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def seconds(path: Path) -> float:
    return float(soundfile.info(path).duration)


def test_read_aloud(tmp_path: Path) -> None:
    page = "<html><head><title>No</title></head><body><p>Good morning.</p><p>Turn on the light.</p></body></html>"
    with zipfile.ZipFile(tmp_path / "book.epub", "w") as book:
        book.writestr("one.xhtml", page)
        book.writestr("two.xhtml", "<p>Good night.</p>")
    run("read_aloud.py", tmp_path / "book.epub", tmp_path / "book")
    first, second = (tmp_path / "book" / name for name in ("001.wav", "002.wav"))
    assert seconds(first) > seconds(second) > 0.3


def test_speak_language_model(tmp_path: Path) -> None:
    said = run("speak_language_model.py", tmp_path / "out.wav")
    assert said.splitlines() == [
        "spoken: Good morning.", "spoken: It is seven thirty.", "spoken: Turn on the kitchen light.",
    ]  # fmt: skip
    assert seconds(tmp_path / "out.wav") > 2


def test_screen_reader(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    player = tmp_path / "player"
    player.write_text(f'#!/bin/sh\ncat >>"{heard}"\n')
    player.chmod(0o755)
    run("screen_reader.py", player, text="Good morning.\nGood night.\n")
    assert heard.stat().st_size > 2 * 16000 * 0.3  # half a second or so, of the last line at least


def test_speak_folder(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for name, text in {"a": "Good morning.", "b": "Good night.", "c": "It is nine. Turn on the light."}.items():
        (texts / f"{name}.txt").write_text(text, encoding="utf-8")
    assert len(run("speak_folder.py", texts, tmp_path / "sounds").splitlines()) == 3
    assert all(seconds(tmp_path / "sounds" / f"{name}.wav") > 0.3 for name in "abc")
    assert run("speak_folder.py", texts, tmp_path / "sounds") == ""


def test_clone_voice(tmp_path: Path) -> None:
    for name in ("s2-pro-q8_0.gguf", "anna.wav"):
        MAKERS[name](tmp_path / name)
    words = ("What Anna says.", "The kettle is on.")
    for out in ("one.wav", "two.wav"):  # the second with the voice that the first kept
        run("clone_voice.py", tmp_path / "s2-pro-q8_0.gguf", tmp_path / "anna.wav", *words, tmp_path / out)
    assert (tmp_path / "one.wav").read_bytes() == (tmp_path / "two.wav").read_bytes()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short_and_tested(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    assert f"def test_{path.stem}(" in Path(__file__).read_text(encoding="utf-8")
