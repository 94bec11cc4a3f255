"""A text that comes in bits, cut mid-word or not, to the pieces that can be spoken.

Owns `TextFeed`. Leaves where a text may be cut to `dualar.text.split`.
"""

from __future__ import annotations

from collections.abc import Iterable

from dualar.server.errors import ApiError
from dualar.text.split import DEFAULT_MAX_SIZE, split_text


class TextFeed:
    """What was written and not yet given out. A sentence is given out once something follows it, which shows that it
    ended there, or by `flush`."""

    def __init__(self, *, longest: int | None, max_characters: int) -> None:
        """longest: letters that the model speaks in one piece. max_characters: that may wait for a sentence's end."""
        self._size = longest or DEFAULT_MAX_SIZE
        self._max = max_characters
        self._waiting = ""

    def add(self, text: str) -> list[str]:
        """The sentences that this completes. ApiError where too much waits."""
        if len(self._waiting) + len(text) > self._max:
            raise ApiError(
                400, f"[text] expected at most {self._max} characters before they are spoken, got more", param="text",
                code="string_too_long",
            )  # fmt: skip
        self._waiting += text
        pieces = split_text(self._waiting, max_size=self._size, one_sentence=True)
        if len(pieces) < 2:
            return []
        self._waiting = pieces[-1].text
        return _spoken(piece.text for piece in pieces[:-1])

    def flush(self) -> list[str]:
        """All that is left."""
        pieces = split_text(self._waiting, max_size=self._size, one_sentence=True)
        self._waiting = ""
        return _spoken(piece.text for piece in pieces)

    def clear(self) -> None:
        """Forget what was not given out."""
        self._waiting = ""


def _spoken(texts: Iterable[str]) -> list[str]:
    return [text.strip() for text in texts if any(map(str.isalnum, text))]
