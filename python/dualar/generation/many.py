"""Runs many requests for codes through one batch, and gives each result when its request ends.

Owns the order in which requests join the batch. Leaves the rows to `batch.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dualar.generation.batch import Batch, BatchRow
from dualar.generation.frames import Generation
from dualar.generation.requests import BatchResult, GenerationRequest
from dualar.generation.rules import FrameRules


def generate_batch(batch: Batch, requests: Iterable[GenerationRequest]) -> Iterator[BatchResult[Generation]]:
    """`Engine.generate_batch`, through a batch that nothing else uses. All requests are checked before any begins."""
    asked = list(requests)
    ready: list[tuple[FrameRules, int]] = []
    for request in asked:
        rules = batch._checked(request)
        ready.append((rules, batch._bytes_of(rules)))
    return _run(batch, asked, ready)


def _run(
    batch: Batch, requests: list[GenerationRequest], ready: list[tuple[FrameRules, int]]
) -> Iterator[BatchResult[Generation]]:
    indices: dict[BatchRow, int] = {}
    entered = 0
    try:
        while entered < len(ready) or batch.rows:
            # Requests join in order: none overtakes one that waits for memory.
            while entered < len(ready) and batch._has_room(ready[entered][1]):
                indices[batch._enter(ready[entered][0], requests[entered].on_frame)] = entered
                entered += 1
            for row in batch.step():
                value = None if row.error is not None else row.result()
                yield BatchResult(index=indices.pop(row), value=value, error=row.error)
    finally:
        batch.close()
