"""The speaker encoder: from a recording to the speaker's vector, which Qwen3-TTS's "base" models are given.

Owns `SpeakerEncoder` and the mel spectrogram that its network takes. Leaves the network to the compiled core, sound
files and resampling to `dualar.audio.read`, and keeping the vector to `voice.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dualar._native import _core
from dualar.audio.read import mix_and_resample
from dualar.runtime import ForkGuard, open_file, open_runtime

_FFT, _HOP = 1024, 256  # samples of a window, and from one to the next
_PAD = (_FFT - _HOP) // 2  # reflected at both ends
_MAGNITUDE_FLOOR, _MEL_FLOOR = 1e-9, 1e-5  # added to a squared magnitude; the least of a band before the logarithm


class SpeakerEncoder:
    """The speaker encoder of a model file. Only models that can clone a voice without a transcript have one."""

    def __init__(self, core: _core.SpeakerEncoder, *, check: Callable[[], None] | None = None) -> None:
        """core: the compiled network. check: called before each use; raises where the owner was closed."""
        self._core = core
        self._check = check

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str = "cpu", threads: int | None = None) -> SpeakerEncoder:
        """Load just the speaker encoder of a GGUF file; ModelError where it has none. Options as for `dualar.load`."""
        file = open_file(path)
        if not _core.SpeakerEncoder.present(file):
            raise _core.ModelError(no_speaker_encoder(file.path))
        core = _core.SpeakerEncoder(file, open_runtime(device=device, threads=threads))
        return cls(core, check=ForkGuard(file.path))

    @property
    def dim(self) -> int:
        """Values of a speaker's vector."""
        return self._core.dim

    @property
    def sample_rate(self) -> int:
        """Samples a second that the network was trained on; others are resampled."""
        return self._core.sample_rate

    def embed(self, samples: npt.ArrayLike, *, sample_rate: int | None = None) -> npt.NDArray[np.float32]:
        """Samples float [n], or [n, channels], in [-1, 1] -> float32 [dim].

        Channels are averaged. sample_rate: the samples' rate in Hz, by default the encoder's. Errors: ValueError for
        another shape or type, samples that are not finite, an impossible rate, or a clip that is shorter than a few
        frames of the spectrogram (50 ms); ModelError where the result is not finite.
        """
        if self._check is not None:
            self._check()
        rate = self.sample_rate
        clip = mix_and_resample(samples, rate if sample_rate is None else sample_rate, rate)
        shortest = max(self._core.min_frames * _HOP, _PAD + 1)
        if clip.shape[0] < shortest:
            raise ValueError(
                f"[speaker] expected at least {shortest / rate:.3f} s of sound, got {clip.shape[0] / rate:.3f} s"
            )
        vector = self._core.embed(mel(clip, sample_rate=rate, bands=self._core.mel_dim))
        if not np.isfinite(vector).all():
            raise _core.ModelError("[speaker] expected a finite vector, got NaN or inf: the weights are damaged")
        return vector


def no_speaker_encoder(path: str) -> str:
    """The error text for a file without the speaker encoder that it needs."""
    return (
        f"[clone] expected a speaker encoder (speaker.*) in {path}, found none: this model was not made to clone voices"
    )


def mel(samples: npt.NDArray[np.float32], *, sample_rate: int, bands: int) -> npt.NDArray[np.float32]:
    """samples [n > 384] -> the logarithm of a mel spectrogram, float32 [1 + (n - 256) // 256, bands].

    Magnitudes of a Hann-windowed transform of 1024 samples every 256, the ends reflected by 384, in bands from 0 to
    half the sample rate.
    """
    padded = np.pad(samples.astype(np.float64), _PAD, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _FFT)[::_HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_FFT) / _FFT)
    spectrum = np.fft.rfft(windows * hann, axis=-1)
    magnitude = np.sqrt(np.square(spectrum.real) + np.square(spectrum.imag) + _MAGNITUDE_FLOOR)
    energy = magnitude @ filterbank(sample_rate, bands).T
    logarithm: npt.NDArray[np.float32] = np.log(np.maximum(energy, _MEL_FLOOR)).astype(np.float32)
    return logarithm


@lru_cache(maxsize=4)
def filterbank(sample_rate: int, bands: int) -> npt.NDArray[np.float64]:
    """Triangles [bands, 513] on the mel scale of Slaney's Auditory Toolbox, each with an area of one: what librosa
    calls the Slaney scale and norm."""
    edges = _to_hertz(np.linspace(0.0, _to_mel(sample_rate / 2), bands + 2))
    frequencies = np.fft.rfftfreq(_FFT, 1 / sample_rate)
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return np.asarray(triangles * (2.0 / (edges[2:] - edges[:-2]))[:, None])


# Linear up to 1000 Hz, which is 15 mel, and logarithmic from there on.
_LINEAR, _BEND, _LOG_STEP = 200.0 / 3, 1000.0, np.log(6.4) / 27


def _to_mel(hertz: float) -> float:
    return hertz / _LINEAR if hertz < _BEND else float(_BEND / _LINEAR + np.log(hertz / _BEND) / _LOG_STEP)


def _to_hertz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    above = _BEND * np.exp(_LOG_STEP * (np.maximum(mels, _BEND / _LINEAR) - _BEND / _LINEAR))
    return np.where(mels < _BEND / _LINEAR, mels * _LINEAR, above)
