"""The sound of an English word: a sorted word list in the package, endings, acronyms, and a model for the rest.

Owns what one word is on its own, in each of the ways it may be said. Leaves the choice between them, and what
neighbours change, to `phrase.py`, and unknown words to `letters.py`.
"""

from __future__ import annotations

import mmap
import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from dualar.text.english import letters
from dualar.text.english.numbers import TENS

VOWELS = "AIOWYᵊæɑɐəɛɜɪiuʊʌɔᵻ"
STRESS = "ˈˌ"
PHONEMES = frozenset(VOWELS + STRESS + "bdfhjklmnpstvwzðŋɡɹTʃʒʤʧθ ,.;!?")
"""What the front end's output consists of."""
PLAIN = "DEFAULT"

LETTER_NAMES = dict(
    zip(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        [
            "ˈA",
            "bˈi",
            "sˈi",
            "dˈi",
            "ˈi",
            "ˈɛf",
            "ʤˈi",
            "ˈAʧ",
            "ˈI",
            "ʤˈA",
            "kˈA",
            "ˈɛl",
            "ˈɛm",
            "ˈɛn",
            "ˈO",
            "pˈi",
            "kjˈu",
            "ˈɑɹ",
            "ˈɛs",
            "tˈi",
            "jˈu",
            "vˈi",
            "dˈʌbᵊlju",
            "ˈɛks",
            "wˈI",
            "zˈi",
        ],
        strict=True,
    )
)

Ways = Mapping[str, str]


@cache
def _lexicon() -> mmap.mmap:
    path = Path(__file__).resolve().parents[2] / "resources" / "english.lexicon"
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def listed(word: str) -> Ways | None:
    """The ways to say a word that the list has under exactly this spelling, by tag; DEFAULT is always there."""
    table, key = _lexicon(), word.encode()
    low, high = 0, len(table)  # the line that is looked for begins in [low, high)
    while low < high:
        start = table.rfind(b"\n", 0, (low + high) // 2) + 1
        end = table.find(b"\n", start)
        found, _, rest = table[start:end].partition(b"\t")
        if found == key:
            plain, *others = rest.decode().split("\t")
            return {PLAIN: plain, **dict(other.split("=", 1) for other in others)}
        if found < key:
            low = end + 1
        else:
            high = start
    return None


def ways(word: str) -> Ways:
    """How a word is said, by tag. Never empty for a word of Latin letters."""
    if "-" in word:
        return _known(word) or {PLAIN: _compound(word.split("-"))}
    found = _known(word) or _spelled(word) or _ending(word) or _known(_without_accents(word))
    if not found:
        plain = _without_accents(word)
        found = (_spelled(plain) if plain != word else None) or {PLAIN: letters.sound(plain.lower())}
    return found


def is_known(word: str) -> bool:
    """Whether the word, or the word without an ending, is in the list or is read letter by letter."""
    if "-" in word:
        return bool(_known(word)) or all(map(is_known, filter(None, word.split("-"))))
    return bool(_known(word) or _spelled(word) or _ending(word) or _known(_without_accents(word)))


def _known(word: str) -> Ways | None:
    if len(word) == 2 and word[1] == "." and word[0] in LETTER_NAMES:
        return {PLAIN: LETTER_NAMES[word[0]]}
    if len(word) > 1 and word.isupper():
        return listed(word) or (listed(word.lower()) if len(word) >= 4 else None)
    return listed(word) or listed(word.lower()) or (listed(word.capitalize()) if word.islower() else None)


def _compound(parts: list[str]) -> str:
    """Words joined by hyphens are one, with its main stress on the last of them that has one, but of numbers
    (twenty-two) on the first; more than three are said as words of their own."""
    sounds = [ways(part)[PLAIN] for part in parts if part]
    if len(sounds) > 3:
        return " ".join(sounds)
    stressed = [i for i, sound in enumerate(sounds) if "ˈ" in sound] or [0]
    main = stressed[0 if parts[0].lower() in TENS else -1]
    return "".join(sound if i == main else sound.replace("ˈ", "ˌ") for i, sound in enumerate(sounds))


def _spelled(word: str) -> Ways | None:
    """Letters one by one: what is in capitals, with a plural s perhaps, and what has no vowel."""
    capitals, plural = re.fullmatch(r"([A-Z]{2,})('?s)?", word), False
    if capitals:
        word, plural = capitals.group(1), capitals.group(2) is not None
        if plural and (found := _known(word)):
            return {PLAIN: _with_s(found[PLAIN])}
        if len(word) > 4 and re.search("[AEIOUY]", word):
            return None  # a word that is shouted
    elif re.search("[aeiouy]", _without_accents(word).lower()) or not re.fullmatch("[A-Za-z]+", word):
        return None
    names = [LETTER_NAMES[letter] for letter in word.upper()]
    joined = "".join([*(name.replace("ˈ", "ˌ") for name in names[:-1]), names[-1]])
    return {PLAIN: _with_s(joined) if plural else joined}


def _without_accents(word: str) -> str:
    plain = "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))
    return plain.translate({0xDF: "s", 0xE6: "ae", 0xF8: "o", 0x142: "l", 0x153: "oe", 0xF0: "th", 0xFE: "th"})


def _ending(word: str) -> Ways | None:
    """A listed word with an ending, such as 's, s, ed or ing."""
    lower = word.lower()
    for ending, replacements, say in _ENDINGS:
        stem = lower.removesuffix(ending)
        if stem == lower or (len(stem) < 3 and ending[0] != "'"):
            continue
        doubled = [stem[:-1]] if ending in ("ed", "ing") and stem[-1] == stem[-2] else []
        for form in (*(stem + instead for instead in replacements), *doubled):
            if found := _known(word[: len(form)] if word[: len(form)].lower() == form else form):
                return {tag: say(way) for tag, way in found.items() if tag in (PLAIN, "NOUN", "VERB")}
        if ending == "'s":
            return {tag: _with_s(way) for tag, way in ways(word[: len(stem)]).items()}
    return None


def _with_s(stem: str) -> str:
    return stem + ("ᵻz" if stem[-1] in "szʃʒʧʤ" else "s" if stem[-1] in "ptkfθ" else "z")


def _with_ed(stem: str) -> str:
    if stem[-1] in "td":
        return _flapped(stem) + "ᵻd"
    return stem + ("t" if stem[-1] in "pkfθʃsʧ" else "d")


def _with_ing(stem: str) -> str:
    return _flapped(stem) + "ɪŋ"


def _flapped(stem: str) -> str:
    """A t between vowels becomes a flap."""
    return stem[:-1] + "T" if stem[-1] == "t" and stem[-2:-1] in (*VOWELS, "ɹ") else stem


_ENDINGS: tuple[tuple[str, tuple[str, ...], Callable[[str], str]], ...] = (
    ("'s", ("",), _with_s),
    ("s", ("",), _with_s),
    ("es", ("",), _with_s),
    ("ies", ("y",), _with_s),
    ("ed", ("", "e"), _with_ed),
    ("ied", ("y",), _with_ed),
    ("ing", ("", "e"), _with_ing),
    ("'ll", ("",), lambda stem: stem + "ᵊl"),
    ("'d", ("",), _with_ed),
    ("'ve", ("",), lambda stem: stem + "v"),
    ("'re", ("",), lambda stem: stem + "əɹ"),
    ("ly", ("",), lambda stem: stem + "li"),
    ("less", ("",), lambda stem: stem + "ləs"),
    ("ness", ("",), lambda stem: stem + "nəs"),
)
"""An ending, what the stem may have in its place, and the sound of the stem with it."""
