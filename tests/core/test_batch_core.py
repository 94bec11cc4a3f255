"""Sessions that step together in the core, against the same sessions alone: bit for bit where dualar's own kernels
compute the products, within rounding for the weight types that are left to ggml's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dualar import _core
from dualar.config import SamplingConfig
from dualar.families.qwen3_prompt import TalkerPrompt
from dualar.generation.steps import InTurn, core_sampler
from fixtures.make_toy_model import write_toy_model
from fixtures.s2_layout import MINI, WIDE

EXACT = ["F32", "F16", "Q8_0", "Q4_0", "Q4_K"]
CLOSE = ["BF16", "Q5_K", "Q6_K"]
CONFIGS = [
    SamplingConfig.fish(),
    SamplingConfig.fish(temperature=0.0, top_p=1.0, top_k=0),
    SamplingConfig.fish(temperature=1.5, top_p=1.0, top_k=0),
    SamplingConfig.hf(residual_history_window=-1, repetition_penalty=2.0),
    SamplingConfig.hf(residual_temperature=1.5, residual_top_p=0.8, residual_top_k=0),
    SamplingConfig.fish(residual_temperature=0.2),
    SamplingConfig.cosyvoice(top_k=5),
]
DRAW = (core_sampler(SamplingConfig.fish(), residual=True), 5, 2)


def column(model: _core.DualAR | _core.Qwen3TTS, rng: np.random.Generator) -> np.ndarray:
    codes = rng.integers(0, model.codebook_size, model.num_codebooks)
    return np.append(model.semantic_begin_id + codes[0], codes).astype(np.int32)


def prompt_of(model: Any, rng: np.random.Generator, T: int) -> Any:
    if isinstance(model, _core.Qwen3TTS):
        columns = np.full((1 + model.num_codebooks, T), -1, np.int32)
        columns[0] = rng.integers(0, model.text_vocab_size, T)
        columns[1] = rng.integers(0, model.vocab_size, T)
        return TalkerPrompt(columns, rng.integers(0, model.text_vocab_size, int(rng.integers(0, 9))).astype(np.int32))
    prompt = rng.integers(0, model.semantic_begin_id, (1 + model.num_codebooks, T))
    prompt[1:] = 0
    return prompt


class Pairs:
    """Sessions with prompts of their own, each twice: one to step alone, one in batches."""

    def __init__(self, model: Any, lengths: list[int], **options: Any) -> None:
        self.model, self.rng = model, np.random.default_rng(len(lengths))
        self.alone: list[Any] = []
        self.together: list[Any] = []
        for T in lengths:
            prompt = prompt_of(model, self.rng, T)
            for sessions in (self.alone, self.together):
                sessions.append(model.session(max_positions=T + 40, **options))
                self.hidden = sessions[-1].prefill(prompt).hidden


def step_some(pairs: Pairs, batch: _core.Batch, check: Any, rounds: int = 12) -> None:
    """Rounds of some of the sessions, in any order: Slow-AR steps and whole frames of the Fast-AR."""
    model, rng = pairs.model, pairs.rng
    for turn in range(rounds):
        rows = rng.permutation(len(pairs.alone))[: int(rng.integers(1, len(pairs.alone) + 1))]
        columns = np.array([column(model, rng) for _ in rows])
        logits, hidden = batch.step([pairs.together[r] for r in rows], columns)
        want = [pairs.alone[r].step(c) for r, c in zip(rows, columns, strict=True)]
        check(logits, np.array([w.logits for w in want]))
        check(hidden, np.array([w.hidden for w in want]))
        assert [pairs.together[r].position for r in rows] == [pairs.alone[r].position for r in rows]
        codes = [columns[:, 1]]
        together = [batch.fast_begin([pairs.together[r] for r in rows], hidden, codes[0])]
        for _ in range(model.num_codebooks - 2):
            codes.append(rng.integers(0, model.codebook_size, len(rows)))
            together.append(batch.fast_step([pairs.together[r] for r in rows], codes[-1]))
        for i, r in enumerate(rows):
            alone = [pairs.alone[r].fast_begin(hidden[i], int(codes[0][i]))]
            alone += [pairs.alone[r].fast_step(int(c[i])) for c in codes[1:]]
            check(np.array(together)[:, i], np.array(alone))
        keys = [(CONFIGS[r % len(CONFIGS)], int(7 + r), turn) for r in rows]
        draws = [(core_sampler(config, residual=True), seed, step) for config, seed, step in keys]
        frames, broken, failure = batch.fast_frames([pairs.together[r] for r in rows], hidden, codes[0], draws)
        assert failure is None and broken == [None] * len(rows)
        if check is np.testing.assert_array_equal:
            one_by_one = InTurn(model, fast_ar="cached")
            want_frames, _, _ = one_by_one.fast_frames([pairs.alone[r] for r in rows], hidden, codes[0], keys)
            np.testing.assert_array_equal(frames, want_frames)


@pytest.fixture(scope="module", params=EXACT + CLOSE)
def wide(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    path = tmp_path_factory.mktemp("wide") / f"{request.param}.gguf"
    write_toy_model(path, geometry=WIDE, weight_type=request.param, quantize=_core.quantize)
    return request.param, path


@pytest.mark.parametrize("name", ["s2-tiny", "s2-variant", "s2-edge"])
@pytest.mark.parametrize("kv_type", ["f32", "f16"])
def test_rows_equal_their_sessions_alone(golden: Any, name: str, kv_type: str) -> None:
    model = _core.DualAR(_core.ModelFile(str(golden(name).gguf)), _core.Runtime(threads=1), im_end_id=0)
    pairs = Pairs(model, [3, 17, 70, 1, 30, 9, 128], kv_type=kv_type)
    step_some(pairs, _core.Batch(model), np.testing.assert_array_equal)


@pytest.mark.parametrize("name", ["tiny", "tiny-eq"])
@pytest.mark.parametrize("kv_type", ["f32", "f16"])
def test_rows_of_qwen3_tts_equal_their_sessions_alone(
    qwen3_model: Callable[..., Path], name: str, kv_type: str
) -> None:
    model = _core.Qwen3TTS(_core.ModelFile(str(qwen3_model(name))), _core.Runtime(threads=1))
    pairs = Pairs(model, [3, 17, 70, 1, 30, 9, 128], kv_type=kv_type)
    step_some(pairs, _core.Batch(model), np.testing.assert_array_equal)


@pytest.mark.parametrize("weight_type", EXACT)
def test_weight_types_of_qwen3_tts(qwen3_model: Callable[..., Path], weight_type: str) -> None:
    path = qwen3_model("tiny", weight_type.lower())
    model = _core.Qwen3TTS(_core.ModelFile(str(path)), _core.Runtime(threads=2))
    pairs = Pairs(model, [5, 40, 2, 65, 13, 1, 1, 8, 20])
    step_some(pairs, _core.Batch(model), np.testing.assert_array_equal, rounds=4)


@pytest.mark.parametrize("threads", [1, 2])
def test_weight_types(wide: tuple[str, Path], threads: int) -> None:
    weight_type, path = wide
    model = _core.DualAR(_core.ModelFile(str(path)), _core.Runtime(threads=threads), im_end_id=0)

    def close(got: np.ndarray, want: np.ndarray) -> None:
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-2 * float(np.abs(want).max()))

    pairs = Pairs(model, [5, 40, 2, 65, 13, 1, 1, 8, 20])
    check = np.testing.assert_array_equal if weight_type in EXACT else close
    step_some(pairs, _core.Batch(model), check, rounds=6 if threads == 1 else 2)


def test_at_the_width_of_a_real_model(tmp_path: Path) -> None:
    """The widths of a 0.6 B model, whose products are shared out and cut otherwise than small ones; fewer layers."""
    assert MINI.fast is not None
    real = replace(WIDE, slow=replace(MINI.slow, layers=2), fast=replace(MINI.fast, layers=2))
    path = tmp_path / "real.gguf"
    write_toy_model(path, geometry=real, weight_type="Q8_0", quantize=_core.quantize)
    model = _core.DualAR(_core.ModelFile(str(path)), _core.Runtime(threads=2), im_end_id=0)
    pairs = Pairs(model, [5, 70, 2, 1, 20, 9, 33, 12])
    step_some(pairs, _core.Batch(model), np.testing.assert_array_equal, rounds=3)


def test_a_prompt_of_two_positions_then_many_rows(toy_model: Path) -> None:
    """Past 512 positions, where ggml's attention would split the keys by threads; and more rows than a tile has."""
    model = _core.DualAR(_core.ModelFile(str(toy_model)), _core.Runtime(threads=2), im_end_id=0)
    pairs = Pairs(model, [2, 600, 513, *range(1, 20)])
    step_some(pairs, _core.Batch(model), np.testing.assert_array_equal, rounds=3)


