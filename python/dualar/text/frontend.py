"""Text front ends, which turn a text into the phonemes that a model was trained to read.

A model file names its front end (key `dualar.text_frontend`); without that key the model reads letters. Owns the
protocol of a front end, the list of them and the reading of a user's own lexicon. Leaves each front end to its package,
which is imported when a file names it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from dualar.text.spoken import Spoken


class TextFrontend(Protocol):
    """One front end, with the lexicon that a user gave."""

    languages: tuple[str, ...]
    """Those that it reads, as ISO 639-1 codes."""

    def speak(self, text: str) -> Spoken:
        """How the text is spoken; ValueError for another script, nothing to speak, or unknown phonemes."""
        ...

    def unknown_words(self, text: str) -> list[str]:
        """The words of the text whose phonemes are guessed from their letters, each once, as they are written."""
        ...


def _english(lexicon: Mapping[str, str]) -> TextFrontend:
    from dualar.text.english import EnglishFrontend

    return EnglishFrontend(lexicon)


FRONTENDS: dict[str, Callable[[Mapping[str, str]], TextFrontend]] = {"english": _english}
"""Name in a model file -> the function that makes the front end, with a user's lexicon."""


def read_lexicon(path: str | os.PathLike[str]) -> dict[str, str]:
    """A user's lexicon, word -> phonemes: a UTF-8 file with a word and its phonemes in each line, and `#` remarks.

    Words are taken in lower case. Errors: ValueError naming a line with a word alone; OSError for a file that cannot be
    read.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        word, _, phonemes = line.partition("#")[0].strip().partition(" " if "\t" not in line else "\t")
        if word and not phonemes.strip():
            raise ValueError(
                f"[lexicon] {os.fspath(path)}, line {number}: expected a word and its phonemes, got {line!r}"
            )
        if word:
            found[word.lower()] = phonemes.strip().strip("/")
    return found
