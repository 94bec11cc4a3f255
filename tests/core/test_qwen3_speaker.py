"""Qwen3-TTS's speaker encoder: the mel spectrogram and every stage of the network as published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.voices.speaker_encoder import SpeakerEncoder, filterbank, mel
from fixtures import qwen3

ATOL = 2e-5


@pytest.fixture(scope="module")
def encoder(qwen3_model: Callable[..., Path]) -> SpeakerEncoder:
    return SpeakerEncoder.load(qwen3_model("tiny"), threads=1)


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return qwen3.golden("speaker_encoder")


def test_filterbank(golden: Any) -> None:
    np.testing.assert_allclose(filterbank(24000, 128), golden["mel_filterbank"], atol=1e-8, rtol=0)


def test_mel(golden: Any) -> None:
    got = mel(golden["wav"], sample_rate=24000, bands=128)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, golden["mel"], atol=2e-5, rtol=0)


def test_every_stage_matches(encoder: SpeakerEncoder, golden: Any) -> None:
    probes = encoder._core._probe(golden["mel"])
    for ours, theirs in {"block.0": "block0", "block.1": "block1", "block.3": "block3", "aggregation": "mfa",
                         "pooled": "asp"}.items():  # fmt: skip
        want = golden[theirs]
        close = 2e-6 * np.abs(want).max()  # values up to 37
        np.testing.assert_allclose(probes[ours].reshape(-1, want.shape[0]).T, want, atol=close, rtol=0)
    np.testing.assert_allclose(probes["embedding"], golden["embedding"], atol=ATOL, rtol=0)


def test_embedding_of_a_recording(encoder: SpeakerEncoder, golden: Any) -> None:
    assert (encoder.dim, encoder.sample_rate) == (64, 24000)
    vector = encoder.embed(golden["wav"])
    assert vector.dtype == np.float32
    np.testing.assert_allclose(vector, golden["embedding"], atol=ATOL, rtol=0)
    np.testing.assert_array_equal(encoder.embed(golden["wav"]), vector)
    stereo = np.stack([golden["wav"] * 2, np.zeros_like(golden["wav"])], axis=1)
    np.testing.assert_allclose(encoder.embed(stereo, sample_rate=24000), vector, atol=ATOL, rtol=0)


def test_another_rate_is_resampled(encoder: SpeakerEncoder) -> None:
    t = np.arange(48000) / 48000
    tone = (0.3 * np.sin(2 * np.pi * 220 * t) + 0.1 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)
    at_48k, at_24k = encoder.embed(tone, sample_rate=48000), encoder.embed(tone[::2])
    assert np.abs(at_48k - at_24k).max() < 0.05 * np.abs(at_24k).max()


def test_the_shortest_clip(encoder: SpeakerEncoder, golden: Any) -> None:
    assert encoder._core.min_frames == 5  # a dilation of 4 reflects 4 columns
    assert np.isfinite(encoder.embed(golden["wav"][: 5 * 256])).all()
    with pytest.raises(ValueError, match=r"at least 0\.053 s of sound, got 0\.053"):
        encoder.embed(golden["wav"][: 5 * 256 - 1])
    with pytest.raises(ValueError, match="5 to 1048576 frames, got 4"):
        encoder._core.embed(golden["mel"][:4])


def test_bad_input(encoder: SpeakerEncoder, golden: Any) -> None:
    for shape in ((48,), (48, 127), (1, 48, 128)):
        with pytest.raises(ValueError, match="mel"):
            encoder._core.embed(np.zeros(shape, np.float32))
    bad = golden["mel"].copy()
    bad[3, 3] = np.nan
    with pytest.raises(ValueError, match="finite"):
        encoder._core.embed(bad)
    for samples in (np.zeros(9000, np.int16), np.full(9000, np.nan)):
        with pytest.raises(ValueError):
            encoder.embed(samples)


def test_half_precision_stays_close(qwen3_model: Callable[..., Path], encoder: SpeakerEncoder, golden: Any) -> None:
    half = SpeakerEncoder.load(qwen3_model("tiny", "f16"), threads=1).embed(golden["wav"])
    assert 0 < np.abs(half - golden["embedding"]).max() < 0.02 * np.abs(golden["embedding"]).max()


def test_a_file_without_one_says_so(qwen3_model: Callable[..., Path]) -> None:
    with pytest.raises(dualar.ModelError, match=r"expected a speaker encoder \(speaker\.\*\)"):
        SpeakerEncoder.load(qwen3_model("tiny-eq"))
