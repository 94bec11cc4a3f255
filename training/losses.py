"""The spectral loss that the codec's decoder is trained with; nothing in it looks at the phase.

Log-magnitudes are clamped at 0.01 * window / 512 of the STFT's magnitude: below that, differences are not heard, and a
lower clamp spends the capacity on near-silent bins.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.analysis import mel_matrix

WINDOWS = (256, 512, 1024, 2048)
MEL_COUNT = 80


class SpectralLoss:
    """(made, target), both [B, n] -> the loss, and its terms as numbers."""

    def __init__(self, sample_rate: int) -> None:
        self.windows = {w: torch.hann_window(w) for w in WINDOWS}
        self.mels = {w: mel_matrix(w // 2 + 1, sample_rate, count=min(MEL_COUNT, w // 8)).T for w in WINDOWS}

    def __call__(self, made: Tensor, target: Tensor) -> tuple[Tensor, dict[str, float]]:
        log, mel, convergence = [], [], []
        for size, window in self.windows.items():
            a, b = (self._magnitude(x, size, window) for x in (made, target))
            floor = 0.01 * size / 512
            log.append((a.clamp_min(floor).log() - b.clamp_min(floor).log()).abs().mean())
            mel_a, mel_b = (x @ self.mels[size] for x in (a, b))
            mel.append((mel_a.clamp_min(floor).log() - mel_b.clamp_min(floor).log()).abs().mean())
            convergence.append((a - b).norm() / b.norm().clamp_min(1e-3))
        terms = [torch.stack(values).mean() for values in (log, mel, convergence)]
        names = ("log", "mel", "convergence")
        return terms[0] + 2 * terms[1] + terms[2], {name: term.item() for name, term in zip(names, terms, strict=True)}

    @staticmethod
    def _magnitude(x: Tensor, size: int, window: Tensor) -> Tensor:
        spectrum = torch.stft(x, size, size // 4, window=window, center=False, return_complex=True)
        return (spectrum.real.square() + spectrum.imag.square() + 1e-9).sqrt().transpose(1, 2)
