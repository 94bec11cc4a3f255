"""`Engine.stream`: codes and samples of `synthesize` in chunks, made ahead within bounds, and stopped at once."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.config import GenerationConfig
from dualar.engine import Engine
from dualar.generation.generate import FrameLoop
from dualar.speech.stream import AudioChunk, SpeechStream, check_cadence
from scripted_model import GREEDY, PROMPT, FakeModel

TEXT = "the quick brown fox"
LONG: dict[str, Any] = {"max_new_tokens": 12, "min_tokens_before_end": 12}
ATOL = 3e-5


def threads_of_streams() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dualar-stream"]


@pytest.fixture(autouse=True)
def no_thread_stays() -> Any:
    yield
    gc.collect()
    for thread in threads_of_streams():
        thread.join(30)
    assert not threads_of_streams()


# ------------------------------------------------------------------ what comes out
@pytest.mark.parametrize(
    ("cadence", "sizes"),
    [
        (1, [1] * 12),
        (5, [5, 5, 2]),
        ((1, 2, 4), [1, 2, 4, 4, 1]),
        ([3], [3] * 4),
        (100, [12]),
    ],
)
def test_chunks_are_the_whole(engine: Engine, cadence: Any, sizes: list[int]) -> None:
    audio = engine.synthesize(TEXT, seed=4, **LONG)
    with engine.stream(TEXT, seed=4, frames_per_chunk=cadence, **LONG) as stream:
        chunks = list(stream)
    size = engine.codec.samples_per_frame
    assert [chunk.codes.shape[1] for chunk in chunks] == sizes
    assert [chunk.frame_index for chunk in chunks] == [0, *itertools.accumulate(sizes[:-1])]
    for chunk in chunks:
        assert chunk.samples.dtype == np.float32 and chunk.samples.shape == (chunk.codes.shape[1] * size,)
        assert chunk.sample_rate == audio.sample_rate
        assert chunk.duration == pytest.approx(chunk.codes.shape[1] * size / audio.sample_rate)
    np.testing.assert_array_equal(np.concatenate([chunk.codes for chunk in chunks], axis=1), audio.codes)
    joined = np.concatenate([chunk.samples for chunk in chunks])
    np.testing.assert_allclose(joined, audio.samples, rtol=0, atol=ATOL)
    result = stream.result
    np.testing.assert_array_equal(result.codes, audio.codes)
    assert (result.finish_reason, result.seed, result.padded_frames) == (audio.finish_reason, 4, 0)


def test_every_way_to_end_is_that_of_synthesize(engine: Engine) -> None:
    reasons = set()
    for seed in range(30):
        options: dict[str, Any] = {"seed": seed, "max_new_tokens": 40}
        audio = engine.synthesize(TEXT, **options)
        with engine.stream(TEXT, frames_per_chunk=7, **options) as stream:
            chunks = list(stream)
        assert sum(chunk.codes.shape[1] for chunk in chunks) == audio.codes.shape[1]
        np.testing.assert_array_equal(stream.result.codes, audio.codes)
        assert stream.result.finish_reason == audio.finish_reason
        reasons.add(audio.finish_reason)
    assert {"end", "length"} <= reasons


def test_options_are_those_of_synthesize(engine: Engine) -> None:
    sampling = dualar.SamplingConfig.hf(temperature=0.7)
    guard = dualar.StallGuard(repeat_frames=0, frames_per_text_token=1.0, min_frames=3)
    options: dict[str, Any] = {"seed": 2, "sampling": sampling, "stall_guard": guard, "min_tokens_before_end": 30}
    audio = engine.synthesize(TEXT, **options)
    with engine.stream(TEXT, **options) as stream:
        list(stream)
    np.testing.assert_array_equal(stream.result.codes, audio.codes)
    assert stream.result.finish_reason == audio.finish_reason == "stalled"


def test_timings_of_a_stream(engine: Engine) -> None:
    with engine.stream(TEXT, seed=1, **LONG) as stream:
        list(stream)
    timings = stream.result.timings
    assert timings.prefill_ms > 0 and timings.loop_ms > 0
    assert timings.decode_ms is not None and timings.decode_ms > 0
    assert timings.real_time_factor is not None and timings.real_time_factor > 0
    assert timings.first_audio_ms is not None
    assert timings.prefill_ms < timings.first_audio_ms
    assert engine.synthesize(TEXT, seed=1, max_new_tokens=1).timings.first_audio_ms is None


def test_streams_beside_each_other_do_not_mix(engine: Engine) -> None:
    alone = {seed: engine.synthesize(TEXT, seed=seed, **LONG) for seed in range(3)}
    streams = {seed: engine.stream(TEXT, seed=seed, **LONG) for seed in alone}
    parts: dict[int, list[AudioChunk]] = {seed: [] for seed in alone}
    for chunks in zip(*streams.values(), strict=True):
        for seed, chunk in zip(streams, chunks, strict=True):
            parts[seed].append(chunk)
    for seed, audio in alone.items():
        np.testing.assert_array_equal(streams[seed].result.codes, audio.codes)
        joined = np.concatenate([chunk.samples for chunk in parts[seed]])
        np.testing.assert_allclose(joined, audio.samples, rtol=0, atol=ATOL)


def test_a_stream_outlives_its_engine(toy_model: Path) -> None:
    with dualar.load(toy_model, threads=1) as engine:
        wanted = engine.synthesize(TEXT, seed=4, **LONG).codes
        stream = engine.stream(TEXT, seed=4, max_ahead=1, **LONG)
    with stream:
        got = np.concatenate([chunk.codes for chunk in stream], axis=1)
    np.testing.assert_array_equal(got, wanted)


# ------------------------------------------------------------------ what goes wrong
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"frames_per_chunk": 0}, r"stream.frames_per_chunk\] .* got 0"),
        ({"frames_per_chunk": (1, -2)}, "got -2"),
        ({"frames_per_chunk": ()}, "at least one"),
        ({"frames_per_chunk": "12"}, "frames_per_chunk"),
        ({"frames_per_chunk": 1.5}, "frames_per_chunk"),
        ({"frames_per_chunk": True}, "frames_per_chunk"),
        ({"max_ahead": 0}, r"stream.max_ahead\] .* got 0"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"seed": -1}, "seed"),
        ({"text": "  "}, "blank"),
    ],
    ids=str,
)
def test_bad_options_are_value_errors_of_the_call(engine: Engine, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        engine.stream(options.pop("text", TEXT), **options)


def test_cadences() -> None:
    assert check_cadence(3) == (3,)
    assert check_cadence([1, 2, 4]) == (1, 2, 4)
    assert check_cadence(np.int64(2)) == (2,)  # type: ignore[arg-type]


def fake_stream(
    model: FakeModel, *, frames: int = 50, decode: Callable[[Any], Any] | None = None, **options: Any
) -> Any:
    """A stream over a scripted model and a codec of two samples a frame, which are the frame's semantic code."""

    class Decoder:
        samples_per_frame = 2

        def __init__(self) -> None:
            self.frames = 0
            self.closed = False

        def push(self, codes: Any) -> Any:
            if decode is not None:
                decode(codes)
            self.frames += codes.shape[1]
            return codes[0].repeat(2).astype(np.float32)

        def close(self) -> None:
            self.closed = True

    config = GenerationConfig(max_new_tokens=frames, min_tokens_before_end=frames, sampling=GREEDY, stall_guard=None)
    decoder = Decoder()
    stream = SpeechStream(FrameLoop(model, PROMPT, config, seed=0), decoder, sample_rate=8, **options)  # type: ignore[arg-type]
    return stream, decoder


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def test_the_first_chunk_comes_after_one_frame() -> None:
    # The model is held at its second frame: the first chunk must be there all the same.
    go_on = threading.Event()
    model = FakeModel()
    plain = model.main

    def main(step: int, columns: Any) -> Any:
        assert step == 0 or go_on.wait(20)
        return plain(step, columns)

    model.main = main
    stream, _ = fake_stream(model)
    chunk = next(stream)
    assert chunk.frame_index == 0 and chunk.samples.shape == (2,) and chunk.samples[0] == chunk.codes[0, 0]
    go_on.set()
    with stream:
        assert len(list(stream)) == 49


