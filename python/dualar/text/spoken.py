"""What is said of a text, as a front end gives it.

Owns `Spoken` and `SpokenWord`. Leaves making them to the front ends.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SpokenWord:
    """One word as it is said. text[start:end] of the text that was given is what it is said for; several words may
    share a place ("$5" is said as two)."""

    start: int
    end: int
    phonemes: str


@dataclass(frozen=True)
class Spoken:
    """What is said of a text. phonemes: the words, with the pauses between them, as the model reads them."""

    phonemes: str
    words: tuple[SpokenWord, ...]
