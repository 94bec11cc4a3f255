"""What the package asks of a dual-AR model, as protocols: any object of this shape runs in the same loop.

Owns `Model` (the weights), `Session` (the state of one request), `StepOutput` and `Prompt`. The compiled core's models
and sessions have this shape, and so do the scripted ones of the tests.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]


class StepOutput(Protocol):
    """logits float32 [C + 1] in the order of `Model.main_ids`; hidden float32 [D], what the Fast-AR is given."""

    @property
    def logits(self) -> Float32: ...
    @property
    def hidden(self) -> Float32: ...


class Session(Protocol):
    """The state of one request: what the loop calls of `dualar.Session`."""

    @property
    def position(self) -> int: ...
    @property
    def max_positions(self) -> int: ...
    def prefill(self, prompt: Any, /) -> StepOutput: ...
    def step(self, column: Int32, /) -> StepOutput: ...
    def fast_begin(self, hidden: Float32, code: int, /) -> Float32: ...
    def fast_step(self, code: int, /) -> Float32: ...
    def fast_decode(self, hidden: Float32, prefix: Int32, /) -> Float32: ...


class Model(Protocol):
    """The weights: what the loop reads of `dualar.DualAR`."""

    @property
    def num_codebooks(self) -> int: ...
    @property
    def codebook_size(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def context_length(self) -> int: ...
    @property
    def semantic_begin_id(self) -> int: ...
    @property
    def has_fast_ar(self) -> bool: ...
    @property
    def main_ids(self) -> Int32: ...
    def kv_bytes(self, max_positions: int, kv_type: str = "auto") -> int: ...
    def session(self, *, max_positions: int, kv_type: str = "auto") -> Session: ...


class Prompt(Protocol):
    """A prompt that was checked against a model, of whichever family: T positions of 1 + N numbers each.

    prefix_length: how many positions at its beginning are a voice's, and may be kept computed; 0 for none. divisible:
    whether it may be fed to a session in several pieces.
    """

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def prefix_length(self) -> int: ...
    @property
    def divisible(self) -> bool: ...
    def piece(self, start: int, stop: int, /) -> Any:
        """Positions start to stop, as `Session.prefill` takes them."""


class FamilyPrompt(Protocol):
    """A prompt that is not one matrix, as a family builds it and a caller hands it in; `dualar.TalkerPrompt` is one."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def checked(self, model: Any, /) -> Prompt:
        """The prompt with plain arrays; ValueError where it does not fit the model."""


BuiltPrompt = Int32 | FamilyPrompt  # as `Engine.build_prompt` gives it
PromptLike = npt.ArrayLike | FamilyPrompt  # as a caller may hand it in
