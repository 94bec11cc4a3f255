"""When the loop stops, and why it says it did: end, length, cancelled, stalled. Redraws, floors and histories too."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from dualar.config import SamplingConfig, StallGuard
from dualar.generation.frames import Frame
from dualar.generation.generate import FrameLoop, generate
from dualar.sampling.chains import sample
from scripted_model import END, GREEDY, PROMPT, C, FakeModel, Float32, Main, N, hashed_main, peak, script

# ------------------------------------------------------------------------------------------------------- stop rules


@pytest.mark.parametrize("frames", [0, 3, 11, 20])
@pytest.mark.parametrize("sampling", [GREEDY, SamplingConfig.fish(), SamplingConfig.hf(), SamplingConfig.cosyvoice()])
def test_ends_where_the_model_says(frames: int, sampling: SamplingConfig) -> None:
    got = generate(FakeModel(main=script(*range(frames), END)), PROMPT, sampling=sampling, max_new_tokens=40)
    assert got.finish_reason == "end"
    assert got.codes.shape == (N, frames) and got.codes[0].tolist() == list(range(frames))
    assert (got.timings.ms_per_frame > 0) == (frames > 0)


def test_length_when_the_budget_is_used_up_though_the_end_would_be_next() -> None:
    got = generate(FakeModel(main=script(1, 2, 3, END)), PROMPT, max_new_tokens=3)
    assert got.finish_reason == "length" and got.codes.shape == (N, 3)


def test_end_never_within_top_k_runs_to_the_length() -> None:
    def main(step: int, columns: list[list[int]]) -> Float32:
        logits = hashed_main(step, columns)
        logits[END] = np.sort(logits)[-31]  # as the 31st, and after it, because lower ids rank first
        return logits

    got = generate(FakeModel(main=main), PROMPT, max_new_tokens=60, sampling=SamplingConfig.fish(top_p=1), seed=1)
    assert got.finish_reason == "length" and got.codes.shape == (N, 60)
    wider = SamplingConfig.fish(top_p=1, top_k=32, temperature=100)
    assert generate(FakeModel(main=main), PROMPT, max_new_tokens=600, sampling=wider, seed=1).finish_reason == "end"


@pytest.mark.parametrize("floor", [1, 5, 12])
def test_min_tokens_before_end(floor: int) -> None:
    model = FakeModel(main=lambda step, columns: peak(END) + peak(step % 50, 50, height=20))
    got = generate(model, PROMPT, min_tokens_before_end=floor, sampling=SamplingConfig.fish(ras_window=50), seed=3)
    assert got.finish_reason == "end" and got.codes.shape == (N, floor)


def test_min_tokens_blocks_the_end_in_the_redraw_too() -> None:
    """The first draw always repeats and the redraw nearly always means im_end, where it may."""
    sampling = SamplingConfig.fish(top_p=0.5, top_k=0, ras_top_p=1, ras_temperature=100)

    def main(step: int, columns: list[list[int]]) -> Float32:
        logits = np.full(C + 1, -np.inf, np.float32)
        logits[[4, END]] = 10, 9.9
        return logits

    got = generate(FakeModel(main=main), PROMPT, sampling=sampling, min_tokens_before_end=9, seed=0)
    assert got.codes[0].tolist() == [4] * got.codes.shape[1] and 9 <= got.codes.shape[1] < 30


def test_a_redraw_that_draws_the_end_ends_with_no_frame() -> None:
    sampling = SamplingConfig.fish(top_p=0.5, ras_top_p=1, ras_temperature=1)

    def main(step: int, columns: list[list[int]]) -> Float32:
        logits = np.full(C + 1, -np.inf, np.float32)
        logits[[4, END]] = 10, 9.9  # top_p 0.5: 4 alone; the redraw: about even
        return logits

    lengths = []
    for seed in range(40):
        got = generate(FakeModel(main=main), PROMPT, sampling=sampling, seed=seed)
        redraw = [sample(main(0, [])[None], SamplingConfig.fish(temperature=1, top_p=1), seed=seed, step=s, stream=1000)
                  for s in range(got.codes.shape[1] + 1)]  # fmt: skip
        assert [int(t[0]) for t in redraw[1:]] == [4] * (len(redraw) - 2) + [END]  # frame 0 has nothing to repeat
        assert got.finish_reason == "end"
        lengths.append(got.codes.shape[1])
    assert min(lengths) == 1 and 1.5 < np.mean(lengths) < 3


def test_redraws_see_the_last_ten_main_tokens_as_pushed() -> None:
    """A main token may come back at once only through a redraw, and freely after ten frames."""
    sampling = SamplingConfig.fish(top_p=0, ras_top_p=1, top_k=2)

    def main(step: int, columns: list[list[int]]) -> Float32:
        return peak(0, height=10) + peak(1, height=9) if step % 11 == 0 else peak(10 + step % 11)

    got = generate(FakeModel(main=main), PROMPT, sampling=sampling, max_new_tokens=111, seed=0)
    assert got.codes[0, ::11].tolist() == [0] * 11  # eleven frames apart: outside the window, never redrawn
    got = generate(FakeModel(main=main), PROMPT, sampling=SamplingConfig.fish(top_p=0, ras_top_p=1, top_k=2,
                   ras_window=11), max_new_tokens=111, seed=0)  # fmt: skip
    assert 1 in got.codes[0, ::11]


def test_greedy_is_never_redrawn() -> None:
    got = generate(FakeModel(main=script(5)), PROMPT, sampling=GREEDY, max_new_tokens=30)
    assert (got.codes[0] == 5).all()


def test_hf_penalises_main_history_and_leaves_residual_codes_alone() -> None:
    two = np.full(C, -np.inf, np.float32)
    two[[1, 2]] = 3.0, 2.9
    model = FakeModel(main=lambda step, columns: np.append(two, -np.inf).astype(np.float32), fast=lambda h, p: two)
    config = SamplingConfig.hf(temperature=0, repetition_penalty=1.2)
    got = generate(model, PROMPT, sampling=config, max_new_tokens=4)
    assert got.codes.tolist() == [[1, 2, 1, 1], [1] * 4, [1] * 4, [1] * 4]
    config = SamplingConfig.hf(temperature=0, repetition_penalty=1.2, history_window=1, residual_history_window=1)
    got = generate(model, PROMPT, sampling=config, max_new_tokens=4)
    assert got.codes.tolist() == [[1, 2, 1, 2], [1] * 4, [2] * 4, [1] * 4]


@pytest.mark.parametrize("stop", [0, 3])
@pytest.mark.parametrize("value", [False, None, 0, np.False_])
def test_on_frame_stops_on_false_alone(stop: int, value: Any) -> None:
    model = FakeModel()
    got = generate(model, PROMPT, max_new_tokens=6, on_frame=lambda frame: value if frame.index == stop else True)
    assert got.finish_reason == ("cancelled" if value is False else "length")
    assert got.codes.shape == (N, stop + 1 if value is False else 6)
    assert model.sessions[0].steps == got.codes.shape[1] - 1


def test_closing_a_loop_cancels_it() -> None:
    model = FakeModel()
    loop = FrameLoop(model, PROMPT, seed=4)
    frames = list(itertools.islice(loop, 5))
    loop.close()
    assert list(loop) == [] and loop.finish_reason == "cancelled"
    got = loop.result()
    np.testing.assert_array_equal(got.codes, np.stack([f.codes for f in frames], axis=1))
    assert got.finish_reason == "cancelled" and got.seed == 4 and model.sessions[0].steps == 4


def test_a_loop_that_was_never_run_has_no_frames() -> None:
    got = FrameLoop(FakeModel(), PROMPT).result()
    assert got.codes.shape == (N, 0) and got.finish_reason == "cancelled"
    assert got.timings.prefill_ms == got.timings.ms_per_frame == 0


def test_closing_after_the_end_keeps_the_reason() -> None:
    loop = FrameLoop(FakeModel(main=script(1, END)), PROMPT)
    assert len(list(loop)) == 1
    loop.close()
    assert loop.finish_reason == "end" and loop.result().finish_reason == "end"


def test_an_interrupt_passes_through_and_frames_are_kept() -> None:
    def interrupt(frame: Frame) -> None:
        if frame.index == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(FakeModel(), PROMPT, on_frame=interrupt)
    loop = FrameLoop(FakeModel(), PROMPT)
    with pytest.raises(KeyboardInterrupt):
        for frame in loop:
            interrupt(frame)
    assert loop.result().codes.shape == (N, 3)


# ------------------------------------------------------------------------------------------------------ stall guard


def cycle(*ids: int) -> Main:
    return lambda step, columns: peak(ids[step % len(ids)])


@pytest.mark.parametrize("ids", [(7,), (7, 8), (7, 8, 9), (7, 8, 9, 9)])
@pytest.mark.parametrize("limit", [5, 40])
def test_a_cycle_of_main_codes_stalls_after_the_limit(ids: tuple[int, ...], limit: int) -> None:
    guard = StallGuard(repeat_frames=limit)
    model = FakeModel(main=cycle(*ids))
    got = generate(model, PROMPT, sampling=GREEDY, stall_guard=guard)
    assert got.finish_reason == "stalled" and got.codes.shape == (N, limit + 1)
    assert model.sessions[0].steps == limit


def test_the_loop_before_the_cycle_does_not_count() -> None:
    ids = [1, 2, 3, 4, 5, 6, *[7, 8, 9] * 100]
    got = generate(FakeModel(main=script(*ids)), PROMPT, sampling=GREEDY, stall_guard=StallGuard(repeat_frames=12))
    assert got.finish_reason == "stalled" and got.codes[0].tolist() == ids[: 6 + 13]


def test_by_default_a_loop_of_period_3_stalls_and_a_long_pause_does_not() -> None:
    got = generate(FakeModel(main=cycle(7, 8, 9)), PROMPT, sampling=GREEDY)
    assert got.finish_reason == "stalled" and got.codes.shape == (N, 121)
    pause = [*range(20), *[5] * 100, *range(20, 40), *[6, 5] * 60, END]
    got = generate(FakeModel(main=script(*pause)), PROMPT, sampling=GREEDY)
    assert got.finish_reason == "end" and got.codes.shape == (N, len(pause) - 1)


@pytest.mark.parametrize("guard", [None, StallGuard(repeat_frames=0)])
def test_the_guard_is_off_with_one_option(guard: StallGuard | None) -> None:
    got = generate(FakeModel(main=cycle(7)), PROMPT, sampling=GREEDY, stall_guard=guard, max_new_tokens=300)
    assert got.finish_reason == "length" and got.codes.shape == (N, 300)


def test_longer_periods_are_no_stall_unless_asked_for() -> None:
    main, guard = cycle(1, 2, 3, 4, 5), StallGuard(repeat_frames=20)
    assert generate(FakeModel(main=main), PROMPT, sampling=GREEDY, stall_guard=guard).finish_reason == "length"
    guard = StallGuard(repeat_frames=20, max_period=5)
    assert generate(FakeModel(main=main), PROMPT, sampling=GREEDY, stall_guard=guard).codes.shape == (N, 21)


def test_frames_per_text_token_with_a_floor() -> None:
    guard = StallGuard(frames_per_text_token=4, min_frames=10)
    for tokens, frames in ((0, 10), (2, 10), (3, 12), (20, 80)):
        got = generate(FakeModel(), PROMPT, seed=0, stall_guard=guard, text_tokens=tokens)
        assert got.finish_reason == "stalled" and got.codes.shape == (N, frames)
    got = generate(FakeModel(), PROMPT, seed=0, stall_guard=guard, text_tokens=20, max_new_tokens=80)
    assert got.finish_reason == "length"  # what was asked for, no runaway
    for off in (None, StallGuard(frames_per_text_token=0)):
        got = generate(FakeModel(), PROMPT, seed=0, stall_guard=off, text_tokens=1, max_new_tokens=300)
        assert got.finish_reason == "length"


def test_frames_that_were_asked_for_are_no_stall() -> None:
    """Neither the repeats nor the text's length end what min_tokens_before_end asks for."""
    guard = StallGuard(repeat_frames=5, min_frames=10, frames_per_text_token=1.0)
    model = FakeModel(main=script(*[7] * 80))
    got = generate(
        model, PROMPT, max_new_tokens=60, min_tokens_before_end=30, sampling=GREEDY, stall_guard=guard, text_tokens=1
    )
    assert got.finish_reason == "stalled" and got.codes.shape == (N, 30)
