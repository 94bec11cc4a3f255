"""What differs between the families of models that one engine runs: prompts, defaults, and which file is which.

Owns `Family`, the S2 one, and the choice by a file's architecture. Leaves Qwen3-TTS's to `qwen3_family.py`, the rest of
a request, which is the same for all, to `engine.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from dualar import _core
from dualar.config import FishSampling, SamplingConfig
from dualar.convert import names, qwen3_names
from dualar.prompt import Turn, build_prompt
from dualar.tokenizer import S2_REQUIRED, Tokenizer

if TYPE_CHECKING:
    from dualar.request import Prompt
    from dualar.voices import Voice

Model = _core.DualAR | _core.Qwen3TTS


@dataclass(frozen=True, kw_only=True)
class Style:
    """How to speak, besides the voice; None is not said. What a family does not have is refused.

    language: a language's name, or "auto". speaker: one of the model's own voices. instruct: how to speak, in words.
    """

    language: str | None = None
    speaker: str | None = None
    instruct: str | None = None

    def given(self) -> dict[str, str]:
        """The options that are said."""
        values = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, value in values if value is not None}


class Family(ABC):
    """One family's side of an engine. Made for a file by `family_of`."""

    architecture: ClassVar[str]
    codec_prefix: ClassVar[str]  # of its codec's tensors
    other_prefixes: ClassVar[tuple[str, ...]] = ()  # of tensors that belong neither to the model nor to the codec
    required_tokens: ClassVar[tuple[str, ...]]  # that its tokenizer must have
    takes_history: bool  # earlier turns may stand in its prompt
    longest_text: int | None = None  # that it was trained on, in letters, where that was one sentence; None: any
    min_tokens_before_end: ClassVar[int]  # frames at least, where a request does not say
    needs_speaker_encoder: ClassVar[bool] = False  # to clone a voice

    def __init__(self, file: _core.ModelFile) -> None:
        self.path = file.path

    @property
    @abstractmethod
    def sampling(self) -> SamplingConfig:
        """How codes are drawn where a request does not say."""

    @abstractmethod
    def load_model(
        self, file: _core.ModelFile, runtime: _core.Runtime, tokenizer: Tokenizer | None, im_end_id: int | None
    ) -> Model | str:
        """The model without its weights yet, or why there can be none. ModelError for what is wrong with the file,
        ValueError with an option."""

    @abstractmethod
    def build_prompt(
        self,
        text: str,
        *,
        model: Model,
        tokenizer: Tokenizer,
        voice: Voice | None,
        style: Style,
        history: Sequence[Turn] = (),
    ) -> Prompt:
        """The prompt that makes the model speak `text`; ValueError for what the family or this model does not have."""

    def decoded_before(self, voice: Voice | None) -> npt.NDArray[np.int32] | None:
        """Codes that the codec is given before those of a request, and whose sound is dropped; None for none."""
        return None

    @abstractmethod
    def blank_prompt(self, model: Model, positions: int) -> Prompt:
        """A prompt of so many positions that means nothing, for measurements."""


class S2Family(Family):
    """The S2 models: a chat prompt, a voice as a reference in it, ends with `<|im_end|>`."""

    architecture = names.ARCHITECTURE
    codec_prefix = "c."
    required_tokens = S2_REQUIRED
    min_tokens_before_end = 0

    def __init__(self, file: _core.ModelFile) -> None:
        super().__init__(file)
        single_turn = file.get(names.SINGLE_TURN)
        if not isinstance(single_turn, bool | None):
            raise _core.ModelError(
                f"[{names.SINGLE_TURN}] expected true or false in {file.path}, got {str(single_turn)[:64]!r}"
            )
        self.takes_history = not single_turn
        longest = file.get(names.PIECE_SIZE)
        if longest is not None and not (type(longest) is int and longest >= 1):
            raise _core.ModelError(
                f"[{names.PIECE_SIZE}] expected a number of letters in {file.path}, got {str(longest)[:64]!r}"
            )
        self.longest_text = longest

    @property
    def sampling(self) -> SamplingConfig:
        return FishSampling()

    def load_model(
        self, file: _core.ModelFile, runtime: _core.Runtime, tokenizer: Tokenizer | None, im_end_id: int | None
    ) -> Model | str:
        end = tokenizer.im_end_id if im_end_id is None and tokenizer is not None else im_end_id
        if end is None:
            return (
                f"[load] expected a tokenizer in {file.path}, or tokenizer.json beside it or in its parent folder; "
                "found none: pass tokenizer=, or im_end_id= to run the model on prompts of your own"
            )
        try:
            model = _core.DualAR(file, runtime, im_end_id=end)
        except ValueError as error:
            if im_end_id is not None:
                raise
            raise _core.ModelError(f"{error}, the tokenizer's <|im_end|>") from error
        if tokenizer is not None:
            tokenizer.check_model(
                vocab_size=model.vocab_size,
                semantic_begin_id=model.semantic_begin_id,
                semantic_end_id=model.semantic_end_id,
            )
        return model

    def build_prompt(
        self,
        text: str,
        *,
        model: Model,
        tokenizer: Tokenizer,
        voice: Voice | None,
        style: Style,
        history: Sequence[Turn] = (),
    ) -> Prompt:
        if given := style.given():
            name, value = next(iter(given.items()))
            raise ValueError(
                f"[{name}] expected none: models of this family ({self.architecture}) have no {name}, got {value!r}"
            )
        if voice is not None and not self.takes_history:
            raise ValueError(f"[voice] expected none: {self.path} speaks with one voice, its own")
        return build_prompt(
            text,
            tokenizer=tokenizer,
            num_codebooks=model.num_codebooks,
            codebook_size=model.codebook_size,
            semantic_begin_id=model.semantic_begin_id,
            reference=None if voice is None else voice.reference,
            history=history,
        )

    def blank_prompt(self, model: Model, positions: int) -> Prompt:
        return np.zeros((1 + model.num_codebooks, positions), np.int32)


def family_of(file: _core.ModelFile) -> Family:
    """The family of a file, by its architecture; ModelError for one that no family has."""
    if file.architecture == S2Family.architecture:
        return S2Family(file)
    if file.architecture == qwen3_names.ARCHITECTURE:
        from dualar.qwen3_family import Qwen3Family

        return Qwen3Family(file)
    known = f"{S2Family.architecture!r} or {qwen3_names.ARCHITECTURE!r}"
    raise _core.ModelError(
        f"[{names.ARCHITECTURE_KEY}] expected {known} in {file.path}, got {file.architecture[:64]!r}"
    )
