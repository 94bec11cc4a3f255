"""The loop, run on scripted models: what it makes, what it asks of a session, and what it refuses.

When it stops is in `test_generate_stops.py`; the real core goes through the same loop in `test_dual_ar.py`.
"""

from __future__ import annotations

import itertools
import logging
import time
from typing import Any

import dualar
import numpy as np
import numpy.typing as npt
import pytest
from dualar.config import GenerationConfig, SamplingConfig
from dualar.generation.frames import Frame
from dualar.generation.generate import FrameLoop, generate
from dualar.sampling.chains import probabilities, sample
from scripted_model import (
    BEGIN,
    END,
    GREEDY,
    PROMPT,
    C,
    FakeModel,
    Float32,
    N,
    hashed,
    hashed_fast,
    hashed_main,
    peak,
    plain_greedy,
    script,
)

# ------------------------------------------------------------------------------------------------- what a run makes


@pytest.mark.parametrize("fast_ar", ["cached", "recompute"])
def test_greedy_codes_are_those_of_the_definition(fast_ar: str) -> None:
    model = FakeModel()
    got = generate(model, PROMPT, max_new_tokens=25, sampling=GREEDY, fast_ar=fast_ar)
    assert got.codes.T.tolist() == plain_greedy(FakeModel(), 25)
    assert got.codes.dtype == np.int32 and got.codes.flags.c_contiguous
    assert got.finish_reason == "length" and got.padded_frames == 0


@pytest.mark.parametrize("sampling", [SamplingConfig.fish(), SamplingConfig.hf(), SamplingConfig.cosyvoice()])
def test_one_seed_one_result_on_both_fast_paths(sampling: SamplingConfig) -> None:
    def run(seed: int, fast_ar: str = "cached") -> list[list[int]]:
        got = generate(FakeModel(), PROMPT, max_new_tokens=30, sampling=sampling, seed=seed, fast_ar=fast_ar)
        assert got.seed == seed
        return got.codes.tolist()  # type: ignore[no-any-return]

    assert run(5) == run(5) == run(5, "recompute")
    assert run(5) != run(6)


def test_a_drawn_seed_is_given_back_and_repeats() -> None:
    first, second = (generate(FakeModel(), PROMPT, max_new_tokens=20) for _ in range(2))
    assert first.seed != second.seed and 0 <= first.seed < 2**63
    assert generate(FakeModel(), PROMPT, max_new_tokens=20, seed=first.seed).codes.tolist() == first.codes.tolist()


def test_each_draw_has_its_step_and_its_own_stream() -> None:
    model, sampling = FakeModel(), SamplingConfig.fish(ras_window=0)
    got = generate(model, PROMPT, max_new_tokens=6, sampling=sampling, seed=9)
    columns = PROMPT.T.tolist()
    for step, codes in enumerate(got.codes.T.tolist()):
        logits = [hashed_main(step, columns), *[hashed_fast(hashed(8, columns), codes[:i]) for i in range(1, N)]]
        want = [sample(x[None], sampling, seed=9, step=step, stream=i).item() for i, x in enumerate(logits)]
        assert codes == want
        columns.append([BEGIN + codes[0], *codes])


def test_the_order_of_a_frame_and_no_step_that_nobody_needs() -> None:
    model = FakeModel(main=script(1, 2, 3))
    generate(model, PROMPT, max_new_tokens=2, kv_type="f16")
    session = model.sessions[0]
    frame = ["fast_begin", "fast_step", "fast_step"]
    assert session.calls == ["prefill", *frame, "step", *frame]
    assert session.kv_type == "f16" and session.max_positions == PROMPT.shape[1] + 2
    assert [column[:2] for column in session.columns[3:]] == [[BEGIN + 1, 1]]


def test_frames_say_what_they_are() -> None:
    frames: list[Frame] = []
    got = generate(FakeModel(main=script(3, 0, 63, END)), PROMPT, on_frame=frames.append, seed=1)
    assert [f.index for f in frames] == [0, 1, 2]
    assert [f.token for f in frames] == [BEGIN + 3, BEGIN, BEGIN + 63]
    np.testing.assert_array_equal(np.stack([f.codes for f in frames], axis=1), got.codes)
    assert all(f.codes.dtype == np.int32 for f in frames)


def test_a_consumer_cannot_change_the_result() -> None:
    def spoil(frame: Frame) -> None:
        frame.codes[:] = 77

    spoilt = generate(FakeModel(), PROMPT, max_new_tokens=5, seed=1, on_frame=spoil)
    assert spoilt.codes.tolist() == generate(FakeModel(), PROMPT, max_new_tokens=5, seed=1).codes.tolist()


