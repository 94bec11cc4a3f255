"""Builds the prompt of an S2 model from a text and, where given, a voice and earlier turns.

Owns the chat template and its matrix form. Pure numpy. Leaves ids to `dualar.text.tokenizer`, the removal of control
characters to `dualar.text.plain`, and the length check against the model's context to `dualar.generation`.

Row 0 holds token ids; rows 1 to N the frame's codes where the token is semantic, and 0 elsewhere. Each piece of the
template is encoded on its own and the ids are joined, as in the model's training, so that no token spans two pieces.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from dualar.codes import require_codes
from dualar.families.base import Turn
from dualar.text.plain import plain_text
from dualar.text.tokenizer import SPEAKER_TAG, PromptTokenizer
from dualar.text.words import require_words
from dualar.voices.voice import Reference

Int32 = npt.NDArray[np.int32]

SYSTEM_OPEN = "<|im_start|>system\n"
SYSTEM_PLAIN = "convert the provided text to speech"
SYSTEM_REFERENCE = "convert the provided text to speech reference to the following:\n\nText:\n"
SYSTEM_SPEECH = "\n\nSpeech:\n"
USER_OPEN = "<|im_start|>user\n"
CLOSE = "<|im_end|>\n"
ASSISTANT_OPEN = "<|im_start|>assistant\n<|voice|>"
FIRST_SPEAKER = "<|speaker:0|>"


def build_prompt(
    text: str,
    *,
    tokenizer: PromptTokenizer,
    num_codebooks: int,
    codebook_size: int,
    semantic_begin_id: int,
    reference: Reference | None = None,
    history: Iterable[Turn] = (),
) -> Int32:
    """The prompt int32 [1 + num_codebooks, T] that makes an S2 model speak `text`.

    tokenizer, num_codebooks, codebook_size and semantic_begin_id are the model's. reference: a voice to speak with.
    history: earlier turns, oldest first. Speaker tags (`<|speaker:1|>`) in the texts pass through as tokens. The texts
    are taken as they are written, composed (NFC) and without control characters: `dualar.plain_text` says which.

    Errors: ValueError for text with nothing to speak (empty, blank or only speaker tags) or with a lone surrogate, and
    for codes that are not integers in [0, codebook_size) of shape [num_codebooks, T >= 1].
    """
    require_words("text", text)
    prompt = PromptMatrix(tokenizer, num_codebooks, codebook_size, semantic_begin_id)
    prompt.template(SYSTEM_OPEN)
    if reference is None:
        prompt.template(SYSTEM_PLAIN)
    else:
        require_words("reference transcript", reference.transcript)
        tagged = SPEAKER_TAG.search(reference.transcript) is not None
        prompt.template(SYSTEM_REFERENCE)
        prompt.text(reference.transcript if tagged else FIRST_SPEAKER + reference.transcript)
        prompt.template(SYSTEM_SPEECH)
        prompt.codes("reference codes", reference.codes)
    prompt.template(CLOSE)
    for i, turn in enumerate(history):
        require_words(f"history {i} text", turn.text)
        prompt.user(turn.text)
        prompt.codes(f"history {i} codes", turn.codes)
        prompt.template(CLOSE)
    prompt.user(text)
    return prompt.matrix()


class PromptMatrix:
    """A prompt while it is built, column after column."""

    def __init__(
        self, tokenizer: PromptTokenizer, num_codebooks: int, codebook_size: int, semantic_begin_id: int
    ) -> None:
        self._tokenizer = tokenizer
        self._num_codebooks = num_codebooks
        self._codebook_size = codebook_size
        self._semantic_begin_id = semantic_begin_id
        self._parts: list[Int32] = []

    def template(self, piece: str) -> None:
        """Add a piece of the template, in which control tokens are parsed."""
        self._ids(self._tokenizer.encode_template(piece))

    def text(self, text: str) -> None:
        """Add a user's text, as `plain_text` leaves it; control tokens in it are spelled out."""
        self._ids(self._tokenizer.encode_text(plain_text(text)))

    def user(self, text: str) -> None:
        """Add a user message, and the opening of the answer to it."""
        self.template(USER_OPEN)
        self.text(text)
        self.template(CLOSE)
        self.template(ASSISTANT_OPEN)

    def codes(self, name: str, codes: npt.ArrayLike) -> None:
        """Add frames of speech, codes int [N, T]: semantic tokens in row 0, the codes below. name: for error texts."""
        checked = require_codes(name, codes, num_codebooks=self._num_codebooks, codebook_size=self._codebook_size)
        self._parts.append(np.vstack([self._semantic_begin_id + checked[:1], checked]).astype(np.int32))

    def matrix(self) -> Int32:
        """The prompt, int32 [1 + num_codebooks, T]."""
        return np.ascontiguousarray(np.concatenate(self._parts, axis=1))

    def _ids(self, ids: list[int]) -> None:
        part = np.zeros((1 + self._num_codebooks, len(ids)), dtype=np.int32)
        part[0] = ids
        self._parts.append(part)
