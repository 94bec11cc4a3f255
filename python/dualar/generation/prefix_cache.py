"""Keeps the computed beginnings of prompts, so that a voice's recording is computed once and not for every request.

Owns the cache with its limit. Leaves the copying of keys and values to the core's sessions, which part of a prompt is
its prefix to `prompts.py`, and its computation to `batch.py`.

The prefix of a prompt is its first message, where that holds a voice's recording. It is always computed apart from the
rest, with a cache or without one: attention may round differently where a prompt is cut elsewhere, and one bit that
differs can change every code after it.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dualar._native import Prefix
from dualar.config import whole_number
from dualar.model import Model, Prompt

Int32 = npt.NDArray[np.int32]

DEFAULT_PREFIX_CACHE_BYTES = 2**28

_ATTENTION_ROWS = 256  # the core's attention runs over a multiple of this many rows of the KV cache

_log = logging.getLogger("dualar")


@dataclass(frozen=True)
class PrefixEntry:
    """A prefix in the cache: its positions, the bytes that it takes, and how often it was reused."""

    positions: int
    nbytes: int
    uses: int


@dataclass
class _Kept:
    state: Prefix
    nbytes: int
    uses: int = 0


class PrefixCache:
    """Computed prefixes of one model, the least recently used dropped first. Any number of threads may use it.

    `Engine.prefix_cache` is one. A prefix is reused only where every token and code is the same.
    """

    def __init__(self, limit: int) -> None:
        """limit: bytes to keep at most; 0 keeps nothing."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()
        self._nbytes = 0
        self._limit = whole_number("prefix_cache.limit", limit, 0, 2**62)

    @property
    def limit(self) -> int:
        """Most bytes to keep. A lower limit drops entries at once."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        checked = whole_number("prefix_cache.limit", limit, 0, 2**62)
        with self._lock:
            self._limit = checked
            self._shrink()

    @property
    def nbytes(self) -> int:
        """Bytes of all entries: keys and values, and the prompts by which they are found."""
        return self._nbytes

    @property
    def entries(self) -> list[PrefixEntry]:
        """All entries, the least recently used first."""
        with self._lock:
            return [PrefixEntry(kept.state.positions, kept.nbytes, kept.uses) for kept in self._kept.values()]

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            self._kept.clear()
            self._nbytes = 0

    def restore(self, session: Any, prefix: Int32) -> bool:
        """Bring a new session to the end of a prefix that is in the cache; False where it is not there."""
        if self._limit == 0:
            return False
        with self._lock:
            kept = self._kept.get(self._key(session, prefix))
            if kept is None:
                return False
            kept.uses += 1
            self._kept.move_to_end(self._key(session, prefix))
        session.restore(kept.state)
        _log.info("[prefix] %d positions reused (%d bytes kept of at most %d)", *self._sizes(prefix))
        return True

    def keep(self, session: Any, prefix: Int32) -> None:
        """Keep the state of a session that has just computed a prefix."""
        if self._limit == 0:
            return
        key, state = self._key(session, prefix), session.snapshot()
        with self._lock:
            if key not in self._kept:  # another thread may have come first
                self._kept[key] = _Kept(state, state.nbytes + len(key[0]))
                self._nbytes += self._kept[key].nbytes
                self._shrink()
        _log.info("[prefix] %d positions computed (%d bytes kept of at most %d)", *self._sizes(prefix))

    def _key(self, session: Any, prefix: Int32) -> tuple[Any, ...]:
        # Attention may round differently with the number of cache rows it runs over; a short session has fewer.
        return prefix.tobytes(), prefix.shape, session.kv_type, session.attention_rows(prefix.shape[1])

    def _sizes(self, prefix: Int32) -> tuple[int, int, int]:
        return prefix.shape[1], self._nbytes, self._limit

    def _shrink(self) -> None:
        while self._nbytes > self._limit:
            _, dropped = self._kept.popitem(last=False)
            self._nbytes -= dropped.nbytes


def session_positions(model: Model, prompt: Prompt, frames: int) -> int:
    """How many positions a session needs for a prompt and `frames` frames.

    With a prefix they are rounded up to a multiple of 256, the rows that the core's attention runs over at a time, so
    that requests of different lengths can share a cached prefix.
    """
    positions = int(prompt.shape[1]) + frames
    if prompt.prefix_length:
        positions = min(-(-positions // _ATTENTION_ROWS) * _ATTENTION_ROWS, model.context_length)
    return positions
