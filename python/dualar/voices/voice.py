"""`Voice`: a recording as codes with its transcript, kept to speak with.

Owns the voice and the checks on its fields. Leaves making one of sound to `clone.py`, finding one by name or path to
`find.py`, the bytes of its files to `formats.py`, and the folder of named voices to `store.py`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dualar.audio.read import check_rate
from dualar.codes import require_codes
from dualar.config import whole_number
from dualar.files import write_file
from dualar.text.words import require_words
from dualar.voices.formats import VoiceFormat, decode_fields, encode_voice, format_of, read_file
from dualar.voices.name import check_voice_name


@dataclass(frozen=True)
class Reference:
    """A voice to speak with: codes int [N, T] of a recording, and the text that is spoken in it."""

    codes: npt.ArrayLike
    transcript: str


MAX_CODEBOOKS = 1024
MAX_SPEAKER = 1 << 16  # numbers of a speaker's vector


@dataclass(frozen=True, eq=False, kw_only=True)
class Voice:
    """A voice to speak with: a recording as codes, and the text that is spoken in it. Immutable.

    codes: int32 [num_codebooks, T >= 1], read-only, each in [0, codebook_size). transcript: what is said in them.
    sample_rate (Hz), codebook_size (entries of the largest codebook) and samples_per_frame: of the codec that made the
    codes. fingerprint: which codec that was, as `Codec.fingerprint`. name: the voice's name in the store. speaker:
    float32 [D], read-only, the vector that a Qwen3-TTS model's speaker encoder made of the recording; with it there may
    be no frames and no transcript (""). The last four are None where they are not known, as in a `.s2voice` file.

    Errors: ValueError for codes of another shape, type or range, a transcript without words, with a NUL or with a lone
    surrogate, a malformed speaker's vector, or a number out of range.
    """

    codes: npt.NDArray[np.int32]
    transcript: str
    sample_rate: int
    codebook_size: int
    samples_per_frame: int | None = None
    fingerprint: str | None = None
    name: str | None = None
    speaker: npt.NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        size = whole_number("voice.codebook_size", self.codebook_size, 1, 2**31 - 1)
        rate = check_rate(self.sample_rate)
        if self.samples_per_frame is not None:
            whole_number("voice.samples_per_frame", self.samples_per_frame, 1, 2**31 - 1)
        array = np.asarray(self.codes)
        rows = array.shape[0] if array.ndim == 2 else 1
        if not 1 <= rows <= MAX_CODEBOOKS:
            raise ValueError(f"[voice] expected 1 to {MAX_CODEBOOKS} codebooks, got {rows}")
        if self.speaker is not None and array.ndim == 2 and array.shape[1] == 0 and self.transcript == "":
            codes = np.zeros((rows, 0), np.int32)  # the voice is a speaker's vector alone
        else:
            codes = require_codes("voice codes", array, num_codebooks=rows, codebook_size=size).astype(np.int32)
            require_words("voice transcript", self.transcript)
        codes.flags.writeable = False
        if "\0" in self.transcript:
            raise ValueError(f"[voice] expected a transcript without NUL, got one at {self.transcript.index(chr(0))}")
        try:
            self.transcript.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"[voice] expected a transcript in Unicode, got a lone surrogate "
                f"U+{ord(self.transcript[error.start]):04X} at {error.start}"
            ) from None
        fingerprint = self.fingerprint
        if fingerprint is not None and not (
            isinstance(fingerprint, str)
            and fingerprint.isascii()
            and fingerprint.isprintable()
            and len(fingerprint) < 99
        ):
            raise ValueError(f"[voice] expected a fingerprint of a few ASCII characters, got {fingerprint!r}")
        if self.name is not None:
            object.__setattr__(self, "name", check_voice_name(self.name))
        if self.speaker is not None:
            try:
                vector = np.array(self.speaker, np.float32)
            except (TypeError, ValueError, OverflowError):
                vector = np.zeros(0, np.float32)
            if vector.ndim != 1 or not 1 <= vector.size <= MAX_SPEAKER or not np.isfinite(vector).all():
                raise ValueError(
                    f"[voice] expected a speaker's vector of 1 to {MAX_SPEAKER} finite numbers, got "
                    f"{np.shape(vector)} of {type(self.speaker).__name__}"
                )
            vector.flags.writeable = False
            object.__setattr__(self, "speaker", vector)
        object.__setattr__(self, "codes", codes)
        object.__setattr__(self, "sample_rate", rate)
        object.__setattr__(self, "codebook_size", size)

    @property
    def num_codebooks(self) -> int:
        """Rows of the codes."""
        return int(self.codes.shape[0])

    @property
    def frames(self) -> int:
        """Columns of the codes."""
        return int(self.codes.shape[1])

    @property
    def duration(self) -> float | None:
        """Seconds of the recording; None where the length of a frame is not known."""
        return None if self.samples_per_frame is None else self.frames * self.samples_per_frame / self.sample_rate

    @property
    def reference(self) -> Reference:
        """What `dualar.build_prompt` takes as `reference`."""
        return Reference(self.codes, self.transcript)

    def save(self, path: str | os.PathLike[str], *, format: VoiceFormat | None = None) -> None:
        """Write the voice to a file, whole or not at all; an existing one is replaced.

        format: "voice", dualar's own, which keeps all and has a checksum, or "s2voice", version 1 of the format of
        s2.cpp, which keeps neither fingerprint, name nor samples_per_frame and has no checksum. By default the suffix
        decides: `.voice` or `.s2voice`. ValueError for another one, OSError where the file cannot be written.
        """
        write_file(path, encode_voice(self, format_of(path, format)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Voice:
        """Read a voice from a file of either format. The content decides which it is, not the name.

        Errors: OSError where it cannot be read; ValueError, naming the path, for a file of another kind or version, cut
        short, damaged (any change of a `.voice` is found; in a `.s2voice`, one that contradicts itself) or absurd.
        """
        return cls.decode(read_file(path), source=os.fspath(path))

    @classmethod
    def decode(cls, data: bytes, *, source: str = "voice") -> Voice:
        """The voice in a file's bytes, as `load`; errors name `source`."""
        fields = decode_fields(data, source=source)
        try:
            return cls(**fields)
        except (ValueError, TypeError) as error:
            raise ValueError(f"[voice] expected a voice in {source}, got a wrong value: {error}") from error

    def __repr__(self) -> str:
        return (
            f"<dualar.Voice {self.name or 'without a name'}: {self.frames} frames of {self.num_codebooks} codes, "
            f"{self.transcript if len(self.transcript) <= 40 else self.transcript[:37] + '...'!r}>"
        )
