"""Keeps the codec's state after a voice's recording, so that the recording is decoded once and not for every request.

Owns `WarmStarts`: which states are kept, and how many. Leaves the state itself to the core's streams. A stream that is
restored from a snapshot gives the same bits as one that has decoded the recording's codes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt

from dualar._native import _core

MOST_KEPT = 8  # snapshots: two for each of a few voices (streams have two block sizes), some MB each


class WarmStarts:
    """Snapshots of one codec's streams after recordings, the least recently used dropped first. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], _core.CodecSnapshot] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        """Bytes of all snapshots together."""
        with self._lock:
            return sum(kept.nbytes for kept in self._kept.values())

    def enter(self, stream: _core.CodecStream, codes: npt.NDArray[np.int32] | None) -> None:
        """Bring a new stream to its state after these codes int32 [num_codebooks, n]; None leaves it as it is."""
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
