"""A dual-AR model that answers by script, or by a hash of what it was fed, for tests of the loop.

It is shaped as the core's `DualAR` and `Session`, checks how it is called, and records it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from dualar.config import SamplingConfig

N, C, BEGIN, IM_END = 4, 64, 100, 99
END = C  # im_end's place among the sliced logits
GREEDY = SamplingConfig.fish(temperature=0)
PROMPT = np.array([[7, 8, BEGIN + 5], *[[0, 0, i + 1] for i in range(N)]], np.int32)

Float32 = npt.NDArray[np.float32]
Main = Callable[[int, list[list[int]]], Float32]
Fast = Callable[[Float32, list[int]], Float32]


def hashed(size: int, *parts: Any) -> Float32:
    """Random logits that depend on everything given."""
    seed = zlib.crc32(repr([np.asarray(p).tolist() for p in parts]).encode())
    return (np.random.default_rng(seed).standard_normal(size) * 3).astype(np.float32)


def hashed_main(step: int, columns: list[list[int]]) -> Float32:
    logits = hashed(C + 1, columns)
    logits[END] = -30
    return logits


def hashed_fast(hidden: Float32, prefix: list[int]) -> Float32:
    return hashed(C, hidden, prefix)


def peak(*ids: int, size: int = C + 1, height: float = 30.0) -> Float32:
    logits = np.zeros(size, np.float32)
    logits[list(ids)] = height
    return logits


def script(*ids: int) -> Main:
    """Main logits that leave no choice: one id a step, the last one for ever."""
    return lambda step, columns: peak(ids[min(step, len(ids) - 1)])


@dataclass
class FakeModel:
    """Answers from `main(step, columns fed so far)` and `fast(hidden, prefix)`; records what it was asked."""

    main: Main = hashed_main
    fast: Fast = hashed_fast
    num_codebooks: int = N
    codebook_size: int = C
    vocab_size: int = 200
    hidden_size: int = 8
    context_length: int = 2000
    semantic_begin_id: int = BEGIN
    has_fast_ar: bool = True
    sessions: list[FakeSession] = field(default_factory=list)

    @property
    def main_ids(self) -> npt.NDArray[np.int32]:
        return np.append(np.arange(BEGIN, BEGIN + C), IM_END).astype(np.int32)

    def kv_bytes(self, max_positions: int, kv_type: str = "auto") -> int:
        return 10 * max_positions

    def session(self, *, max_positions: int, kv_type: str = "auto") -> FakeSession:
        self.sessions.append(FakeSession(self, max_positions, kv_type))
        return self.sessions[-1]


@dataclass
class FakeSession:
    """A session with a Fast-AR cache: `fast_step` knows the hidden and codes only from the calls before it."""

    model: FakeModel
    max_positions: int
    kv_type: str = "auto"
    columns: list[list[int]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    steps: int = 0
    cache: tuple[Float32, list[int]] | None = None

    @property
    def position(self) -> int:
        return len(self.columns)

    def prefill(self, prompt: npt.NDArray[np.int32]) -> Any:
        assert prompt.dtype == np.int32 and prompt.flags.c_contiguous
        self.calls.append("prefill")
        return self._advance(prompt.T.tolist())

    def step(self, column: npt.NDArray[np.int32]) -> Any:
        assert column.dtype == np.int32 and column.shape == (1 + self.model.num_codebooks,)
        self.calls.append("step")
        self.steps += 1
        return self._advance([column.tolist()])

    def _advance(self, columns: list[list[int]]) -> Any:
        self.columns += columns
        assert self.position <= self.max_positions
        logits = self.model.main(self.steps, self.columns)
        logits.flags.writeable = False  # they are the session's
        return SimpleNamespace(logits=logits, hidden=hashed(8, self.columns))

    def fast_begin(self, hidden: Float32, code: int) -> Float32:
        self.calls.append("fast_begin")
        self.cache = hidden.copy(), [code]
        return self.model.fast(*self.cache)

    def fast_step(self, code: int) -> Float32:
        self.calls.append("fast_step")
        assert self.cache is not None and len(self.cache[1]) <= self.model.num_codebooks - 2
        self.cache[1].append(code)
        return self.model.fast(*self.cache)

    def fast_decode(self, hidden: Float32, prefix: npt.NDArray[np.int32]) -> Float32:
        assert prefix.dtype == np.int32 and 1 <= len(prefix) < self.model.num_codebooks
        self.calls.append("fast_decode")
        return self.model.fast(hidden, prefix.tolist())


def plain_greedy(model: FakeModel, frames: int) -> list[list[int]]:
    """The loop as its definition, temperature 0."""
    columns, out = PROMPT.T.tolist(), []
    for step in range(frames):
        token = int(model.main(step, columns).argmax())
        codes = [token]
        while len(codes) < N:
            codes.append(int(model.fast(hashed(8, columns), codes).argmax()))
        out.append(codes)
        columns = [*columns, [BEGIN + token, *codes]]
    return out
