"""What the codec's codes stand for: spectral envelope and pitch of a frame, and the quantizer made from them.

The codec's latent is not left to be found by training: it is set to a fixed analysis (log-mel envelope, pitch, voicing
of the frame's 40 ms, its principal directions), and its residual quantizer is k-means on that. So codes exist within
minutes of the start, the decoder and the dual-AR can learn at the same time, and no code dies. The encoder is trained
to give this latent.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

MELS, WINDOW, STEP = 40, 400, 160
PITCH_WINDOW, SHORTEST, LONGEST = 640, 50, 160  # samples: 320 Hz to 100 Hz at 16 kHz
PITCH_WEIGHT, VOICING_WEIGHT = 8.0, 2.0  # beside log-mel values in nepers: an octave counts as 8


def mel_matrix(bins: int, sample_rate: int, *, count: int = MELS) -> Tensor:
    """Triangular filters [count, bins] of unit sum, over 60 Hz to 7600 Hz."""
    to_mel = lambda hz: 2595 * math.log10(1 + hz / 700)  # noqa: E731
    mels = torch.linspace(to_mel(60), to_mel(7600), count + 2)
    edges = 700 * (10 ** (mels / 2595) - 1)
    frequencies = torch.linspace(0, sample_rate / 2, bins)
    rising = (frequencies - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies) / (edges[2:] - edges[1:-1])[:, None]
    filters = torch.minimum(rising, falling).clamp_min(0)
    return filters / filters.sum(1, keepdim=True).clamp_min(1e-9)


def log_mel(samples: Tensor, sample_rate: int) -> Tensor:
    """[n] -> [n / STEP, MELS]: windows of 25 ms, each ending where its step ends."""
    frames = F.pad(samples, (WINDOW - STEP, 0)).unfold(0, WINDOW, STEP)
    spectrum = torch.fft.rfft(frames * torch.hann_window(WINDOW), 512).abs()
    return (spectrum @ mel_matrix(257, sample_rate).T).clamp_min(0.01 * WINDOW / 512).log()


def pitch(samples: Tensor, sample_rate: int, step: int = 320) -> tuple[Tensor, Tensor]:
    """[n] -> log2 of the pitch in Hz [n / step] (held through unvoiced parts), voicing 0..1 [n / step]."""
    frames = F.pad(samples, (PITCH_WINDOW - step, 0)).unfold(0, PITCH_WINDOW, step)
    frames = frames - frames.mean(1, keepdim=True)
    head = PITCH_WINDOW - LONGEST
    spectrum = torch.fft.rfft(frames, 2048)
    start = torch.fft.rfft(frames[:, :head], 2048)
    products = torch.fft.irfft(spectrum * start.conj(), 2048)[:, : LONGEST + 1]  # sum over x[i] x[i + lag]
    energy = F.pad(frames.square().cumsum(1), (1, 0))
    energies = energy[:, head : head + LONGEST + 1] - energy[:, : LONGEST + 1]
    correlation = products / (energies * energies[:, :1]).clamp_min(1e-4).sqrt()
    # A longer lag must be clearly better: every multiple of the period correlates as well.
    biased = correlation[:, SHORTEST:] - torch.linspace(0, 0.08, LONGEST - SHORTEST + 1)
    best = biased.argmax(1)
    voicing = correlation.gather(1, (best + SHORTEST)[:, None])[:, 0].clamp(0, 1)
    voiced = (voicing > 0.6) & (energies[:, 0] > 0.02)
    log_pitch = torch.log2(sample_rate / (best + SHORTEST).float())
    log_pitch = torch.where(voiced, log_pitch, torch.full_like(log_pitch, float("nan")))
    # Hold the last voiced value; before the first one, the mean.
    known = torch.where(voiced, torch.arange(len(voiced)), torch.zeros(len(voiced), dtype=torch.long)).cummax(0).values
    held = log_pitch[known]
    return torch.where(held.isnan(), log_pitch.nanmean(), held), voiced.float()


def principal_directions(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """values [n, F] -> their mean [F], the directions [F, count] of most variance."""
    mean = values.mean(0)
    centred = (values - mean).double()
    _, vectors = torch.linalg.eigh(centred.T @ centred / len(values))
    return mean, vectors[:, -count:].flip(1).float()


def k_means(values: Tensor, count: int, *, rounds: int = 30, seed: int = 0) -> Tensor:
    """values [n, K] -> centres [count, K]; a centre that nobody is nearest to moves to a value far from its own."""
    generator = torch.Generator().manual_seed(seed)
    centres = values[torch.randperm(len(values), generator=generator)[:count]].clone()
    for _ in range(rounds):
        nearest, distance = assign(values, centres)
        sums = torch.zeros_like(centres).index_add_(0, nearest, values)
        sizes = torch.bincount(nearest, minlength=count)
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp_min(1)[:, None], centres)
        empty = torch.nonzero(sizes == 0)[:, 0]
        centres[empty] = values[distance.topk(max(1, len(empty))).indices[: len(empty)]]
    return centres


def assign(values: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest centre of each value [n], and its squared distance [n]."""
    nearest, distances = [], []
    for part in values.split(20000):
        squared = part.square().sum(1, keepdim=True) - 2 * part @ centres.T + centres.square().sum(1)
        distance, index = squared.min(1)
        nearest.append(index)
        distances.append(distance)
    return torch.cat(nearest), torch.cat(distances)
