"""Rows of a batch: what each gives is what it gives alone, whatever becomes of the others; limits and order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from dualar import BackendError, Batch, BatchRow, Engine, GenerationRequest, ModelError, SpeechRequest
from dualar.config import SamplingConfig, StallGuard
from dualar.generation import many
from dualar.generation.frames import Frame, Generation
from dualar.generation.generate import generate
from scripted_model import END, GREEDY, PROMPT, C, FakeModel, N, hashed_fast, hashed_main, peak

GOOD = 7  # the first token of a prompt that all is well with


def prompt_of(first: int, length: int = 3) -> np.ndarray:
    prompt = np.tile(PROMPT[:, :1], (1, length))
    prompt[0] = first
    return prompt


def main(step: int, columns: list[list[int]]) -> np.ndarray:
    """Logits by a hash of all that was fed, but for the prompts that begin with one of these."""
    first = columns[0][0]
    if first == 11 and step == 2:
        return np.full(C + 1, np.nan, np.float32)
    if first == 12:
        return peak(5)  # the same code for ever
    if first == 13 and step >= 3:
        return peak(END)
    return hashed_main(step, columns)


def request(first: int = GOOD, length: int = 3, seed: int = 1, **options: Any) -> GenerationRequest:
    return GenerationRequest(prompt=prompt_of(first, length), seed=seed, **{"max_new_tokens": 6} | options)


def generate_batch(model: FakeModel, requests: list[GenerationRequest], **options: Any) -> Iterator[Any]:
    return many.generate_batch(Batch(model, **options), requests)


def alone(model: FakeModel, asked: GenerationRequest, **options: Any) -> Generation:
    fields = {name: getattr(asked, name) for name in asked.__dataclass_fields__ if name != "prompt"}
    fields["min_tokens_before_end"] = asked.min_tokens_before_end or 0
    return generate(model, asked.prompt, **fields, **options)


def same(got: Generation, want: Generation) -> None:
    assert got.codes.tolist() == want.codes.tolist()
    assert (got.finish_reason, got.seed, got.padded_frames) == (want.finish_reason, want.seed, want.padded_frames)


REQUESTS = [
    request(seed=1),
    request(seed=2, length=9, max_new_tokens=1),
    request(13, seed=3, sampling=SamplingConfig.fish(temperature=2.0)),
    request(12, seed=4, sampling=GREEDY, stall_guard=StallGuard(repeat_frames=3, max_period=1), max_new_tokens=20),
    request(13, seed=5, min_tokens_before_end=5, max_new_tokens=9),
    request(seed=6, text_tokens=1, stall_guard=StallGuard(min_frames=4, frames_per_text_token=1), max_new_tokens=20),
]
OTHERS = [
    request(seed=7, sampling=SamplingConfig.hf(), max_new_tokens=8),
    request(seed=8, sampling=SamplingConfig.cosyvoice()),
]


@pytest.mark.parametrize("fast_ar", ["cached", "recompute"])
@pytest.mark.parametrize("max_rows", [1, 3, 8])
def test_each_row_is_what_it_is_alone(fast_ar: str, max_rows: int) -> None:
    model, requests = FakeModel(main=main), REQUESTS + OTHERS
    results = list(generate_batch(model, requests, max_rows=max_rows, fast_ar=fast_ar))
    assert sorted(r.index for r in results) == list(range(len(requests)))
    for result in results:
        same(result.get(), alone(FakeModel(main=main), requests[result.index], fast_ar=fast_ar))
    reasons = {r.index: r.get().finish_reason for r in results}
    assert [reasons[i] for i in range(6)] == ["length", "length", "end", "stalled", "end", "stalled"]
    assert max(len(model.sessions), 1) == len(requests)


def test_results_come_as_rows_end_and_requests_start_in_order() -> None:
    lengths = [5, 2, 9, 1, 1]
    model = FakeModel()
    indices = [r.index for r in generate_batch(model, [request(max_new_tokens=n) for n in lengths], max_rows=2)]
    # Rows join a step apart, their prompts being taken in turn.
    assert indices == [1, 0, 3, 4, 2]
    assert [s.max_positions for s in model.sessions] == [3 + n for n in lengths]


def test_rows_join_and_leave_while_it_runs() -> None:
    model = FakeModel(main=main)
    batch, rows, ended = Batch(model, max_rows=3), [], []
    for asked in REQUESTS:
        while batch.rows == 3:
            ended += batch.step()
        rows.append(batch.join(asked))
        ended += batch.step()
    ended += batch.run()
    assert set(ended) == set(rows) and batch.rows == 0 and batch.kv_bytes == 0
    for row, asked in zip(rows, REQUESTS, strict=True):
        same(row.result(), alone(FakeModel(main=main), asked))


# ------------------------------------------------------------------ rows that do not end well
def with_neighbours(asked: GenerationRequest) -> tuple[BatchRow, Batch]:
    """The request between two others, which must not notice."""
    model = FakeModel(main=main)
    batch = Batch(model)
    rows = [batch.join(REQUESTS[0]), batch.join(asked), batch.join(REQUESTS[2])]
    list(batch.run())
    for row, neighbour in ((rows[0], REQUESTS[0]), (rows[2], REQUESTS[2])):
        same(row.result(), alone(FakeModel(main=main), neighbour))
    assert all(row.done for row in rows) and batch.kv_bytes == 0
    return rows[1], batch


def test_logits_that_are_nan_end_their_row_alone() -> None:
    row, _ = with_neighbours(request(11))
    assert row.frames == 2
    with pytest.raises(ModelError, match="frame 2, codebook 0"):
        row.result()


def test_residual_logits_that_are_nan_end_their_row_alone() -> None:
    def fast(hidden: np.ndarray, prefix: list[int]) -> np.ndarray:
        return np.full(C, np.nan, np.float32) if prefix[0] == 5 and len(prefix) == 2 else hashed_fast(hidden, prefix)

    model = FakeModel(main=main, fast=fast)
    batch = Batch(model)
    bad, good = batch.join(request(12, sampling=GREEDY)), batch.join(request(seed=3))
    list(batch.run())
    assert isinstance(bad.error, ModelError) and "codebook 2" in str(bad.error)
    same(good.result(), alone(FakeModel(main=main, fast=fast), request(seed=3)))


@pytest.mark.parametrize("at", [0, 3, 5])
def test_a_consumer_that_says_stop(at: int) -> None:
    row, _ = with_neighbours(request(on_frame=lambda frame: frame.index < at))
    got = row.result()
    assert got.finish_reason == "cancelled"
    assert got.codes.tolist() == alone(FakeModel(main=main), request()).codes[:, : at + 1].tolist()


def test_a_consumer_that_raises_ends_its_row_alone() -> None:
    def consume(frame: Frame) -> None:
        if frame.index == 2:
            raise LookupError("full")

    row, _ = with_neighbours(request(on_frame=consume))
    with pytest.raises(LookupError, match="full"):
        row.result()


def test_a_consumer_cannot_change_a_row() -> None:
    def spoil(frame: Frame) -> None:
        frame.codes[:] = 63

    row, _ = with_neighbours(request(on_frame=spoil))
    same(row.result(), alone(FakeModel(main=main), request()))


def test_cancel_before_and_between_steps() -> None:
    batch = Batch(FakeModel())
    early, late, other = (batch.join(request(seed=s)) for s in (1, 2, 1))
    early.cancel()
    left = batch.step()
    assert left == [early] and early.result().codes.shape == (N, 0) and early.result().finish_reason == "cancelled"
    for _ in range(3):
        batch.step()
    late.cancel()
    assert batch.step() == [late] and 0 < late.frames < 6
    assert late.result().codes.tolist() == alone(FakeModel(), request(seed=2)).codes[:, : late.frames].tolist()
    list(batch.run())
    other.cancel()  # too late: nothing happens
    same(other.result(), alone(FakeModel(), request()))


def test_the_slow_ar_failing_on_the_device_ends_all_rows() -> None:
    def broken(step: int, columns: list[list[int]]) -> np.ndarray:
        if step == 2:
            raise BackendError("gone")
        return hashed_main(step, columns)

    results = list(generate_batch(FakeModel(main=broken), [request(), request(seed=5), request(max_new_tokens=1)]))
    assert [r.index for r in results if r.error is None] == [2]
    for result in results:
        if result.index != 2:
            with pytest.raises(BackendError, match="gone"):
                result.get()


@pytest.mark.parametrize("fast_ar", ["cached", "recompute"])
def test_the_fast_ar_failing_on_the_device_pads_the_frame(fast_ar: str) -> None:
    def broken(hidden: np.ndarray, prefix: list[int]) -> np.ndarray:
        if prefix[0] == 5 and len(prefix) == 2:
            raise BackendError("gone")
        return hashed_fast(hidden, prefix)

    asked = request(12, sampling=GREEDY, max_new_tokens=4)
    model = FakeModel(main=main, fast=broken)
    got = [r.get() for r in generate_batch(model, [asked, replace(asked, seed=9)], fast_ar=fast_ar)]
    for generation in got:
        assert generation.padded_frames == 4
        assert (generation.codes[1] > 0).any() and (generation.codes[2:] == 0).all()


def test_whoever_interrupts_a_step_ends_the_batch() -> None:
    def interrupt(frame: Frame) -> None:
        raise KeyboardInterrupt

    batch = Batch(FakeModel())
    rows = [batch.join(request()), batch.join(request(on_frame=interrupt))]
    with pytest.raises(KeyboardInterrupt):
        list(batch.run())
    assert batch.rows == 0 and all(row.result().finish_reason == "cancelled" for row in rows)


def test_closing_the_results_cancels_the_rest() -> None:
    model = FakeModel()
    results = generate_batch(model, [request(max_new_tokens=n) for n in (1, 50, 50)], max_rows=2)
    assert next(results).index == 0
    results.close()  # type: ignore[attr-defined]
    assert len(model.sessions) == 2 and model.sessions[1].position < 10


# ------------------------------------------------------------------ limits
def test_a_row_too_many() -> None:
    model = FakeModel()
    batch = Batch(model, max_rows=2)
    batch.join(request())
    batch.join(request())
    with pytest.raises(ValueError, match="at most 2 rows"):
        batch.join(request())
    assert len(model.sessions) == 2


def test_kv_bytes_are_limited_before_a_session_is_made() -> None:
    model = FakeModel()  # 10 bytes a position
    batch = Batch(model, max_kv_bytes=200)
    with pytest.raises(ValueError, match="at most 200 bytes, got a request of 230"):
        batch.join(request(max_new_tokens=20))
    row = batch.join(request(max_new_tokens=9))
    assert batch.kv_bytes == 120
    with pytest.raises(ValueError, match="got 120 in use and 90 more"):
        batch.join(request())
    assert len(model.sessions) == 1
    list(batch.run())
    assert row.done and batch.kv_bytes == 0
    batch.join(request())


def test_requests_wait_for_memory() -> None:
    model, most = FakeModel(), []
    watch = Batch._has_room

    def has_room(batch: Batch, needed: int) -> bool:
        most.append(batch.kv_bytes)
        return watch(batch, needed)

    requests = [request(seed=i, max_new_tokens=1 + i % 5) for i in range(12)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batch, "_has_room", has_room)
        results = list(generate_batch(model, requests, max_kv_bytes=170))
    assert max(most) <= 170 and len({s.max_positions for s in model.sessions}) == 5
    for result in results:
        same(result.get(), alone(FakeModel(), requests[result.index]))
    with pytest.raises(ValueError, match="got a request of 230"):
        generate_batch(FakeModel(), [request(max_new_tokens=20)], max_kv_bytes=200)


@pytest.mark.parametrize("options", [{"max_rows": 0}, {"max_rows": 257}, {"max_rows": 1.5}, {"max_kv_bytes": 0},
                                     {"fast_ar": "no"}])  # fmt: skip
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Batch(FakeModel(), **options)


def test_requests_that_are_wrong_are_refused_before_anything_is_computed() -> None:
    model = FakeModel()
    for wrong in (request(seed=-1), request(max_new_tokens=0), request(max_new_tokens=5000), PROMPT):
        with pytest.raises(ValueError):
            generate_batch(model, [request(), wrong])  # type: ignore[list-item]
        with pytest.raises(ValueError):
            Batch(model).join(wrong)  # type: ignore[arg-type]
    assert model.sessions == []


# ------------------------------------------------------------------ one call at a time, fairness, timings
def test_calls_during_a_step_are_refused() -> None:
    batch, refused = Batch(FakeModel()), []

    def refuse(call: Any) -> None:
        with pytest.raises(ValueError, match="one call at a time"):
            call()
        refused.append(call)

    def consume(frame: Frame) -> None:
        for call in (batch.step, batch.close, lambda: batch.join(request())):
            refuse(call)
            thread = threading.Thread(target=refuse, args=[call])
            thread.start()
            thread.join()

    row = batch.join(request(max_new_tokens=1, on_frame=consume))
    list(batch.run())
    assert row.result().codes.shape == (N, 1) and len(refused) == 6


def test_a_long_prompt_does_not_hold_up_the_others() -> None:
    class Pieces(FakeModel):
        prefill_piece = 4

    model, order = Pieces(), []
    batch = Batch(model)
    batch.join(request(max_new_tokens=12, on_frame=lambda f: order.append(0)))
    batch.step()
    batch.join(request(length=18, on_frame=lambda f: order.append(1)))
    batch.join(request(length=4, on_frame=lambda f: order.append(2)))
    list(batch.run())
    assert model.sessions[1].calls[:5] == ["prefill"] * 5 and model.sessions[1].calls.count("prefill") == 5
    assert order[:6] == [0] * 5 + [0] and order[6] == 1  # a frame for the first after each piece of the second
    assert order[7:10] == [0, 1, 2]


def test_a_row_is_not_done_before_its_end() -> None:
    batch = Batch(FakeModel())
    row = batch.join(request())
    batch.step()
    assert not row.done and row.frames == 1 and row.seed == 1
    with pytest.raises(ValueError, match="goes on"):
        row.result()
    batch.close()
    assert row.done and row.result().finish_reason == "cancelled"
    timings = row.result().timings
    assert timings.prefill_ms > 0 and timings.loop_ms > 0 and timings.ms_per_frame == timings.loop_ms


def test_no_session_outlives_its_row() -> None:
    batch = Batch(FakeModel())
    row = batch.join(request())
    list(batch.run())
    assert row._session is None and row._out is None and row._on_frame is None


# ------------------------------------------------------------------ the engine
def test_texts_to_speech(engine: Engine) -> None:
    texts = ["Hello there.", "The north wind and the sun.", "One two three."]
    requests = [SpeechRequest(text=t, seed=i, max_new_tokens=4 + i) for i, t in enumerate(texts)]
    results = {r.index: r.get() for r in engine.synthesize_batch(requests, max_rows=2)}
    for i, text in enumerate(texts):
        want = engine.synthesize(text, seed=i, max_new_tokens=4 + i)
        np.testing.assert_array_equal(results[i].codes, want.codes)
        np.testing.assert_array_equal(results[i].samples, want.samples)
        assert results[i].finish_reason == want.finish_reason and results[i].timings.decode_ms is not None


def test_prompts_to_codes(engine: Engine) -> None:
    prompt = engine.build_prompt("Hello there.")
    requests = [GenerationRequest(prompt=prompt, seed=s, max_new_tokens=5) for s in range(3)]
    results = list(engine.generate_batch(requests))
    assert [r.index for r in results] == [0, 1, 2]
    codes = [r.get().codes.tolist() for r in results]
    assert codes == [engine.generate(prompt, seed=s, max_new_tokens=5).codes.tolist() for s in range(3)]
    assert all(a != b for a, b in pairwise(codes))


def test_texts_that_are_wrong(engine: Engine) -> None:
    with pytest.raises(ValueError, match="no text"):
        engine.synthesize_batch(["Hello.", ""])
    with pytest.raises(ValueError, match="SpeechRequest"):
        engine.synthesize_batch([GenerationRequest(prompt=PROMPT)])  # type: ignore[list-item]
    assert list(engine.synthesize_batch([])) == []


def test_a_row_that_is_held_gives_the_same_frames_later() -> None:
    model = FakeModel(main=main)
    asked, other = request(seed=1, max_new_tokens=8), request(seed=2, max_new_tokens=4)
    batch = Batch(model, max_rows=2)
    held, moving = batch.join(asked), batch.join(other)
    while held.frames < 3:
        batch.step()
    held.hold(True)
    while not moving.done:
        batch.step()
    assert held.frames == 3 and not held.done
    assert batch.step() == []  # all that are left are held
    held.hold(False)
    list(batch.run())
    same(held.result(), alone(model, asked))
    same(moving.result(), alone(model, other))


def test_a_row_that_is_held_can_be_cancelled_and_begin_held() -> None:
    model = FakeModel(main=main)
    batch = Batch(model, max_rows=2)
    row = batch.join(request(seed=1))
    row.hold(True)
    batch.step()
    assert row.frames == 0
    row.cancel()
    assert batch.step() == [row] and row.result().finish_reason == "cancelled"
