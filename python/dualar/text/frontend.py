"""Text front ends: what turns a text into what a model was trained to read, for example into phonemes.

A model file asks for one by its name (the key `dualar.text_frontend`); without that key the model reads letters. Owns
what a front end is, the list of them and the reading of a user's own lexicon. Leaves each front end to its package,
which is imported when a file asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from dualar.text.spoken import Spoken


class TextFrontend(Protocol):
    """One front end, with the lexicon that a user gave."""

    def speak(self, text: str) -> Spoken:
        """ValueError for a text that it cannot read: another script, nothing to say, phonemes that there are not."""
        ...

    def unknown_words(self, text: str) -> list[str]:
        """The words of the text whose sound is a guess from their letters, each once, as they are written."""
        ...


def _english(lexicon: Mapping[str, str]) -> TextFrontend:
    from dualar.text.english import EnglishFrontend

    return EnglishFrontend(lexicon)


FRONTENDS: dict[str, Callable[[Mapping[str, str]], TextFrontend]] = {"english": _english}
"""Name in a model file -> what makes it of a user's lexicon."""


def read_lexicon(path: str | os.PathLike[str]) -> dict[str, str]:
    """A user's lexicon: a UTF-8 file with a word and its phonemes in each line, after a `#` a remark.

    Words count in lower case. Errors: ValueError naming the line that is something else; OSError for a file that
    cannot be read.
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
