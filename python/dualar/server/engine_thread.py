"""The one thread that computes: it joins requests to one `Batch` as rows, steps it, and decodes each row's sound.

Owns the order of the work among callers: who has a row, who waits, who is turned away. Leaves what a caller's rows and
frames are to `utterance.py`, and the samples' way to the event loop to `delivery.py`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass

from dualar._native import BackendError, ModelError
from dualar.generation.batch import Batch, BatchRow
from dualar.generation.requests import GenerationRequest
from dualar.loading import EngineParts
from dualar.server.delivery import Delivery
from dualar.server.errors import ApiError
from dualar.server.metrics import Metrics
from dualar.server.utterance import Utterance
from dualar.speech import verbs

_log = logging.getLogger("dualar.server")
_POLL_SECONDS = 0.2  # how often waiting requests' deadlines are looked at while nothing else happens
_LONGEST_RETRY_S = 60
_WARM_POSITIONS, _WARM_FRAMES = 8, 2
# Seconds of sound that a caller has beyond what a player at 1x has played. Under the first it is urgent; over the
# second it stands still while somebody is. One that is answered whole is neither.
_URGENT_LEAD_S, _AMPLE_LEAD_S, _WHOLE_LEAD_S = 0.25, 0.5, 0.4


@dataclass(eq=False)
class _Speaking:
    """An utterance that has a row, or waits for its next one."""

    utterance: Utterance
    delivery: Delivery
    row: BatchRow | None = None
    began: float = 0.0

    def lead(self, now: float) -> float:
        """Seconds of sound that were made beyond what can have been played; below 0 before the first."""
        delivery = self.delivery
        if delivery.is_whole:
            return _WHOLE_LEAD_S
        if delivery.first_audio_s is None:
            return -1.0
        return delivery.samples / self.utterance.sample_rate - (now - delivery.asked_at - delivery.first_audio_s)


class Place:
    """A caller's right to a row, now or later. Give it back with `leave`, once or more often."""

    def __init__(self, thread: EngineThread) -> None:
        self._thread: EngineThread | None = thread

    def leave(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread._left()


class EngineThread:
    """Rows of one model, stepped together. `enter` and `submit` are called from the event loop."""

    def __init__(self, parts: EngineParts, *, rows: int, queue: int, metrics: Metrics) -> None:
        self._parts = parts
        self._rows, self._queue = rows, queue
        self._metrics = metrics
        self._batch = self._new_batch()
        self._changed = threading.Condition()
        self._waiting: deque[_Speaking] = deque()
        self._active: list[_Speaking] = []
        self._places = 0
        self._mean_s = 1.0  # of a request in its row, as a running mean
        self._closing = False
        self._woken = False
        self._warmed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dualar-engine", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ the event loop's side
    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._closing

    @property
    def is_warm(self) -> bool:
        """Whether the model has spoken once: its memory is mapped, its graphs and threads are there."""
        return self._warmed.is_set()

    @property
    def active(self) -> int:
        """Requests that have a row."""
        return len(self._active)

    @property
    def places(self) -> int:
        """Requests that were let in and have not left."""
        return self._places

    def enter(self) -> Place:
        """A place in a row or in the queue; ApiError 429 where there is none, before anything is done."""
        with self._changed:
            if self._closing:
                raise ApiError(503, "The server is shutting down.", code="shutting_down")
            if self._places >= self._rows + self._queue:
                wait = self._mean_s * max(1, self._places - self._rows + 1) / self._rows
                seconds = min(max(round(wait), 1), _LONGEST_RETRY_S)
                raise ApiError(
                    429,
                    f"The server is busy: {self._rows} requests are being spoken and {self._queue} wait. Try again in "
                    f"about {seconds} s.",
                    code="rate_limit_exceeded",
                    headers={"Retry-After": str(seconds)},
                )
            self._places += 1
        return Place(self)

    def submit(self, utterance: Utterance, delivery: Delivery) -> None:
        """Have it said as soon as a row is free."""
        delivery.wake = self.wake
        with self._changed:
            if self._closing:
                raise ApiError(503, "The server is shutting down.", code="shutting_down")
            self._waiting.append(_Speaking(utterance, delivery))
            self._changed.notify()

    def wake(self) -> None:
        """Look again: a caller has gone, or has read."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def close(self) -> None:
        """Stop, with an error for those that go on."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _left(self) -> None:
        with self._changed:
            self._places -= 1

    # ------------------------------------------------------------------ the thread's side
    def _new_batch(self) -> Batch:
        return verbs.batch(self._parts, max_rows=self._rows, max_kv_bytes=None)

    def _run(self) -> None:
        try:
            self._warm()
        except Exception:  # the requests will say what is wrong
            _log.exception("the model did not speak on being loaded")
            self._batch.close()
            self._batch = self._new_batch()
        self._warmed.set()
        while self._wait_for_work():
            try:
                self._turn()
            except Exception as error:
                _log.exception("a step failed; its requests end")
                self._fail_all(error)
        self._fail_all(ApiError(503, "The server is shutting down.", code="shutting_down"))

    def _warm(self) -> None:
        """Speak some frames that nobody hears, in one row and in all of them, so that the first caller does not wait
        for what is done once."""
        parts = self._parts
        request = GenerationRequest(
            prompt=parts.family.blank_prompt(parts.model, _WARM_POSITIONS), seed=0, max_new_tokens=_WARM_FRAMES,
            min_tokens_before_end=_WARM_FRAMES, stall_guard=None,
        )  # fmt: skip
        for count in sorted({1, self._rows}):
            rows = [self._batch.join(request) for _ in range(count)]
            while self._batch.rows and not self._closing:
                self._batch.step()
            if self._closing:
                return
        with parts.codec.stream() as decoder:
            decoder.push(rows[0].result().codes)

    def _wait_for_work(self) -> bool:
        """Wait until there is something to do; False at the end."""
        with self._changed:
            while not (self._closing or self._woken or self._can_go_on()):
                self._changed.wait(_POLL_SECONDS if self._waiting or self._active else None)
                self._woken |= bool(self._waiting or self._active)  # deadlines
            self._woken = False
            return not self._closing

    def _can_go_on(self) -> bool:
        if self._waiting and len(self._active) < self._rows:
            return True
        return any(not s.delivery.is_full or s.delivery.cancelled for s in self._active)

    def _turn(self) -> None:
        self._drop()
        self._join()
        still = self._standing_still()
        for speaking in self._active:
            if speaking.row is not None:
                speaking.row.hold(speaking in still and not speaking.delivery.cancelled)
        if self._batch.rows:
            began = time.perf_counter()
            ended = self._batch.step()
            self._metrics.stepped(time.perf_counter() - began)
            for row in ended:
                self._settle(row)
        for speaking in list(self._active):
            if speaking not in still:
                self._decode(speaking)

    def _standing_still(self) -> set[_Speaking]:
        """Those whose callers read too slowly, and those who have ample sound while others are in want of it."""
        now = time.perf_counter()
        leads = {speaking: speaking.lead(now) for speaking in self._active}
        full = {speaking for speaking in self._active if speaking.delivery.is_full}
        if any(lead < _URGENT_LEAD_S for speaking, lead in leads.items() if speaking not in full):
            return full | {speaking for speaking, lead in leads.items() if lead > _AMPLE_LEAD_S}
        return full

    def _drop(self) -> None:
        """Let those go that are not wanted any more, or have taken too long."""
        now = time.perf_counter()
        with self._changed:
            gone = [s for s in self._waiting if s.delivery.cancelled or now > s.delivery.deadline]
            for speaking in gone:
                self._waiting.remove(speaking)
        for speaking in gone + [s for s in self._active if s.delivery.cancelled or now > s.delivery.deadline]:
            if not speaking.delivery.cancelled:
                error = ApiError(504, "The request took longer than this server allows.", code="timeout")
                self._end(speaking, error)
            else:
                self._end(speaking, None)

    def _join(self) -> None:
        while True:
            with self._changed:
                if not self._waiting or len(self._active) >= self._rows:
                    break
                speaking = self._waiting.popleft()
            speaking.began = time.perf_counter()
            self._active.append(speaking)
        for speaking in list(self._active):
            request = speaking.utterance.next_row
            # A batch may still hold the rows of those that left, until its next step.
            if speaking.row is None and request is not None and self._batch.rows < self._rows:
                try:
                    speaking.row = self._batch.join(request)
                except Exception as error:  # of this request
                    self._end(speaking, error)

    def _settle(self, row: BatchRow) -> None:
        speaking = next((s for s in self._active if s.row is row), None)
        if speaking is None:  # its caller has gone
            return
        speaking.row = None
        error = row.error
        if error is not None and (isinstance(error, BackendError) or not speaking.utterance.is_long):
            self._end(speaking, error)
            return
        try:
            made = row.result() if error is None else None
            speaking.utterance.ran(made, None if error is None else str(error))
        except Exception as failed:
            self._end(speaking, failed)

    def _decode(self, speaking: _Speaking) -> None:
        utterance, delivery = speaking.utterance, speaking.delivery
        if utterance.has_sound:
            began, before = time.perf_counter(), utterance.frames
            try:
                samples = utterance.decode()
            except Exception as error:
                self._end(speaking, error)
                return
            self._metrics.decoded(
                time.perf_counter() - began, utterance.frames - before, samples.size / utterance.sample_rate
            )
            delivery.put(samples, utterance.piece)
        if speaking.row is None and utterance.next_row is None and not utterance.has_sound:
            self._end(speaking, None)

    def _end(self, speaking: _Speaking, error: Exception | None) -> None:
        """It leaves, with its outcome or an error."""
        if speaking in self._active:
            self._active.remove(speaking)
        if speaking.row is not None:
            speaking.row.cancel()
        if speaking.began:
            self._mean_s += (time.perf_counter() - speaking.began - self._mean_s) / 8
        if error is None and not speaking.delivery.cancelled:
            speaking.delivery.end(speaking.utterance.outcome())
        else:
            if isinstance(error, BackendError | ModelError):
                _log.error("%s", error)
            speaking.delivery.end(None, error or ApiError(499, "The caller has gone.", code="cancelled"))
        speaking.utterance.close()

    def _fail_all(self, error: Exception) -> None:
        with self._changed:
            waiting = [*self._waiting]
            self._waiting.clear()
        for speaking in [*self._active, *waiting]:
            with contextlib.suppress(Exception):
                self._end(speaking, error)
        with contextlib.suppress(Exception):
            self._batch.close()
        if not self._closing:
            self._batch = self._new_batch()
