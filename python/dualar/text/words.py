"""Whether a text has anything to speak.

Owns `require_words`. Blanks, invisible characters and speaker tags alone are nothing to speak.
"""

from __future__ import annotations

import unicodedata

from dualar.text.tokenizer import SPEAKER_TAG


def require_words(name: str, text: str) -> None:
    """ValueError where a text has nothing to speak: nothing but blanks, invisible characters and speaker tags."""
    if not isinstance(text, str):
        raise TypeError(f"[{name}] expected a str, got {type(text).__name__}")
    words = SPEAKER_TAG.sub("", text)
    if any(_is_visible(character) for character in words):
        return
    got = "only speaker tags" if len(words) < len(text) else "only blanks" if text else "no text"
    raise ValueError(f"[{name}] expected something to speak, got {got}: {_shortened(text)!r}")


def _is_visible(character: str) -> bool:
    # Z: separators; Cc, Cf: control and format characters, such as NUL and the zero-width space. Lone surrogates (Cs)
    # count as visible, so that the tokenizer names them.
    category = unicodedata.category(character)
    return not (category.startswith("Z") or category in ("Cc", "Cf") or character.isspace())


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
