"""Samples from the engine's thread to a caller on the event loop.

Owns `Delivery`, a queue of chunks with an end, which tells the thread when its caller has enough or has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dualar.server.utterance import Outcome

Float32 = npt.NDArray[np.float32]


class Delivery:
    """One caller's samples. `take` and `cancel` are the event loop's; `put` and `end` the engine thread's."""

    def __init__(self, *, ahead: int | None, seconds: float) -> None:
        """ahead: samples that may wait before the row is held; None for a caller who takes the whole at its end.
        seconds: until the request is given up."""
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._chunks: deque[tuple[Float32, int]] = deque()
        self.piece = 0  # of the text, that the samples taken last are of
        self._ahead = ahead
        self._put = self._taken = 0
        self._error: Exception | None = None
        self._outcome: Outcome | None = None
        self.asked_at = time.perf_counter()
        self.deadline = self.asked_at + seconds
        self.first_audio_s: float | None = None
        self.cancelled = False
        self.wake: Callable[[], None] = lambda: None

    @property
    def is_full(self) -> bool:
        """Whether the caller has more than it reads."""
        return self._ahead is not None and self._put - self._taken >= self._ahead

    @property
    def is_whole(self) -> bool:
        """Whether nobody hears it before its end."""
        return self._ahead is None

    @property
    def samples(self) -> int:
        """How many were made."""
        return self._put

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, once it has."""
        return self._outcome

    def put(self, samples: Float32, piece: int = 0) -> None:
        if self.first_audio_s is None:
            self.first_audio_s = time.perf_counter() - self.asked_at
        self._put += samples.size
        self._chunks.append((samples, piece))
        self._tell()

    def end(self, outcome: Outcome | None, error: Exception | None = None) -> None:
        self._outcome, self._error = outcome, error
        self._tell()

    async def take(self) -> Float32 | None:
        """The next samples; None after the last. Raises what ended the work."""
        while True:
            if self._chunks:
                samples, self.piece = self._chunks.popleft()
                was_full = self.is_full
                self._taken += samples.size
                if was_full:
                    self.wake()
                return samples
            if self._error is not None:
                raise self._error
            if self._outcome is not None:
                return None
            self._changed.clear()
            await self._changed.wait()

    def cancel(self) -> None:
        """The caller has gone, or has all: nothing more is made."""
        self.cancelled = True
        self.wake()

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._changed.set)
