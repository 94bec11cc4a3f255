"""Recordings that sound goes on from, kept decoded: the second request with one does not decode it again.

Owns what is kept and its limits; leaves the state itself to the core's streams. A stream that goes on from a snapshot
gives the same bits as one that went through the codes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt

from dualar._native import _core

MOST_KEPT = 8  # streams of two sizes for each of a few voices, some MB each


class Beginnings:
    """Where one codec's streams were after the recordings they last began with. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], _core.CodecSnapshot] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        with self._lock:
            return sum(kept.nbytes for kept in self._kept.values())

    def enter(self, stream: _core.CodecStream, codes: npt.NDArray[np.int32] | None) -> None:
        """Bring a stream that is at its beginning to where it is after these codes [num_codebooks, n]; None is none."""
        if codes is None:
            return
        key = (codes.tobytes(), codes.shape, stream.max_frames)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
        if kept is not None:
            stream.restore(kept)
            return
        for start in range(0, codes.shape[1], stream.max_frames):
            stream.push(np.ascontiguousarray(codes[:, start : start + stream.max_frames]))
        made = stream.snapshot()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
