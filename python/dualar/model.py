"""What the package needs of a dual-autoregressive model, as protocols.

Owns `Model` (the weights), `Session` (the state of one request), `StepOutput` and `Prompt`. The compiled core's models
and sessions fulfil them, and so do the scripted ones of the tests. N is the number of codebooks, C of codes in each, D
the width of the hidden state.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]


class StepOutput(Protocol):
    """logits float32, one for each of `Model.main_ids`; hidden float32 [D], the input of the Fast-AR."""

    @property
    def logits(self) -> Float32: ...
    @property
    def hidden(self) -> Float32: ...


class Session(Protocol):
    """The state of one request: the part of `dualar.Session` that `dualar.generation` uses.

    column: int32 [1 + N], a main token and its frame's codes. hidden: float32 [D]. prefix: int32 [k], the frame's first
    codes. fast_begin, fast_step and fast_decode return the next codebook's logits float32 [C].
    """

    @property
    def position(self) -> int: ...
    @property
    def max_positions(self) -> int: ...
    def prefill(self, prompt: Any, /) -> StepOutput: ...
    def step(self, column: Int32, /) -> StepOutput: ...
    def fast_begin(self, hidden: Float32, code: int, /) -> Float32: ...
    def fast_step(self, code: int, /) -> Float32: ...
    def fast_decode(self, hidden: Float32, prefix: Int32, /) -> Float32: ...


class WatchingSession(Session, Protocol):
    """A session of a model whose file names alignment heads: `watch` positions of a text, and see how these heads
    attend to them at the position computed last, float32 [heads, positions]."""

    def watch(self, first: int, last: int, /) -> None: ...
    def alignment(self) -> Float32: ...


class Model(Protocol):
    """The weights: the part of `dualar.DualAR` that `dualar.generation` uses.

    main_ids: int32 [C + 1], the token of each of a step's logits, the end of speech last; or [C], of a core's model
    with an `end_code`, which a frame of nothing but that code ends.
    """

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
    """A prompt of any family that was checked against a model: T positions of 1 + N numbers each.

    prefix_length: how many positions at its beginning hold a voice's recording, which the prefix cache may keep; 0 for
    none. divisible: whether a session may compute it in several pieces.
    """

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def prefix_length(self) -> int: ...
    @property
    def divisible(self) -> bool: ...
    def piece(self, start: int, stop: int, /) -> Any:
        """The positions from start to before stop, as `Session.prefill` takes them."""


class FamilyPrompt(Protocol):
    """A prompt that is more than one matrix, before it is checked; `dualar.TalkerPrompt` is one."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def checked(self, model: Any, /) -> Prompt:
        """The prompt with plain arrays; ValueError where it does not fit the model."""


BuiltPrompt = Int32 | FamilyPrompt  # what `Engine.build_prompt` returns
PromptLike = npt.ArrayLike | FamilyPrompt  # what `generate` takes
