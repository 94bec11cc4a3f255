"""What a tokenizer gets of a text: what was written, composed, without control characters; and that prompts have it."""

# ruff: noqa: RUF001 (letters of many scripts are what this is about)
from __future__ import annotations

import sys
import unicodedata
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.engine import Engine
from dualar.families.base import Turn
from dualar.families.s2_prompt import build_prompt
from dualar.text.plain import plain_text
from dualar.voices.voice import Reference
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("It costs 3.14 € for Dr. Smith, e.g. on 1/2/2024 & more…", None),  # nothing is spelled out
        ("  two  blanks, a\ttab\nand a line ", None),
        ("e\u0301 A\u030a o\u0302\u0323", "é Å ộ"),
        ("\u1112\u1161\u11ab", "\ud55c"),  # Hangul jamo
        ("\u212b \u2126 \u0958", "Å Ω \u0915\u093c"),  # singletons; NFC takes this letter apart
        ("ﬁ ½ ² Ａ ｱ", None),  # NFKC would change these
        ("a\u0301\u0328", "\u0105\u0301"),  # marks in their order
        ("one\r\ntwo\rthree\vfour\ffive\x85six", "one\ntwo\nthree\nfour\nfive\nsix"),
        ("\r\n\r\n\n\r", "\n\n\n\n"),
        ("a\0b\x07c\x1bd\x1c\x1d\x1e\x1fe\x7f", "abcde"),
        ("a\x80b\x84c\x86d\x9be\x9f", "abcde"),  # C1
        ("e\0\u0301", "é"),  # what stood between is gone
        ("line\u2028par\u2029end", None),
        ("می\u200cخواهم क\u094d\u200dष 👩\u200d🚀 ก\u200bข co\xadop \u202babc\u202c \ufeffx \u2060", None),
        ("a\u00a0b\u3000c", None),
        ("<|speaker:1|>Hi. <|im_end|>", None),
        ("", None),
    ],
)
def test_plain_text(text: str, plain: str | None) -> None:
    assert plain_text(text) == (text if plain is None else plain)
    assert dualar.plain_text is plain_text


def test_every_control_character() -> None:
    kept = {chr(i) for i in range(sys.maxunicode + 1) if unicodedata.category(chr(i)) == "Cc" and plain_text(chr(i))}
    assert kept == set("\t\n\v\f\r\x85")
    assert {plain_text(c) for c in kept} == {"\t", "\n"}
    others = "".join(chr(i) for i in range(sys.maxunicode + 1) if unicodedata.category(chr(i)) not in ("Cc", "Cs"))
    assert plain_text(others) == unicodedata.normalize("NFC", others)


@given(st.text())
def test_once_is_enough(text: str) -> None:
    assert plain_text(plain_text(text)) == plain_text(text)


# ------------------------------------------------------------------ in prompts
RAW, PLAIN = "Cafe\u0301\0 is\r\nopen\x9b.", "Café is\nopen."


class Recorder:
    """A tokenizer that writes down what it was asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode_text(self, text: str) -> list[int]:
        self.texts.append(text)
        return [1] * len(text)

    def encode_template(self, piece: str) -> list[int]:
        return [2]


def test_all_texts_of_a_prompt_are_plain() -> None:
    tokenizer = Recorder()
    codes = np.zeros((2, 1), int)
    fields: dict[str, Any] = {"num_codebooks": 2, "codebook_size": 4, "semantic_begin_id": 9}
    build_prompt(RAW, tokenizer=tokenizer, reference=Reference(codes, RAW), history=[Turn(RAW, codes)], **fields)
    assert tokenizer.texts == ["<|speaker:0|>" + PLAIN, PLAIN, PLAIN]


def test_the_engine_speaks_what_is_plain(engine: Engine) -> None:
    np.testing.assert_array_equal(engine.build_prompt(RAW), engine.build_prompt(PLAIN))
    raw = engine.synthesize(RAW, seed=1, max_new_tokens=6)
    np.testing.assert_array_equal(raw.codes, engine.synthesize(PLAIN, seed=1, max_new_tokens=6).codes)
