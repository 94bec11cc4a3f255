"""Text, and perhaps a voice and earlier turns, to the prompt matrix of an S2 model.

Owns the chat template, its matrix form and the checks on what goes into it. Pure numpy. Leaves ids to `tokenizer.py`,
what of a text is kept to `text.py`, and the length check against the model's context to the model.

Row 0 holds token ids; rows 1 to N the frame's codes where the token is semantic, and 0 elsewhere. Each piece of the
template is encoded on its own and the ids are joined, as the model was trained: a tokenizer may not merge across them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dualar.text import plain_text
from dualar.tokenizer import SPEAKER_TAG

Int32 = npt.NDArray[np.int32]

SYSTEM_OPEN = "<|im_start|>system\n"
SYSTEM_PLAIN = "convert the provided text to speech"
SYSTEM_REFERENCE = "convert the provided text to speech reference to the following:\n\nText:\n"
SYSTEM_SPEECH = "\n\nSpeech:\n"
USER_OPEN = "<|im_start|>user\n"
CLOSE = "<|im_end|>\n"
ASSISTANT_OPEN = "<|im_start|>assistant\n<|voice|>"
FIRST_SPEAKER = "<|speaker:0|>"


class PromptTokenizer(Protocol):
    """What a prompt needs of a tokenizer; `dualar.Tokenizer` has it."""

    def encode_text(self, text: str) -> list[int]: ...
    def encode_template(self, piece: str) -> list[int]: ...


@dataclass(frozen=True)
class Reference:
    """A voice to speak with: codes int [N, T] of a recording, and the text that is spoken in it."""

    codes: npt.ArrayLike
    transcript: str


@dataclass(frozen=True)
class Turn:
    """An earlier turn kept as context: the text that was asked for and the codes int [N, T] that were spoken."""

    text: str
    codes: npt.ArrayLike


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

    num_codebooks, codebook_size and semantic_begin_id are the model's. reference: a voice to speak with. history:
    earlier turns, oldest first. Speaker tags (`<|speaker:1|>`) in the texts pass through as tokens. The texts are taken
    as they are written, composed (NFC) and without control characters: `dualar.plain_text` says which.

    Errors: ValueError for text with nothing to speak (empty, blank or only speaker tags) or with a lone surrogate, and
    for codes that are not integers in [0, codebook_size) of shape [num_codebooks, T >= 1].
    """
    require_words("text", text)
    prompt = _Prompt(tokenizer, num_codebooks, codebook_size, semantic_begin_id)
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


class _Prompt:
    """Columns so far: parts of row 0, each with its codes or None."""

    def __init__(
        self, tokenizer: PromptTokenizer, num_codebooks: int, codebook_size: int, semantic_begin_id: int
    ) -> None:
        self._tokenizer = tokenizer
        self._num_codebooks = num_codebooks
        self._codebook_size = codebook_size
        self._semantic_begin_id = semantic_begin_id
        self._parts: list[Int32] = []

    def template(self, piece: str) -> None:
        """A piece of the template itself: control tokens are parsed."""
        self._ids(self._tokenizer.encode_template(piece))

    def text(self, text: str) -> None:
        """A user's text, as `plain_text` leaves it: control tokens are spelled out."""
        self._ids(self._tokenizer.encode_text(plain_text(text)))

    def user(self, text: str) -> None:
        """A user message, and the opening of the answer to it."""
        self.template(USER_OPEN)
        self.text(text)
        self.template(CLOSE)
        self.template(ASSISTANT_OPEN)

    def codes(self, name: str, codes: npt.ArrayLike) -> None:
        """Frames of speech: their semantic tokens in row 0, their codes below."""
        checked = require_codes(name, codes, num_codebooks=self._num_codebooks, codebook_size=self._codebook_size)
        self._parts.append(np.vstack([self._semantic_begin_id + checked[:1], checked]).astype(np.int32))

    def matrix(self) -> Int32:
        return np.ascontiguousarray(np.concatenate(self._parts, axis=1))

    def _ids(self, ids: list[int]) -> None:
        part = np.zeros((1 + self._num_codebooks, len(ids)), dtype=np.int32)
        part[0] = ids
        self._parts.append(part)


def require_words(name: str, text: str) -> None:
    """ValueError where a text has nothing to speak: nothing but blanks, invisible characters and speaker tags."""
    if not isinstance(text, str):
        raise TypeError(f"[{name}] expected a str, got {type(text).__name__}")
    words = SPEAKER_TAG.sub("", text)
    if any(_is_visible(character) for character in words):
        return
    got = "only speaker tags" if len(words) < len(text) else "only blanks" if text else "no text"
    raise ValueError(f"[{name}] expected something to speak, got {got}: {_shortened(text)!r}")


def _is_visible(character: str) -> bool:
    # Z: separators; Cc, Cf: control and format characters, such as NUL and the zero-width space. Lone surrogates (Cs)
    # count as visible, so that the tokenizer names them.
    category = unicodedata.category(character)
    return not (category.startswith("Z") or category in ("Cc", "Cf") or character.isspace())


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def require_codes(name: str, codes: npt.ArrayLike, *, num_codebooks: int, codebook_size: int) -> npt.NDArray[np.int64]:
    """Codes of shape [num_codebooks, T >= 1] in [0, codebook_size) as int64, or ValueError saying what is wrong."""
    array: npt.NDArray[Any] = np.asarray(codes)
    if array.ndim != 2 or array.shape[0] != num_codebooks or array.shape[1] < 1:
        raise ValueError(f"[{name}] expected shape [{num_codebooks}, T >= 1], got {list(array.shape)}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"[{name}] expected integers, got dtype {array.dtype}")
    wrong = np.argwhere((array < 0) | (array >= codebook_size))
    if len(wrong):
        codebook, frame = (int(i) for i in wrong[0])
        raise ValueError(
            f"[{name}] expected codes in [0, {codebook_size}), got {int(array[codebook, frame])} "
            f"at codebook {codebook}, frame {frame}"
        )
    return array.astype(np.int64)
