"""Builds the prompt of an S1 model, turns one after the other, from a text and, where given, a voice and earlier turns.

Owns that template. Pure numpy. Leaves the matrix to `s2_prompt.py`, and the choice between the templates to `s2.py`.

A turn is a speaker tag, the text, its frames and `<|im_end|>`; `<|interleave|>` stands before the first turn. A voice's
recording is a turn like any other, and so are earlier turns; the last turn has no frames yet. The vocabulary has no
tokens for speaker tags: they are spelled out, as in training. A turn has one speaker, so a tag may stand only at the
beginning of a text; a text without one is the first speaker's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dualar.families.base import Turn
from dualar.families.s2_prompt import FIRST_SPEAKER, Int32, PromptMatrix
from dualar.text.plain import plain_text
from dualar.text.tokenizer import SPEAKER_TAG, PromptTokenizer
from dualar.text.words import require_words
from dualar.voices.voice import Reference

OPEN = "<|interleave|>"
CLOSE = "<|im_end|>"

_LEADING_TAGS = re.compile(rf"(?:\s*{SPEAKER_TAG.pattern})+")


def build_interleaved_prompt(
    text: str,
    *,
    tokenizer: PromptTokenizer,
    num_codebooks: int,
    codebook_size: int,
    semantic_begin_id: int,
    reference: Reference | None = None,
    history: Iterable[Turn] = (),
) -> Int32:
    """The prompt int32 [1 + num_codebooks, T] that makes an S1 model speak `text`.

    Options as for `s2_prompt.build_prompt`, and errors too; ValueError besides for a text, a transcript or an earlier
    turn with a speaker's tag anywhere but at its beginning.
    """
    prompt = PromptMatrix(tokenizer, num_codebooks, codebook_size, semantic_begin_id)
    prompt.template(OPEN)
    if reference is not None:
        _add_turn(prompt, "reference transcript", reference.transcript)
        prompt.codes("reference codes", reference.codes)
        prompt.template(CLOSE)
    for i, turn in enumerate(history):
        _add_turn(prompt, f"history {i} text", turn.text)
        prompt.codes(f"history {i} codes", turn.codes)
        prompt.template(CLOSE)
    _add_turn(prompt, "text", text)
    return prompt.matrix()


def _add_turn(prompt: PromptMatrix, name: str, text: str) -> None:
    """Add the beginning of a turn: its speaker tag and its text."""
    require_words(name, text)
    plain = plain_text(text)
    speaker = FIRST_SPEAKER
    leading = _LEADING_TAGS.match(plain)
    if leading is not None:
        speaker = SPEAKER_TAG.findall(leading.group())[-1]
        plain = plain[leading.end() :]
    inner = SPEAKER_TAG.search(plain)
    if inner is not None:
        raise ValueError(
            f"[{name}] expected one speaker's turn, as this model was trained, got {inner.group()} within it: give "
            "each turn by itself, or use narrate, which does"
        )
    prompt.template(speaker)
    prompt.text(plain)
