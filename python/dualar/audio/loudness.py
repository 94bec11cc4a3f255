"""Levels of finished clips: where the speech ends, peak, and loudness by ITU-R BS.1770-4, mono.

Owns the measures and the gains that reach a level; leaves their use to `Audio`. Samples are float32 [n].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dualar.config import check_option

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

# BS.1770-4, annex 1: blocks of 0.4 s that overlap by three quarters; blocks below -70 LUFS do not count, nor those more
# than 10 LU below the mean of the others.
_BLOCK_SECONDS, _STEP_SECONDS = 0.4, 0.1
_ABSOLUTE_GATE, _RELATIVE_GATE = -70.0, -10.0
_OFFSET = -0.691  # so that a 997 Hz sine of full scale in one channel is -3.01 LUFS
# The K-weighting's two filters as analog prototypes, from which the standard's coefficients at 48 kHz follow: centre in
# Hz, quality, and the shelf's gain in dB.
_SHELF = (1681.974450955533, 0.7071752369554196, 3.999843853973347)
_HIGH_PASS = (38.13547087602444, 0.5003270373238773)
_TAIL_SECONDS = 0.5  # both filters' responses have died away by then


def check_range(name: str, value: Any, low: float, high: float) -> float:
    """`value` as a float; ValueError if it is no number, or out of range."""
    return float(check_option(f"audio.{name}", value, {"low": low, "high": high, "optional": False}) or 0.0)


def speech_end(samples: Float32, *, below_db: float) -> int:
    """How many samples there are up to the last one at or above below_db (dB of full scale), itself included."""
    least = 10.0 ** (check_range("below_db", below_db, -200.0, 0.0) / 20)
    loud = np.flatnonzero(np.abs(samples) >= least)
    return int(loud[-1]) + 1 if loud.size else 0


def peak_gain(samples: Float32, db: float) -> float:
    """The factor that takes the largest sample to `db`; 1 for silence."""
    wanted = 10.0 ** (check_range("peak_db", db, -60.0, 0.0) / 20)
    peak = float(np.abs(samples).max(initial=0.0))
    return wanted / peak if peak > 0 else 1.0


def loudness_gain(samples: Float32, sample_rate: int, lufs: float, *, peak_db: float) -> float:
    """The factor that takes the clip to `lufs`, or as near as its peak allows; 1 for silence."""
    wanted = check_range("lufs", lufs, -70.0, 0.0)
    most = peak_gain(samples, peak_db)
    now = loudness(samples, sample_rate)
    return min(10.0 ** ((wanted - now) / 20), most) if np.isfinite(now) else 1.0


def loudness(samples: Float32, sample_rate: int) -> float:
    """Integrated loudness in LUFS, gated; -inf for silence. A clip under 0.4 s is one block of its own length."""
    if samples.shape[0] == 0:
        return -np.inf
    weighted = k_weighted(samples, sample_rate)
    block = min(round(_BLOCK_SECONDS * sample_rate), samples.shape[0])
    step = max(1, round(_STEP_SECONDS * sample_rate))
    sums = np.concatenate([[0.0], np.cumsum(np.square(weighted))])
    starts = np.arange(0, samples.shape[0] - block + 1, step)
    power = (sums[starts + block] - sums[starts]) / block
    kept = power[_lufs(power) > _ABSOLUTE_GATE]
    if kept.size == 0:
        return -np.inf
    kept = kept[_lufs(kept) > _lufs(kept.mean()) + _RELATIVE_GATE]
    return float(_lufs(kept.mean()))


def k_weighted(samples: Float32, sample_rate: int) -> Float64:
    """The samples after both filters, which are applied to the spectrum; padding keeps the end from wrapping around."""
    n = samples.shape[0]
    size = 1 << (n + round(_TAIL_SECONDS * sample_rate)).bit_length()
    z = np.exp(-2j * np.pi * np.fft.rfftfreq(size))
    response = np.ones_like(z)
    for b, a in k_filters(sample_rate):
        response *= np.polyval(b[::-1], z) / np.polyval(a[::-1], z)
    weighted: Float64 = np.fft.irfft(np.fft.rfft(samples.astype(np.float64), size) * response, size)[:n]
    return weighted


def k_filters(sample_rate: int) -> list[tuple[Float64, Float64]]:
    """(numerator, denominator), three coefficients each, of the shelf and the high-pass at a rate."""
    hertz, q, db = _SHELF
    k = np.tan(np.pi * hertz / sample_rate)
    top = 10.0 ** (db / 20)
    middle = top**0.4996667741545416
    a0 = 1 + k / q + k * k
    shelf = np.array([top + middle * k / q + k * k, 2 * (k * k - top), top - middle * k / q + k * k]) / a0
    shelf_below = np.array([1.0, 2 * (k * k - 1) / a0, (1 - k / q + k * k) / a0])
    hertz, q = _HIGH_PASS
    k = np.tan(np.pi * hertz / sample_rate)
    a0 = 1 + k / q + k * k
    below = np.array([1.0, 2 * (k * k - 1) / a0, (1 - k / q + k * k) / a0])
    return [(shelf, shelf_below), (np.array([1.0, -2.0, 1.0]), below)]


def _lufs(power: Any) -> Any:
    with np.errstate(divide="ignore"):
        return _OFFSET + 10 * np.log10(power)
