"""Which word of a text each token of a prompt is of, and how a word that was timed is told.

Owns `TimedWord`, `WordMap` and the making of it. Leaves the times to `dualar.generation.word_times`, tokens to
`tokenizer.py`, and the words of phonemes to the front ends.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dualar.text.spoken import Spoken

Place = tuple[int, int]
PAUSE = -1


@dataclass(frozen=True, kw_only=True)
class TimedWord:
    """A word of a text and when it is heard.

    text: as it is written, text[start:end] of the `plain_text` that was spoken ("$5" is one word, and two are heard).
    sample_start and sample_end: where its sound begins, and the first sample after it; estimated, to about a frame.
    """

    text: str
    start: int
    end: int
    sample_start: int
    sample_end: int


@dataclass(frozen=True, kw_only=True)
class WordMap:
    """Which word each token of a prompt's text is of.

    text: the plain text. words: the places of its written words. owners: for each token the index of its word, or PAUSE
    for a token between words; one more, a PAUSE, stands for the position after the text. behind: how many positions of
    the prompt follow the text. samples_per_frame: the codec's. silent_codes: main codes of frames in which nothing is
    heard.
    """

    text: str
    words: tuple[Place, ...]
    owners: tuple[int, ...]
    behind: int
    samples_per_frame: int
    silent_codes: frozenset[int] = frozenset()

    def span(self, end: int) -> Place:
        """The positions that `owners` are of, in a prompt that ends before position `end`."""
        first = end - self.behind - (len(self.owners) - 1)
        return first, first + len(self.owners)


def written_words(text: str) -> list[Place]:
    """The places of a text's words: what stands between blanks, without the marks around it; where letters are wide, as
    in Chinese, each letter."""
    places: list[Place] = []
    start = None
    for i, character in enumerate(text + " "):
        wide = unicodedata.east_asian_width(character) in "WF" and character.isalnum()
        if start is not None and (character.isspace() or wide):
            places.append((start, i))
            start = None
        if wide:
            places.append((i, i + 1))
        elif start is None and not character.isspace():
            start = i
    return [place for place in (_without_marks(text, *place) for place in places) if place[0] < place[1]]


def word_map(
    text: str,
    tokens: Sequence[Place],
    *,
    spoken: Spoken | None,
    behind: int,
    samples_per_frame: int,
    silent_codes: frozenset[int] = frozenset(),
) -> WordMap:
    """The map of a plain text. tokens: the place of each token, in the text, or, where a front end made phonemes of it
    (`spoken`), in these. The rest as in WordMap."""
    if spoken is None:
        words = written_words(text)
        places = [(start, end, index) for index, (start, end) in enumerate(words)]
    else:
        words = list(dict.fromkeys((word.start, word.end) for word in spoken.words))
        places = _phoneme_places(spoken, {place: index for index, place in enumerate(words)})
    owners = [_owner(token, places) for token in tokens]
    return WordMap(
        text=text,
        words=tuple(words),
        owners=(*owners, PAUSE),
        behind=behind,
        samples_per_frame=samples_per_frame,
        silent_codes=silent_codes,
    )


def token_units(owners: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first token, token after the last, owner) of each run of tokens with one owner."""
    borders = [0, *(i for i in range(1, len(owners)) if owners[i] != owners[i - 1]), len(owners)]
    return [(first, last, owners[first]) for first, last in pairwise(borders)]


def _without_marks(text: str, start: int, end: int) -> Place:
    while start < end and not text[start].isalnum():
        start += 1
    while start < end and not (text[end - 1].isalnum() or unicodedata.category(text[end - 1])[0] == "M"):
        end -= 1
    return start, end


def _phoneme_places(spoken: Spoken, index: dict[Place, int]) -> list[tuple[int, int, int]]:
    """Where each word stands in the phonemes, with the index of the written word that it is of."""
    places, at = [], 0
    for word in spoken.words:
        at = spoken.phonemes.index(word.phonemes, at)
        places.append((at, at + len(word.phonemes), index[word.start, word.end]))
        at += len(word.phonemes)
    return places


def _owner(token: Place, places: Sequence[tuple[int, int, int]]) -> int:
    """The word that most of the token is of; the first of several."""
    best, owner = 0, PAUSE
    for start, end, word in places:
        shared = min(end, token[1]) - max(start, token[0])
        if shared > best:
            best, owner = shared, word
    return owner
