"""`Codec.stream`: any cut of the codes gives the whole clip's samples, and a stream is nobody else's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import dualar
import numpy as np
import pytest
from conftest import Golden
from dualar.codec.codec import Codec, CodecStream
from dualar.codes import check_codes

ATOL = 3e-5


class Case:
    """A golden codec, its codes repeated three times, and the samples that the first third must give."""

    def __init__(self, pair: Golden) -> None:
        self.codec = Codec.load(pair.gguf, threads=1)
        with np.load(pair.npz) as arrays:
            self.audio = arrays["codec_audio"].reshape(-1)
            self.codes = np.tile(arrays["codec_codes"], 3)
        self.frames = self.codes.shape[1]
        self.size = self.codec.samples_per_frame


@pytest.fixture(scope="module", params=["s2-tiny", "s2-variant", "s2-edge"])
def case(request: pytest.FixtureRequest, golden: Callable[[str], Golden]) -> Case:
    return Case(golden(request.param))


@pytest.fixture(scope="module")
def tiny(golden: Callable[[str], Golden]) -> Case:
    return Case(golden("s2-tiny"))


def pushed(stream: CodecStream, codes: Any, sizes: Any, size: int) -> np.ndarray:
    """All codes in pushes of the sizes, then the rest in one; each push's count is checked."""
    parts, start = [], 0
    for k in [*sizes, codes.shape[1]]:
        piece = codes[:, start : start + k]
        parts.append(stream.push(piece))
        assert parts[-1].dtype == np.float32 and parts[-1].shape == (piece.shape[1] * size,)
        start += piece.shape[1]
        assert stream.frames == start
    return np.concatenate(parts)


def test_any_cut_is_the_whole(case: Case) -> None:
    rng = np.random.default_rng(1)
    whole = case.codec.decode(case.codes)
    with case.codec.stream() as stream:
        for most in (1, 3, 12, 40):  # 12 and 40 are more than the core takes at a time
            stream.reset()
            samples = pushed(stream, case.codes, rng.integers(0, most + 1, size=200), case.size)
            np.testing.assert_allclose(samples[: case.audio.shape[0]], case.audio, rtol=0, atol=ATOL)
            np.testing.assert_allclose(samples, whole, rtol=0, atol=ATOL)


def test_streams_do_not_mix(tiny: Case) -> None:
    a, b = tiny.codes, tiny.codes[:, ::-1]
    alone = [tiny.codec.decode(codes) for codes in (a, b)]
    assert np.abs(alone[0] - alone[1]).max() > 1e-2
    parts: list[list[Any]] = [[], []]
    with tiny.codec.stream() as first, tiny.codec.stream() as second:
        for t in range(tiny.frames):
            parts[0].append(first.push(a[:, t : t + 1]))
            parts[1].append(second.push(b[:, t : t + 1]))
            tiny.codec.decode(a[:, :2])
    for got, wanted in zip(parts, alone, strict=True):
        np.testing.assert_allclose(np.concatenate(got), wanted, rtol=0, atol=ATOL)


def test_reset_and_a_new_stream_are_the_same_beginning(tiny: Case) -> None:
    stream = tiny.codec.stream()
    begun = stream.push(tiny.codes[:, :5])
    went_on = stream.push(tiny.codes[:, :5])
    assert np.abs(went_on - begun).max() > 1e-3  # the state matters, or the rest shows nothing
    stream.reset()
    assert stream.frames == 0
    np.testing.assert_array_equal(stream.push(tiny.codes[:, :5]), begun)
    stream.close()  # half-way
    np.testing.assert_array_equal(tiny.codec.stream().push(tiny.codes[:, :5]), begun)


def test_a_closed_stream_is_an_error(tiny: Case) -> None:
    with tiny.codec.stream() as stream:
        stream.push(tiny.codes[:, :1])
    stream.close()  # again: harmless
    for use in (lambda: stream.push(tiny.codes[:, :1]), stream.reset, stream.__enter__):
        with pytest.raises(ValueError, match=r"\[codec.stream\].*closed"):
            use()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda c: c[1:], r"shape \[10, T\]"),
        (lambda c: c[:, 0], "shape"),
        (lambda c: c.astype(float), "float64"),
        (lambda c: np.full(c.shape, np.nan), "float64"),
        (lambda c: c > 0, "bool"),
        (lambda c: np.where(np.arange(c.shape[1]) == 1, -1, c), "got -1 at codebook 0, frame 1"),
    ],
)
def test_refused_codes_change_nothing(tiny: Case, change: Callable[[Any], Any], text: str) -> None:
    stream = tiny.codec.stream()
    stream.push(tiny.codes[:, :2])
    with pytest.raises(ValueError, match=text):
        stream.push(change(tiny.codes[:, :3]))
    rest = stream.push(tiny.codes[:, 2:5])
    whole = tiny.codec.decode(tiny.codes[:, :5])
    np.testing.assert_allclose(rest, whole[2 * tiny.size :], rtol=0, atol=ATOL)


def one_row(codes: Any) -> Any:
    return check_codes(codes, num_codebooks=1)


class FakeStream:
    """A core stream of two frames a push; its `answer` makes the samples."""

    max_frames = 2

    def __init__(self, answer: Callable[[np.ndarray], Any]) -> None:
        self.answer = answer
        self.resets = 0

    def push(self, codes: np.ndarray) -> Any:
        assert codes.dtype == np.int32 and codes.flags.c_contiguous and 1 <= codes.shape[1] <= 2
        return self.answer(codes)

    def reset(self) -> None:
        self.resets += 1


def test_samples_that_are_not_finite_are_refused_and_spoil_the_stream() -> None:
    def answer(codes: Any) -> Any:  # samples that name their code; NaN for code 9
        return np.where(codes[0] == 9, np.nan, codes[0]).astype(np.float32).repeat(3)

    core = FakeStream(answer)
    stream = CodecStream(core, checked=one_row, samples_per_frame=3)  # type: ignore[arg-type]
    np.testing.assert_array_equal(stream.push([[1, 2, 3, 4, 5]]), np.repeat([1, 2, 3, 4, 5], 3))
    with pytest.raises(dualar.ModelError, match=r"3 of 6 .* frames 7 to 8"):
        stream.push([[1, 2, 3, 9]])
    with pytest.raises(ValueError, match="reset"):
        stream.push([[1]])
    stream.reset()
    assert core.resets == 1
    np.testing.assert_array_equal(stream.push([[1]]), [1, 1, 1])


def test_a_second_thread_is_refused() -> None:
    inside, leave = threading.Event(), threading.Event()

    def answer(codes: Any) -> Any:
        inside.set()
        assert leave.wait(30)
        return np.zeros(codes.shape[1], np.float32)

    stream = CodecStream(FakeStream(answer), checked=one_row, samples_per_frame=1)  # type: ignore[arg-type]
    thread = threading.Thread(target=stream.push, args=([[1, 2, 3]],))
    thread.start()
    assert inside.wait(30)
    with pytest.raises(ValueError, match="one thread"):
        stream.push([[1]])
    leave.set()
    thread.join(30)
    assert stream.frames == 3


def test_a_stream_of_a_closed_engine_is_refused(toy_model: Any) -> None:
    with dualar.load(toy_model, threads=1) as engine:
        codec, stream = engine.codec, engine.codec.stream()
        codes = np.zeros((codec.num_codebooks, 1), int)
        stream.push(codes)
    for use in (codec.stream, lambda: stream.push(codes)):
        with pytest.raises(ValueError, match=r"engine.*closed"):
            use()
