"""The shards of `data.py` as the trainings read them: codes for the dual-AR, sound for the codec.

Owns reading; a shard that is written while a training runs is found by the next look. The codes are not stored: they
follow from a shard's analysis and the quantizer, in a second or two.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.analysis import MELS, STEP, assign
from training.data import FRAME, SAMPLE_RATE, UNIT
from training.text import INVENTORY, spoken_tokens

STEPS = FRAME // STEP  # of the analysis, a frame
# Nepers. It finds nine of ten frames that are 28 dB below their sentence; of what it finds 13 % are not.
SILENCE = 1.0


@dataclass(frozen=True)
class Quantization:
    """latent = (analysis - mean) @ directions / scale; centres: the codebooks, [size, K] each."""

    mean: Tensor
    directions: Tensor
    scale: Tensor
    centres: list[Tensor]

    @classmethod
    def load(cls, path: Path) -> Quantization:
        saved = torch.load(path, weights_only=True)
        return cls(**saved["analysis"], centres=saved["centres"])

    def latent(self, analysis: Tensor) -> Tensor:
        """[frames, F] -> [frames, K]."""
        return (analysis.float() - self.mean) @ self.directions / self.scale

    def codes(self, analysis: Tensor) -> Tensor:
        """[frames, F] -> int16 [N, frames]."""
        residual, found = self.latent(analysis), []
        for table in self.centres:
            index, _ = assign(residual, table)
            found.append(index)
            residual = residual - table[index]
        return torch.stack(found).to(torch.int16)

    def silent_codes(self) -> list[int]:
        """The codes of the first codebook whose frames are hardly heard: those that stand for a spectral envelope of
        less than SILENCE in sum."""
        frames = (self.centres[0] * self.scale) @ torch.linalg.pinv(self.directions) + self.mean
        envelopes = frames[:, : MELS * STEPS]  # the log-mel values of a frame; the pitch and the voicing follow
        return (envelopes.logsumexp(1) < SILENCE).nonzero()[:, 0].tolist()  # type: ignore[no-any-return]


def shard_paths(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.npz") if path.stem.isdigit())


@dataclass(frozen=True)
class Spoken:
    """One utterance for the dual-AR. tokens: the token that each frame speaks."""

    phonemes: str
    codes: Tensor
    tokens: list[int]


def read_spoken(path: Path, quantization: Quantization) -> list[Spoken]:
    with np.load(path) as content:
        frames, skipped, phonemes = content["frames"], content["skipped"], content["phonemes"]
        codes = quantization.codes(torch.from_numpy(content["analysis"]))
        durations = content["durations"].tolist()
    found, frame, character = [], 0, 0
    for count, cut, text in zip(frames.tolist(), skipped.tolist(), phonemes.tolist(), strict=True):
        own = durations[character : character + len(text) + 2]
        tokens = spoken_tokens(text, own, cut / SAMPLE_RATE, count, unit=UNIT, frame=FRAME / SAMPLE_RATE)
        if INVENTORY.issuperset(text):
            found.append(Spoken(text, codes[:, frame : frame + count].clone(), tokens))
        frame, character = frame + count, character + len(text) + 2
    return found


class Pieces:
    """Pieces of some shards' sound with the analysis; every `draws` draws others are read in."""

    def __init__(self, folder: Path, quantization: Quantization, *, seed: int, shards: int = 12, draws: int = 400):
        self.folder, self.quantization, self.shards, self.draws = folder, quantization, shards, draws
        self.generator = torch.Generator().manual_seed(seed)
        self.left = 0

    def _refill(self) -> None:
        paths = shard_paths(self.folder)
        chosen = torch.randperm(len(paths), generator=self.generator)[: self.shards].tolist()
        analysis, samples = [], []
        for i in chosen:
            with np.load(paths[i]) as content:
                analysis.append(torch.from_numpy(content["analysis"]))
                samples.append(torch.from_numpy(content["samples"]))
        self.samples = torch.cat(samples)
        self.latent = torch.cat([self.quantization.latent(a) for a in analysis])
        self.codes = torch.cat([self.quantization.codes(a) for a in analysis], 1)
        self.left = self.draws

    def draw(self, batch: int, frames: int) -> tuple[Tensor, Tensor, Tensor]:
        """codes [B, N, frames], samples [B, frames * FRAME], latent [B, K, frames]."""
        if self.left == 0:
            self._refill()
        self.left -= 1
        starts = torch.randint(0, len(self.latent) - frames, (batch,), generator=self.generator).tolist()
        codes = torch.stack([self.codes[:, s : s + frames] for s in starts]).long()
        samples = torch.stack([self.samples[s * FRAME : (s + frames) * FRAME] for s in starts])
        latent = torch.stack([self.latent[s : s + frames].T for s in starts])
        return codes, samples.float() / 32768, latent
