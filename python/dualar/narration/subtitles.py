"""A timeline as a subtitle file: SubRip (.srt), WebVTT (.vtt) or JSON (.json).

Owns the three formats. Leaves the times to `timeline.py`. SRT and VTT have a cue for each sentence, and times in whole
milliseconds; JSON has all that the timeline knows, in samples and in seconds.
"""

from __future__ import annotations

import html
import json
import os
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dualar.narration.timed import TimedPiece, TimedSentence
from dualar.text.tokenizer import SPEAKER_TAG

_LINE_LETTERS = 42  # of a line of a cue: what fits on a screen at a size that can be read


def check_subtitle_path(path: str | os.PathLike[str]) -> None:
    """ValueError for a name whose ending is none of the formats'."""
    if Path(path).suffix.lower() not in _FORMATS:
        raise ValueError(f"[subtitles] expected a file name ending in .srt, .vtt or .json, got {os.fspath(path)!r}")


def encode(pieces: Sequence[TimedPiece], sample_rate: int, path: str | os.PathLike[str]) -> bytes:
    """The bytes of a subtitle file, UTF-8, in the format of the path's ending. ValueError for another ending."""
    check_subtitle_path(path)
    return _FORMATS[Path(path).suffix.lower()](pieces, sample_rate).encode("utf-8")


def _srt(pieces: Sequence[TimedPiece], rate: int) -> str:
    cues: list[str] = []
    for sentence in _sentences(pieces):
        if text := _lines(sentence.text):
            cues.append(f"{len(cues) + 1}\n{_cue_times(sentence, rate, ',')}\n{text}\n")
    return "\n".join(cues)


def _vtt(pieces: Sequence[TimedPiece], rate: int) -> str:
    cues = ["WEBVTT\n"]
    for sentence in _sentences(pieces):
        if text := _lines(sentence.text):
            cues.append(f"{_cue_times(sentence, rate, '.')}\n{html.escape(text, quote=False)}\n")
    return "\n".join(cues)


def _json(pieces: Sequence[TimedPiece], rate: int) -> str:
    def entry(timed: TimedPiece | TimedSentence) -> dict[str, Any]:
        return {
            "text": timed.text,
            "start": timed.start,
            "sample_start": timed.sample_start,
            "sample_end": timed.sample_end,
            "seconds_start": timed.sample_start / rate,
            "seconds_end": timed.sample_end / rate,
        }

    told = [
        {
            "index": piece.index,
            **entry(piece),
            "sentences": [{**entry(sentence), "exact": sentence.exact} for sentence in piece.sentences],
        }
        for piece in pieces
    ]
    return json.dumps({"sample_rate": rate, "pieces": told}, ensure_ascii=False, indent=1) + "\n"


_FORMATS: dict[str, Callable[[Sequence[TimedPiece], int], str]] = {".srt": _srt, ".vtt": _vtt, ".json": _json}


def _sentences(pieces: Sequence[TimedPiece]) -> Iterable[TimedSentence]:
    return (sentence for piece in pieces for sentence in piece.sentences)


def _lines(text: str) -> str:
    """A sentence as the lines of a cue: without speakers' tags, blanks and line ends as one space, broken at words."""
    words = " ".join(SPEAKER_TAG.sub(" ", text).split())
    return textwrap.fill(words, _LINE_LETTERS, break_long_words=False, break_on_hyphens=False)


def _cue_times(sentence: TimedSentence, rate: int, point: str) -> str:
    return f"{_clock(sentence.sample_start, rate, point)} --> {_clock(sentence.sample_end, rate, point)}"


def _clock(sample: int, rate: int, point: str) -> str:
    """Hours, minutes, seconds and milliseconds of a sample, rounded."""
    ms = (2000 * sample + rate) // (2 * rate)
    return f"{ms // 3600000:02}:{ms // 60000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"
