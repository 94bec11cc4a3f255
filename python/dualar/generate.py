"""The one loop of a dual-AR model: a main token from the Slow-AR, its residual codes from the Fast-AR, again.

Owns the order of a frame, the stop rules and what a generation returns; leaves the arithmetic to the model and its
session, the draws to `sampling`, the options to `config`. It runs on anything shaped as `Model` and `Session` below,
which the compiled core is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from dualar.config import (
    DEFAULT_STALL_GUARD,
    FishSampling,
    GenerationConfig,
    SamplingConfig,
    StallGuard,
)
from dualar.request import checked_fast_ar, checked_prompt, checked_seed, frame_budget, text_limit
from dualar.sampling import LogitsError, sample

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
FinishReason = Literal["end", "length", "cancelled", "stalled"]

_log = logging.getLogger("dualar")


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
    def prefill(self, prompt: Int32, /) -> StepOutput: ...
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
    def context_length(self) -> int: ...
    @property
    def semantic_begin_id(self) -> int: ...
    @property
    def has_fast_ar(self) -> bool: ...
    @property
    def main_ids(self) -> Int32: ...
    def session(self, *, max_positions: int, kv_type: str = "auto") -> Session: ...


@dataclass(frozen=True, eq=False)
class Frame:
    """One frame: its index, its main token's id, and codes int32 [N], the semantic code first."""

    index: int
    token: int
    codes: Int32


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Milliseconds of wall time. The loop's are without what a consumer of the frames (`on_frame`) took.

    decode_ms (the codec's) and real_time_factor (all of it over the audio's duration) are None for codes alone;
    ms_per_frame is 0 where there is no frame. first_audio_ms is a stream's: from the call to its first samples.
    """

    prefill_ms: float
    loop_ms: float
    ms_per_frame: float
    decode_ms: float | None = None
    real_time_factor: float | None = None
    first_audio_ms: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Generation:
    """What a run gave: codes int32 [N, n_frames] and why it ended.

    finish_reason: "end" (the model ended the speech), "length" (max_new_tokens frames), "cancelled" (`on_frame` or
    `close`), "stalled" (the stall guard). padded_frames: how many have zeros because a Fast-AR computation failed.
    """

    codes: Int32
    finish_reason: FinishReason
    seed: int
    padded_frames: int
    timings: Timings


class FrameLoop(Iterator[Frame]):
    """Iterator over the frames of one request; `result()` gives what they make together. Made ready on creation.

    Each `next` runs the model for one frame. `close()` ends it early; frames so far are kept. One thread at a time.

    Options as for `generate`; those of `config` replace its keywords. A ValueError comes on creation, before anything
    is computed; ModelError (NaN logits) and BackendError (the device) while iterating.
    """

    def __init__(
        self,
        model: Model,
        prompt: npt.ArrayLike,
        config: GenerationConfig | None = None,
        *,
        seed: int | None = None,
        text_tokens: int | None = None,
        fast_ar: str = "cached",
        kv_type: str = "auto",
        session: Session | None = None,
    ) -> None:
        self._model = model
        self._config = config or GenerationConfig()
        self._prompt = checked_prompt(model, prompt)
        self._cached = checked_fast_ar(model, fast_ar)
        self.seed = checked_seed(seed)
        start = 0 if session is None else session.position
        self.max_new_tokens = frame_budget(model, self._config, start + self._prompt.shape[1], session)
        limit = text_limit(self._config.stall_guard, text_tokens)
        # Frames that were asked for are no stall.
        self._frame_limit = None if limit is None else max(limit, self._config.min_tokens_before_end)
        self._session = session or model.session(
            max_positions=self._prompt.shape[1] + self.max_new_tokens, kv_type=kv_type
        )
        # The compiled core draws a whole frame's codes in one call where it knows the family; the same codes come from
        # the calls one by one.
        fused: Callable[..., tuple[Int32, str | None]] | None = getattr(self._session, "fast_frame", None)
        self._fused = fused if self._cached and isinstance(self._config.sampling, FishSampling) else None
        self._codes = np.zeros((model.num_codebooks, self.max_new_tokens), np.int32)
        self._drawn = np.zeros((1, self.max_new_tokens), np.int32)  # main tokens, as indices into main_ids
        self.frames = 0
        self.padded_frames = 0
        self.finish_reason: FinishReason | None = None
        self._prefill_s = self._loop_s = 0.0
        self._generator = self._run()

    def __next__(self) -> Frame:
        return next(self._generator)

    def close(self) -> None:
        """Stop before the next frame; finish_reason is "cancelled" unless the loop had ended."""
        self._generator.close()
        if self.finish_reason is None:
            self.finish_reason = "cancelled"

    def result(self) -> Generation:
        """The frames so far; a loop that has not ended is closed."""
        self.close()
        assert self.finish_reason is not None
        loop_ms = self._loop_s * 1e3
        return Generation(
            codes=self._codes[:, : self.frames].copy(),
            finish_reason=self.finish_reason,
            seed=self.seed,
            padded_frames=self.padded_frames,
            timings=Timings(
                prefill_ms=self._prefill_s * 1e3,
                loop_ms=loop_ms,
                ms_per_frame=loop_ms / self.frames if self.frames else 0.0,
            ),
        )

    def _run(self) -> Generator[Frame, None, None]:
        main_ids, end = self._model.main_ids, len(self._model.main_ids) - 1
        watch = _RepeatWatch(self._config.stall_guard)
        began = time.perf_counter()
        out = self._session.prefill(self._prompt)
        self._prefill_s = time.perf_counter() - began
        began = time.perf_counter()
        while True:
            drawn = self._draw_main(out.logits, end)
            if drawn == end:
                self._loop_s += time.perf_counter() - began
                self.finish_reason = "end"
                return
            token = int(main_ids[drawn])
            codes = self._frame_codes(token, out.hidden)
            self._drawn[0, self.frames] = drawn
            self._codes[:, self.frames] = codes
            frame = Frame(self.frames, token, codes)
            self.frames += 1
            self._loop_s += time.perf_counter() - began
            yield frame
            began = time.perf_counter()
            if watch.stalled(drawn) and self.frames >= self._config.min_tokens_before_end:
                self.finish_reason = "stalled"
                return
            # The Slow-AR is not asked whether the next token would have been the end, so "length" says that the
            # budget was used up, and not that the speech was cut.
            if self.frames == self.max_new_tokens:
                self.finish_reason = "length"
                return
            if self.frames == self._frame_limit:
                self.finish_reason = "stalled"
                return
            out = self._session.step(np.concatenate([[token], self._codes[:, self.frames - 1]]).astype(np.int32))

    def _draw_main(self, logits: Float32, end: int) -> int:
        """The next main token as an index into main_ids, redrawn by the family's rule where it repeats."""
        if self.frames < self._config.min_tokens_before_end:
            logits = logits.copy()
            logits[end] = -np.inf  # in the logits themselves, so that no draw or redraw can give it
        return self._draw(logits, 0, self._drawn[:, : self.frames])

    def _frame_codes(self, token: int, hidden: Float32) -> Int32:
        """Codes int32 [N] of the frame: the semantic code, then one draw for each further codebook."""
        N, C = self._model.num_codebooks, self._model.codebook_size
        codes = np.zeros(N, np.int32)
        codes[0] = min(max(token - self._model.semantic_begin_id, 0), C - 1)
        if self._fused is not None and N > 1:
            options = self._config.sampling
            assert isinstance(options, FishSampling)
            codes, failure = self._fused(
                hidden,
                int(codes[0]),
                temperature=options.temperature,
                top_p=options.top_p,
                top_k=options.top_k,
                seed=self.seed,
                step=self.frames,
            )
            if failure is not None:
                self._pad(failure)
            return codes
        for book in range(1, N):
            try:
                logits = self._fast_logits(hidden, codes[:book])
            except RuntimeError as error:
                if not _is_backend_error(error):
                    raise
                self._pad(error)
                break
            codes[book] = self._draw(logits, book, codes[None, 1:book])
        return codes

    def _pad(self, reason: object) -> None:
        self.padded_frames += 1
        _log.warning("[generate] frame %d: its last codes are 0: %s", self.frames, reason)

    def _fast_logits(self, hidden: Float32, prefix: Int32) -> Float32:
        if not self._cached:
            return self._session.fast_decode(hidden, prefix)
        if len(prefix) == 1:
            return self._session.fast_begin(hidden, int(prefix[0]))
        return self._session.fast_step(int(prefix[-1]))

    def _draw(self, logits: Float32, codebook: int, history: Int32) -> int:
        try:
            drawn = sample(
                logits[None],
                self._config.sampling,
                seed=self.seed,
                step=self.frames,
                stream=codebook,
                history=history,
            )
        except LogitsError as error:
            from dualar._core import ModelError

            raise ModelError(
                f"[generate] frame {self.frames}, codebook {codebook}: expected logits to draw from, got NaN or none "
                "above -inf (a weight of the file is broken, or a computation overflowed)"
            ) from error
        return int(drawn[0])


