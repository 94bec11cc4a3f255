"""The English front end: any English text to phonemes, those that `misaki` and the Kokoro voices use.

Owns what the front end promises and its errors. `written.py` says which words are meant by what is written, `words.py`
how a word sounds, `phrase.py` what its neighbours make of it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from dualar.text.english import phrase
from dualar.text.english.words import PHONEMES, is_known
from dualar.text.english.written import Word, read
from dualar.text.plain import plain_text
from dualar.text.spoken import Spoken

__all__ = ["EnglishFrontend"]


class EnglishFrontend:
    """Text to phonemes. A word is said as `lexicon` has it, else as the package's list has it, else by its letters;
    `/…/` with a stress mark in it, as in `/nˈis/`, is taken as it stands."""

    languages: tuple[str, ...] = ("en",)

    def __init__(self, lexicon: Mapping[str, str] | None = None) -> None:
        """lexicon: words in lower case with their phonemes. ValueError for phonemes that there are not."""
        self._lexicon = dict(lexicon or {})
        for word, phonemes in self._lexicon.items():
            _require_phonemes(f"lexicon, {word!r}", phonemes)

    def speak(self, text: str) -> Spoken:
        """The phonemes of a text. ValueError where letters of another script are in it, where it has no words, and for
        `/…/` with what is no phoneme."""
        text = plain_text(text)
        _require_latin(text)
        for part in read(text):
            if isinstance(part, Word) and part.phonemes is not None:
                _require_phonemes("text", part.phonemes)
        spoken = phrase.speak(text, self._lexicon)
        if not spoken.phonemes:
            shown = text if len(text) <= 40 else text[:37] + "..."
            raise ValueError(f"[text] expected words to say, got none: {shown!r}")
        return spoken

    def unknown_words(self, text: str) -> list[str]:
        """The words whose sound is a guess from their letters, each once, as they are written."""
        text = plain_text(text)
        words = [part for part in read(text) if isinstance(part, Word) and part.phonemes is None]
        guessed = [w for w in words if w.text.lower() not in self._lexicon and not is_known(w.text)]
        return list(dict.fromkeys(text[word.start : word.end] for word in guessed))


def _require_phonemes(what: str, phonemes: str) -> None:
    wrong = sorted(set(phonemes) - PHONEMES)
    if wrong or not phonemes.strip():
        raise ValueError(
            f"[{what}] expected phonemes, of {' '.join(sorted(PHONEMES - {' '}))}, got {' '.join(wrong) or 'none'} "
            f"in {phonemes!r}"
        )


def _require_latin(text: str) -> None:
    """ValueError where there are letters of other scripts than the Latin one; phonemes between slashes are not looked
    at."""
    for run in re.findall(r"[^\W\d_]+", re.sub(r"/[^/\n]*[ˈˌ][^/\n]*/", " ", text)):
        foreign = [c for c in run if c.isalpha() and not unicodedata.name(c, "").startswith(_LATIN)]
        if foreign:
            script = unicodedata.name(foreign[0], "unknown").split()[0].capitalize()
            raise ValueError(
                f"[text] expected English, got {script} letters: {run[:40]!r}; this model speaks English alone"
            )


_LATIN = ("LATIN", "FEMININE ORDINAL", "MASCULINE ORDINAL", "MODIFIER LETTER", "FULLWIDTH LATIN", "MICRO SIGN")
