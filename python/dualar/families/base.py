"""What a family of models declares, and `Style` and `Turn`, which its prompts are built of beside text and voice.

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
from dualar.model import BuiltPrompt
from dualar.text.frontend import FRONTENDS, TextFrontend
from dualar.text.places import WordMap
from dualar.text.plain import plain_text
from dualar.text.tokenizer import Tokenizer
from dualar.voices.voice import Voice

CoreModel = _core.Model  # the compiled model that an engine holds
Rows = Sequence[tuple[str, Mapping[str, str]]]
"""Lines for `dualar info`: a title, and metadata keys with the words around their values."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """How to speak, besides the voice; None where the request does not say. A family refuses what it does not have.

    language: a language's name, or "auto". speaker: the name of one of the model's own voices. instruct: how to speak,
    in words.
    """

    language: str | None = None
    speaker: str | None = None
    instruct: str | None = None

    def given(self) -> dict[str, str]:
        """The options that are not None, by name."""
        values = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, value in values if value is not None}


class Family(ABC):
    """What an engine needs to know of the family of a file. Made by `family_of`."""

    architecture: ClassVar[str]
    required_tokens: ClassVar[tuple[str, ...]]  # control tokens that its tokenizer must have
    parts: ClassVar[Mapping[str, str]]  # title of a part -> how its tensors' names begin; the first that fits counts
    model_parts: ClassVar[tuple[str, ...]]  # the parts that make codes of a prompt
    geometry: ClassVar[Rows]  # of its files, for `dualar info`
    keeps_prefixes: ClassVar[bool]  # whether a prompt begins with a part, a voice's, that is worth keeping computed
    takes_history: bool  # whether earlier turns may stand in its prompts
    longest_text: int | None = None  # letters, for a model that was trained on single sentences; None: any text
    frontend_name: str | None = None  # the text front end that its file names; None: the model reads letters
    frontend: TextFrontend | None = None  # that front end, with the user's lexicon
    text_options: Mapping[str, str] = MappingProxyType({})  # how the user wants texts read; a job depends on it
    min_tokens_before_end: ClassVar[int]  # frames at least, unless a request says
    needs_speaker_encoder: ClassVar[bool] = False  # whether cloning a voice takes a speaker encoder

    def __init__(self, file: _core.ModelFile) -> None:
        self.path = file.path

    def take_lexicon(self, lexicon: Mapping[str, str]) -> None:
        """Read texts with a user's lexicon, word -> phonemes. ValueError for a model that reads letters."""
        if self.frontend_name is None:
            raise ValueError(f"[lexicon] expected none: {self.path} reads letters, not phonemes")
        self.frontend = FRONTENDS[self.frontend_name](lexicon)
        content = json.dumps(sorted(lexicon.items()), ensure_ascii=False)
        self.text_options = {"lexicon": hashlib.sha256(content.encode()).hexdigest()}

    @property
    def takes_voice(self) -> bool:
        """Whether a request may have a cloned voice."""
        return True

    @property
    def speakers(self) -> tuple[str, ...]:
        """The model's own voices by name, where a request may choose among several."""
        return ()

    @classmethod
    def part_of(cls, tensor: str) -> str:
        """The part that a tensor belongs to, by its name."""
        return next(part for part, beginning in cls.parts.items() if tensor.startswith(beginning))

    @classmethod
    def some_end(cls, file: _core.ModelFile) -> int | None:
        """Some token to end speech with where there is no tokenizer, for measurements; None where the file's own keys
        tell, or do not."""
        return None

    @property
    @abstractmethod
    def sampling(self) -> SamplingConfig:
        """How codes are drawn, unless a request says."""

    @abstractmethod
    def load_model(
        self, file: _core.ModelFile, runtime: _core.Runtime, tokenizer: Tokenizer | None, im_end_id: int | None
    ) -> CoreModel | str:
        """The model, its weights not loaded yet, or the reason why there can be none. ModelError for what is wrong with
        the file, ValueError for a wrong option."""

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

    def times_words(self, tokenizer: Tokenizer) -> bool:
        """Whether requests may ask when each word is heard (`word_times`)."""
        return False

    def word_map(self, text: str, *, tokenizer: Tokenizer, samples_per_frame: int) -> WordMap:
        """Which word each token of the text is of, in the prompt that `build_prompt` makes of it. ValueError where the
        file names no heads that look at the text, or its prompts are of another kind."""
        raise ValueError(f"[word_times] expected a model of the S2 family, got {self.path}")

    def text_ids(self, text: str, tokenizer: Tokenizer) -> list[int]:
        """The ids of the text, or of its phonemes, in the prompt that `build_prompt` makes of it."""
        spoken = text if self.frontend is None else self.frontend.speak(text).phonemes
        return tokenizer.encode_text(plain_text(spoken))

    def prompt_name(self, tokenizer: Tokenizer) -> str:
        """What the kind of prompt that this file's model takes is called; "" where the family has only one."""
        return ""

    def decoded_before(self, voice: Voice | None) -> npt.NDArray[np.int32] | None:
        """Codes int32 [N, n] that are decoded before those of a request, their sound dropped; None for none."""
        return None

    @abstractmethod
    def blank_prompt(self, model: CoreModel, positions: int) -> BuiltPrompt:
        """A meaningless prompt of `positions` positions, for measurements."""


@dataclass(frozen=True)
class Turn:
    """An earlier turn kept as context: the text that was asked for and the codes int [N, T] that were spoken."""

    text: str
    codes: npt.ArrayLike
