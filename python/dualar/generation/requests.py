"""What a batch is asked, and how it answers.

Owns the requests and the results. Leaves running them to `batch.py`, and their rules to `rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from dualar.config import DEFAULT_STALL_GUARD, GenerationConfig, SamplingConfig, StallGuard
from dualar.generation.frames import Frame
from dualar.generation.rules import FrameRules
from dualar.model import PromptLike

if TYPE_CHECKING:
    from dualar.model import Model


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class GenerationRequest:
    """One request of `Engine.generate_batch`: a prompt, and options as for `Engine.generate`."""

    prompt: PromptLike
    max_new_tokens: int | None = None
    min_tokens_before_end: int | None = None
    sampling: SamplingConfig | None = None
    seed: int | None = None
    on_frame: Callable[[Frame], object] | None = None
    stall_guard: StallGuard | None = DEFAULT_STALL_GUARD
    text_tokens: int | None = None

    def rules(self, model: Model, *, sampling: SamplingConfig, min_tokens_before_end: int) -> FrameRules:
        """The request checked against the model, with what it does not say; ValueError where it cannot be."""
        least = min_tokens_before_end if self.min_tokens_before_end is None else self.min_tokens_before_end
        config = GenerationConfig(
            max_new_tokens=self.max_new_tokens,
            min_tokens_before_end=least,
            sampling=sampling if self.sampling is None else self.sampling,
            stall_guard=self.stall_guard,
        )
        return FrameRules(model, self.prompt, config, seed=self.seed, text_tokens=self.text_tokens)


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
