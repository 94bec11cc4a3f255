"""Finds the voice that a name or a path means, and checks whether it fits a codec.

Owns `find_voice` and `require_codec`. Leaves reading files to `formats.py` and the folder of names to `store.py`.
"""

from __future__ import annotations

import os

from dualar.codec.codec import Codec
from dualar.voices.formats import SUFFIXES
from dualar.voices.store import VoiceStore
from dualar.voices.voice import Voice


def find_voice(voice: Voice | str | os.PathLike[str]) -> Voice:
    """A Voice itself, the one in the file at a path, or the one of that name in the store.

    A str is a path where it has a separator or ends in `.voice` or `.s2voice`, and a name otherwise; a path that does
    not exist is not tried as a name. Errors: as for `Voice.load`; ValueError for a name that the store does not have.
    """
    if isinstance(voice, Voice):
        return voice
    if isinstance(voice, str):
        return Voice.load(voice) if is_path(voice) else VoiceStore().get(voice)
    if isinstance(voice, os.PathLike):
        return Voice.load(voice)
    raise TypeError(f"[voice] expected a Voice, a name or a path, got {type(voice).__name__}")


def is_path(voice: str) -> bool:
    """Whether `find_voice` takes a str for a path rather than a name."""
    return "/" in voice or os.sep in voice or voice.lower().endswith(tuple(SUFFIXES))


def require_codec(voice: Voice, codec: Codec, *, source: str) -> None:
    """ValueError, naming both, where the voice was made by another codec than that of the model file `source`."""
    theirs = (voice.num_codebooks, voice.codebook_size, voice.sample_rate, voice.samples_per_frame, voice.fingerprint)
    ours = (codec.num_codebooks, max(codec.codebook_sizes), codec.sample_rate, codec.samples_per_frame)
    pairs = zip(theirs, (*ours, codec.fingerprint), strict=True)
    if any(of_voice is not None and of_codec is not None and of_voice != of_codec for of_voice, of_codec in pairs):
        raise ValueError(
            f"[voice] expected a voice for the codec of {source} ({_described(*ours, codec.fingerprint)}), got "
            f"{'one' if voice.name is None else repr(voice.name)} for another ({_described(*theirs)})"
        )


def _described(codebooks: int, size: int, rate: int, frame: int | None, fingerprint: str | None) -> str:
    return (
        f"{codebooks} codebooks of up to {size}, {rate} Hz"
        + ("" if frame is None else f", {frame} samples a frame")
        + (", no fingerprint" if fingerprint is None else f", fingerprint {fingerprint}")
    )
