"""A frame drawn inside the core equals the same frame drawn one code at a time in Python, token for token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dualar import _core
from dualar.config import GenerationConfig, SamplingConfig
from dualar.generation.generate import FrameLoop
from dualar.sampling.chains import sample

OPTIONS = [
    {},
    {"temperature": 0.0},
    {"top_k": 0},
    {"top_p": 1.0},
    {"top_k": 0, "top_p": 1.0},
    {"top_k": 1},
    {"top_k": 100, "top_p": 0.99, "temperature": 10.0},
    {"top_p": 0.0},
    {"temperature": 1e-5},
]


def drawn(logits: np.ndarray, config: Any, *, seed: int, step: int, stream: int) -> int:
    return _core._fish_draw(
        logits, temperature=config.temperature, top_p=config.top_p, top_k=config.top_k,
        seed=seed, step=step, stream=stream,
    )  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_draws_equal_the_sampler(options: dict[str, Any]) -> None:
    rng, config = np.random.default_rng(0), SamplingConfig.fish(**options)
    for i in range(300):
        n = int(rng.integers(1, 5000))
        logits = (rng.standard_normal(n) * rng.choice([0.1, 1, 5, 30])).astype(np.float32)
        if i % 3 == 0:
            logits = np.round(logits)  # many equal ones
        if i % 5 == 0:
            logits[rng.random(n) < 0.5] = -np.inf
            logits[rng.integers(n)] = 1.0
        if i % 7 == 0:
            logits[rng.integers(n, size=3)] = np.inf
        seed, step, stream = int(rng.integers(2**63)), i, int(rng.integers(1, 10))
        want = sample(logits[None], config, seed=seed, step=step, stream=stream)[0]
        assert drawn(logits, config, seed=seed, step=step, stream=stream) == want


def test_rows_that_cannot_be_drawn_from() -> None:
    for options in ({}, {"temperature": 0.0}):
        config = SamplingConfig.fish(**options)
        bad = np.array([1.0, np.nan, np.inf], np.float32)
        assert drawn(bad, config, seed=0, step=0, stream=1) == -1
        assert drawn(np.full(5, -np.inf, np.float32), config, seed=0, step=0, stream=1) == -2


class OneByOne:
    """A session without the whole-frame call."""

    def __init__(self, session: _core.Session) -> None:
        self.session = session

    def __getattr__(self, name: str) -> Any:
        if name == "fast_frame":
            raise AttributeError(name)
        return getattr(self.session, name)


@pytest.mark.parametrize("name", ["s2-tiny", "s2-variant", "s2-edge"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_frames_equal_those_drawn_one_by_one(golden: Any, name: str, options: dict[str, Any]) -> None:
    pair = golden(name)
    arrays = np.load(pair.npz)
    model = _core.DualAR(_core.ModelFile(str(pair.gguf)), _core.Runtime(threads=1), im_end_id=int(arrays["im_end_id"]))
    frames = 200 - arrays["prompt"].shape[1]
    config = GenerationConfig(
        max_new_tokens=frames, min_tokens_before_end=frames, sampling=SamplingConfig.fish(**options), stall_guard=None
    )
    codes = []
    for wrap in (lambda s: s, OneByOne):
        session = wrap(model.session(max_positions=256))
        loop = FrameLoop(model, arrays["prompt"], config, seed=11, session=session)
        assert (loop._fused is None) == (wrap is OneByOne)
        codes.append(np.stack([frame.codes for frame in loop]))
    assert len(codes[0]) == frames
    np.testing.assert_array_equal(codes[0], codes[1])


def test_bad_arguments(golden: Any) -> None:
    pair = golden("s2-tiny")
    model = _core.DualAR(_core.ModelFile(str(pair.gguf)), _core.Runtime(threads=1), im_end_id=0)
    session, options = model.session(max_positions=8), {"temperature": 1, "top_p": 1, "top_k": 0, "seed": 0, "step": 0}
    hidden = np.zeros(model.hidden_size, np.float32)
    with pytest.raises(ValueError, match="hidden"):
        session.fast_frame(hidden[1:], 0, **options)
    with pytest.raises(ValueError, match="finite"):
        session.fast_frame(hidden * np.nan, 0, **options)
    with pytest.raises(ValueError, match="code"):
        session.fast_frame(hidden, model.codebook_size, **options)
