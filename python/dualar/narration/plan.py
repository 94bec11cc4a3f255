"""The pieces of a long text: where it is cut, which seed each attempt has, and the result of each piece.

Owns `plan` (a `TextPlan`), `piece_seed`, `NarratedPiece` and `NarrationProgress`. Leaves the places where a text may be
cut to `dualar.text.split`, and speaking the pieces to `narrator.py`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dualar.generation.frames import FinishReason
from dualar.narration.config import NarrationConfig
from dualar.text.places import TimedWord
from dualar.text.plain import plain_text
from dualar.text.split import Piece, PieceEnd, split_text
from dualar.text.words import require_words

Int32 = npt.NDArray[np.int32]


FIRST_SIZE = 120  # letters of the first piece, where a sentence ends within them: a short one is heard sooner

NOT_PLACED = -1  # sample_start of a piece that is finished before those in front of it


@dataclass(frozen=True, kw_only=True, eq=False)
class NarratedPiece:
    """A piece of a long text, and its result.

    text: the piece as it stands in the `plain_text` of the whole, from character `start` on; ends: what ends with it.
    codes: int32 [num_codebooks, T]; T is 0 where the piece could not be spoken, and then error says why. seed and
    finish_reason are those of the last of `attempts`; finish_reason is None where that one ended with an error of the
    model. sample_start and sample_count: where its sound is in the whole, in samples. words: when each of its words is
    heard, in the text and the sound of the piece alone, where the request asked for it; else None.
    """

    index: int
    text: str
    start: int
    ends: PieceEnd
    codes: Int32
    seed: int
    attempts: int
    finish_reason: FinishReason | None
    error: str | None
    padded_frames: int
    sample_start: int
    sample_count: int
    words: tuple[TimedWord, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class NarrationProgress:
    """What on_piece is given: the piece just finished, how many of all are, and an estimate of the seconds left."""

    piece: NarratedPiece
    done: int
    total: int
    seconds_left: float


@dataclass(frozen=True)
class TextPlan:
    """How a text is to be spoken. `Engine.plan` makes one.

    text: the `plain_text` of the given text. pieces: its pieces, whose texts together are `text`. config: the options,
    with piece_size and one_sentence settled.
    """

    text: str
    pieces: tuple[Piece, ...]
    config: NarrationConfig

    @property
    def is_long(self) -> bool:
        """Whether the text has several pieces, and so is for `Engine.narrate` rather than for `Engine.synthesize`."""
        return len(self.pieces) > 1


def plan(text: str, config: NarrationConfig | None = None, *, longest_text: int | None = None) -> TextPlan:
    """How `text` is to be spoken. longest_text: most letters of a piece, for a model that was trained on single
    sentences (`Family.longest_text`). ValueError for a text with nothing to speak."""
    require_words("text", text)
    settled = (config or NarrationConfig()).for_model(longest_text)
    plain, size = plain_text(text), settled.piece_size
    assert size is not None
    first = min(FIRST_SIZE, size)
    pieces = split_text(plain, max_size=size, first_size=first, one_sentence=bool(settled.one_sentence))
    return TextPlan(plain, tuple(pieces), settled)


def piece_seed(seed: int, index: int, attempt: int) -> int:
    """The seed of a piece's attempt, both counted from 0.

    `seed` itself for the first attempt at the first piece, so that a text of one piece is spoken as `synthesize` does;
    else the first 8 bytes, least significant first, of the SHA-256 of the text "seed index attempt" in decimals.
    """
    if index == attempt == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed} {index} {attempt}".encode()).digest()[:8], "little")
