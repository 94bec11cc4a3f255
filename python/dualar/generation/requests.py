"""Requests for codes, and the results that a batch gives for them.

Owns the options that every request has, `GenerationRequest` and `BatchResult`. Leaves running requests to `batch.py`,
and their rules to `rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypedDict, TypeVar

from dualar.config import DEFAULT_STALL_GUARD, GenerationConfig, SamplingConfig, StallGuard
from dualar.generation.frames import Frame
from dualar.generation.rules import FrameRules
from dualar.model import Model, PromptLike, Session
from dualar.text.places import WordMap

T = TypeVar("T")


class CodeOptions(TypedDict, total=False):
    """The fields of `CodeRequest` as keywords."""

    max_new_tokens: int | None
    min_tokens_before_end: int | None
    sampling: SamplingConfig | None
    seed: int | None
    on_frame: Callable[[Frame], object] | None
    stall_guard: StallGuard | None


class GenerationOptions(CodeOptions, total=False):
    """The fields of `GenerationRequest` but its prompt, as the keywords of `Engine.generate`."""

    text_tokens: int | None
    word_map: WordMap | None


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeRequest:
    """The options that every request for codes has.

    max_new_tokens: most frames to make, >= 1; by default 1024 or what the model's context leaves.
    min_tokens_before_end: frames that must be made before the model may end the speech, by default 0, or 2 for
    Qwen3-TTS. sampling: how codes are drawn, by default `Engine.sampling`. seed: 0 to 2^64 - 1, by default a random
    one; the result names it. on_frame is called with each Frame when it is made; where it returns False the request
    ends, and the frames so far, this one included, are kept. stall_guard ends runaways; None turns it off.
    """

    max_new_tokens: int | None = None
    min_tokens_before_end: int | None = None
    sampling: SamplingConfig | None = None
    seed: int | None = None
    on_frame: Callable[[Frame], object] | None = None
    stall_guard: StallGuard | None = DEFAULT_STALL_GUARD

    def config(self, *, sampling: SamplingConfig, min_tokens_before_end: int) -> GenerationConfig:
        """The options, checked; sampling and min_tokens_before_end are used where the request has None. ValueError for
        an option out of range."""
        least = min_tokens_before_end if self.min_tokens_before_end is None else self.min_tokens_before_end
        return GenerationConfig(
            max_new_tokens=self.max_new_tokens,
            min_tokens_before_end=least,
            sampling=sampling if self.sampling is None else self.sampling,
            stall_guard=self.stall_guard,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class GenerationRequest(CodeRequest):
    """Codes for a prompt, which `Engine.build_prompt` makes of a text.

    prompt: int [1 + N, T], or a TalkerPrompt. text_tokens: the length of its text, for the stall guard's limit of
    frames per text token. word_map: which word each token of its text is of, to tell when each is spoken. Other options
    as for `CodeRequest`.
    """

    prompt: PromptLike
    text_tokens: int | None = None
    word_map: WordMap | None = None

    def rules(
        self, model: Model, *, sampling: SamplingConfig, min_tokens_before_end: int, session: Session | None = None
    ) -> FrameRules:
        """The request as the rules that a batch runs; ValueError where it does not fit the model.

        sampling and min_tokens_before_end: used where the request has None. session: an existing session to run it in.
        """
        config = self.config(sampling=sampling, min_tokens_before_end=min_tokens_before_end)
        return FrameRules(
            model, self.prompt, config, seed=self.seed, text_tokens=self.text_tokens, session=session,
            word_map=self.word_map,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchResult(Generic[T]):
    """How the request at `index` ended: with a value, or with an error, which ended this request alone."""

    index: int
    value: T | None
    error: Exception | None

    def get(self) -> T:
        """The value; raises the error where there is one."""
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value
