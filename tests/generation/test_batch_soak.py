"""500 random requests through a batch of six, which join, are cancelled and fail at random: each gives what it gives
alone, and nothing stays behind.
"""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dualar import Batch, GenerationRequest, ModelError, _core
from dualar.config import SamplingConfig
from dualar.generation.batch import BatchRow
from dualar.generation.frames import Frame, Generation
from dualar.generation.generate import generate
from gguf import GGUFReader

REQUESTS, ROWS, DISTINCT = 500, 6, 64
BROKEN_TOKEN = 1  # its embedding is NaN, so a prompt that holds it fails at its first draw
SAMPLERS = [
    SamplingConfig.fish(),
    SamplingConfig.fish(temperature=0),
    SamplingConfig.fish(temperature=1.5, top_p=1.0, top_k=0),
    SamplingConfig.fish(top_k=5, ras_window=3),
    SamplingConfig.hf(),
    SamplingConfig.cosyvoice(),
]


class Watched(_core.DualAR):
    """Keeps an eye on the sessions that it makes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.alive: weakref.WeakSet[_core.Session] = weakref.WeakSet()

    def session(self, **options: Any) -> _core.Session:
        session = super().session(**options)
        self.alive.add(session)
        return session


def broken_file(golden: Path, folder: Path) -> Path:
    path = folder / golden.name
    shutil.copy(golden, path)
    reader = GGUFReader(path, "r+")
    table = next(t for t in reader.tensors if t.name == "embeddings.weight")
    table.data[BROKEN_TOKEN] = np.nan
    return path


def random_request(model: _core.DualAR, rng: np.random.Generator) -> GenerationRequest:
    prompt = np.zeros((1 + model.num_codebooks, int(rng.integers(1, 24))), np.int32)
    prompt[0] = rng.integers(2, model.semantic_begin_id, prompt.shape[1])
    frames = int(rng.integers(1, 13))
    return GenerationRequest(
        prompt=prompt,
        max_new_tokens=frames,
        min_tokens_before_end=int(rng.integers(0, frames + 1)),
        sampling=SAMPLERS[int(rng.choice(len(SAMPLERS), p=[0.4, 0.2, 0.15, 0.15, 0.05, 0.05]))],
        seed=int(rng.integers(2**63)),
        stall_guard=None,
    )


@pytest.mark.parametrize("name", ["s2-tiny"])
def test_soak(golden: Any, tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(10)
    path = broken_file(golden(name).gguf, tmp_path)
    model = Watched(_core.ModelFile(str(path)), _core.Runtime(threads=1), im_end_id=0)
    distinct = [random_request(model, rng) for _ in range(DISTINCT)]
    want: list[Generation] = []
    for asked in distinct:
        options = {n: getattr(asked, n) for n in asked.__dataclass_fields__ if n not in ("prompt", "on_frame")}
        want.append(generate(model, asked.prompt, **options))
    assert not model.alive

    batch = Batch(model, max_rows=ROWS)
    running: dict[BatchRow, tuple[int, str, int]] = {}  # which request, what shall become of it, at which frame
    seen: dict[str, int] = {}
    started = 0
    while started < REQUESTS or running:
        while started < REQUESTS and batch.rows < ROWS and (batch.rows == 0 or rng.random() < 0.7):
            which, at = int(rng.integers(DISTINCT)), int(rng.integers(0, 6))
            fate = str(rng.choice(["end", "stop", "cancel", "raise", "nan"], p=[0.6, 0.1, 0.1, 0.1, 0.1]))
            asked, prompt = distinct[which], distinct[which].prompt
            if fate == "nan":
                prompt = np.array(prompt)
                prompt[0, rng.integers(prompt.shape[1])] = BROKEN_TOKEN

            def consume(frame: Frame, fate: str = fate, at: int = at) -> bool:
                if fate == "raise" and frame.index == at:
                    raise LookupError("a consumer's own")
                return not (fate == "stop" and frame.index == at)

            options = {n: getattr(asked, n) for n in asked.__dataclass_fields__ if n not in ("prompt", "on_frame")}
            row = batch.join(GenerationRequest(prompt=prompt, on_frame=consume, **options))
            running[row] = which, fate, at
            started += 1
        for row, (_, fate, at) in running.items():
            if fate == "cancel" and row.frames >= at:
                row.cancel()
        for row in batch.step():
            which, fate, at = running.pop(row)
            alone = want[which]
            seen[fate] = seen.get(fate, 0) + 1
            if fate == "nan":
                assert isinstance(row.error, ModelError) and row.frames == 0
                continue
            if fate == "raise" and alone.codes.shape[1] > at:
                assert isinstance(row.error, LookupError) and row.frames == at + 1
                continue
            got = row.result()
            frames = got.codes.shape[1]
            np.testing.assert_array_equal(got.codes, alone.codes[:, :frames])
            if got.finish_reason == "cancelled":
                assert frames == (at + 1 if fate == "stop" else frames) and fate in ("stop", "cancel")
            else:
                assert (got.finish_reason, frames) == (alone.finish_reason, alone.codes.shape[1])
        assert batch.kv_bytes == sum(s.nbytes for s in model.alive) and len(model.alive) == batch.rows <= ROWS
    assert sum(seen.values()) == REQUESTS and len(seen) == 5
    assert (batch.rows, batch.kv_bytes, len(model.alive)) == (0, 0, 0)
    assert batch._steps._batch.graph_builds <= 3 * ROWS  # type: ignore[attr-defined]
