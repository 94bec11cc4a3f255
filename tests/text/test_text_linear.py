"""Odd texts take no longer, a letter, than prose: cutting and plain text are linear in the text's length."""

from __future__ import annotations

import random
import sys
import time
import unicodedata
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from dualar.narration.config import NarrationConfig
from dualar.narration.plan import plan
from dualar.text import plain, split
from dualar.text.english import EnglishFrontend
from dualar.text.plain import plain_text

PROSE = "Hello there, my old friend. Is it (still) raining? "
UNITS = [
    ". ", "(", ")", "[", "]", "<", ">", "<|", "|>", "«", "»", "» ", "« ", "“", "”", '"', "'", "。", "」", "「", "…",
    "... ", ".", "!", "? ", ", ", ";", "\u2013", "-", " ", "\n", "\n\n", "\n \n", "\t", "1", "1. ", "12.", "a", "ab ",
    "Dr. ", "\u0301", "\u0316", "\u200d", "\u200b", "\U0001f44d\U0001f3fd", "<|speaker:1|>", "[laugh]", "中", "؟", "ש",
]  # fmt: skip
FILES = {split.__file__, plain.__file__}


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of the two modules the work runs: a measure of time that no busy machine changes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in FILES:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def spoken(unit: str, size: int) -> str:
    """So many letters of a unit, with a word at both ends, so that there is something to speak."""
    return "a" + (unit * size)[:size] + "b"


@pytest.mark.parametrize("config", [NarrationConfig(), NarrationConfig(one_sentence=True)], ids=["many", "one"])
def test_texts_of_one_unit_or_of_two_take_no_longer_a_letter_than_prose(config: NarrationConfig) -> None:
    size = 400
    prose = lines_run(lambda: plan(spoken(PROSE, size), config))
    pairs = [(a, b) for i, a in enumerate(UNITS) for b in UNITS[: i + 1]]
    if config.one_sentence:
        pairs = random.Random(0).sample(pairs, 200)
    for a, b in pairs:
        text = spoken(a if a is b else a + b, size)
        assert lines_run(lambda text=text: plan(text, config)) <= 3 * prose, (a, b)  # type: ignore[misc]


@pytest.mark.parametrize("unit", UNITS, ids=ascii)
def test_four_times_the_text_takes_four_times_as_long(unit: str) -> None:
    short, long = (lines_run(lambda size=size: plan(spoken(unit, size))) for size in (500, 2000))  # type: ignore[misc]
    assert long <= 4.4 * short + 200


def test_marks_in_any_order_are_normalized_in_linear_time() -> None:
    def seconds(size: int) -> float:
        text = "a" + "\u0316\u0301" * (size // 2)  # each pair in the order that canonical ordering turns round
        began = time.process_time()
        plain_text(text)
        return time.process_time() - began

    # Linear is 4, an insertion sort 16: a ratio in one run, and the best of several, since a machine may be busy.
    assert min(seconds(64_000) / seconds(16_000) for _ in range(5)) < 9


@pytest.mark.parametrize(
    "unit", ["_", "a.b", "+1", "\u00b2", "1.", "/\u02c8", "St. ", "a\n", "$1", "1 ", "-", "a@b.c"], ids=ascii
)
def test_the_english_front_end_is_linear(unit: str) -> None:
    def seconds(size: int) -> float:
        began = time.process_time()
        front.speak(spoken(unit, size))
        return time.process_time() - began

    front = EnglishFrontend()
    front.speak("once")  # its tables are read
    assert min(seconds(6_000) / seconds(1_500) for _ in range(3)) < 9  # as above


def test_ordering_changes_nothing_but_the_time() -> None:
    letters = ["\u0301", "\u0316", "\u0323", "\u0345", "\u0344", "a", "é", "한", "\u1100", "\u1161", "中", "\U0001d15f"]
    rng = random.Random(1)
    for _ in range(300):
        text = "".join(rng.choice(letters) for _ in range(rng.randrange(60, 200)))
        assert plain_text(text) == unicodedata.normalize("NFC", text)
