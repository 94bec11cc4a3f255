"""Streams that continue from the state of another one: the core's snapshots, and the states that a codec keeps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from conftest import Golden
from dualar import _core
from dualar.codec.warm_start import MOST_KEPT, WarmStarts


@pytest.fixture(scope="module", params=["s2-tiny", "s2-variant", "s2-edge", "qwen3"])
def codec(
    request: pytest.FixtureRequest, golden: Callable[[str], Golden], qwen3_model: Callable[..., Path]
) -> _core.Codec:
    path = qwen3_model("tiny") if request.param == "qwen3" else golden(request.param).gguf
    return _core.Codec(_core.ModelFile(str(path)), _core.Runtime(threads=1))


def codes_of(codec: _core.Codec, frames: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(size, size=frames) for size in codec.codebook_sizes]).astype(np.int32)


def push_all(stream: _core.CodecStream, codes: np.ndarray) -> np.ndarray:
    step = stream.max_frames
    return np.concatenate([stream.push(codes[:, at : at + step]) for at in range(0, codes.shape[1], step)])


@pytest.mark.parametrize("frames", [0, 1, 5, 150])  # 150: past every window, so that the ring has been around
def test_a_snapshot_is_where_the_stream_was(codec: _core.Codec, frames: int) -> None:
    before, after = codes_of(codec, frames), codes_of(codec, 9, seed=1)
    stream = codec.stream(max_frames=4)
    if frames:
        push_all(stream, before)
    kept = stream.snapshot()
    wanted = push_all(stream, after)
    assert kept.nbytes > 0
    for other in (codec.stream(max_frames=4), stream):  # a new one, and one that went on
        other.restore(kept)
        np.testing.assert_array_equal(push_all(other, after), wanted)
    fresh = push_all(codec.stream(max_frames=4), after)
    assert np.array_equal(fresh, wanted) == (frames == 0)  # what went before is heard


def test_snapshots_that_do_not_fit_are_refused(codec: _core.Codec, golden: Callable[[str], Golden]) -> None:
    stream, codes = codec.stream(max_frames=4), codes_of(codec, 4)
    stream.push(codes)
    kept = stream.snapshot()
    wanted = stream.push(codes)
    stream.restore(kept)
    with pytest.raises(ValueError, match="4 frames a push, got one of 5"):
        stream.restore(codec.stream(max_frames=5).snapshot())
    other = _core.Codec(_core.ModelFile(str(golden("s2-tiny").gguf)), _core.Runtime(threads=1))
    with pytest.raises(ValueError, match="of this codec"):
        stream.restore(other.stream(max_frames=4).snapshot())
    np.testing.assert_array_equal(stream.push(codes), wanted)  # and have changed nothing


class Counted:
    """A stream that counts the frames it is pushed."""

    def __init__(self, core: _core.CodecStream) -> None:
        self.core, self.max_frames, self.frames = core, core.max_frames, 0
        self.snapshot, self.restore = core.snapshot, core.restore

    def push(self, codes: np.ndarray) -> np.ndarray:
        self.frames += codes.shape[1]
        return self.core.push(codes)


def entered(kept: WarmStarts, codec: _core.Codec, codes: np.ndarray | None, max_frames: int = 4) -> Any:
    stream: Any = Counted(codec.stream(max_frames=max_frames))
    kept.enter(stream, codes)
    return stream


def test_a_recording_is_decoded_once(codec: _core.Codec) -> None:
    kept, codes, after = WarmStarts(), codes_of(codec, 10), codes_of(codec, 3, seed=1)
    first = entered(kept, codec, codes)
    assert first.frames == 10 and len(kept) == 1 and kept.nbytes > 0
    second = entered(kept, codec, codes.copy())
    assert second.frames == 0
    np.testing.assert_array_equal(second.push(after), first.push(after))
    # Another size of push, other codes, and as many codes in another shape, are others.
    assert entered(kept, codec, codes, max_frames=2).frames == 10
    assert entered(kept, codec, codes_of(codec, 10, seed=2)).frames == 10
    assert entered(kept, codec, codes[:, :9]).frames == 9
    assert entered(kept, codec, None).frames == 0 and len(kept) == 4


def test_the_least_recently_used_goes(codec: _core.Codec) -> None:
    kept = WarmStarts()
    recordings = [codes_of(codec, 2, seed=seed) for seed in range(MOST_KEPT + 1)]
    for codes in recordings[:-1]:
        entered(kept, codec, codes)
    assert entered(kept, codec, recordings[0]).frames == 0
    entered(kept, codec, recordings[-1])
    assert len(kept) == MOST_KEPT
    assert entered(kept, codec, recordings[0]).frames == 0 and entered(kept, codec, recordings[1]).frames == 2


def test_many_threads(codec: _core.Codec) -> None:
    kept, after = WarmStarts(), codes_of(codec, 3, seed=9)
    recordings = [codes_of(codec, 6, seed=seed) for seed in range(3)]
    wanted = [entered(WarmStarts(), codec, codes).push(after) for codes in recordings]

    def go(i: int) -> None:
        np.testing.assert_array_equal(entered(kept, codec, recordings[i % 3]).push(after), wanted[i % 3])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(go, range(40)))


def test_requests_with_a_cloned_voice_share_it(qwen3_model: Callable[..., Path]) -> None:
    with dualar.load(qwen3_model("tiny"), threads=1) as engine:
        voice = engine.clone(0.1 * np.random.default_rng(0).standard_normal(9600).astype(np.float32), "Words.")
        options: dict[str, Any] = {"voice": voice, "seed": 3, "max_new_tokens": 6}
        first = engine.synthesize("hello there", **options)
        kept = len(engine.codec._warm_starts)
        assert kept == 1
        again = engine.synthesize("hello there", **options)
        np.testing.assert_array_equal(again.samples, first.samples)
        assert len(engine.codec._warm_starts) == kept
        with engine.stream("hello there", **options) as stream:
            np.testing.assert_allclose(
                np.concatenate([chunk.samples for chunk in stream]), first.samples, atol=6e-5, rtol=0
            )
        assert len(engine.codec._warm_starts) == 2  # streams are pushed another number of frames
