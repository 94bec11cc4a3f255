"""Builds the prompt of a CSM model from a text and, where given, a voice, a speaker's number and earlier turns.

Owns `CsmPrompt` and the order of turns. Pure numpy. Leaves ids to `dualar.text.tokenizer`, and adding up the vectors of
a frame's codes to the compiled core.

A turn is `<|begin_of_text|>[0]Text.<|end_of_text|>`, the number being its speaker's; of an earlier turn, whose sound is
known, its frames follow, and a frame of nothing but code 0, which ends them. A voice is an earlier turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dualar.codes import require_codes
from dualar.families.base import Turn
from dualar.text.plain import plain_text
from dualar.text.tokenizer import SPEAKER_TAG, PromptTokenizer
from dualar.text.words import require_words

Int32 = npt.NDArray[np.int32]

OPEN, CLOSE = "<|begin_of_text|>", "<|end_of_text|>"
FIRST_SPEAKER = "0"

_NOTHING = -1  # in a column: no text id, or no code
_TAG_NUMBER = re.compile(r"<\|speaker:([0-9]+)\|>\s*")


class CsmSizes(Protocol):
    """The sizes of a model that a prompt is checked against."""

    @property
    def num_codebooks(self) -> int: ...
    @property
    def codebook_size(self) -> int: ...


@dataclass(frozen=True, eq=False)
class CsmPrompt:
    """A prompt of columns int32 [1 + N, T]: a text id in row 0 and -1 below, or -1 in row 0 and a frame's codes below.

    prefix_length: how many columns at the beginning hold a voice's turn.
    """

    columns: Int32
    prefix_length: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(1 + N, T)."""
        rows, count = self.columns.shape
        return rows, count

    @property
    def divisible(self) -> bool:
        """True: a session may compute it in pieces."""
        return True

    def piece(self, start: int, stop: int) -> Int32:
        """Columns start to stop, int32 [1 + N, stop - start], contiguous."""
        return np.ascontiguousarray(self.columns[:, start:stop])

    def checked(self, model: CsmSizes) -> CsmPrompt:
        """The same with plain arrays; ValueError where it does not fit the model. Text ids are the core's to check."""
        x = np.asarray(self.columns)
        rows = 1 + model.num_codebooks
        if x.dtype.kind not in "iu" or x.ndim != 2 or x.shape[0] != rows or x.shape[1] == 0:
            raise ValueError(f"[prompt] expected int [{rows}, T >= 1], got {x.dtype} {list(x.shape)}")
        text, codes = x[0] >= 0, x[1:]
        wrong = np.where(text, codes != _NOTHING, (codes < 0) | (codes >= model.codebook_size))
        if wrong.any():
            raise ValueError(
                f"[prompt] expected codes from 0 to {model.codebook_size - 1}, or {_NOTHING} beside a text id, got "
                f"{codes[wrong][0]}"
            )
        return CsmPrompt(np.ascontiguousarray(x, np.int32), min(self.prefix_length, x.shape[1] - 1))


def build_csm_prompt(
    text: str,
    *,
    tokenizer: PromptTokenizer,
    num_codebooks: int,
    codebook_size: int,
    speaker: str | None = None,
    voice: Turn | None = None,
    history: Iterable[Turn] = (),
) -> CsmPrompt:
    """The prompt that makes a CSM model speak `text`.

    speaker: a number in decimal digits, by default 0; the voice's turn and earlier turns have the same one. A speaker
    tag at a text's beginning (`<|speaker:1|>`) names that turn's own. voice: a recording to speak like; history:
    earlier turns, oldest first. ValueError for text with nothing to speak, a speaker's tag anywhere but at a text's
    beginning, a speaker that is no number, or codes that do not fit.
    """
    if speaker is not None and not (speaker.isascii() and speaker.isdecimal() and len(speaker) <= 9):
        raise ValueError(f"[speaker] expected a number, such as 0 or 1, got {speaker!r}")
    build = _Columns(tokenizer, num_codebooks, codebook_size, FIRST_SPEAKER if speaker is None else speaker)
    if voice is not None:
        build.turn("voice", voice)
    prefix_length = build.length
    for i, turn in enumerate(history):
        build.turn(f"history {i}", turn)
    build.text("text", text)
    return CsmPrompt(build.columns(), prefix_length)


class _Columns:
    """A prompt while it is built, column after column."""

    def __init__(self, tokenizer: PromptTokenizer, num_codebooks: int, codebook_size: int, speaker: str) -> None:
        self._tokenizer = tokenizer
        self._num_codebooks = num_codebooks
        self._codebook_size = codebook_size
        self._speaker = speaker
        self._parts: list[Int32] = []

    @property
    def length(self) -> int:
        return sum(part.shape[1] for part in self._parts)

    def columns(self) -> Int32:
        return np.ascontiguousarray(np.concatenate(self._parts, axis=1))

    def text(self, name: str, text: str) -> None:
        """A turn's text. Its number and first word are encoded together: `]The` is one piece, as in training."""
        require_words(name, text)
        text, speaker = plain_text(text), self._speaker
        if tag := _TAG_NUMBER.match(text):
            text, speaker = text[tag.end() :], tag.group(1)
        if inner := SPEAKER_TAG.search(text):
            raise ValueError(
                f"[{name}] expected one speaker's turn, as this model was trained, got {inner.group()} within it: give "
                "each turn by itself, or use narrate, which does"
            )
        ids = [
            *self._tokenizer.encode_template(OPEN),
            *self._tokenizer.encode_text(f"[{speaker}]{text}"),
            *self._tokenizer.encode_template(CLOSE),
        ]
        part = np.full((1 + self._num_codebooks, len(ids)), _NOTHING, np.int32)
        part[0] = ids
        self._parts.append(part)

    def turn(self, name: str, turn: Turn) -> None:
        """An earlier turn: its text, its frames, and the frame that ends them."""
        codes = require_codes(
            f"{name} codes", turn.codes, num_codebooks=self._num_codebooks, codebook_size=self._codebook_size
        )
        self.text(f"{name} text", turn.text)
        part = np.zeros((1 + self._num_codebooks, codes.shape[1] + 1), np.int32)
        part[0] = _NOTHING
        part[1:, :-1] = codes
        self._parts.append(part)
