"""Makes a voice of a recording and its transcript.

Owns `clone_voice`. Leaves encoding the sound to the codec, and the speaker's vector to `speaker_encoder.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dualar.audio.read import read_audio
from dualar.codec.codec import Codec
from dualar.text.words import require_words
from dualar.voices.speaker_encoder import SpeakerEncoder
from dualar.voices.voice import Voice

AudioSource = str | os.PathLike[str] | bytes | BinaryIO | npt.NDArray[np.floating[Any]]


def clone_voice(
    codec: Codec,
    audio: AudioSource,
    transcript: str | None,
    *,
    speaker_encoder: SpeakerEncoder | None = None,
    sample_rate: int | None = None,
    name: str | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> Voice:
    """Make a Voice of a recording and its transcript, as `Engine.clone` does, with a codec and, for models that have
    one, a speaker encoder. name: of the Voice; on_progress: as for `Codec.encode`."""
    if transcript is not None:
        require_words("clone transcript", transcript)
    elif speaker_encoder is None:
        raise ValueError("[clone] expected a transcript: this model needs to know what is said, got none")
    samples: Any
    if isinstance(audio, str | os.PathLike | bytes | bytearray | memoryview) or hasattr(audio, "read"):
        if sample_rate is not None:
            raise ValueError(f"[clone] expected sample_rate with samples alone, got {sample_rate} with a sound file")
        samples, sample_rate = read_audio(audio)  # type: ignore[arg-type]
    else:
        samples = audio
    speaker = None
    if speaker_encoder is not None:
        rate = codec.sample_rate if sample_rate is None else sample_rate
        speaker = speaker_encoder.embed(samples, sample_rate=rate)
    if transcript is None:
        codes = np.zeros((codec.num_codebooks, 0), np.int32)
    else:
        codes = codec.encode(samples, sample_rate=sample_rate, on_progress=on_progress)
        if codes.shape[1] == 0:
            raise ValueError("[clone] expected a recording, got no samples")
    return Voice(
        codes=codes,
        transcript=transcript or "",
        speaker=speaker,
        sample_rate=codec.sample_rate,
        codebook_size=max(codec.codebook_sizes),
        samples_per_frame=codec.samples_per_frame,
        fingerprint=codec.fingerprint,
        name=name,
    )