def test_a_slow_consumer_stops_the_work_only_when_the_queue_is_full() -> None:
    model = FakeModel()
    stream, decoder = fake_stream(model, max_ahead=4)
    until(lambda: decoder.frames == 5)  # four that wait, and the one that finds no room
    time.sleep(0.1)
    assert decoder.frames == 5 and model.sessions[0].steps == 4
    next(stream)
    until(lambda: decoder.frames == 6)
    time.sleep(0.05)
    assert decoder.frames == 6
    with stream:
        assert [chunk.frame_index for chunk in stream] == list(range(1, 50))


def test_close_stops_within_a_frame() -> None:
    in_frame, go_on = threading.Event(), threading.Event()
    model = FakeModel()
    plain = model.main

    def main(step: int, columns: Any) -> Any:
        if step == 3:
            in_frame.set()
            assert go_on.wait(20)
        return plain(step, columns)

    model.main = main
    stream, decoder = fake_stream(model)
    assert in_frame.wait(20)
    closing = threading.Thread(target=stream.close)
    closing.start()
    until(lambda: stream._handover.stopped)
    go_on.set()
    closing.join(20)
    assert model.sessions[0].steps == 3 and decoder.closed
    assert list(stream) == []
    result = stream.result
    assert result.finish_reason == "cancelled" and result.codes.shape[1] == 4
    assert decoder.frames == 3 and result.timings.real_time_factor is None
    stream.close()  # again: harmless


