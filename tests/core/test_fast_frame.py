"""What the core draws equals `dualar.sampling`, draw for draw: single rows, and the frames of whole requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dualar import ModelError, _core
from dualar.config import GenerationConfig, SamplingConfig
from dualar.families.qwen3_prompt import TalkerPrompt
from dualar.generation.generate import FrameLoop
from dualar.generation.steps import InTurn, core_sampler
from dualar.sampling.chains import sample

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "fish": [
        {},
        {"temperature": 0.0},
        {"top_k": 0},
        {"top_p": 1.0},
        {"top_k": 0, "top_p": 1.0},
        {"top_k": 1},
        {"top_k": 100, "top_p": 0.99, "temperature": 10.0},
        {"top_p": 0.0},
        {"temperature": 1e-5},
        {"ras_window": 0},
        {"residual_temperature": 0.0, "temperature": 2.0},
        {"residual_temperature": 3.0, "temperature": 0.0},
        {"ras_window": 2, "ras_temperature": 0.0},
        {"ras_window": 100, "ras_temperature": 5.0, "ras_top_p": 1.0, "top_k": 0},
    ],
    "hf": [
        {},
        {"temperature": 0.0, "repetition_penalty": 1.5},
        {"top_k": 0},
        {"top_p": 0.8},
        {"top_p": 0.8, "top_k": 0},
        {"top_p": 0.999, "top_k": 300},
        {"top_k": 1},
        {"top_p": 0.0, "temperature": 3.0},
        {"temperature": 1e-5},
        {"repetition_penalty": 1.0},
        {"repetition_penalty": 0.5, "history_window": 2, "residual_history_window": 1},
        {"repetition_penalty": 4.0, "history_window": 0, "residual_history_window": -1},
        {"residual_temperature": 0.0, "residual_history_window": -1, "repetition_penalty": 2.0},
        {"residual_temperature": 2.0, "residual_top_p": 0.5, "residual_top_k": 7},
    ],
    "cosyvoice": [
        {},
        {"temperature": 0.0},
        {"top_k": 0},
        {"top_k": 0, "top_p": 1.0},
        {"top_p": 1.0},
        {"top_p": 0.0},
        {"top_k": 1},
        {"top_k": 300, "top_p": 0.999, "temperature": 2.0},
        {"temperature": 1e-5},
        {"window": 0},
        {"tau": 0.0},
        {"window": 3, "tau": 0.6, "temperature": 5.0},
    ],
}
CONFIGS = [
    SamplingConfig.from_options(family, **options) for family, all_options in OPTIONS.items() for options in all_options
]


def rows(rng: np.random.Generator, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Logits of many kinds, each with a history of ids that are likely to be drawn."""
    found = []
    for i in range(count):
        n = int(rng.choice([rng.integers(1, 5), rng.integers(5, 300), rng.integers(300, 5000)]))
        logits = (rng.standard_normal(n) * rng.choice([0.1, 1, 5, 30])).astype(np.float32)
        if i % 3 == 0:
            logits = np.round(logits)  # many equal ones
        if i % 5 == 0:
            logits[rng.random(n) < 0.5] = -np.inf
            logits[rng.integers(n)] = 1.0
        if i % 7 == 0:
            logits[rng.integers(n, size=3)] = np.inf
        likely = np.argsort(-logits)[: int(rng.integers(1, 6))]
        found.append((logits, rng.choice(likely, int(rng.integers(0, 12))).astype(np.int32)))
    return found


@pytest.mark.parametrize("stream", [0, 3])
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_draws_equal_the_sampler(config: SamplingConfig, stream: int) -> None:
    rng = np.random.default_rng(stream)
    sampler = core_sampler(config, residual=stream > 0)
    for step, (logits, history) in enumerate(rows(rng, 200)):
        seed = int(rng.integers(2**63))
        want = sample(logits[None], config, seed=seed, step=step, stream=stream, history=history[None])[0]
        got = sampler.draw(logits, seed=seed, step=step, stream=stream, history=history)
        assert got == want, (step, logits.size)


def test_the_histories_above_make_a_difference() -> None:
    """Penalties and second draws would not be tested by rows that have none."""
    for config in (SamplingConfig.fish(), SamplingConfig.hf(repetition_penalty=2.0), SamplingConfig.cosyvoice()):
        sampler, changed = core_sampler(config, residual=False), 0
        for step, (logits, history) in enumerate(rows(np.random.default_rng(1), 200)):
            draws = [sampler.draw(logits, seed=1, step=step, stream=0, history=h) for h in (history, None)]
            changed += draws[0] != draws[1]
        assert changed > 20


