"""Speech as samples, and its way to a WAV file.

Owns `Audio` (what `Engine.synthesize` returns), the conversion of float samples to PCM, and the atomic writing of
output files. Leaves decoding of codes to `codec.py`. Files are written whole or not at all: to a temporary name in the
same folder, then renamed.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from dualar.generate import FinishReason, Timings

Subtype = Literal["PCM_16", "PCM_24", "FLOAT"]

_SUBTYPES = ("PCM_16", "PCM_24", "FLOAT")
_WAV_SUFFIXES = (".wav", ".wave")
_MAX_WAV_BYTES = 2**32 - 1  # RIFF sizes are 32-bit


@dataclass(frozen=True, eq=False)
class Audio:
    """Speech that a model made.

    samples: float32 [n] in [-1, 1], mono. codes: int32 [num_codebooks, n_frames], what the samples were decoded from.
    finish_reason: "end" (the model ended the speech), "length" (max_new_tokens was reached), "cancelled" (on_frame
    returned False) or "stalled" (the stall guard ended a runaway). seed: the seed that was used, so that the request
    can be repeated. padded_frames: how many frames the Fast-AR failed to finish, their missing codes being 0; 0 unless
    a device failed.
    """

    samples: npt.NDArray[np.float32]
    sample_rate: int
    codes: npt.NDArray[np.int32]
    finish_reason: FinishReason
    seed: int
    timings: Timings
    padded_frames: int = 0

    @property
    def duration(self) -> float:
        """Seconds of sound."""
        return float(self.samples.size / self.sample_rate)

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


def write_wav(
    path: str | os.PathLike[str], samples: npt.ArrayLike, sample_rate: int, *, subtype: Subtype = "PCM_16"
) -> None:
    """Write float samples [n], mono, as WAV. Errors as for `Audio.save`, but no samples are an empty file."""
    check_wav_path(path)
    write_file(path, encode_wav(samples, sample_rate, subtype=subtype))


def encode_wav(samples: npt.ArrayLike, sample_rate: int, *, subtype: Subtype = "PCM_16") -> bytes:
    """The bytes of a WAV file holding float samples [n], mono; clipped to [-1, 1]. ValueError for a NaN or inf."""
    if subtype not in _SUBTYPES:
        raise ValueError(f"[wav] expected subtype one of {', '.join(_SUBTYPES)}, got {subtype!r}")
    values = np.asarray(samples)
    if values.ndim != 1 or values.dtype.kind != "f":
        raise ValueError(
            f"[wav] expected float samples of shape [n], got dtype {values.dtype}, shape {list(values.shape)}"
        )
    if values.shape[0] * 4 > _MAX_WAV_BYTES - 128:  # the widest subtype decides: one rule for all three
        raise ValueError(f"[wav] expected at most {(_MAX_WAV_BYTES - 128) // 4} samples, got {values.shape[0]}")
    import soundfile  # type: ignore[import-untyped]  # costs import time and a shared library: only when a file is written

    buffer = io.BytesIO()
    soundfile.write(buffer, to_pcm(values, subtype), sample_rate, format="WAV", subtype=subtype)
    return buffer.getvalue()


def to_pcm(samples: npt.NDArray[Any], subtype: Subtype) -> npt.NDArray[Any]:
    """Float samples to what the WAV subtype stores; symmetric scale, rounded, clipped and never wrapped.

    Done here rather than by the library so that the same samples give the same bytes with every version of it.
    """
    bad = ~np.isfinite(samples)
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(
            f"[wav] expected finite samples, got {int(bad.sum())} that are not; the first is "
            f"{samples[first]} at sample {first}"
        )
    clipped = np.clip(samples.astype(np.float64), -1.0, 1.0)
    if subtype == "FLOAT":
        return clipped.astype(np.float32)
    if subtype == "PCM_24":
        return np.rint(clipped * (2**23 - 1)).astype(np.int32) << 8  # libsndfile keeps the upper 24 of 32 bits
    return np.rint(clipped * (2**15 - 1)).astype(np.int16)


def check_wav_path(path: str | os.PathLike[str]) -> None:
    """ValueError for a name that promises another format. Devices and pipes have no such names and pass."""
    target = Path(path)
    if target.suffix.lower() in _WAV_SUFFIXES or (target.exists() and not target.is_file()):
        return
    raise ValueError(f"[wav] expected a file name ending in .wav (WAV is what is written), got {str(target)!r}")


def check_writable(path: str | os.PathLike[str]) -> None:
    """OSError, naming the path, where `write_file` could not succeed; told before the work, not after it."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"[output] expected a file name, got a folder: {target}")
    folder = target.parent
    if not folder.exists():
        raise FileNotFoundError(f"[output] expected an existing folder, got {folder} (to write {target.name})")
    if not folder.is_dir():
        raise NotADirectoryError(f"[output] expected a folder, got a file: {folder} (to write {target.name})")
    special = target.exists() and not target.is_file()
    if not os.access(target if special else folder, os.W_OK):
        raise PermissionError(f"[output] expected a folder that can be written to, got {folder} (to write {target})")


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path`, whole or not at all; OSError, naming the path, where that fails."""
    check_writable(path)
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)  # a device or a pipe: renaming would put a plain file in its place
            return
        with _replacing(target) as file:
            file.write(data)
    except OSError as error:
        raise type(error)(error.errno, f"[output] cannot write {target}: {error.strerror or error}") from error


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    """A file beside `target` that takes its place if the block ends well and vanishes if it does not."""
    final = Path(os.path.realpath(target))  # a link stays a link
    temporary = final.with_name(f".dualar-{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # a full disk is told here, not after the rename
        if final.exists():
            os.chmod(temporary, final.stat().st_mode & 0o777)
        os.replace(temporary, final)
    except BaseException:  # also KeyboardInterrupt: nothing half-written stays
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