def test_in_turn_is_the_same(golden: Any) -> None:
    """The path of devices without the CPU's operators."""
    model = _core.DualAR(_core.ModelFile(str(golden("s2-variant").gguf)), _core.Runtime(threads=1), im_end_id=0)
    batch = _core.Batch(model, in_turn=True)
    step_some(Pairs(model, [3, 17, 1]), batch, np.testing.assert_array_equal, rounds=4)
    assert batch.graph_builds == 0


def test_qwen3_tts_in_turn_is_the_same(qwen3_model: Callable[..., Path]) -> None:
    model = _core.Qwen3TTS(_core.ModelFile(str(qwen3_model("tiny"))), _core.Runtime(threads=1))
    batch = _core.Batch(model, in_turn=True)
    step_some(Pairs(model, [3, 17, 1]), batch, np.testing.assert_array_equal, rounds=4)
    assert batch.graph_builds == 0


def test_what_qwen3_tts_refuses(qwen3_model: Callable[..., Path], golden: Any) -> None:
    model = _core.Qwen3TTS(_core.ModelFile(str(qwen3_model("tiny"))), _core.Runtime(threads=1))
    batch, rng = _core.Batch(model), np.random.default_rng(0)
    ready, fresh = (model.session(max_positions=9) for _ in range(2))
    hidden = ready.prefill(prompt_of(model, rng, 3)).hidden
    columns = np.array([column(model, rng)] * 2)
    with pytest.raises(ValueError, match="expected a prompt first"):
        batch.step([ready, fresh], columns)
    fresh.prefill(prompt_of(model, rng, 3))
    wrong = columns.copy()
    wrong[1, 0] += 1 if wrong[1, 0] == 0 else -1
    with pytest.raises(ValueError, match="to be the frame's first code"):
        batch.step([ready, fresh], wrong)
    s2 = _core.DualAR(_core.ModelFile(str(golden("s2-tiny").gguf)), _core.Runtime(threads=1), im_end_id=0)
    with pytest.raises(ValueError, match="of another"):
        batch.step([ready, s2.session(max_positions=9)], columns)
    assert (ready.position, fresh.position) == (3, 3)
    with pytest.raises(ValueError, match="fast_begin first"):
        batch.fast_step([ready, fresh], np.zeros(2, int))
    batch.fast_begin([ready], hidden[None], np.zeros(1, int))
    with pytest.raises(ValueError, match="equally far"):
        batch.fast_step([ready, fresh], np.zeros(2, int))


