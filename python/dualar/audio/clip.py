"""`Audio`: what `Engine.synthesize` returns.

Owns the clip and its methods. Leaves the writing of WAV files to `wav.py` and measuring levels to `loudness.py`.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dualar.audio.wav import Subtype, encode_wav, write_wav
from dualar.generation.frames import FinishReason, Timings
from dualar.text.places import TimedWord

_PLAYER_SECONDS = 120.0  # a notebook keeps what it shows in its file


@dataclass(frozen=True, eq=False)
class Audio:
    """Speech that a model made.

    samples: float32 [n] in [-1, 1], mono, at sample_rate Hz. codes: int32 [num_codebooks, n_frames], their codes.
    finish_reason: "end" (the model ended the speech), "length" (max_new_tokens was reached), "cancelled" (on_frame
    returned False) or "stalled" (the stall guard ended a runaway). seed: the seed that was used, so that the request
    can be repeated. padded_frames: how many frames the Fast-AR failed to finish, their missing codes being 0; 0 unless
    a device failed. words: when each word is heard, where the request asked for it (`word_times`); else None.
    """

    samples: npt.NDArray[np.float32]
    sample_rate: int
    codes: npt.NDArray[np.int32]
    finish_reason: FinishReason
    seed: int
    timings: Timings
    padded_frames: int = 0
    words: tuple[TimedWord, ...] | None = None

    @property
    def duration(self) -> float:
        """Seconds of sound."""
        return float(self.samples.size / self.sample_rate)

    def __array__(self, dtype: npt.DTypeLike | None = None, *, copy: bool | None = None) -> npt.NDArray[Any]:
        """The samples, for `numpy.asarray(audio)`; float32 [n], or converted to dtype.

        copy, which NumPy passes since version 2: True for an array of its own, None for one only where dtype differs,
        False for none: ValueError where dtype needs one.
        """
        if copy is None:  # NumPy 1 passes nothing, and its own `numpy.array` has no None
            return np.asarray(self.samples, dtype=dtype)
        if not copy and dtype is not None and np.dtype(dtype) != self.samples.dtype:
            raise ValueError(f"[array] expected {self.samples.dtype} where no copy may be made, got {np.dtype(dtype)}")
        return np.array(self.samples, dtype=dtype, copy=copy)

    def _repr_html_(self) -> str:
        """A player, which a notebook shows: the sound itself is in it, at most its first two minutes."""
        shown = self.samples[: round(_PLAYER_SECONDS * self.sample_rate)]
        what = f"{self.duration:.2f} s at {self.sample_rate} Hz, seed {self.seed}, {self.finish_reason}"
        if shown.size == 0:
            return f"<div>{what}: no sound</div>"
        if shown.size < self.samples.size:
            what += f"; the player has the first {_PLAYER_SECONDS:.0f} s, save() writes all"
        data = base64.b64encode(encode_wav(shown, self.sample_rate)).decode("ascii")
        return f'<audio controls src="data:audio/wav;base64,{data}"></audio><div>{what}</div>'

    def trim_silence(self, *, below_db: float = -60.0, keep_seconds: float = 0.1) -> Audio:
        """Without the silence at its end: what follows the last sample as loud as below_db (dB of full scale, <= 0).

        keep_seconds of it are kept. The codes stay those of the whole. ValueError for a number out of range.
        """
        from dualar.audio.loudness import check_range, speech_end

        kept = round(check_range("keep_seconds", keep_seconds, 0.0, 3600.0) * self.sample_rate)
        end = speech_end(self.samples, below_db=below_db) + kept
        return replace(self, samples=self.samples[:end].copy())

    def normalize_peak(self, db: float = -1.0) -> Audio:
        """Scaled so that its largest sample is at `db` (dB of full scale, -60 to 0). Silence stays as it is."""
        from dualar.audio.loudness import peak_gain

        return self._scaled(peak_gain(self.samples, db))

    def normalize_loudness(self, lufs: float = -23.0, *, peak_db: float = -1.0) -> Audio:
        """Scaled to a loudness (LUFS, -70 to 0, by ITU-R BS.1770-4), but never to a peak above `peak_db` (dB of full
        scale): where that limits it, it is softer than asked for. Silence stays as it is.
        """
        from dualar.audio.loudness import loudness_gain

        return self._scaled(loudness_gain(self.samples, self.sample_rate, lufs, peak_db=peak_db))

    def _scaled(self, gain: float) -> Audio:
        return replace(self, samples=(self.samples * np.float64(gain)).astype(np.float32))

    def save(self, path: str | os.PathLike[str], *, subtype: Subtype = "PCM_16") -> None:
        """Write a mono WAV file; an existing file is replaced, whole, once the new one is complete.

        Samples beyond [-1, 1] are clipped. Errors: ValueError for no samples, samples that are not finite, a name that
        does not end in .wav or an unknown subtype; OSError, naming the path, where the file cannot be written.
        """
        if self.samples.shape[0] == 0:
            raise ValueError(
                "[Audio.save] expected at least one sample, got none: the model ended before its first frame "
                f"(finish_reason {self.finish_reason!r}, seed {self.seed}); try another seed, or min_tokens_before_end"
            )
        write_wav(path, self.samples, self.sample_rate, subtype=subtype)