def test_residual_codes_may_be_any_id() -> None:
    got = generate(FakeModel(fast=lambda hidden, prefix: peak(C - 1, size=C)), PROMPT, max_new_tokens=3, seed=0)
    assert (got.codes[1:] == C - 1).all()


def test_semantic_code_is_clamped_as_a_guard() -> None:
    got = generate(FakeModel(main=script(5, 60, END), codebook_size=32, fast=lambda h, p: np.zeros(32, np.float32)),
                   PROMPT, seed=0)  # fmt: skip
    assert got.codes[0].tolist() == [5, 31]


def test_timings_leave_out_the_consumer() -> None:
    got = generate(FakeModel(), PROMPT, max_new_tokens=4, on_frame=lambda frame: time.sleep(0.05))
    t = got.timings
    assert t.prefill_ms > 0 and 0 < t.loop_ms < 100 and t.ms_per_frame == t.loop_ms / 4
    assert t.decode_ms is None and t.real_time_factor is None


# --------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("fast_ar", ["cached", "recompute"])
def test_a_failed_fast_ar_pads_the_rest_of_the_frame(fast_ar: str, caplog: pytest.LogCaptureFixture) -> None:
    calls = itertools.count()

    def fast(hidden: Float32, prefix: list[int]) -> Float32:
        if next(calls) in (4, 6):  # codebook 2 of frame 1, codebook 2 of frame 2
            raise dualar.BackendError("[backend] out of memory")
        return peak(9, size=C)

    with caplog.at_level(logging.WARNING, "dualar"):
        got = generate(FakeModel(main=script(1, 2, 3, 4, END), fast=fast), PROMPT, seed=0, fast_ar=fast_ar)
    assert got.finish_reason == "end" and got.padded_frames == 2
    assert got.codes.T.tolist() == [[1, 9, 9, 9], [2, 9, 0, 0], [3, 9, 0, 0], [4, 9, 9, 9]]
    assert [r.message.split(":")[0] for r in caplog.records] == ["[generate] frame 1", "[generate] frame 2"]


def test_other_errors_of_the_fast_ar_are_not_padded_over() -> None:
    for error in (ValueError("x"), RuntimeError("x"), dualar.ModelError("x"), MemoryError()):

        def fast(hidden: Float32, prefix: list[int], error: Exception = error) -> Float32:
            raise error

        with pytest.raises(type(error)):
            generate(FakeModel(fast=fast), PROMPT)


def test_a_failed_slow_ar_is_an_error() -> None:
    def main(step: int, columns: list[list[int]]) -> Float32:
        if step == 2:
            raise dualar.BackendError("[backend] gone")
        return hashed_main(step, columns)

    with pytest.raises(dualar.BackendError, match="gone"):
        generate(FakeModel(main=main), PROMPT)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_broken_logits_are_a_model_error_that_says_where(value: float) -> None:
    def broken_main(step: int, columns: list[list[int]]) -> Float32:
        return np.full(C + 1, value, np.float32) if step == 3 else hashed_main(step, columns)

    with pytest.raises(dualar.ModelError, match="frame 3, codebook 0"):
        generate(FakeModel(main=broken_main), PROMPT)

    def broken_fast(hidden: Float32, prefix: list[int]) -> Float32:
        return np.full(C, value, np.float32) if len(prefix) == 2 else hashed_fast(hidden, prefix)

    with pytest.raises(dualar.ModelError, match="frame 0, codebook 2"):
        generate(FakeModel(fast=broken_fast), PROMPT)


# ------------------------------------------------------------------------------------------------ requests and limits


