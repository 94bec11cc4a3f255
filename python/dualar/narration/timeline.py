"""When each piece and each sentence of a text is heard, in samples of the whole.

Owns `Timeline`. Leaves its entries to `timed.py`, subtitle files to `subtitles.py`, and where a text is cut to
`dualar.text.split`.

A piece is decoded on its own, so where its sound begins and ends is known to the sample. A sentence that is a piece by
itself, and the outer ends of the first and the last sentence of a piece, are as exact. Where one piece holds several
sentences, the borders between them are estimates: where words were timed, a sentence begins with its first word; else
the time is shared out by `speech_size`.
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
from dualar.text.places import TimedWord
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

    @property
    def words(self) -> tuple[TimedWord, ...]:
        """The words of all sentences, in order; none where the request did not ask for their times."""
        return tuple(word for sentence in self.sentences for word in sentence.words)

    @classmethod
    def of_clip(
        cls, text: str, samples: int, sample_rate: int, *, words: tuple[TimedWord, ...] | None = None
    ) -> Timeline:
        """Of a text that was spoken in one go, as `Engine.synthesize` does, as a clip of so many samples. words: the
        clip's, `Audio.words`."""
        count = whole_number("Timeline.samples", samples, 0, 2**62)
        plain = plain_text(text)
        pieces = (_timed(0, plain, 0, 0, count, words or ()),) if count and plain.strip() else ()
        return cls(pieces=pieces, sample_rate=sample_rate)

    @classmethod
    def of_pieces(cls, pieces: Iterable[NarratedPiece], sample_rate: int) -> Timeline:
        """Of the pieces of a narration; those that could not be spoken are not in it."""
        timed = (
            _timed(
                piece.index,
                piece.text,
                piece.start,
                piece.sample_start,
                piece.sample_start + piece.sample_count,
                piece_words(piece),
            )
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
                    replace(
                        sentence,
                        sample_end=min(sentence.sample_end, samples),
                        words=tuple(
                            replace(word, sample_end=min(word.sample_end, samples))
                            for word in sentence.words
                            if word.sample_start < samples
                        ),
                    )
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


def piece_words(piece: NarratedPiece) -> tuple[TimedWord, ...]:
    """The words of a piece as words of the whole text and sound; none where their times are not known."""
    return tuple(
        TimedWord(
            text=word.text,
            start=piece.start + word.start,
            end=piece.start + word.end,
            sample_start=piece.sample_start + word.sample_start,
            sample_end=piece.sample_start + word.sample_end,
        )
        for word in piece.words or ()
    )


def _timed(
    index: int, text: str, start: int, sample_start: int, sample_end: int, words: tuple[TimedWord, ...]
) -> TimedPiece:
    parts = split_text(text, max_size=_NO_LIMIT, one_sentence=True)
    places = [(start + part.start, start + part.start + len(part.text)) for part in parts]
    spoken = [tuple(word for word in words if first <= word.start < last) for first, last in places]
    if all(spoken):  # a sentence begins with its first word
        borders = [sample_start, *(inside[0].sample_start for inside in spoken[1:]), sample_end]
    else:
        borders = _shared_out([speech_size(part.text.rstrip()) for part in parts], sample_start, sample_end)
    sentences = tuple(
        TimedSentence(
            text=part.text, start=place[0], sample_start=begin, sample_end=end, exact=len(parts) == 1, words=inside
        )
        for part, place, inside, begin, end in zip(parts, places, spoken, borders, borders[1:], strict=False)
    )
    return TimedPiece(
        index=index, text=text, start=start, sample_start=sample_start, sample_end=sample_end, sentences=sentences
    )


def _shared_out(sizes: list[int], sample_start: int, sample_end: int) -> list[int]:
    """The borders between sentences of these sizes."""
    total, spoken, borders = max(sum(sizes), 1), 0, [sample_start]
    for size in sizes[:-1]:
        spoken += size
        borders.append(sample_start + (sample_end - sample_start) * spoken // total)
    return [*borders, sample_end]
