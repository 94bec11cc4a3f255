"""The codec's decoder in the core: the published numbers, and a stream that is exact in any chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dualar import _core

ATOL = 3e-5


class Case:
    """One golden codec in the core, and its arrays."""

    def __init__(self, golden: Any, name: str) -> None:
        pair = golden(name)
        self.codec = _core.Codec(_core.ModelFile(str(pair.gguf)), _core.Runtime(threads=1))
        self.codes, self.audio = (np.load(pair.npz)[key] for key in ("codec_codes", "codec_audio"))


@pytest.fixture(scope="module", params=["s2-tiny", "s2-variant", "s2-edge"])
def case(request: pytest.FixtureRequest, golden: Any) -> Case:
    return Case(golden, request.param)


def test_whole_decode_matches(case: Case) -> None:
    """Two of the codes are out of range: they are clamped."""
    sizes = np.array(case.codec.codebook_sizes)[:, None]
    assert (case.codes >= sizes).sum() == 2
    stream = case.codec.stream(max_frames=case.codes.shape[1])
    samples = stream.push(case.codes)
    assert samples.dtype == np.float32
    assert samples.shape == (case.codes.shape[1] * case.codec.samples_per_frame,)
    np.testing.assert_allclose(samples, case.audio, atol=ATOL, rtol=0)


def test_any_chunks_give_the_whole(case: Case) -> None:
    rng, frames = np.random.default_rng(0), 3 * case.codes.shape[1]
    codes = np.tile(case.codes, 3)
    whole = case.codec.stream(max_frames=frames).push(codes)
    stream = case.codec.stream(max_frames=8)
    for _ in range(4):
        stream.reset()
        pieces, start = [], 0
        while start < frames:
            k = int(rng.integers(0, 9))
            pieces.append(stream.push(codes[:, start : start + k]))
            assert pieces[-1].shape == (codes[:, start : start + k].shape[1] * case.codec.samples_per_frame,)
            start += k
        np.testing.assert_allclose(np.concatenate(pieces), whole, atol=ATOL, rtol=0)


def test_later_codes_change_nothing_before_them(case: Case) -> None:
    changed, at = case.codes.copy(), case.codes.shape[1] // 2
    changed[:, at:] = 0
    a = case.codec.stream(max_frames=changed.shape[1]).push(case.codes)
    b = case.codec.stream(max_frames=changed.shape[1]).push(changed)
    edge = at * case.codec.samples_per_frame
    np.testing.assert_allclose(a[:edge], b[:edge], atol=1e-6, rtol=0)
    assert np.abs(a[edge:] - b[edge:]).max() > 1e-3


def test_streams_are_independent_and_reset_is_new(case: Case) -> None:
    first, other = case.codec.stream(), case.codec.stream()
    got = []
    for t in range(case.codes.shape[1]):
        got.append(first.push(case.codes[:, t : t + 1]))
        other.push(case.codes[:, ::-1][:, t : t + 1].copy())
    np.testing.assert_allclose(np.concatenate(got), case.audio, atol=ATOL, rtol=0)
    other.reset()
    again = [other.push(case.codes[:, t : t + 1]) for t in range(case.codes.shape[1])]
    np.testing.assert_array_equal(np.concatenate(again), np.concatenate(got))


def test_graphs_are_built_once_per_size(case: Case) -> None:
    stream = case.codec.stream(max_frames=4)
    for k in (1, 1, 4, 1, 4, 2, 1):
        stream.push(case.codes[:, :k])
    assert stream.graph_builds == 3


def test_ten_thousand_frames_in_flat_memory(golden: Any) -> None:
    resource = pytest.importorskip("resource")
    case = Case(golden, "s2-tiny")
    stream = case.codec.stream(max_frames=8)
    codes = np.tile(case.codes, 8)[:, :8]
    for _ in range(50):
        stream.push(codes)
    before, state = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, stream.nbytes
    for _ in range(10_000 // 8):
        samples = stream.push(codes)
    assert np.isfinite(samples).all()
    assert stream.nbytes == state
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2048  # KiB


@pytest.mark.parametrize(
    ("codes", "says"),
    [
        (np.zeros((9, 1), np.int32), "10 rows"),
        (np.zeros((10, 9), np.int32), "at most 8"),
        (np.full((10, 1), -1), "negative"),
        (np.zeros((10, 1)), "integers"),
        (np.zeros(10, np.int32), "2 dimension"),
    ],
)
def test_bad_codes(golden: Any, codes: np.ndarray, says: str) -> None:
    case = Case(golden, "s2-tiny")
    stream = case.codec.stream()
    with pytest.raises(ValueError, match=says):
        stream.push(codes)
    for frames in (0, -1, 5000):
        with pytest.raises(ValueError, match="max_frames"):
            case.codec.stream(max_frames=frames)