def test_close_while_the_queue_is_full_and_while_a_chunk_is_awaited() -> None:
    stream, decoder = fake_stream(FakeModel(), max_ahead=2)
    until(lambda: decoder.frames == 3)
    stream.close()
    assert stream.result.finish_reason == "cancelled" and decoder.frames == 3

    hold = threading.Event()
    stream, _ = fake_stream(FakeModel(), decode=lambda _: hold.wait(20))
    got: list[Any] = []
    taking = threading.Thread(target=lambda: got.extend(stream))
    taking.start()
    closing = threading.Thread(target=stream.close)
    closing.start()
    taking.join(20)  # while the frame is still being computed
    assert not taking.is_alive() and got == []
    hold.set()
    closing.join(20)


def test_a_stream_that_is_dropped_stops() -> None:
    stream, decoder = fake_stream(FakeModel(), frames=1000, max_ahead=2)
    next(stream)
    del stream
    gc.collect()
    until(lambda: decoder.closed)
    assert decoder.frames <= 5


def test_no_result_before_the_end() -> None:
    stream, _ = fake_stream(FakeModel(), frames=3)
    until(lambda: not stream._thread.is_alive())  # all is made, and nothing taken
    with pytest.raises(ValueError, match=r"\[stream.result\]"):
        _ = stream.result
    assert len(list(stream)) == 3
    assert stream.result.codes.shape[1] == 3


def test_errors_come_after_the_chunks_before_them() -> None:
    seen: list[int] = []

    def decode(codes: Any) -> None:
        seen.append(1)
        if len(seen) == 4:
            raise dualar.BackendError("the device is gone")

    stream, decoder = fake_stream(FakeModel(), decode=decode)
    until(lambda: decoder.closed)
    assert [next(stream).frame_index for _ in range(3)] == [0, 1, 2]
    uses: tuple[Callable[[], object], ...] = (lambda: next(stream), lambda: stream.result)
    for use in uses:
        with pytest.raises(dualar.BackendError, match="gone"):
            use()


def test_a_program_ends_with_a_stream_open(toy_model: Path) -> None:
    program = """if True:
        import sys, dualar
        engine = dualar.load(sys.argv[1], threads=1)
        stream = engine.stream("hello", seed=1, max_new_tokens=200, min_tokens_before_end=200, max_ahead=2)
        print(next(stream).frame_index)
    """
    done = subprocess.run(
        [sys.executable, "-c", program, str(toy_model)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_threads_may_go_on_when_the_main_one_is_over(toy_model: Path) -> None:
    program = """if True:
        import sys, threading, time, dualar
        engine = dualar.load(sys.argv[1], threads=1)
        stream = engine.stream("hello", seed=1, max_new_tokens=9, min_tokens_before_end=9, max_ahead=1)
        def work():
            time.sleep(1.2)
            print(len(list(stream)), stream.result.finish_reason)
        threading.Thread(target=work).start()
    """
    done = subprocess.run(
        [sys.executable, "-c", program, str(toy_model)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "9 length\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_is_refused_and_does_not_hang(toy_model: Path) -> None:
    program = """if True:
        import os, sys, warnings, dualar
        warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads, which is what this is about
        engine = dualar.load(sys.argv[1], threads=1)
        stream = engine.stream("hello", seed=1, max_new_tokens=9, min_tokens_before_end=9, max_ahead=1)
        if os.fork() == 0:
            try:
                next(stream)
            except dualar.BackendError as error:
                os._exit("load the model in the child" in str(error))
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 1
        print(len(list(stream)))
    """
    done = subprocess.run(
        [sys.executable, "-c", program, str(toy_model)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "9\n", "")
