"""Levels of a clip: BS.1770's filters and reference signals, peak, and the silence at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dualar.audio.clip import Audio
from dualar.audio.loudness import k_filters, k_weighted, loudness
from scipy.signal import lfilter

from audio.test_audio import make_audio

RATES = [8000, 24000, 44100, 48000]


def sine(db: float, *, seconds: float = 5.0, rate: int = 48000, hertz: float = 997.0) -> np.ndarray:
    return (10 ** (db / 20) * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def test_filters_are_the_standards_at_48_khz() -> None:
    (shelf_b, shelf_a), (high_b, high_a) = k_filters(48000)
    np.testing.assert_allclose(shelf_b, [1.53512485958697, -2.69169618940638, 1.19839281085285], atol=1e-9)
    np.testing.assert_allclose(shelf_a, [1, -1.69065929318241, 0.73248077421585], atol=1e-9)
    np.testing.assert_allclose(high_b, [1, -2, 1], atol=0)
    np.testing.assert_allclose(high_a, [1, -1.99004745483398, 0.99007225036621], atol=1e-9)


@pytest.mark.parametrize("rate", RATES)
def test_weighting_by_the_spectrum_is_the_recursive_filter(rate: int) -> None:
    samples = np.random.default_rng(0).standard_normal(2 * rate + 17).astype(np.float32)
    wanted = samples.astype(np.float64)
    for b, a in k_filters(rate):
        wanted = lfilter(b, a, wanted)
    np.testing.assert_allclose(k_weighted(samples, rate), wanted, rtol=0, atol=1e-7)


@pytest.mark.parametrize("rate", RATES)
def test_the_reference_sine(rate: int) -> None:
    """A 997 Hz sine of full scale in one channel is -3.01 LUFS."""
    assert loudness(sine(0, rate=rate), rate) == pytest.approx(-3.01, abs=0.05 if rate > 8000 else 0.5)
    assert loudness(sine(-20, rate=rate), rate) == pytest.approx(loudness(sine(0, rate=rate), rate) - 20, abs=0.01)


def test_pauses_do_not_count() -> None:
    """The gates: speech 13 dB softer around the loud part weighs nothing (as in EBU Tech 3341, case 3), nor silence."""
    loud, soft, none = sine(-23, seconds=20), sine(-36, seconds=5), np.zeros(48000 * 20, np.float32)
    alone = loudness(loud, 48000)
    assert loudness(np.concatenate([soft, loud, soft]), 48000) == pytest.approx(alone, abs=0.1)
    assert loudness(np.concatenate([loud, none]), 48000) == pytest.approx(alone, abs=0.1)
    assert loudness(np.concatenate([loud, sine(-28, seconds=20)]), 48000) < alone - 1  # near enough to count


def test_silence_and_short_clips() -> None:
    assert loudness(np.zeros(48000, np.float32), 48000) == -np.inf
    assert loudness(np.zeros(0, np.float32), 48000) == -np.inf
    assert loudness(sine(-20, seconds=0.2), 48000) == pytest.approx(loudness(sine(-20), 48000), abs=0.3)


# ------------------------------------------------------------------ what Audio does with them
def test_normalize_loudness_reaches_it() -> None:
    quiet = make_audio(sine(-50), sample_rate=48000)
    assert loudness(quiet.normalize_loudness(-20).samples, 48000) == pytest.approx(-20, abs=0.01)
    assert loudness(make_audio(sine(-3), sample_rate=48000).normalize_loudness().samples, 48000) == pytest.approx(
        -23, abs=0.01
    )


def test_normalize_loudness_stops_at_the_peak() -> None:
    click = sine(-40)
    click[1000] = 0.5
    louder = make_audio(click, sample_rate=48000).normalize_loudness(-16)
    assert np.abs(louder.samples).max() == pytest.approx(10 ** (-1 / 20), rel=1e-6)
    assert loudness(louder.samples, 48000) < -30
    assert np.abs(
        make_audio(click, sample_rate=48000).normalize_loudness(-16, peak_db=-6).samples
    ).max() == pytest.approx(10 ** (-6 / 20), rel=1e-6)


def test_normalize_peak() -> None:
    audio = make_audio([0.1, -0.25, 0.2])
    assert audio.normalize_peak().samples.min() == pytest.approx(-(10 ** (-1 / 20)), rel=1e-6)
    assert audio.normalize_peak(0).samples.min() == -1
    assert audio.normalize_peak(-60).samples.dtype == np.float32
    assert audio.samples.min() == -0.25  # the old one stays


def test_silence_stays_silence() -> None:
    for silent in (make_audio(np.zeros(100)), make_audio([])):
        for changed in (silent.normalize_peak(), silent.normalize_loudness()):
            np.testing.assert_array_equal(changed.samples, silent.samples)
        assert silent.trim_silence(keep_seconds=0).samples.shape == (0,)


def test_trim_silence_cuts_the_end_alone() -> None:
    samples = np.zeros(8000, np.float32)
    samples[1000], samples[3000] = 0.5, -0.01
    samples[3001:] = 1e-4  # -80 dB
    audio = make_audio(samples, sample_rate=8000)
    trimmed = audio.trim_silence(keep_seconds=0)
    assert isinstance(trimmed, Audio) and trimmed.codes is audio.codes
    np.testing.assert_array_equal(trimmed.samples, samples[:3001])
    assert audio.trim_silence().samples.shape == (3001 + 800,)
    assert audio.trim_silence(below_db=-30, keep_seconds=0).samples.shape == (1001,)
    assert audio.trim_silence(below_db=-90).samples.shape == (8000,)
    assert audio.trim_silence(keep_seconds=10).samples.shape == (8000,)


@pytest.mark.parametrize(
    "use",
    [
        lambda a: a.trim_silence(below_db=1),
        lambda a: a.trim_silence(keep_seconds=-1),
        lambda a: a.normalize_peak(0.1),
        lambda a: a.normalize_peak(float("nan")),
        lambda a: a.normalize_loudness(1),
        lambda a: a.normalize_loudness(-23, peak_db=3),
    ],
)
def test_levels_out_of_range_are_refused(use: Any) -> None:
    with pytest.raises(ValueError, match=r"\[audio\.\w+\] expected a number from"):
        use(make_audio([0.5]))