def changed(row: int, value: int) -> npt.NDArray[np.int32]:
    prompt = PROMPT.copy()
    prompt[row, 1] = value
    return prompt


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (PROMPT[:-1], r"expected int \[5, T >= 1\], got int32 \[4, 3\]"),
        (PROMPT[0], r"got int32 \[3\]"),
        (PROMPT[:, :0], r"got int32 \[5, 0\]"),
        (PROMPT.astype(np.float32), "float32"),
        (PROMPT.astype(bool), "bool"),
        (changed(0, -1), "token ids from 0 to 199, got -1"),
        (changed(0, 200), "token ids from 0 to 199, got 200"),
        (changed(2, 64), "codes from 0 to 63, got 64"),
        (changed(4, -3), "codes from 0 to 63, got -3"),
        (PROMPT.astype(np.int64) + 2**32, "token ids from 0 to 199, got 4294967303"),
    ],
)
def test_wrong_prompts(prompt: Any, expected: str) -> None:
    model = FakeModel()
    with pytest.raises(ValueError, match=expected):
        generate(model, prompt)
    assert not model.sessions


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_new_tokens": 0}, "got 0"),
        ({"max_new_tokens": 1998}, r"context of 2000 positions, got 3 \+ 1998 = 2001"),
        ({"min_tokens_before_end": -1}, "got -1"),
        ({"min_tokens_before_end": 11, "max_new_tokens": 10}, "at most"),
        ({"min_tokens_before_end": 1025}, r"max_new_tokens \(1024\), got 1025"),
        ({"sampling": "fish"}, "SamplingConfig"),
        ({"seed": -1}, "got -1"),
        ({"seed": 2**64}, "2\\^64 - 1"),
        ({"seed": 1.0}, "got 1.0"),
        ({"seed": True}, "got True"),
        ({"fast_ar": "quick"}, "'cached' or 'recompute', got 'quick'"),
        ({"stall_guard": 5}, "StallGuard"),
        ({"text_tokens": -1}, "text_tokens"),
        ({"text_tokens": 1.5}, "text_tokens"),
    ],
)
def test_wrong_options(options: dict[str, Any], expected: str) -> None:
    model = FakeModel()
    with pytest.raises(ValueError, match=expected):
        generate(model, PROMPT, **options)
    assert not model.sessions


def test_prompts_of_other_integer_types_and_layouts() -> None:
    want = generate(FakeModel(), PROMPT, max_new_tokens=3, seed=0).codes.tolist()
    for prompt in (PROMPT.tolist(), PROMPT.astype(np.uint8), np.asfortranarray(PROMPT.astype(np.int64))):
        assert generate(FakeModel(), prompt, max_new_tokens=3, seed=np.uint64(0)).codes.tolist() == want  # type: ignore[arg-type]


def test_default_max_new_tokens_is_1024_or_what_the_context_leaves() -> None:
    assert FrameLoop(FakeModel(), PROMPT).max_new_tokens == 1024
    assert FrameLoop(FakeModel(context_length=50), PROMPT).max_new_tokens == 47
    model = FakeModel(context_length=4)
    assert generate(model, PROMPT).codes.shape == (N, 1) and model.sessions[0].max_positions == 4
    with pytest.raises(ValueError, match=r"context of 3 positions, got 3 \+ 1 = 4"):
        generate(FakeModel(context_length=3), PROMPT)


def test_a_given_session_is_continued() -> None:
    whole = generate(FakeModel(), PROMPT, max_new_tokens=8, seed=2)
    model = FakeModel()
    session = model.session(max_positions=11)
    session.prefill(PROMPT[:, :2].copy())
    rest = generate(model, PROMPT[:, 2:], max_new_tokens=8, seed=2, session=session)
    assert rest.codes.tolist() == whole.codes.tolist() and len(model.sessions) == 1
    small = model.session(max_positions=5)
    assert generate(model, PROMPT, session=small).codes.shape == (N, 2)
    with pytest.raises(ValueError, match=r"session's 5 positions, got 3 \+ 3 = 6"):
        generate(model, PROMPT, max_new_tokens=3, session=model.session(max_positions=5))


def test_a_model_of_one_codebook_needs_no_fast_ar() -> None:
    model = FakeModel(main=script(3, 4, END), num_codebooks=1, has_fast_ar=False)
    got = generate(model, PROMPT[:2])
    assert got.codes.tolist() == [[3, 4]]
    assert model.sessions[0].calls == ["prefill", "step", "step"]


def test_several_codebooks_without_a_fast_ar_are_refused() -> None:
    with pytest.raises(ValueError, match="4 codebooks, got one without"):
        generate(FakeModel(has_fast_ar=False), PROMPT)


def test_the_config_reaches_the_loop() -> None:
    config = GenerationConfig(max_new_tokens=7, sampling=GREEDY)
    loop = FrameLoop(FakeModel(), PROMPT, config)
    assert len(list(loop)) == 7
    assert loop.result().codes.T.tolist() == plain_greedy(FakeModel(), 7)


def test_main_tokens_follow_the_logits_distribution() -> None:
    """The loop draws from the model's logits as they are: no other temperature, mask or shift."""
    logits = hashed_main(0, [])
    counts = np.zeros(C + 1)
    for seed in range(2000):
        counts[generate(FakeModel(main=lambda s, c: logits), PROMPT, max_new_tokens=1, seed=seed).codes[0, 0]] += 1
    want = probabilities(logits[None], SamplingConfig.fish())[0] * 2000
    assert (counts[want == 0] == 0).all()
    assert (np.abs(counts - want) <= 5 * np.sqrt(want) + 1).all()
