"""The computations of several sessions at once: in one graph for the core's models, one after the other for others.

Owns `Together`, which uses the compiled `_core.Batch`, `InTurn`, which calls each session, the choice between the two,
and the core's sampler for a `SamplingConfig`. Leaves the order of the computations to `batch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dualar._native import BackendError, _core
from dualar.config import CosyVoiceSampling, FishSampling, HFSampling, SamplingConfig
from dualar.model import Model
from dualar.sampling.chains import LogitsError, sample

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Draw = tuple[SamplingConfig, int, int]  # how a request's codes are drawn, its seed, and the frame's index
Frames = tuple[Int32, list[str | None], str | None]  # what `Steps.fast_frames` returns


class Steps(Protocol):
    """The computations of several sessions at once."""

    def step(self, sessions: Sequence[Any], columns: Int32, /) -> tuple[Float32, Float32]:
        """columns int [rows, 1 + N] -> logits [rows, C + 1], hidden [rows, D]. On an error no session has moved."""

    def fast_frames(self, sessions: Sequence[Any], hidden: Float32, codes: Int32, draws: Sequence[Draw], /) -> Frames:
        """hidden [rows, D] and semantic codes [rows] -> the frames' codes int32 [rows, N], N > 1, and two problems.

        The first, for each row: why no code could be drawn, else None. The second: where the device failed, why the
        codes of all rows are 0 from some codebook on, else None.
        """


class Together:
    """Computes all sessions in one graph with the compiled `_core.Batch`, which draws the codes too."""

    def __init__(self, model: _core.Model, *, fast_ar: str) -> None:
        self._batch = _core.Batch(model, fast_ar=fast_ar)

    def step(self, sessions: Sequence[Any], columns: Int32, /) -> tuple[Float32, Float32]:
        return self._batch.step(sessions, columns)

    def fast_frames(self, sessions: Sequence[Any], hidden: Float32, codes: Int32, draws: Sequence[Draw], /) -> Frames:
        core = [(core_sampler(config, residual=True), seed, step) for config, seed, step in draws]
        return self._batch.fast_frames(sessions, hidden, codes, core)


class InTurn:
    """Calls each session in turn and draws with `sampling.sample`: for models that are not the core's, as in tests."""

    def __init__(self, model: Model, *, fast_ar: str) -> None:
        self._books = model.num_codebooks
        self._cached = fast_ar == "cached"

    def step(self, sessions: Sequence[Any], columns: Int32, /) -> tuple[Float32, Float32]:
        out = [session.step(column) for session, column in zip(sessions, columns, strict=True)]
        return np.stack([o.logits for o in out]), np.stack([o.hidden for o in out])

    def fast_frames(self, sessions: Sequence[Any], hidden: Float32, codes: Int32, draws: Sequence[Draw], /) -> Frames:
        frames = np.zeros((len(sessions), self._books), np.int32)
        frames[:, 0] = codes
        broken: list[str | None] = [None] * len(sessions)
        for book in range(1, self._books):
            try:
                prefixes = frames[:, :book]
                logits = [self._logits(s, h, p) for s, h, p in zip(sessions, hidden, prefixes, strict=True)]
            except BackendError as error:
                return frames, broken, str(error)
            for row, (config, seed, step) in enumerate(draws):
                if broken[row] is not None:
                    continue
                past = frames[row : row + 1, 1:book]
                try:
                    drawn = sample(logits[row][None], config, seed=seed, step=step, stream=book, history=past)
                except LogitsError:
                    broken[row] = cannot_draw(step, book)
                else:
                    frames[row, book] = drawn[0]
        return frames, broken, None

    def _logits(self, session: Any, hidden: Float32, prefix: Int32) -> Float32:
        """Logits [C] of the codebook that follows the frame's codes so far."""
        if not self._cached:
            return np.asarray(session.fast_decode(hidden, prefix))
        if len(prefix) == 1:
            return np.asarray(session.fast_begin(hidden, int(prefix[0])))
        return np.asarray(session.fast_step(int(prefix[-1])))


def steps_of(model: Model, *, fast_ar: str) -> Steps:
    """The computations for sessions of this model. fast_ar: "cached" or "recompute"."""
    if isinstance(model, _core.Model):
        return Together(model, fast_ar=fast_ar)
    return InTurn(model, fast_ar=fast_ar)


def cannot_draw(step: int, codebook: int) -> str:
    """The error text for logits that allow no draw."""
    return (
        f"[generate] frame {step}, codebook {codebook}: expected logits to draw from, got NaN or none above -inf (a "
        "weight of the file is broken, or a computation overflowed)"
    )


@lru_cache(maxsize=64)
def core_sampler(config: SamplingConfig, *, residual: bool) -> _core.Sampler:
    """The core's sampler that draws as `sampling.sample` does: main tokens, or a frame's residual codes."""
    own = config.residual if residual else config
    options: dict[str, Any] = {
        "temperature": own.temperature,
        "top_p": own.top_p,
        "top_k": own.top_k,
        "history_window": own.history_windows[residual],
    }
    if isinstance(own, HFSampling):
        options |= {"repetition_penalty": own.repetition_penalty}
    elif isinstance(own, FishSampling):
        options |= {
            "repeat_threshold": 1,
            "redraw_temperature": own.ras_temperature,
            "redraw_top_p": own.ras_top_p,
        }
    elif isinstance(own, CosyVoiceSampling):
        options |= {"repeat_threshold": own.repeat_threshold}
    return _core.Sampler(own.family, **options)
