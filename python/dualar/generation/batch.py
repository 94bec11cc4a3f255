"""Runs many requests at once as rows of a batch: a step computes one frame of each row and reads the weights once.

Owns `Batch` and `BatchRow`: how rows join, leave, fail and end, and the limits of a batch. Leaves a row's rules to
`rules.py`, and the computations to `steps.py`.

A row's result does not depend on the rows beside it: each row has its own noise, session and history. Its logits are
those of the same request alone, bit for bit, where dualar's own kernels compute all products: on the CPU with weights
in F32, F16, Q8_0, Q4_0 and Q4_K. For other types ggml has different kernels for one row and for several; they round
differently, so a code may differ.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import numpy as np
import numpy.typing as npt

from dualar._native import BackendError, ModelError
from dualar.config import MOST_ROWS, SamplingConfig, whole_number
from dualar.generation.checks import checked_fast_ar
from dualar.generation.frames import Frame, Generation
from dualar.generation.prefix_cache import PrefixCache
from dualar.generation.requests import GenerationRequest
from dualar.generation.rules import FrameRules
from dualar.generation.steps import steps_of
from dualar.model import Model, Session, WatchingSession

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]

DEFAULT_MAX_ROWS = 8


class BatchRow:
    """One request in a Batch. `Batch.join` makes it."""

    def __init__(
        self, rules: FrameRules, session: Session, kv_bytes: int, on_frame: Callable[[Frame], object] | None
    ) -> None:
        self._rules = rules
        self._session: Session | None = session
        self._kv_bytes = kv_bytes
        self._on_frame = on_frame
        # Only a prompt at the beginning of a session can share its prefix with other requests.
        self._prefix_length = rules.prompt.prefix_length if session.position == 0 else 0
        self._fed = 0  # positions of the prompt that were computed
        # Once all are, one of these two is set: logits and hidden to draw from, or the column to compute them with.
        self._out: tuple[Float32, Float32] | None = None
        self._column: Int32 | None = None
        self._cancelled = False
        self._held = False
        self._error: Exception | None = None
        self._prefill_s = self._loop_s = 0.0

    @property
    def done(self) -> bool:
        """Whether it has left the batch."""
        return self._session is None

    @property
    def frames(self) -> int:
        """Frames so far."""
        return self._rules.frames

    @property
    def seed(self) -> int:
        """The seed of its draws."""
        return self._rules.seed

    @property
    def error(self) -> Exception | None:
        """The error that ended it; None where no error did."""
        return self._error

    def cancel(self) -> None:
        """End the row at the next step, with the frames so far; from any thread. Does nothing once it is done."""
        self._cancelled = True

    def hold(self, held: bool) -> None:
        """Pause the row from the next step on, or let it continue: for a caller who has frames enough for now.

        Its frames are the same, only later. A row that is held can still be cancelled.
        """
        self._held = held

    def result(self) -> Generation:
        """Its frames and timings. The timings are those of the batch's steps, which it shares with the other rows.

        Errors: ValueError before it is done; the error that ended it, where one did.
        """
        if self._error is not None:
            raise self._error
        if self._rules.finish_reason is None or not self.done:
            raise ValueError("[batch] expected a row that is done, got one that goes on")
        return self._generation()

    # The methods below are for the Batch.

    def _generation(self) -> Generation:
        return self._rules.result(prefill_s=self._prefill_s, loop_s=self._loop_s)

    @property
    def _prompt_is_in(self) -> bool:
        return self._out is not None or self._column is not None

    @property
    def _ended(self) -> bool:
        return self._error is not None or self._rules.finish_reason is not None

    @property
    def _open_session(self) -> Session:
        assert self._session is not None
        return self._session

    @property
    def _last(self) -> tuple[Float32, Float32]:
        assert self._out is not None
        return self._out

    @contextmanager
    def _isolated(self) -> Iterator[None]:
        """An error that is raised inside ends this row alone."""
        try:
            yield
        except Exception as error:
            self._error = error

    def _deliver(self, frame: Frame) -> None:
        if self._on_frame is not None and self._on_frame(frame) is False:
            self._rules.cancel()


class Batch:
    """Requests to one model that are computed together, one frame of each in a step.

    `join` adds a row between two steps, `step` makes one frame of each row and returns the rows that ended, `run` steps
    until no row is left. A row that is cancelled, fails or stalls leaves without an effect on the others; only where
    the Slow-AR's computation fails on the device do all rows end, with its BackendError.

    Fairness: each step makes one frame of every row whose prompt has been computed. Prompts are computed in the order
    of joining, and a step computes at most one piece of one prompt (`DualAR.prefill_piece` positions), so that a
    prompt, however long, delays the other rows' frames by no more than a piece.

    One call at a time: one that comes during another, from a second thread or from `on_frame`, is a ValueError. Only
    `BatchRow.cancel` and `hold` may be called at any time.
    """

    def __init__(
        self,
        model: Model,
        *,
        max_rows: int = DEFAULT_MAX_ROWS,
        max_kv_bytes: int | None = None,
        fast_ar: str = "cached",
        kv_type: str = "auto",
        sampling: SamplingConfig | None = None,
        min_tokens_before_end: int = 0,
        prefix_cache: PrefixCache | None = None,
    ) -> None:
        """max_rows: rows at once, 1 to 256. max_kv_bytes: of their KV caches together; None is no limit.

        fast_ar and kv_type: as for `dualar.load`. sampling, by default `SamplingConfig.fish()`, and
        min_tokens_before_end: for requests that do not set them. ValueError for an option out of range.
        """
        self._model = model
        self.max_rows = whole_number("batch.max_rows", max_rows, 1, MOST_ROWS)
        self.max_kv_bytes = (
            None if max_kv_bytes is None else whole_number("batch.max_kv_bytes", max_kv_bytes, 1, 2**63 - 1)
        )
        self._steps = steps_of(model, fast_ar=checked_fast_ar(model, fast_ar))
        self._kv_type = kv_type
        self._piece: int | None = getattr(model, "prefill_piece", None)
        self._sampling = SamplingConfig.fish() if sampling is None else sampling
        self._least = min_tokens_before_end
        self._prefix_cache = prefix_cache
        self._rows: list[BatchRow] = []
        self._busy = threading.Lock()

    @property
    def rows(self) -> int:
        """How many rows it has now."""
        return len(self._rows)

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV cache that its rows hold now."""
        return sum(row._kv_bytes for row in self._rows)

    def join(self, request: GenerationRequest) -> BatchRow:
        """Add a row, between two steps. Nothing is computed before the next step.

        ValueError, before anything is allocated, for a request out of range, where there are max_rows rows, and where
        the KV caches would pass max_kv_bytes.
        """
        rules = self._checked(request)
        with self._one_call():
            return self._enter(rules, request.on_frame)

    def step(self) -> list[BatchRow]:
        """Make one frame of each row; returns the rows that ended, each with a result or an error of its own."""
        with self._one_call():
            try:
                self._step()
            except BaseException:  # no row's own error: Ctrl-C, or a fault; it ends all rows
                for row in self._rows:
                    row._rules.cancel()
                self._leave()
                raise
            return self._leave()

    def run(self) -> Iterator[BatchRow]:
        """Step until no row is left, and yield each row when it ends. Rows may join meanwhile."""
        while self._rows:
            yield from self.step()

    def close(self) -> None:
        """Cancel all rows; they are done at once, with the frames so far."""
        with self._one_call():
            for row in self._rows:
                row._rules.cancel()
            self._leave()

    @contextmanager
    def _one_call(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise ValueError("[batch] expected one call at a time, another one is computing")
        try:
            yield
        finally:
            self._busy.release()

    def _checked(self, request: GenerationRequest) -> FrameRules:
        if not isinstance(request, GenerationRequest):
            raise ValueError(f"[batch] expected a GenerationRequest, got {type(request).__name__}")
        return request.rules(self._model, sampling=self._sampling, min_tokens_before_end=self._least)

    def _bytes_of(self, rules: FrameRules) -> int:
        """Bytes that its KV caches take; ValueError where they pass max_kv_bytes even without other rows."""
        needed = self._model.kv_bytes(rules.positions, self._kv_type)
        if self.max_kv_bytes is not None and needed > self.max_kv_bytes:
            raise ValueError(
                f"[batch] expected KV caches of at most {self.max_kv_bytes} bytes, got a request of {needed} "
                f"({rules.positions} positions)"
            )
        return needed

    def _has_room(self, needed: int) -> bool:
        return self.rows < self.max_rows and (self.max_kv_bytes is None or self.kv_bytes + needed <= self.max_kv_bytes)

    def _enter(
        self, rules: FrameRules, on_frame: Callable[[Frame], object] | None, *, session: Session | None = None
    ) -> BatchRow:
        """Add a row for a request that was checked. session: an existing one to run it in, by default a new one."""
        needed = self._bytes_of(rules)
        if self.rows >= self.max_rows:
            raise ValueError(f"[batch] expected at most {self.max_rows} rows, got one more")
        if not self._has_room(needed):
            raise ValueError(
                f"[batch] expected KV caches of at most {self.max_kv_bytes} bytes, got {self.kv_bytes} in use and "
                f"{needed} more"
            )
        if session is None:
            session = self._model.session(max_positions=rules.positions, kv_type=self._kv_type)
        if rules.watched is not None:
            cast(WatchingSession, session).watch(*rules.watched)
        row = BatchRow(rules, session, needed, on_frame)
        self._rows.append(row)
        return row

    def _leave(self) -> list[BatchRow]:
        """Remove the rows that have ended, free their sessions, and return them."""
        left = [row for row in self._rows if row._ended]
        self._rows = [row for row in self._rows if not row._ended]
        for row in left:
            row._session = row._out = row._column = row._on_frame = None
        return left

    def _step(self) -> None:
        for row in self._rows:
            if row._cancelled:
                row._rules.cancel()
        moving = [row for row in self._rows if not row._held and not row._ended]
        waiting = next((row for row in moving if not row._prompt_is_in), None)
        began = time.perf_counter()
        if waiting is not None:
            with waiting._isolated():
                self._prefill(waiting)
            waiting._prefill_s += time.perf_counter() - began
        rows = [row for row in moving if row._prompt_is_in and not row._ended]
        taking = [row for row in rows if row is not waiting]  # for the other one, all of that was its prefill
        if waiting in rows:
            for row in taking:
                row._loop_s += time.perf_counter() - began
            began, taking = time.perf_counter(), rows
        self._advance(rows)
        consumers_s = self._frames([row for row in rows if not row._ended])
        for row in taking:
            row._loop_s += time.perf_counter() - began - consumers_s

    def _prefill(self, row: BatchRow) -> None:
        """Compute the next piece of the row's prompt. It ends where the core cuts whole prompts too: the same bits."""
        prompt, session, cache = row._rules.prompt, row._open_session, self._prefix_cache
        end, length = prompt.shape[1], row._prefix_length
        if length and row._fed == 0 and cache is not None and cache.restore(session, prompt.piece(0, length)):
            row._fed = length
        stop = length if row._fed < length else end
        if self._piece is not None and prompt.divisible:
            stop = min(stop, row._fed + self._piece)
        out = session.prefill(prompt.piece(row._fed, stop))
        row._fed = stop
        if stop == length and cache is not None:
            cache.keep(session, prompt.piece(0, length))
        if stop == end:
            row._out = out.logits, out.hidden

    def _advance(self, rows: list[BatchRow]) -> None:
        """Compute logits for the rows that have a frame already. This comes before the next draw, and not right after
        a frame, so that the frame is delivered without waiting for it."""
        stepped = [row for row in rows if row._column is not None]
        if not stepped:
            return
        columns = np.stack([row._column for row in stepped])  # type: ignore[misc]  # all of these have one
        try:
            logits, hidden = self._steps.step([row._open_session for row in stepped], columns)
        except BackendError as error:
            for row in stepped:
                row._error = error
            return
        for i, row in enumerate(stepped):
            row._out, row._column = (logits[i], hidden[i]), None

    def _frames(self, rows: list[BatchRow]) -> float:
        """Draw, complete and deliver a frame of each row; returns the seconds spent in `on_frame`."""
        drawn: list[BatchRow] = []
        for row in rows:
            try:
                if row._rules.draw(row._last[0]):
                    drawn.append(row)
                    if row._rules.watched is not None:
                        row._rules.look(cast(WatchingSession, row._open_session).alignment())
            except Exception as error:  # ends this row alone
                row._error = error
        if not drawn:
            return 0.0
        codes = self._codes(drawn)
        began = time.perf_counter()
        for row, filled in zip(drawn, codes, strict=True):
            if not row._ended:
                try:
                    if (frame := row._rules.add(filled)) is not None:
                        row._deliver(frame)
                except Exception as error:
                    row._error = error
        consumers_s = time.perf_counter() - began
        for row in drawn:
            if not row._ended:
                row._column = row._rules.next_column()
        return consumers_s

    def _codes(self, rows: list[BatchRow]) -> Int32:
        """The codes int32 [rows, N] of a frame of each row; sets the error of a row whose logits allow no draw."""
        first = np.array([row._rules.semantic_code for row in rows], np.int32)
        if self._model.num_codebooks == 1:
            return first[:, None]
        hidden = np.stack([row._last[1] for row in rows])
        sessions = [row._open_session for row in rows]
        codes, broken, failure = self._steps.fast_frames(
            sessions, hidden, first, [row._rules.residual_draw for row in rows]
        )
        for row, problem in zip(rows, broken, strict=True):
            if problem is not None:
                row._error = ModelError(problem)
            elif failure is not None:
                row._rules.pad(failure)
        return codes
