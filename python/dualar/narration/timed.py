"""The entries of a timeline: a text's pieces and sentences, each with the samples in which it is heard.

Owns their fields. Leaves what makes them to `timeline.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from dualar.text.places import TimedWord


@dataclass(frozen=True, kw_only=True)
class TimedSentence:
    """A sentence, or the part of one that is in a piece.

    text: as it stands in the `plain_text` of the whole, from character `start` on. sample_start and sample_end: where
    its sound begins, and the first sample after it. exact: whether both are known to the sample; else at least one is
    estimated, from the words' times or else from the lengths of the piece's sentences. words: when each of its words is
    heard, where the request asked for it (`word_times`); else none.
    """

    text: str
    start: int
    sample_start: int
    sample_end: int
    exact: bool
    words: tuple[TimedWord, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TimedPiece:
    """A piece of a text that was spoken in one go; its ends are exact. The fields are those of a TimedSentence.

    index: its number in the text, from 0. sentences: join to its text, and fill its time without gaps.
    """

    index: int
    text: str
    start: int
    sample_start: int
    sample_end: int
    sentences: tuple[TimedSentence, ...]
