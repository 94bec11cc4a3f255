"""The noise of a draw: a function of seed, step, stream and id, whatever was drawn before or is drawn beside it.

Owns `uniform` and the Philox words behind it; leaves the draws to `chains.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
Counts = int | npt.NDArray[np.integer[Any]]

REDRAW_STREAM = 1000
"""The stream of second draws, after a repeat; no codebook has this number."""


def uniform(seed: Counts, step: Counts, stream: int, n: int) -> Float64:
    """Noise float64 [B, n] in the open interval (0, 1), a function of (seed, step, stream, id) only.

    seed, step: int, or int [B], both 0 to 2^64 - 1; stream: the codebook's number, or `REDRAW_STREAM`; ids are 0 to
    n - 1, and an id's value does not depend on n. Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as
    1, 2, 3", 2011) with key (seed, 0) and counter (1 + id // 4, step, stream, 0), whose word id % 4 gives the bits.
    """
    if stream < 0 or n < 0:
        raise ValueError(f"[sampling] expected stream and n >= 0, got {stream} and {n}")
    B = max(np.size(seed), np.size(step))
    return to_unit(noise(words("seed", seed, B), words("step", step, B), stream, n))


def noise(seeds: npt.NDArray[np.uint64], steps: npt.NDArray[np.uint64], stream: int, n: int) -> npt.NDArray[np.uint64]:
    """Raw words uint64 [B, n]. A whole row from numpy's C loop costs less than vectorised rounds for a few ids."""
    key, counter = np.zeros(2, np.uint64), np.zeros(4, np.uint64)
    counter[2] = stream
    rows = []
    for key[0], counter[1] in zip(seeds, steps, strict=True):
        rows.append(np.random.Philox(key=key, counter=counter).random_raw(n))
    return rows[0][None] if len(rows) == 1 else np.array(rows, np.uint64).reshape(len(rows), n)


def to_unit(raw: npt.NDArray[np.uint64]) -> Float64:
    # An odd number of 53 bits: the half-step offset, exact in float64. (53 bits + 0.5 would round up to 1.0.)
    unit: Float64 = ((raw >> np.uint64(11)) | np.uint64(1)).astype(np.float64)
    unit *= 2.0**-53
    return unit


def words(name: str, value: Counts, B: int) -> npt.NDArray[np.uint64]:
    """A seed or step, or one for each row, as uint64 [B]."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64:
        return np.array([value] * B, np.uint64)
    x = np.asarray(value)
    if x.ndim > 1 or x.size not in (1, B) or x.dtype.kind not in "iu" or (x < 0).any():
        raise ValueError(f"[sampling] expected {name} an int or int [{B}] from 0 to 2^64 - 1, got {value!r}")
    return np.broadcast_to(x.astype(np.uint64), (B,))
