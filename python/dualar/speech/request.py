"""`SpeechRequest`: a text to be spoken and all options, the same for every way to run it.

Owns the request, its keywords, and its preparation: finding the voice, building the prompt, counting the text's tokens.
Leaves running it to `verbs.py` and to `dualar.narration`.
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
from dualar.text.places import WordMap
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
    """The fields of `SpeechRequest` but its text, as the keywords of `Engine.synthesize`, `stream` and `narrate`."""

    word_times: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class SpeechRequest(CodeRequest):
    """A text to be spoken. `Engine`'s verbs take one in place of a str and options.

    voice: a Voice, a path of a voice file, or the name of a voice in the store (`dualar voice list`); a str is a path
    where it has a separator or ends in .voice or .s2voice. By default the model chooses a voice. language (a name or
    "auto"), speaker (the name of one of the model's own voices) and instruct (how to speak, in words): for Qwen3-TTS
    models, of the kinds that have such an option. max_new_tokens, min_tokens_before_end, sampling, seed, on_frame and
    stall_guard: as for `CodeRequest`; of a long text the first two hold for each piece. word_times: also find out when
    each word is heard, for models whose files name the heads that look at the text (`dualar.alignment_heads`); a
    ValueError for others. It changes nothing else.
    """

    text: str
    voice: VoiceLike | None = None
    language: str | None = None
    speaker: str | None = None
    instruct: str | None = None
    word_times: bool = False

    @classmethod
    def of(cls, request: str | SpeechRequest, **options: Any) -> SpeechRequest:
        """The request for a text with options; for a request, the same with these options in place of its own."""
        if isinstance(request, SpeechRequest):
            return replace(request, **options) if options else request
        return cls(text=request, **options)

    @property
    def style(self) -> Style:
        """How to speak, besides the voice."""
        return Style(language=self.language, speaker=self.speaker, instruct=self.instruct)


@dataclass(frozen=True)
class PromptBuilder:
    """Builds the prompts of one request, of an engine's parts, the voice (found and checked once) and the style."""

    parts: EngineParts
    voice: Voice | None
    style: Style
    word_times: bool = False

    @classmethod
    def of(cls, parts: EngineParts, request: SpeechRequest) -> PromptBuilder:
        """The builder for a request; ValueError for a voice that is unknown, damaged or made by another codec."""
        voice = None if request.voice is None else find_voice(request.voice)
        if voice is not None and parts.found_codec is not None:
            # Without a codec, the shape and range of the codes are checked with the prompt.
            require_codec(voice, parts.found_codec, source=parts.path)
        return cls(parts, voice, request.style, request.word_times)

    @property
    def decoded_before(self) -> npt.NDArray[np.int32] | None:
        """Codes int32 [N, n] that are decoded before those of the request, their sound dropped; None for none."""
        return self.parts.family.decoded_before(self.voice)

    def prompt(self, text: str, history: Sequence[Turn] = ()) -> BuiltPrompt:
        """The prompt that makes the model speak `text`, with earlier turns as context; a family whose prompts have no
        earlier turns leaves them out. ValueError for a text or an option that the model does not take."""
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

    def word_map(self, text: str, prompt: BuiltPrompt) -> WordMap | None:
        """Which word each token of the text is of in its prompt; None unless the request wants to know. The prompt of
        a piece of a long text is without the blanks at the piece's end."""
        if not self.word_times:
            return None
        parts = self.parts
        found = parts.family.word_map(text, tokenizer=parts.tokenizer, samples_per_frame=parts.codec.samples_per_frame)
        first, last = found.span(prompt.shape[1])
        ids = np.asarray(prompt)[0, max(first, 0) : last - 1].tolist()
        if ids != parts.family.text_ids(text, parts.tokenizer) and text != text.rstrip():
            return self.word_map(text.rstrip(), prompt)
        return found

    def request(
        self,
        config: GenerationConfig,
        prompt: BuiltPrompt,
        text: str,
        *,
        seed: int | None,
        on_frame: Callable[[Frame], object] | None,
    ) -> GenerationRequest:
        """The request for the codes of a prompt, which was built for `text`."""
        return GenerationRequest(
            prompt=prompt,
            max_new_tokens=config.max_new_tokens,
            min_tokens_before_end=config.min_tokens_before_end,
            sampling=config.sampling,
            seed=seed,
            on_frame=on_frame,
            stall_guard=config.stall_guard,
            text_tokens=self.count_tokens(text),
            word_map=self.word_map(text, prompt),
        )
