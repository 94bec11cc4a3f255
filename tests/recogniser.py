"""Word errors by a free recogniser: `pocketsphinx`, bound to some sentences' words by a bigram model of them.

Owns the language model, the recogniser and the count of errors. numpy and pocketsphinx only.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

DISCOUNT = 0.5


def spoken_words(text: str) -> list[str]:
    """The words of a sentence, in lower case, without punctuation."""
    return text.lower().replace(",", " ").replace(".", " ").split()


def bigram_model(sentences: Iterable[str]) -> str:
    """A bigram model with absolute discounting and back-off, in the ARPA format."""
    pairs: Counter[tuple[str, str]] = Counter()
    for sentence in sentences:
        tokens = ["<s>", *spoken_words(sentence), "</s>"]
        pairs.update(itertools.pairwise(tokens))
    before: Counter[str] = Counter()
    words: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for (first, second), count in pairs.items():
        before[first] += count
        words[second] += count
        kinds[first] += 1
    total = sum(words.values())
    unigram = {word: words[word] / total for word in words}
    mass: dict[str, float] = {}  # of the words seen after `first`, in the unigram model
    for first, second in pairs:
        mass[first] = mass.get(first, 0.0) + unigram[second]
    lines = ["\\data\\", f"ngram 1={len(words) + 1}", f"ngram 2={len(pairs)}", "", "\\1-grams:"]
    for word in sorted({*words, "<s>"}):
        own = math.log10(unigram[word]) if word in unigram else -99.0
        left = DISCOUNT * kinds[word] / before[word] if word in before else 1.0
        rest = max(1 - mass.get(word, 0.0), 1e-6)
        lines.append(f"{own:.4f} {word} {math.log10(left / rest):.4f}")
    lines += ["", "\\2-grams:"]
    for (first, second), count in sorted(pairs.items()):
        lines.append(f"{math.log10((count - DISCOUNT) / before[first]):.4f} {first} {second}")
    return "\n".join([*lines, "", "\\end\\", ""])


class Recogniser:
    """Float samples at 16 kHz -> words."""

    def __init__(self, model: str | Path) -> None:
        """model: an ARPA file of `bigram_model`."""
        from pocketsphinx import Config, Decoder

        self._decoder: Any = Decoder(Config(lm=str(model), samprate=16000.0, loglevel="FATAL", lw=6.5))

    def words(self, samples: npt.NDArray[np.float32]) -> list[str]:
        padding = np.zeros(3200, np.float32)  # it wants silence at both ends
        clip = np.concatenate([padding, samples, padding])
        noise = np.random.default_rng(0).normal(0, 3e-4, len(clip))  # digital silence has no logarithm
        pcm = (np.clip(clip + noise, -1, 1) * 32767).astype(np.int16)
        self._decoder.reinit_feat()
        self._decoder.start_utt()
        self._decoder.process_raw(pcm.tobytes(), no_search=False, full_utt=True)
        self._decoder.end_utt()
        found = self._decoder.hyp()
        return [] if found is None else found.hypstr.split()


def word_errors(wanted: list[str], found: list[str]) -> int:
    """Substitutions, insertions and deletions: the edit distance."""
    row = list(range(len(found) + 1))
    for i, word in enumerate(wanted, 1):
        previous, row = row, [i]
        for j, other in enumerate(found, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (word != other)))
    return row[-1]


def error_rate(pairs: Iterable[tuple[str, list[str]]]) -> float:
    """(text, words found) of many utterances -> errors over words."""
    errors = count = 0
    for text, found in pairs:
        errors += word_errors(spoken_words(text), found)
        count += len(spoken_words(text))
    return errors / count
