"""Prepares a text for the tokenizer: composes it (NFC) and removes control characters, nothing else.

Owns that one rule. Numbers, abbreviations and symbols are not spelled out, and no language is guessed: the model reads
what was written.
"""

from __future__ import annotations

import re
import unicodedata

# Line ends, in all the ways that control characters have for one, to a line feed.
_LINE_ENDS = re.compile("\r\n|[\r\v\f\x85]")
# The rest of Unicode's category Cc, but for tab and line feed: C0, DEL and C1.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
# 64 or more characters in a row that may all be combining marks, the first of which is U+0300.
_MARKS = re.compile("[\u0300-\U0010ffff]{64,}")


def plain_text(text: str) -> str:
    r"""The text as it stands in a prompt.

    CR LF, CR, VT, FF and NEL (U+0085) become a line feed; line feed and tab stay; every other control character (Cc:
    U+0000 to U+001F, U+007F to U+009F) is removed; then letters and their marks are composed (NFC). All else stays: the
    line and paragraph separators, blanks of any width, and the invisible format characters (Cf) - joiners, the
    zero-width space, direction marks, the soft hyphen, a byte order mark - that some scripts cannot do without.
    """
    return unicodedata.normalize("NFC", _MARKS.sub(_ordered, _CONTROL.sub("", _LINE_ENDS.sub("\n", text))))


def _ordered(letters: re.Match[str]) -> str:
    """Letters and marks decomposed, each run of marks ordered by combining class: the canonical ordering of the Unicode
    Standard (section 3.11). Python normalizes by an insertion sort, whose time grows with the square of a run's length,
    unless the run is in order already."""
    ordered: list[str] = []
    marks: list[str] = []
    for character in "".join(unicodedata.normalize("NFD", one) for one in letters.group()):
        if unicodedata.combining(character):
            marks.append(character)
            continue
        ordered += sorted(marks, key=unicodedata.combining)
        ordered.append(character)
        marks.clear()
    return "".join(ordered + sorted(marks, key=unicodedata.combining))
