"""The pieces of a long text: where it is cut, which seed each attempt has, and what becomes of a piece.

Owns `plan`, `piece_seed`, `NarratedPiece` and `NarrationProgress`. Leaves the places where a text may be cut to
`dualar.text.split`, and speaking the pieces to `narrator.py`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dualar.generation.frames import FinishReason
from dualar.narration.config import NarrationConfig
from dualar.text.plain import plain_text
from dualar.text.split import Piece, PieceEnd, split_text

Int32 = npt.NDArray[np.int32]


FIRST_SIZE = 120  # of the first piece, where a sentence ends within it: it is heard when it is whole

NOT_PLACED = -1  # as sample_start of a piece that is spoken before those in front of it


@dataclass(frozen=True, kw_only=True, eq=False)
class NarratedPiece:
    """A piece of a long text, and what became of it.

    text: as it stands in the `plain_text` of the whole, `start` characters into it; ends: what ends with it. codes:
    int32 [num_codebooks, T], T 0 where it could not be spoken; then error says why. seed and finish_reason are those of
    the last of `attempts`; finish_reason is None where that one ended with an error of the model. sample_start and
    sample_count: where its sound is in the whole, in samples.
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


@dataclass(frozen=True, kw_only=True)
class NarrationProgress:
    """piece: the one just done; done of total pieces are; seconds_left: a guess, at the speed so far."""

    piece: NarratedPiece
    done: int
    total: int
    seconds_left: float


def plan(text: str, config: NarrationConfig | None = None) -> list[Piece]:
    """The pieces of `plain_text(text)`; joined, they are it. One piece is a text that needs no narration."""
    config = (config or NarrationConfig()).for_model(None)
    size = config.piece_size
    assert size is not None
    first = min(FIRST_SIZE, size)
    return split_text(plain_text(text), max_size=size, first_size=first, one_sentence=bool(config.one_sentence))


def piece_seed(seed: int, index: int, attempt: int) -> int:
    """The seed of a piece's attempt, both counted from 0.

    `seed` itself for the first attempt at the first piece, so that a text of one piece is spoken as `synthesize` does;
    else the first 8 bytes, least significant first, of the SHA-256 of the text "seed index attempt" in decimals.
    """
    if index == attempt == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed} {index} {attempt}".encode()).digest()[:8], "little")
