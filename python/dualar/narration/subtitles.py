"""A timeline as a subtitle file: SubRip (.srt), WebVTT (.vtt) or JSON (.json).

Owns the three formats. Leaves the times to `timeline.py`. SRT and VTT have a cue for each sentence, and times in whole
milliseconds; in VTT each word has its own, where it is known. JSON has all that the timeline knows, in samples and
seconds.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dualar.narration.timed import TimedPiece, TimedSentence
from dualar.text.places import TimedWord
from dualar.text.tokenizer import SPEAKER_TAG

_TIME = re.compile(r"<[0-9:.]+>")
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
        if text := _lines(_karaoke(sentence, rate) if sentence.words else _escaped(sentence.text)):
            cues.append(f"{_cue_times(sentence, rate, '.')}\n{text}\n")
    return "\n".join(cues)


def _karaoke(sentence: TimedSentence, rate: int) -> str:
    """The sentence with the time at which each word begins in front of it, so that a player can mark it."""
    parts, at = [], sentence.start
    for word in sentence.words:
        between = sentence.text[at - sentence.start : word.start - sentence.start]
        time = max(sentence.sample_start, min(word.sample_start, sentence.sample_end))
        parts += [
            _escaped(between),
            f"<{_clock(time, rate, '.')}>",
            _escaped(word.text),
        ]
        at = word.end
    return "".join([*parts, _escaped(sentence.text[at - sentence.start :])])


def _json(pieces: Sequence[TimedPiece], rate: int) -> str:
    def entry(timed: TimedPiece | TimedSentence | TimedWord) -> dict[str, Any]:
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
            "sentences": [
                {
                    **entry(sentence),
                    "exact": sentence.exact,
                    "words": [{**entry(word), "end": word.end} for word in sentence.words],
                }
                for sentence in piece.sentences
            ],
        }
        for piece in pieces
    ]
    return json.dumps({"sample_rate": rate, "pieces": told}, ensure_ascii=False, indent=1) + "\n"


_FORMATS: dict[str, Callable[[Sequence[TimedPiece], int], str]] = {".srt": _srt, ".vtt": _vtt, ".json": _json}


def _sentences(pieces: Sequence[TimedPiece]) -> Iterable[TimedSentence]:
    return (sentence for piece in pieces for sentence in piece.sentences)


def _escaped(text: str) -> str:
    """Text as it stands in VTT, without speakers' tags."""
    return html.escape(SPEAKER_TAG.sub(" ", text), quote=False)


def _shown(text: str) -> int:
    """How many letters of VTT, or of plain text, are seen."""
    return len(html.unescape(_TIME.sub("", text)))


def _lines(text: str) -> str:
    """A sentence as the lines of a cue: without speakers' tags, blanks and line ends as one space, broken at words."""
    lines: list[str] = []
    for word in SPEAKER_TAG.sub(" ", text).split():
        if lines and _shown(lines[-1]) + 1 + _shown(word) <= _LINE_LETTERS:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


def _cue_times(sentence: TimedSentence, rate: int, point: str) -> str:
    return f"{_clock(sentence.sample_start, rate, point)} --> {_clock(sentence.sample_end, rate, point)}"


def _clock(sample: int, rate: int, point: str) -> str:
    """Hours, minutes, seconds and milliseconds of a sample, rounded."""
    ms = (2000 * sample + rate) // (2 * rate)
    return f"{ms // 3600000:02}:{ms // 60000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"