def generate(
    model: Model,
    prompt: npt.ArrayLike,
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
) -> Generation:
    """Run the model on a prompt int [1 + N, T] until it ends, or a rule ends it.

    max_new_tokens: most frames, >= 1; by default 1024 or what the context leaves. min_tokens_before_end: so many
    frames come before an end may be drawn, by any draw. sampling: by default `SamplingConfig.fish()`. seed: 0 to
    2^64 - 1, by default a random one, given back. on_frame is called with each Frame; a return that is False stops,
    and keeps the frames so far, this one included. stall_guard ends runaways; None turns it off. text_tokens: the
    text's length, for the guard's limit of frames per text token. fast_ar: "cached" or "recompute", the same codes.
    kv_type: as for `DualAR.session`, which is asked for just the positions of this request, unless a `session` is
    given; that one may hold earlier positions, which the prompt then continues.

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
        model, prompt, config, seed=seed, text_tokens=text_tokens, fast_ar=fast_ar, kv_type=kv_type, session=session
    )
    for frame in loop:
        if on_frame is not None and on_frame(frame) is False:
            loop.close()
    return loop.result()


class _RepeatWatch:
    """Counts, for each period, how many main tokens in a row equal the one a period earlier."""

    def __init__(self, guard: StallGuard | None) -> None:
        self._limit = 0 if guard is None else guard.repeat_frames
        self._runs = [0] * (guard.max_period if guard is not None and self._limit else 0)
        self._tokens: list[int] = []

    def stalled(self, token: int) -> bool:
        """True once more than repeat_frames frames, this one included, are one cycle of at most max_period."""
        found = False
        for i in range(len(self._runs)):
            period = i + 1
            same = len(self._tokens) >= period and self._tokens[-period] == token
            self._runs[i] = self._runs[i] + 1 if same else 0
            found |= same and self._runs[i] + period > self._limit
        self._tokens.append(token)
        return found


def _is_backend_error(error: RuntimeError) -> bool:
    from dualar._core import BackendError

    return isinstance(error, BackendError)
