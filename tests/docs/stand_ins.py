"""The files that the pages speak of, made small: a model of several gigabytes is a toy here, under the same name.

Owns how each is made, once for all pages, and what stands in for a player. A page is given those whose names it has.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import dualar
import numpy as np
import soundfile
from fixtures import qwen3
from fixtures.make_toy_model import write_toy_model

FIXTURES = Path(__file__).parents[1] / "fixtures"
BOOK = "Good morning.\n\nIt is seven thirty. Turn on the kitchen light."


def _toy(path: Path) -> None:
    write_toy_model(path, seed=0)


def _recording(path: Path) -> None:
    # A fifth of a second: the toy ends its speech when frames, the recording's included, outnumber its text's tokens.
    tone = 0.2 * np.sin(np.arange(44100 // 5) * 2 * np.pi * 220 / 44100)
    soundfile.write(path, np.stack([tone, tone], axis=1), 44100)


def _book(path: Path) -> None:
    path.write_text(BOOK, encoding="utf-8")


def _text(path: Path) -> None:
    path.write_text("Good morning. Turn on the kitchen light.", encoding="utf-8")


def _checkpoint(name: str) -> Callable[[Path], None]:
    return lambda path: void(qwen3.checkpoint_folder(name, path))


def void(_: object) -> None:
    """For makers whose result is not wanted."""


def _qwen3(name: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        from dualar.convert.model_file import convert

        convert(qwen3.checkpoint_folder(name, path.with_suffix("")), path, weight_type="f32")

    return make


def _published(path: Path) -> None:
    shutil.copytree(FIXTURES / "published" / "s2-like", path)


def _phonemes(path: Path) -> None:
    from dualar.convert.model_file import convert

    folder = path.with_suffix("")
    shutil.copytree(FIXTURES / "published" / "s1-like", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "text_frontend": "english"}))
    convert(folder, path, weight_type="f32")


def _wavenet(path: Path) -> None:
    shutil.copy(FIXTURES / "golden" / "wavenet-tiny.gguf", path)


# Name in a page -> its maker. Each name is as long as it takes not to be a part of another one.
MAKERS: dict[str, Callable[[Path], None]] = {
    "s2-pro-q8_0.gguf": _toy,
    "base.gguf": _qwen3("tiny"),
    "Qwen3-TTS-12Hz-0.6B-CustomVoice": _checkpoint("tiny-eq"),
    "convert s2-pro ": _published,
    "wavenet.gguf": _wavenet,
    "anna.wav": _recording,
    "recording.flac": _recording,
    "book.txt": _book,
    "text.txt": _text,
}


def interrupted(folder: Path) -> None:
    """A narration of book.txt that was stopped after its first piece: its job, and no sound."""
    (folder / "book.wav").unlink()
    pauses = dualar.NarrationConfig(pause_ms={"sentence": 200, "paragraph": 700})
    with dualar.load() as engine:
        engine.narrate(BOOK, seed=7, config=pauses, job=folder / "book.wav.job", on_piece=lambda _: False)


# `<!-- test: NAME -->` above a block -> what is done before the block runs.
PREPARATIONS: dict[str, Callable[[Path], None]] = {"interrupted": interrupted}

PROGRAMS = {
    "dualar": f'exec "{sys.executable}" -m dualar "$@"',
    "python": f'exec "{sys.executable}" "$@"',
    "aplay": "cat >/dev/null",  # a player that hears everything and plays nothing
}


class StandIns:
    """Makes stand-ins in a folder of their own, each on first use, and copies them to where a page runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir()
        for name, script in PROGRAMS.items():
            (self.programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (self.programs / name).chmod(0o755)

    def give(self, text: str, target: Path) -> None:
        """Put into `target` all that a page with this text speaks of."""
        for mention, make in MAKERS.items():
            if mention in text:
                name = mention.split()[-1]
                made = self._folder / name
                if not made.exists():
                    make(made)
                (shutil.copytree if made.is_dir() else shutil.copy)(made, target / name)
