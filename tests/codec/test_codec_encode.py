"""`Codec.encode`: the published codes, the same ones in any blocks, and clips of any length, rate and channels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dualar
import numpy as np
import pytest
from conftest import Golden
from dualar.codec.codec import Codec
from test_engine import copy_gguf

MARGIN = 1e-3


def decided(codes: np.ndarray, margin: np.ndarray) -> np.ndarray:
    """bool [N, T]: the codes of each frame down to its first decision that rounding may turn."""
    return np.logical_and.accumulate(margin >= MARGIN, axis=0)


# ------------------------------------------------------------------ the goldens
@pytest.fixture(scope="module", params=["s2-tiny", "s2-variant", "s2-edge"])
def case(request: pytest.FixtureRequest, golden: Callable[[str], Golden]) -> Any:
    pair = golden(request.param)
    with np.load(pair.npz) as arrays:
        wav, codes, margin = (arrays[f"codec_{key}"].squeeze() for key in ("wav", "encoded", "encoded_margin"))
    return SimpleNamespace(codec=Codec.load(pair.gguf, threads=1), wav=wav, codes=codes, sure=decided(codes, margin))


def test_encode_gives_the_published_codes(case: Any) -> None:
    codes = case.codec.encode(case.wav)
    assert codes.dtype == np.int32 and codes.shape == case.codes.shape
    assert case.sure[0].any() and case.sure.mean() > 0.5
    np.testing.assert_array_equal(codes[case.sure], case.codes[case.sure])


def test_any_pushes_give_the_same_codes(case: Any) -> None:
    size, rng = case.codec.samples_per_frame, np.random.default_rng(0)
    frames = case.codes.shape[1]
    clip = np.pad(case.wav, (0, frames * size - case.wav.shape[0])).astype(np.float32)
    encoder = case.codec._core.encoder(max_frames=4)
    for _ in range(3):
        encoder.reset()
        parts, start = [], 0
        while start < frames:
            k = int(rng.integers(0, 5))
            parts.append(encoder.push(clip[start * size : (start + k) * size]))
            assert parts[-1].shape == (case.codes.shape[0], min(k, frames - start))
            start += k
        codes = np.concatenate(parts, axis=1)
        np.testing.assert_array_equal(codes[case.sure], case.codes[case.sure])


def test_a_longer_clip_begins_with_the_same_codes(case: Any) -> None:
    size = case.codec.samples_per_frame
    long = np.concatenate([case.wav[: case.codes.shape[1] // 2 * size], np.zeros(40 * size, np.float32)])
    half = case.codes.shape[1] // 2
    codes = case.codec.encode(long)
    assert codes.shape[1] == half + 40
    np.testing.assert_array_equal(codes[:, :half][case.sure[:, :half]], case.codes[:, :half][case.sure[:, :half]])


def test_codes_of_a_clip_can_be_decoded(case: Any) -> None:
    assert case.codec.decode(case.codec.encode(case.wav)).shape == (case.codes.shape[1] * case.codec.samples_per_frame,)


def test_a_file_without_the_encoder_decodes_and_says_so(golden: Callable[[str], Golden], tmp_path: Path) -> None:
    source = golden("s2-tiny").gguf
    keep = ("c.decoder.", "c.quantizer.")
    path = copy_gguf(source, tmp_path / "half.gguf", keep=lambda name: name.startswith(keep))
    half, whole = Codec.load(path, threads=1), Codec.load(source, threads=1)
    assert whole.can_encode and not half.can_encode
    codes = np.zeros((half.num_codebooks, 2), int)
    np.testing.assert_array_equal(half.decode(codes), whole.decode(codes))
    with pytest.raises(dualar.ModelError, match="encoder"):
        half.encode(np.zeros(1000))


# ------------------------------------------------------------------ around the core
SIZE, RATE = 10, 1000


class FakeCore:
    """A core whose codes are 1000 times the largest sample of a frame, and how many pushes came before."""

    sample_rate = RATE
    samples_per_frame = SIZE
    num_codebooks = 2

    def __init__(self) -> None:
        self.pushes: list[int] = []

    def encoder(self, *, max_frames: int) -> Any:
        def push(samples: Any) -> Any:
            k, rest = divmod(samples.shape[0], SIZE)
            assert rest == 0 and k >= 1
            return finish(samples)

        def finish(samples: Any) -> Any:
            assert samples.dtype == np.float32 and samples.flags.c_contiguous and samples.ndim == 1
            samples = np.pad(samples, (0, -samples.shape[0] % SIZE))
            k = samples.shape[0] // SIZE
            assert 1 <= k <= max_frames
            self.pushes.append(k)
            peaks = np.rint(samples.reshape(k, SIZE).max(axis=1) * 1000)
            return np.stack([peaks, np.full(k, len(self.pushes))]).astype(np.int32)

        return SimpleNamespace(push=push, finish=finish, max_frames=max_frames)


@pytest.mark.parametrize(("n", "frames"), [(0, 0), (1, 1), (9, 1), (10, 1), (11, 2), (160, 16), (161, 17), (1000, 100)])
def test_any_length_in_blocks(n: int, frames: int) -> None:
    core = FakeCore()
    progress: list[tuple[int, int]] = []
    clip = np.repeat(np.arange(1, 101) / 200, SIZE)[:n]
    codes = Codec(core).encode(clip, on_progress=lambda *p: progress.append(p))  # type: ignore[arg-type]
    assert codes.dtype == np.int32 and codes.shape == (2, frames)
    np.testing.assert_array_equal(codes[0], np.arange(1, frames + 1) * 5)
    assert sum(core.pushes) == frames and progress == [
        (min(16 * (i + 1), frames), frames) for i in range(len(progress))
    ]
    assert (progress[-1] if progress else (0, 0)) == (frames, frames)


def test_rates_and_channels_are_made_the_codecs() -> None:
    core = FakeCore()
    codec = Codec(core)  # type: ignore[arg-type]
    assert codec.encode(np.zeros(4410), sample_rate=44100).shape == (2, 10)
    assert codec.encode(np.zeros((4410, 2)), sample_rate=44100).shape == (2, 10)
    assert codec.encode(np.zeros(800), sample_rate=8000).shape == (2, 10)
    stereo = np.stack([np.full(30, 0.2), np.full(30, 0.4)], axis=1)
    np.testing.assert_array_equal(codec.encode(stereo)[0], [300, 300, 300])
    for kind in (np.float16, np.float32, np.float64):
        np.testing.assert_array_equal(codec.encode(np.full(10, 0.5, kind))[0], [500])
    np.testing.assert_array_equal(codec.encode(np.full(20, 0.5)[::2])[0], [500])


@pytest.mark.parametrize(
    ("samples", "rate", "text"),
    [
        (np.zeros(5, np.int16), None, "int16"),
        (np.zeros((2, 2, 2)), None, "shape"),
        (np.array([0.0, np.nan]), None, "1 that are not.*sample 1"),
        (np.zeros(5), 0, "sample_rate"),
        (np.zeros(5), 44100.5, "sample_rate"),
    ],
)
def test_bad_clips_are_value_errors(samples: Any, rate: Any, text: str) -> None:
    core = FakeCore()
    with pytest.raises(ValueError, match=text):
        Codec(core).encode(samples, sample_rate=rate)  # type: ignore[arg-type]
    assert core.pushes == []
