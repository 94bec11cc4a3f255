"""How a text is spoken: the phonemes that a front end returns, and the places in the text they stand for.

Owns `Spoken` and `SpokenWord`. Leaves making them to the front ends.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SpokenWord:
    """One spoken word, and the place text[start:end] in the given text that it stands for; several words may share a
    place ("$5" is spoken as two words)."""

    start: int
    end: int
    phonemes: str


@dataclass(frozen=True)
class Spoken:
    """How a text is spoken. phonemes: of all words, with the pauses between them, as the model reads them."""

    phonemes: str
    words: tuple[SpokenWord, ...]
