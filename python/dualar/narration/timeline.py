"""When each piece and each sentence of a text is heard, in samples of the whole.

Owns `Timeline`. Leaves its entries to `timed.py`, subtitle files to `subtitles.py`, and where a text is cut to
`dualar.text.split`.

A piece is decoded on its own, so where its sound begins and ends is known to the sample. A sentence that is a piece by
itself, and the outer ends of the first and the last sentence of a piece, are as exact. Where one piece holds several
sentences, nothing in the sound tells where one ends, and the borders between them are shared out by `speech_size`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dualar.config import whole_number
from dualar.files import write_file
from dualar.narration.plan import NarratedPiece
from dualar.narration.subtitles import encode
from dualar.narration.timed import TimedPiece, TimedSentence
from dualar.text.plain import plain_text
from dualar.text.split import speech_size, split_text

_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The pieces of a text that are heard, in order; the pauses lie between them. sample_rate: in Hz."""

    pieces: tuple[TimedPiece, ...]
    sample_rate: int

    @property
    def sentences(self) -> tuple[TimedSentence, ...]:
        """The sentences of all pieces, in order."""
        return tuple(sentence for piece in self.pieces for sentence in piece.sentences)

    @classmethod
    def of_clip(cls, text: str, samples: int, sample_rate: int) -> Timeline:
        """Of a text that was spoken in one go, as `Engine.synthesize` does, as a clip of so many samples."""
        count = whole_number("Timeline.samples", samples, 0, 2**62)
        plain = plain_text(text)
        pieces = (_timed(0, plain, 0, 0, count),) if count and plain.strip() else ()
        return cls(pieces=pieces, sample_rate=sample_rate)

    @classmethod
    def of_pieces(cls, pieces: Iterable[NarratedPiece], sample_rate: int) -> Timeline:
        """Of the pieces of a narration; those that could not be spoken are not in it."""
        timed = (
            _timed(piece.index, piece.text, piece.start, piece.sample_start, piece.sample_start + piece.sample_count)
            for piece in pieces
            if piece.error is None
        )
        return cls(pieces=tuple(timed), sample_rate=sample_rate)

    def cut(self, samples: int) -> Timeline:
        """Of the first so many samples, as after `Audio.trim_silence`: what ends later ends there."""
        kept = []
        for piece in self.pieces:
            if piece.sample_start < samples:
                sentences = tuple(
                    replace(sentence, sample_end=min(sentence.sample_end, samples))
                    for sentence in piece.sentences
                    if sentence.sample_start < samples
                )
                kept.append(replace(piece, sample_end=min(piece.sample_end, samples), sentences=sentences))
        return replace(self, pieces=tuple(kept))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a subtitle file: SubRip, WebVTT or JSON, by the name's ending (.srt, .vtt, .json).

        An existing file is replaced, whole. Errors: ValueError for another ending, OSError where it cannot be written.
        """
        write_file(path, encode(self.pieces, self.sample_rate, path))


def _timed(index: int, text: str, start: int, sample_start: int, sample_end: int) -> TimedPiece:
    parts = split_text(text, max_size=_NO_LIMIT, one_sentence=True)
    sizes = [speech_size(part.text.rstrip()) for part in parts]
    total, spoken, borders = max(sum(sizes), 1), 0, [sample_start]
    for size in sizes[:-1]:
        spoken += size
        borders.append(sample_start + (sample_end - sample_start) * spoken // total)
    borders.append(sample_end)
    sentences = tuple(
        TimedSentence(
            text=part.text, start=start + part.start, sample_start=begin, sample_end=end, exact=len(parts) == 1
        )
        for part, begin, end in zip(parts, borders, borders[1:], strict=False)
    )
    return TimedPiece(
        index=index, text=text, start=start, sample_start=sample_start, sample_end=sample_end, sentences=sentences
    )
