"""One request at a time: the loop that asks a model for frame after frame.

Owns `FrameLoop` and `generate`. Leaves the arithmetic to the model and its session, the draws and the stop rules to
`rules.py`, and the options to `dualar.config`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator

import numpy as np
import numpy.typing as npt

from dualar.config import DEFAULT_STALL_GUARD, GenerationConfig, SamplingConfig, StallGuard
from dualar.generation.checks import checked_fast_ar
from dualar.generation.frames import FinishReason, Frame, Generation, Timings
from dualar.generation.prefix_cache import PrefixCache, prefill
from dualar.generation.rules import FrameRules
from dualar.generation.steps import steps_of
from dualar.model import Model, PromptLike, Session, StepOutput

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]

__all__ = [
    "FinishReason",
    "Frame",
    "FrameLoop",
    "Generation",
    "Model",
    "Session",
    "StepOutput",
    "Timings",
    "generate",
]


class FrameLoop(Iterator[Frame]):
    """Iterator over the frames of one request; `result()` gives what they make together. Made ready on creation.

    Each `next` runs the model for one frame. `close()` ends it early; frames so far are kept. One thread at a time.

    Options as for `generate`; those of `config` replace its keywords. A ValueError comes on creation, before anything
    is computed; ModelError (NaN logits) and BackendError (the device) while iterating.
    """

    def __init__(
        self,
        model: Model,
        prompt: PromptLike,
        config: GenerationConfig | None = None,
        *,
        seed: int | None = None,
        text_tokens: int | None = None,
        fast_ar: str = "cached",
        kv_type: str = "auto",
        session: Session | None = None,
        prefix_cache: PrefixCache | None = None,
    ) -> None:
        self._model = model
        self._rules = FrameRules(model, prompt, config, seed=seed, text_tokens=text_tokens, session=session)
        self._prefix_cache = prefix_cache
        self._steps = steps_of(model, fast_ar=checked_fast_ar(model, fast_ar))
        self._session = session or model.session(max_positions=self._rules.positions, kv_type=kv_type)
        self._prefill_s = self._loop_s = 0.0
        self._generator = self._run()

    @property
    def seed(self) -> int:
        return self._rules.seed

    @property
    def max_new_tokens(self) -> int:
        return self._rules.max_new_tokens

    @property
    def frames(self) -> int:
        return self._rules.frames

    @property
    def padded_frames(self) -> int:
        return self._rules.padded_frames

    @property
    def finish_reason(self) -> FinishReason | None:
        return self._rules.finish_reason

    def __next__(self) -> Frame:
        return next(self._generator)

    def close(self) -> None:
        """Stop before the next frame; finish_reason is "cancelled" unless the loop had ended."""
        self._generator.close()
        self._rules.cancel()

    def result(self) -> Generation:
        """The frames so far; a loop that has not ended is closed."""
        self.close()
        return self._rules.result(prefill_s=self._prefill_s, loop_s=self._loop_s)

    def _run(self) -> Generator[Frame, None, None]:
        rules = self._rules
        began = time.perf_counter()
        out = prefill(self._session, rules.prompt, self._prefix_cache)
        logits, hidden = out.logits[None], out.hidden[None]  # a batch of one row
        self._prefill_s = time.perf_counter() - began
        began = time.perf_counter()
        while rules.draw(logits[0]):
            frame = rules.add(self._frame_codes(hidden))
            self._loop_s += time.perf_counter() - began
            yield frame
            began = time.perf_counter()
            column = rules.next_column()
            if column is None:
                return
            logits, hidden = self._steps.step([self._session], column[None])
        self._loop_s += time.perf_counter() - began

    def _frame_codes(self, hidden: Float32) -> Int32:
        """Codes int32 [N] of the frame, from hidden [1, D]: the semantic code, then one draw for each further one."""
        rules = self._rules
        first = np.array([rules.semantic_code], np.int32)
        if self._model.num_codebooks == 1:
            return first
        codes, broken, failure = self._steps.fast_frames([self._session], hidden, first, [rules.residual_draw])
        if broken[0] is not None:
            from dualar._native import ModelError

            raise ModelError(broken[0])
        if failure is not None:
            rules.pad(failure)
        filled: Int32 = codes[0]
        return filled


def generate(
    model: Model,
    prompt: PromptLike,
    *,
    max_new_tokens: int | None = None,
    min_tokens_before_end: int = 0,
    sampling: SamplingConfig | None = None,
    seed: int | None = None,
    on_frame: Callable[[Frame], object] | None = None,
    stall_guard: StallGuard | None = DEFAULT_STALL_GUARD,
    text_tokens: int | None = None,
    fast_ar: str = "cached",
    kv_type: str = "auto",
    session: Session | None = None,
    prefix_cache: PrefixCache | None = None,
) -> Generation:
    """Run the model on a prompt, int [1 + N, T] or a TalkerPrompt, until it ends, or a rule ends it.

    max_new_tokens: most frames, >= 1; by default 1024 or what the context leaves. min_tokens_before_end: so many
    frames come before an end may be drawn, by any draw. sampling: by default `SamplingConfig.fish()`. seed: 0 to
    2^64 - 1, by default a random one, given back. on_frame is called with each Frame; a return that is False stops,
    and keeps the frames so far, this one included. stall_guard ends runaways; None turns it off. text_tokens: the
    text's length, for the guard's limit of frames per text token. fast_ar: "cached" or "recompute", the same codes.
    kv_type: as for `DualAR.session`, which is asked for just the positions of this request, unless a `session` is
    given; that one may hold earlier positions, which the prompt then continues. prefix_cache: where the part of the
    prompt that is a voice's is kept; it is computed apart from the rest with or without one.

    If a Fast-AR computation fails (BackendError), the rest of that frame is 0 and `padded_frames` counts it.
    Errors: ValueError for a prompt or option out of range; ModelError for logits that are NaN; BackendError for the
    Slow-AR's device.
    """
    config = GenerationConfig(
        max_new_tokens=max_new_tokens,
        min_tokens_before_end=min_tokens_before_end,
        sampling=SamplingConfig.fish() if sampling is None else sampling,
        stall_guard=stall_guard,
    )
    loop = FrameLoop(
        model, prompt, config, seed=seed, text_tokens=text_tokens, fast_ar=fast_ar, kv_type=kv_type, session=session,
        prefix_cache=prefix_cache,
    )  # fmt: skip
    for frame in loop:
        if on_frame is not None and on_frame(frame) is False:
            loop.close()
    return loop.result()


def is_backend_error(error: RuntimeError) -> bool:
    """Whether a computation failed on the device, which pads a frame; anything else ends the request."""
    from dualar._native import BackendError

    return isinstance(error, BackendError)
