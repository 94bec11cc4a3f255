"""Voices' prompts, kept computed: the second request with a voice does not compute its prompt again.

Owns the prefill of a prompt in two parts, its prefix and the rest, and the cache with its limit. Leaves the copying of
keys and values to the core's sessions, and which part of a prompt is its prefix to the prompt.

A prefix is what a prompt begins with up to the end of its first message, if a recording is part of that: the system
message of a voice. It is always computed apart from the rest, with a cache or without one: the products of a prefill
are the same alone or among others, its attention need not be, and so a prompt that was cut elsewhere could differ in a
last bit, and from there in every code.
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
from dualar.model import Model, Prompt, Session, StepOutput

Int32 = npt.NDArray[np.int32]

DEFAULT_PREFIX_CACHE_BYTES = 2**28

_ATTENTION_ROWS = 256

_log = logging.getLogger("dualar")


@dataclass(frozen=True)
class PrefixEntry:
    """A prefix that is kept: positions it has, nbytes it takes, and how often it was reused."""

    positions: int
    nbytes: int
    uses: int


@dataclass
class _Kept:
    state: Prefix
    nbytes: int
    uses: int = 0


class PrefixCache:
    """Prefixes of one model that were computed, the least recently used dropped first. For any number of threads.

    `Engine.prefix_cache` is one. Two prefixes are the same only where every token and code of theirs is.
    """

    def __init__(self, limit: int) -> None:
        """limit: bytes to keep at most; 0 keeps nothing."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()
        self._nbytes = 0
        self._limit = whole_number("prefix_cache.limit", limit, 0, 2**62)

    @property
    def limit(self) -> int:
        """Bytes to keep at most. Set lower, it drops what is too much."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        checked = whole_number("prefix_cache.limit", limit, 0, 2**62)
        with self._lock:
            self._limit = checked
            self._shrink()

    @property
    def nbytes(self) -> int:
        """Bytes that are kept: keys and values, and the prompts that they are known by."""
        return self._nbytes

    @property
    def entries(self) -> list[PrefixEntry]:
        """What is kept, the least recently used first."""
        with self._lock:
            return [PrefixEntry(kept.state.positions, kept.nbytes, kept.uses) for kept in self._kept.values()]

    def clear(self) -> None:
        """Drop all."""
        with self._lock:
            self._kept.clear()
            self._nbytes = 0

    def enter(self, session: Any, prefix: Int32) -> None:
        """Bring a session that is at its beginning to the end of a prefix: from what is kept, or by computing it."""
        if not self.restore(session, prefix):
            session.prefill(prefix)
            self.keep(session, prefix)

    def restore(self, session: Any, prefix: Int32) -> bool:
        """Bring a session that is at its beginning to the end of a prefix that is kept; False where it is not."""
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
        """Keep what a session that is at the end of a prefix has computed."""
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
        # Attention may round by how many rows of the cache it runs over, which a short session has fewer of.
        return prefix.tobytes(), prefix.shape, session.kv_type, session.attention_rows(prefix.shape[1])

    def _sizes(self, prefix: Int32) -> tuple[int, int, int]:
        return prefix.shape[1], self._nbytes, self._limit

    def _shrink(self) -> None:
        while self._nbytes > self._limit:
            _, dropped = self._kept.popitem(last=False)
            self._nbytes -= dropped.nbytes


def session_positions(model: Model, prompt: Prompt, frames: int) -> int:
    """Positions of a session for a prompt and so many frames.

    With a prefix a multiple of what the core's attention runs over (256), so that short requests too share what is
    kept, whatever their length.
    """
    positions = int(prompt.shape[1]) + frames
    if prompt.prefix_length:
        positions = min(-(-positions // _ATTENTION_ROWS) * _ATTENTION_ROWS, model.context_length)
    return positions


def prefill(session: Session, prompt: Prompt, cache: PrefixCache | None) -> StepOutput:
    """Feed a prompt, its prefix apart where the session is at its beginning; what `Session.prefill` gives."""
    length = prompt.prefix_length if session.position == 0 else 0
    if length:
        prefix = prompt.piece(0, length)
        if cache is None:
            session.prefill(prefix)
        else:
            cache.enter(session, prefix)
    return session.prefill(prompt.piece(length, prompt.shape[1]))