@pytest.mark.parametrize("family", ["fish", "hf", "cosyvoice"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_cannot_be_drawn_from(family: str, temperature: float) -> None:
    sampler = _core.Sampler(family, temperature=temperature, top_p=0.9, top_k=30)
    with pytest.raises(ModelError, match=r"frame 4, codebook 1: .* got NaN"):
        sampler.draw(np.array([1.0, np.nan, np.inf], np.float32), seed=0, step=4, stream=1)
    with pytest.raises(ModelError, match=r"frame 4, codebook 1: .* none above -inf"):
        sampler.draw(np.full(5, -np.inf, np.float32), seed=0, step=4, stream=1)


def codes_of(model: Any, prompt: Any, config: SamplingConfig, frames: int, **options: Any) -> np.ndarray:
    """The frames of a request, drawn in the core and, `by_python`, one by one by `sampling.sample`."""
    asked = GenerationConfig(max_new_tokens=frames, min_tokens_before_end=frames, sampling=config, stall_guard=None)
    by_python = options.pop("by_python", False)
    loop = FrameLoop(model, prompt, asked, seed=11, **options)
    if by_python:
        loop._batch._steps = InTurn(model, **options)
    codes = np.stack([frame.codes for frame in loop])
    assert len(codes) == frames
    return codes


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("name", ["s2-tiny", "s2-variant", "s2-edge"])
def test_frames_equal_those_drawn_one_by_one(golden: Any, name: str, config: SamplingConfig) -> None:
    pair = golden(name)
    arrays = np.load(pair.npz)
    model = _core.DualAR(_core.ModelFile(str(pair.gguf)), _core.Runtime(threads=1), im_end_id=int(arrays["im_end_id"]))
    want = codes_of(model, arrays["prompt"], config, 60, fast_ar="cached", by_python=True)
    for fast_ar in ("cached", "recompute"):
        got = codes_of(model, arrays["prompt"], config, 60, fast_ar=fast_ar)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("config", CONFIGS[::3], ids=str)
def test_frames_of_qwen3_tts_equal_those_drawn_one_by_one(
    qwen3_model: Callable[..., Path], config: SamplingConfig
) -> None:
    model = _core.Qwen3TTS(_core.ModelFile(str(qwen3_model("tiny"))), _core.Runtime(threads=1))
    columns = np.full((1 + model.num_codebooks, 9), -1, np.int32)
    columns[:2] = np.random.default_rng(0).integers(0, (model.text_vocab_size, model.vocab_size), (9, 2)).T
    prompt = TalkerPrompt(columns, np.arange(5, dtype=np.int32))
    want = codes_of(model, prompt, config, 30, fast_ar="cached", by_python=True)
    for fast_ar in ("cached", "recompute"):
        np.testing.assert_array_equal(codes_of(model, prompt, config, 30, fast_ar=fast_ar), want)


def test_bad_arguments() -> None:
    good: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
    for options, says in (
        ({"temperature": -1.0}, r"\[temperature\] expected 0 to 100, got -1"),
        ({"temperature": np.nan}, r"\[temperature\]"),
        ({"top_p": 1.1}, r"\[top_p\]"),
        ({"repetition_penalty": 0.0}, r"\[repetition_penalty\]"),
        ({"repeat_threshold": np.nan}, r"\[repeat_threshold\]"),
        ({"redraw_temperature": 101.0}, r"\[redraw_temperature\]"),
        ({"redraw_top_p": -0.1}, r"\[redraw_top_p\]"),
    ):
        with pytest.raises(ValueError, match=says):
            _core.Sampler("hf", **(good | options))
    with pytest.raises(ValueError, match=r"\[family\] expected fish, hf or cosyvoice, got"):
        _core.Sampler("ras", **good)
    sampler = _core.Sampler("hf", **good)
    key: dict[str, Any] = {"seed": 0, "step": 0, "stream": 0}
    with pytest.raises(ValueError, match="logits"):
        sampler.draw(np.zeros((2, 3), np.float32), **key)
    with pytest.raises(ValueError, match="at least one"):
        sampler.draw(np.zeros(0, np.float32), **key)
    for history in ([3], [-1]):
        with pytest.raises(ValueError, match=r"\[history\] expected ids from 0 to 2"):
            sampler.draw(np.zeros(3, np.float32), history=np.array(history), **key)
