"""The result of a narration: its pieces, and the sound of the whole.

Owns `NarrationResult` and `Narration`. Leaves making them to `speak.py`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dualar.audio.clip import Audio
from dualar.audio.wav import Subtype, write_wav
from dualar.generation.frames import Timings
from dualar.narration.plan import NarratedPiece
from dualar.narration.timeline import Timeline

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, eq=False)
class NarrationResult:
    """The result of a narration, without its sound.

    pieces: those that are finished, in order; one with an error was left out of the sound. sample_rate: in Hz.
    cancelled: whether the narration was stopped before its end. seed: gives the same speech again. timings: of the
    pieces that were made in this run, not of those that a job had.
    """

    pieces: tuple[NarratedPiece, ...]
    sample_rate: int
    seed: int
    cancelled: bool
    timings: Timings

    @property
    def failed(self) -> tuple[NarratedPiece, ...]:
        """The pieces that could not be spoken; each has its index, text and error."""
        return tuple(piece for piece in self.pieces if piece.error is not None)

    @property
    def timeline(self) -> Timeline:
        """When each piece and sentence is heard, in samples of the whole; `save` writes subtitles."""
        return Timeline.of_pieces(self.pieces, self.sample_rate)

    @property
    def codes(self) -> Int32:
        """int32 [num_codebooks, T]: the codes of all pieces, one after the other, without the pauses."""
        if not self.pieces:
            return np.zeros((0, 0), np.int32)
        return np.concatenate([piece.codes for piece in self.pieces], axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Narration(NarrationResult):
    """A long text as sound: samples float32 [n] in [-1, 1], mono, and the results of its pieces."""

    samples: npt.NDArray[np.float32]

    @property
    def duration(self) -> float:
        """Seconds of sound, pauses included."""
        return float(self.samples.size / self.sample_rate)

    def __array__(self, dtype: npt.DTypeLike | None = None, *, copy: bool | None = None) -> npt.NDArray[Any]:
        """The samples, as `Audio` has it."""
        return self.audio.__array__(dtype, copy=copy)

    def _repr_html_(self) -> str:
        """A player, as `Audio` has it."""
        return self.audio._repr_html_()

    @property
    def audio(self) -> Audio:
        """The same as an Audio, which can be trimmed and set to a level."""
        return Audio(
            samples=self.samples,
            sample_rate=self.sample_rate,
            codes=self.codes,
            finish_reason="cancelled" if self.cancelled else "end",
            seed=self.seed,
            timings=self.timings,
            padded_frames=sum(piece.padded_frames for piece in self.pieces),
        )

    def save(self, path: str | os.PathLike[str], *, subtype: Subtype = "PCM_16") -> None:
        """Write a mono WAV file, as `Audio.save`; ValueError where nothing was spoken."""
        if self.samples.size == 0:
            raise ValueError(
                f"[Narration.save] expected at least one sample, got none: {len(self.failed)} pieces failed"
            )
        write_wav(path, self.samples, self.sample_rate, subtype=subtype)
