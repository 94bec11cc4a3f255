"""Several pieces of a long text spoken at once, as rows of a batch, and given out in the order of the text.

Owns the order in which pieces join the batch, and the pieces that are finished before their turn. Leaves the pieces'
prompts, attempts and failures to `narrator.py`, the rows to `dualar.generation.batch`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from dualar.generation.batch import Batch, BatchRow
from dualar.generation.frames import Generation
from dualar.generation.requests import GenerationRequest

Done = TypeVar("Done")


class PieceRows(Generic[Done]):
    """Pieces as rows of a batch. `take` steps the batch until the piece it is asked for is finished."""

    def __init__(
        self,
        batch: Batch,
        pieces: Sequence[tuple[int, int]],
        request: Callable[[int, int], GenerationRequest],
        settle: Callable[[int, int, Generation | None, str | None], Done | None],
    ) -> None:
        """pieces: (index, first attempt), in order. request(index, attempt): the request for a piece.

        settle(index, attempt, made, error): the finished piece, or None to have it tried again. made: the codes, or
        None after an error of the model, whose text is `error`.
        """
        self._batch = batch
        self._waiting = deque(pieces)
        self._request, self._settle = request, settle
        self._running: dict[BatchRow, tuple[int, int]] = {}
        self._done: dict[int, Done] = {}
        self._cancelled = False
        self.pieces = {index for index, _ in pieces}
        self.done: set[int] = set()
        self.seconds = 0.0  # in the batch's steps
        self.frames = 0  # of the rows that have ended

    def take(self, index: int) -> Done | None:
        """The piece, to be taken once; None where a row was cancelled, which ends all rows. An error other than a
        ModelError is raised here, and ends all rows."""
        try:
            while index not in self._done and not self._cancelled:
                self._step()
        except BaseException:
            self.close()
            raise
        if self._cancelled:
            self.close()
            return None
        return self._done.pop(index)

    def close(self) -> None:
        """End the rows that still run."""
        self._cancelled = True
        self._batch.close()
        for row in self._running:
            self.frames += row.frames
        self._running.clear()

    def _step(self) -> None:
        while self._waiting and self._batch.rows < self._batch.max_rows:
            index, attempt = self._waiting.popleft()
            self._running[self._batch.join(self._request(index, attempt))] = index, attempt
        began = time.perf_counter()
        ended = self._batch.step()
        self.seconds += time.perf_counter() - began
        for row in ended:
            self._end(row, *self._running.pop(row))

    def _end(self, row: BatchRow, index: int, attempt: int) -> None:
        from dualar._native import ModelError

        self.frames += row.frames
        if row.error is not None and not isinstance(row.error, ModelError):
            raise row.error
        made = None if row.error is not None else row.result()
        if made is not None and made.finish_reason == "cancelled":
            self._cancelled = True
            return
        done = self._settle(index, attempt, made, None if row.error is None else str(row.error))
        if done is None:
            self._waiting.appendleft((index, attempt + 1))
        else:
            self._done[index] = done
            self.done.add(index)
