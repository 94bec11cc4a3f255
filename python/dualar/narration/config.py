"""How a long text is spoken: its pieces, pauses, context and attempts.

Owns the options and their defaults, and which of them a model's file decides. Leaves cutting the text to `plan.py`, and
speaking it to `narrator.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

from dualar.config import _INT_MAX, MOST_ROWS, Validated, option
from dualar.text.split import DEFAULT_MAX_SIZE, PieceEnd

DEFAULT_PAUSES: Mapping[PieceEnd, float] = {
    "turn": 250.0, "paragraph": 500.0, "sentence": 150.0, "clause": 0.0, "word": 0.0, "text": 0.0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NarrationConfig(Validated):
    """How a long text is cut into pieces and put together, and what context a piece is given.

    piece_size (most letters of a piece) and one_sentence (at most one sentence in each): None takes what the model's
    file says of the texts that it was trained on (key `dualar.piece_size`), else 300 letters and as many sentences as
    fit.

    pause_ms: silence after a piece, by what ends with it ("turn", "paragraph", "sentence", "clause" or "word"): numbers
    for some of these, or one for all of them; the others are those of `DEFAULT_PAUSES`.

    rows: how many pieces are spoken at once, as a batch; they are still heard in order. With more than one row the
    pieces just before a piece are not finished when it begins, so its context is the first piece, which is spoken
    alone. Any number of rows above 1 gives the same sound, with the types of weights that `dualar.generation.batch`
    names.
    """

    family = "narrate"

    piece_size: int | None = option(None, 1, _INT_MAX, "how long a piece may get, in letters", optional=True)
    one_sentence: bool | None = None
    context_tokens: int = option(768, 0, _INT_MAX, "positions of earlier turns that a piece is given; 0 is none")
    retries: int = option(1, 0, 100, "how often a piece that failed is tried again, each time with another seed")
    rows: int = option(1, 1, MOST_ROWS, "how many pieces are spoken at once")
    pause_ms: float | Mapping[PieceEnd, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.pause_ms
        ends = get_args(PieceEnd)[:-1]
        pauses = dict(given) if isinstance(given, Mapping) else dict.fromkeys(ends, given)
        for end, pause in pauses.items():
            if end not in ends:
                raise ValueError(f"[narrate.pause_ms] expected pauses after {', '.join(ends)}, got {end!r}")
            if isinstance(pause, bool) or not isinstance(pause, int | float) or not 0 <= pause <= 600_000:
                raise ValueError(f"[narrate.pause_ms] expected 0 to 600000 ms, got {pause!r} after a {end}")
        # Plain floats, so that 700 and 700.0 are one narration: a job is begun with one and continued with the other.
        object.__setattr__(self, "pause_ms", {end: float(pause) for end, pause in pauses.items()})

    def for_model(self, longest_text: int | None) -> NarrationConfig:
        """The same with piece_size and one_sentence settled. longest_text: the model's `Family.longest_text`."""
        one = longest_text is not None if self.one_sentence is None else self.one_sentence
        return replace(self, piece_size=self.piece_size or longest_text or DEFAULT_MAX_SIZE, one_sentence=one)

    @property
    def pauses(self) -> dict[PieceEnd, float]:
        """Milliseconds of silence after a piece, by what ends with it."""
        assert isinstance(self.pause_ms, Mapping)
        return {**DEFAULT_PAUSES, **self.pause_ms}
