"""What is asked of a model when codes are wanted, and how a batch answers.

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


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeRequest:
    """What every request says of the codes that it asks for.

    max_new_tokens: frames at most, >= 1; by default 1024 or what the model's context leaves. min_tokens_before_end:
    frames at least, by default the family's (0, or 2 for Qwen3-TTS): so many come before an end may be drawn. sampling:
    how codes are drawn, by default `Engine.sampling`. seed: 0 to 2^64 - 1, by default a random one, given back with the
    result. on_frame is called with each Frame as it is made; a return that is False stops, and keeps the frames so far,
    this one included. stall_guard ends runaways; None turns it off.
    """

    max_new_tokens: int | None = None
    min_tokens_before_end: int | None = None
    sampling: SamplingConfig | None = None
    seed: int | None = None
    on_frame: Callable[[Frame], object] | None = None
    stall_guard: StallGuard | None = DEFAULT_STALL_GUARD

    def config(self, *, sampling: SamplingConfig, min_tokens_before_end: int) -> GenerationConfig:
        """The options, checked, with what the request does not say; ValueError for one that is out of range."""
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
    frames per text token. Other options as for `CodeRequest`.
    """

    prompt: PromptLike
    text_tokens: int | None = None

    def rules(
        self, model: Model, *, sampling: SamplingConfig, min_tokens_before_end: int, session: Session | None = None
    ) -> FrameRules:
        """The request checked against the model, with what it does not say; ValueError where it cannot be.

        session: the one that it will run in, where that is not a new one.
        """
        config = self.config(sampling=sampling, min_tokens_before_end=min_tokens_before_end)
        return FrameRules(model, self.prompt, config, seed=self.seed, text_tokens=self.text_tokens, session=session)


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchResult(Generic[T]):
    """How the request at `index` ended: with a value, or with the error that ended it and no other."""

    index: int
    value: T | None
    error: Exception | None

    def get(self) -> T:
        """The value; raises the error where there is one."""
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value
