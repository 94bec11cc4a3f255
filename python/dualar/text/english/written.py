"""Written English to the words that are spoken, each with its place in the text, and the pauses between them.

Owns which characters of a text belong together: what a rule of `rules.py` matches, else a word, else a mark. Leaves the
sound of a word to `words.py`.

No maintained library served: the permissive ones either give no places in the text and take a tenth of a second a
sentence (compiled grammars run in Python), or are for single numbers only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dualar.text.english.rules import RULES
from dualar.text.english.tables import SYMBOLS


@dataclass(frozen=True)
class Word:
    """One spoken word. text: in letters, as the lexicon may have it; "A." is the letter's name.
    start, end: the characters of the text it is said for. phonemes: where the text itself gives them."""

    text: str
    start: int
    end: int
    phonemes: str | None = None


@dataclass(frozen=True)
class Mark:
    """A pause: one of , ; . ! ?"""

    text: str
    start: int
    end: int


# Abbreviations whose dot may also end the sentence; after others ("Dr.", "U.S.") a name is likelier to follow.
_ENDS_SENTENCE = re.compile(r"(?:[ap]\.?m|etc|Jr|Sr|Inc|Ltd|Co|Corp|Bros)\.$", re.IGNORECASE)
_PHONEMES = re.compile(r"(?<![\w/])/(?=[^/\nˈˌ]*[ˈˌ])([^/\n]*)/(?![\w/])")
_A_SENTENCE = re.compile(r"\s+[A-Z]|\s*$")
_LETTER = r"[^\W\d_²³¹¼½¾]"
_WORD = re.compile(rf"{_LETTER}+(?:['’\u2010\u2011-]{_LETTER}+)*")
_PLAIN = str.maketrans("’\u2010\u2011", "'--")
_MARKS = {
    ",": ",", ";": ";", ":": ",", "(": ",", ")": ",", "[": ",", "]": ",", "—": ",", "–": ",", "…": ",", ".": ".",
    "!": "!", "?": "?", "。": ".", "¿": "", "¡": "",
}  # fmt: skip


def read(text: str) -> Iterator[Word | Mark]:
    """The words and pauses of a text, in order."""
    at = 0
    while at < len(text):
        found, at = _at(text, at)
        yield from found


def _at(text: str, at: int) -> tuple[list[Word | Mark], int]:
    """What is said from one place on, and the place after it."""
    if text[at].isspace():
        end = at + 1
        while end < len(text) and text[end].isspace():
            end += 1
        paragraph = "\n" in text[at:end] and text[at - 1 : at].isalnum()
        return ([Mark(".", at, end)] if paragraph else []), end
    if match := _PHONEMES.match(text, at):
        return [Word(match.group(), at, match.end(), match.group(1).strip())], match.end()
    for pattern, say in RULES:
        match = pattern.match(text, at)
        if match is not None and (said := say(match)) is not None:
            return _parts(said, match), match.end()
    if match := _WORD.match(text, at):
        return [Word(match.group().translate(_PLAIN), at, match.end())], match.end()
    return _mark(text, at)


def _parts(said: list[str], match: re.Match[str]) -> list[Word | Mark]:
    start, end = match.span()
    found: list[Word | Mark] = []
    for word in said:
        letter = len(word) == 1 and word.isupper()
        found.append(Mark(word, start, end) if word in _MARKS else Word(word + "." if letter else word, start, end))
    if _ENDS_SENTENCE.search(match.group()) and _A_SENTENCE.match(match.string, end):
        found.append(Mark(".", end - 1, end))
    return found


def _mark(text: str, at: int) -> tuple[list[Word | Mark], int]:
    if match := re.compile(r"\.{2,}|-{2,}").match(text, at):
        return [Mark(",", at, match.end())], match.end()
    character = text[at]
    if character in "-" and text[at - 1 : at].isspace() and text[at + 1 : at + 2].isspace():
        return [Mark(",", at, at + 1)], at + 1
    if character in _MARKS:
        mark = _MARKS[character]
        return ([Mark(mark, at, at + 1)] if mark else []), at + 1
    alone = not (text[at - 1 : at].isalnum() and text[at + 1 : at + 2].isalnum())
    if character in SYMBOLS and character not in "-._'\"" and (alone or character in "&+=@"):
        return [Word(word, at, at + 1) for word in SYMBOLS[character].split()], at + 1
    return [], at + 1
