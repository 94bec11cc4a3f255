"""The sound of a sentence: which way each of its words is said, among its neighbours, and the pauses.

Owns the choice between a word's ways ("to read", "has read"), the weak forms (the, a, to), the stress of words that
begin a sentence, and the joined string. Leaves the words' own sound to `words.py`, and what is a word to `written.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dualar.text.english.words import PLAIN, STRESS, VOWELS, ways
from dualar.text.english.written import Mark, Word, read
from dualar.text.spoken import Spoken, SpokenWord

BEFORE_VERBS = frozenset(
    [
        "to",
        "he",
        "she",
        "it",
        "will",
        "would",
        "can",
        "could",
        "may",
        "might",
        "must",
        "shall",
        "should",
        "do",
        "does",
        "did",
        "don't",
        "doesn't",
        "didn't",
        "won't",
        "wouldn't",
        "can't",
        "couldn't",
        "shouldn't",
        "not",
        "i",
        "you",
        "we",
        "they",
        "let's",
        "please",
        "who",
        "i'll",
        "you'll",
        "we'll",
        "they'll",
        "he'll",
        "she'll",
        "it'll",
        "i'd",
        "you'd",
        "we'd",
        "never",
        "always",
        "often",
        "people",
    ]
)
BEFORE_NOUNS = frozenset(
    [
        "a",
        "an",
        "the",
        "this",
        "that",
        "these",
        "those",
        "my",
        "your",
        "his",
        "her",
        "its",
        "our",
        "their",
        "some",
        "any",
        "no",
        "every",
        "each",
        "another",
        "of",
        "in",
        "on",
        "at",
        "with",
        "for",
        "by",
        "from",
        "very",
        "more",
        "most",
        "one",
        "two",
        "three",
        "first",
        "second",
        "new",
        "old",
        "good",
        "great",
    ]
)
BEFORE_PARTICIPLES = frozenset(
    [
        "have",
        "has",
        "had",
        "having",
        "been",
        "be",
        "is",
        "are",
        "was",
        "were",
        "being",
        "i've",
        "you've",
        "we've",
        "they've",
        "he's",
        "she's",
        "it's",
        "get",
        "got",
    ]
)
AFTER_VERBS = frozenset(
    [
        "the",
        "a",
        "an",
        "my",
        "your",
        "his",
        "her",
        "its",
        "our",
        "their",
        "this",
        "these",
        "those",
        "him",
        "them",
        "it",
        "me",
        "us",
        "in",
        "on",
        "at",
        "with",
        "near",
        "here",
        "there",
        "to",
        "into",
        "from",
        "up",
        "down",
        "out",
        "off",
        "over",
        "under",
        "alone",
        "about",
    ]
)
UNSTRESSED_FIRST = frozenset(
    ["the", "a", "an", "to", "in"]
)  # a capital at the start of a sentence gives these no stress


def speak(text: str, own: Mapping[str, str]) -> Spoken:
    """The words with a space between them, each pause after the word before it, and a full stop at the end.

    own: words whose sound the user gives, in lower case. No words at all gives an empty string.
    """
    parts = list(read(text))
    sounds = _sounds(parts, own)
    joined = ""
    said: list[SpokenWord] = []
    for part in parts:
        if isinstance(part, Word):
            sound = next(sounds)
            if sound:
                said.append(SpokenWord(part.start, part.end, sound))
                joined += (" " if joined else "") + sound
        elif joined:
            joined = _with_mark(joined, part.text)
    if joined and joined[-1] not in ".!?":
        joined = joined.rstrip(",;") + "."
    return Spoken(joined, tuple(said))


def _with_mark(joined: str, mark: str) -> str:
    """Two pauses in a row are one: the stronger."""
    order = ",;.!?"
    if joined[-1] not in order:
        return joined + mark
    return joined[:-1] + mark if order.index(mark) > order.index(joined[-1]) else joined


def _sounds(parts: list[Word | Mark], own: Mapping[str, str]) -> Iterator[str]:
    """The sound of each word, in order. They are found from the last one back: a weak form depends on what follows."""
    words = [part for part in parts if isinstance(part, Word)]
    shouted = len(words) > 2 and all(word.text.isupper() for word in words if len(word.text) > 1)
    found: list[str] = []
    after = ""  # the next word of the same phrase
    for i in range(len(parts) - 1, -1, -1):
        part = parts[i]
        if isinstance(part, Mark):
            after = ""
            continue
        before = parts[i - 1] if i else None
        text = part.text.capitalize() if shouted and part.text.isalpha() and len(part.text) > 1 else part.text
        found.append(
            part.phonemes
            or own.get(text.lower())
            or _choose(text, before.text.lower() if isinstance(before, Word) else "", after, found[-1] if after else "")
        )
        after = part.text.lower()
    return reversed(found)


def _choose(text: str, before: str, after: str, next_sound: str) -> str:
    """before, after: the neighbours within the phrase, in lower case, or nothing."""
    lower = text.lower()
    vowel = next_sound.lstrip(STRESS)[:1] in tuple(VOWELS)
    if lower == "the":
        return "ði" if vowel else "ðə"
    if lower == "a" and len(text) == 1 and after:
        return "ɐ"
    if lower == "an":
        return "ɐn"
    if text == "I":
        return "ˌI"
    if lower == "to" and after:
        return "tʊ" if vowel and not next_sound.startswith("ɐ") else "tə"
    if lower == "that" and (text == "That" or (after and before in ("", "about", "like", "at", "in", "on", "of"))):
        return "ðˈæt"
    if lower == "used" and after == "to" and before and before not in (*BEFORE_PARTICIPLES, "often", "when"):
        return "jˈust"
    known = ways(text)
    sound = known.get(_tag(known, before, after, text), known[PLAIN])
    if text[:1].isupper() and lower not in UNSTRESSED_FIRST and not any(mark in sound for mark in STRESS):
        sound = _stressed(sound, "ˌ")
    return sound


def _tag(known: Mapping[str, str], before: str, after: str, text: str) -> str:
    """Which of a word's ways is meant, by the words beside it."""
    if len(known) == 1:
        return PLAIN
    if "END" in known and not after:
        return "END"
    if "VBD" in known and (before in BEFORE_PARTICIPLES or before in ("he", "she", "it")):
        return "VBD"
    if before in BEFORE_VERBS or (not before and text[:1].isupper() and after in AFTER_VERBS):
        return "VERB"
    if before in BEFORE_PARTICIPLES and "ADJ" in known:
        return "ADJ"
    if before in BEFORE_NOUNS:
        return "NOUN" if "NOUN" in known else "ADJ" if "ADJ" in known and after else PLAIN
    return "VERB" if before and after in AFTER_VERBS else PLAIN


def _stressed(sound: str, mark: str) -> str:
    """With a stress mark before the first vowel."""
    for i, character in enumerate(sound):
        if character in VOWELS:
            return sound[:i] + mark + sound[i:]
    return sound
