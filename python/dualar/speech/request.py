"""`SpeechRequest`: everything that one request for speech says, whoever makes it and however it is run.

Owns the request, its keywords, and its preparation: the voice found, the prompt built, the text's tokens counted, each
once. Leaves running it to `verbs.py` and to `dualar.narration`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from dualar.config import GenerationConfig
from dualar.families.base import Style, Turn
from dualar.generation.frames import Frame
from dualar.generation.requests import CodeOptions, CodeRequest, GenerationRequest
from dualar.loading import EngineParts
from dualar.model import BuiltPrompt
from dualar.voices.find import find_voice, require_codec
from dualar.voices.voice import Voice

VoiceLike = Voice | str | os.PathLike[str]


class StyleOptions(TypedDict, total=False):
    """The fields of `SpeechRequest` that its prompt depends on, as the keywords of `Engine.build_prompt`."""

    voice: VoiceLike | None
    language: str | None
    speaker: str | None
    instruct: str | None


class SpeechOptions(StyleOptions, CodeOptions, total=False):
    """The fields of `SpeechRequest` but its text, as the keywords of `Engine.synthesize` and its like."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SpeechRequest(CodeRequest):
    """A text to be spoken. `Engine`'s verbs take one in place of a str and its options.

    voice: a Voice, a path of a voice file, or the name of a voice in the store (`dualar voice list`); a str is a path
    where it has a separator or ends in .voice or .s2voice. By default the model chooses one. language (a name or
    "auto"), speaker (one of the model's own voices), instruct (how to speak, in words): of Qwen3-TTS models, each where
    its kind has it. max_new_tokens, min_tokens_before_end, sampling, seed, on_frame and stall_guard: as for
    `CodeRequest`; of a long text the first two are of each piece.
    """

    text: str
    voice: VoiceLike | None = None
    language: str | None = None
    speaker: str | None = None
    instruct: str | None = None

    @classmethod
    def of(cls, request: str | SpeechRequest, **options: Any) -> SpeechRequest:
        """A text and its options as a request; of a request, the same one with these options in place of its own."""
        if isinstance(request, SpeechRequest):
            return replace(request, **options) if options else request
        return cls(text=request, **options)

    @property
    def style(self) -> Style:
        """How to speak, besides the voice."""
        return Style(language=self.language, speaker=self.speaker, instruct=self.instruct)


@dataclass(frozen=True)
class PromptBuilder:
    """Builds the prompts of one request: an engine's parts, the voice that was found and checked once, the style."""

    parts: EngineParts
    voice: Voice | None
    style: Style

    @classmethod
    def of(cls, parts: EngineParts, request: SpeechRequest) -> PromptBuilder:
        """ValueError for a voice that is unknown, damaged or made by another codec."""
        voice = None if request.voice is None else find_voice(request.voice)
        if voice is not None and parts.found_codec is not None:
            # Without a codec, the shape and range of the codes are checked with the prompt.
            require_codec(voice, parts.found_codec, source=parts.path)
        return cls(parts, voice, request.style)

    @property
    def decoded_before(self) -> npt.NDArray[np.int32] | None:
        """Codes int32 [N, n] that the codec is given before those of a request, and whose sound is dropped."""
        return self.parts.family.decoded_before(self.voice)

    def prompt(self, text: str, history: Sequence[Turn] = ()) -> BuiltPrompt:
        """The prompt that makes the model speak `text` after these turns, which a family without history passes over.
        ValueError for a text or an option that the model does not take."""
        family = self.parts.family
        return family.build_prompt(
            text,
            model=self.parts.model,
            tokenizer=self.parts.tokenizer,
            voice=self.voice,
            style=self.style,
            history=history if family.takes_history else (),
        )

    def count_tokens(self, text: str) -> int:
        """The text's length in tokens, for the stall guard."""
        return len(self.parts.tokenizer.encode_text(text))

    def request(
        self,
        config: GenerationConfig,
        prompt: BuiltPrompt,
        text: str,
        *,
        seed: int | None,
        on_frame: Callable[[Frame], object] | None,
    ) -> GenerationRequest:
        """What is asked of the model for a prompt of `text`."""
        return GenerationRequest(
            prompt=prompt,
            max_new_tokens=config.max_new_tokens,
            min_tokens_before_end=config.min_tokens_before_end,
            sampling=config.sampling,
            seed=seed,
            on_frame=on_frame,
            stall_guard=config.stall_guard,
            text_tokens=self.count_tokens(text),
        )
