"""The recogniser of the tests: the language model that binds it, and the count of errors."""

from __future__ import annotations

import pytest
from recogniser import bigram_model, error_rate, word_errors


def test_word_errors() -> None:
    assert word_errors(["a", "b", "c"], ["a", "x", "c", "d"]) == 2
    assert word_errors([], ["a"]) == 1
    assert error_rate([("one, two", ["one"]), ("three", ["three"])]) == pytest.approx(1 / 3)


def test_bigram_probabilities_sum_to_one() -> None:
    text = bigram_model(["one two", "two one one", "one", "three"])
    head, tail = text.split("\\2-grams:")
    lines = [line.split() for line in head.splitlines()]
    unigrams = {line[1]: line for line in lines if len(line) == 3}
    after: dict[str, dict[str, float]] = {}
    for line in tail.splitlines():
        if len(line.split()) == 3:
            value, first, second = line.split()
            after.setdefault(first, {})[second] = 10 ** float(value)
    for first, seen in after.items():
        backoff = 10 ** float(unigrams[first][2])
        rest = sum(10 ** float(u[0]) for word, u in unigrams.items() if word not in seen and word != "<s>")
        assert sum(seen.values()) + backoff * rest == pytest.approx(1, abs=2e-3)