def test_graphs_are_built_once_for_each_number_of_rows(golden: Any) -> None:
    model = _core.DualAR(_core.ModelFile(str(golden("s2-tiny").gguf)), _core.Runtime(threads=1), im_end_id=0)
    batch, rng = _core.Batch(model), np.random.default_rng(0)
    sessions = [model.session(max_positions=model.context_length) for _ in range(3)]
    for expected in (3, 3, 6, 6):  # a step, the start of a frame, the rest of it
        rows = sessions[: expected // 3 + 1]
        for _ in range(140):
            _, hidden = batch.step(rows, np.array([column(model, rng) for _ in rows]))
            batch.fast_frames(rows, hidden, np.zeros(len(rows), int), [DRAW] * len(rows))
            if sessions[0].position == model.context_length:
                for session in sessions:
                    session.reset()
        assert batch.graph_builds == expected


@pytest.mark.parametrize("name", ["s2-tiny", "s2-variant", "s2-edge"])
def test_frames_computed_anew_for_each_code(golden: Any, name: str) -> None:
    model = _core.DualAR(_core.ModelFile(str(golden(name).gguf)), _core.Runtime(threads=1), im_end_id=0)
    step_some(Pairs(model, [3, 17, 70, 1]), _core.Batch(model, fast_ar="recompute"), np.testing.assert_array_equal)


def test_a_broken_row_leaves_the_others_alone(golden: Any) -> None:
    model = _core.DualAR(_core.ModelFile(str(golden("s2-tiny").gguf)), _core.Runtime(threads=1), im_end_id=0)
    batch, sessions = _core.Batch(model), [model.session(max_positions=8) for _ in range(3)]
    hidden = np.random.default_rng(0).standard_normal((3, model.hidden_size)).astype(np.float32)
    draws = [DRAW] * 3
    want, broken, _ = batch.fast_frames(sessions, hidden, np.arange(3), draws)
    assert broken == [None] * 3
    hidden[1, 3] = np.inf
    codes, broken, failure = batch.fast_frames(sessions, hidden, np.arange(3), draws)
    assert failure is None and broken[::2] == [None, None] and "frame 2" in (broken[1] or "")
    np.testing.assert_array_equal(codes[::2], want[::2])
    hidden[1, 3] = 3e38  # finite, but not for long
    codes, broken, _ = batch.fast_frames(sessions, hidden, np.arange(3), draws)
    assert broken[::2] == [None, None]
    np.testing.assert_array_equal(codes[::2], want[::2])


def test_bad_arguments(golden: Any) -> None:
    file = _core.ModelFile(str(golden("s2-tiny").gguf))
    model = _core.DualAR(file, _core.Runtime(threads=1), im_end_id=0)
    other = _core.DualAR(file, _core.Runtime(threads=1), im_end_id=0)
    batch, N, D = _core.Batch(model), model.num_codebooks, model.hidden_size
    a, b = model.session(max_positions=1), model.session(max_positions=9)
    columns = np.zeros((2, 1 + N), np.int32)
    hidden, codes = np.zeros((2, D), np.float32), np.zeros(2, np.int32)
    for sessions, says in (
        ([], "1 to 256 sessions, got 0"),
        ([b, b], "once"),
        ([a, other.session(max_positions=9)], "of another"),
    ):
        with pytest.raises(ValueError, match=says):
            batch.step(sessions, columns[: len(sessions)])
    with pytest.raises(ValueError, match="columns"):
        batch.step([a, b], columns[:1])
    with pytest.raises(ValueError, match="row 0"):
        batch.step([a, b], columns - 1)
    batch.step([a, b], columns)
    with pytest.raises(ValueError, match="1 of 1 positions"):  # a is full, so b does not move either
        batch.step([b, a], columns)
    assert (a.position, b.position) == (1, 1)
    with pytest.raises(ValueError, match="hidden"):
        batch.fast_begin([a, b], hidden[:, 1:], codes)
    with pytest.raises(ValueError, match="codes"):
        batch.fast_begin([a, b], hidden, codes[:1])
    with pytest.raises(ValueError, match="code"):
        batch.fast_begin([a, b], hidden, codes + model.codebook_size)
    with pytest.raises(ValueError, match="draws"):
        batch.fast_frames([a, b], hidden, codes, [DRAW])
    with pytest.raises(ValueError, match=r"\[fast_ar\] expected cached or recompute"):
        _core.Batch(model, fast_ar="both")
    with pytest.raises(ValueError, match="fast_begin first"):
        batch.fast_step([a, b], codes)
    batch.fast_begin([a], hidden[:1], codes[:1])
    with pytest.raises(ValueError, match="equally far"):
        batch.fast_step([a, b], codes)
    batch.fast_begin([a, b], hidden, codes)
    for _ in range(N - 2):
        batch.fast_step([a, b], codes)
    with pytest.raises(ValueError, match="complete"):
        batch.fast_step([a, b], codes)
