"""What a family of models declares, and the parts of a request that its prompt is built of.

Owns `Family`, `Style` (language, speaker, instruction) and `Turn` (an earlier turn kept as context). Leaves each
family's own rules to its file, and the choice between families to `registry.py`.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dualar._native import _core
from dualar.config import SamplingConfig
from dualar.gguf.parts import PREFIXES, Prefixes
from dualar.model import BuiltPrompt
from dualar.text.frontend import FRONTENDS, TextFrontend
from dualar.text.tokenizer import Tokenizer
from dualar.voices.voice import Voice

CoreModel = _core.DualAR | _core.Qwen3TTS  # the compiled models that an engine may hold


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
    required_tokens: ClassVar[tuple[str, ...]]  # that its tokenizer must have
    takes_history: bool  # earlier turns may stand in its prompt
    longest_text: int | None = None  # that it was trained on, in letters, where that was one sentence; None: any
    frontend_name: str | None = None  # the text front end that its file asks for; None: the model reads letters
    frontend: TextFrontend | None = None  # that front end
    text_options: Mapping[str, str] = MappingProxyType({})  # what a user set of how texts are read; a job's file has it
    min_tokens_before_end: ClassVar[int]  # frames at least, where a request does not say
    needs_speaker_encoder: ClassVar[bool] = False  # to clone a voice

    def __init__(self, file: _core.ModelFile) -> None:
        self.path = file.path

    def take_lexicon(self, lexicon: Mapping[str, str]) -> None:
        """Say the words of a user's lexicon as it has them. ValueError for a model that reads letters."""
        if self.frontend_name is None:
            raise ValueError(f"[lexicon] expected none: {self.path} reads letters, not phonemes")
        self.frontend = FRONTENDS[self.frontend_name](lexicon)
        content = json.dumps(sorted(lexicon.items()), ensure_ascii=False)
        self.text_options = {"lexicon": hashlib.sha256(content.encode()).hexdigest()}

    @property
    def speakers(self) -> tuple[str, ...]:
        """The model's own voices by name, where a request may choose among several."""
        return ()

    @property
    def prefixes(self) -> Prefixes:
        """What the names of its codec's tensors begin with, and of those that are neither model nor codec."""
        return PREFIXES[self.architecture]

    @property
    @abstractmethod
    def sampling(self) -> SamplingConfig:
        """How codes are drawn where a request does not say."""

    @abstractmethod
    def load_model(
        self, file: _core.ModelFile, runtime: _core.Runtime, tokenizer: Tokenizer | None, im_end_id: int | None
    ) -> CoreModel | str:
        """The model without its weights yet, or why there can be none. ModelError for what is wrong with the file,
        ValueError with an option."""

    @abstractmethod
    def build_prompt(
        self,
        text: str,
        *,
        model: CoreModel,
        tokenizer: Tokenizer,
        voice: Voice | None,
        style: Style,
        history: Sequence[Turn] = (),
    ) -> BuiltPrompt:
        """The prompt that makes the model speak `text`; ValueError for what the family or this model does not have."""

    def prompt_name(self, tokenizer: Tokenizer) -> str:
        """Which prompt this file's model takes, in words; "" where the family has only one."""
        return ""

    def decoded_before(self, voice: Voice | None) -> npt.NDArray[np.int32] | None:
        """Codes that the codec is given before those of a request, and whose sound is dropped; None for none."""
        return None

    @abstractmethod
    def blank_prompt(self, model: CoreModel, positions: int) -> BuiltPrompt:
        """A prompt of so many positions that means nothing, for measurements."""


@dataclass(frozen=True)
class Turn:
    """An earlier turn kept as context: the text that was asked for and the codes int [N, T] that were spoken."""

    text: str
    codes: npt.ArrayLike
