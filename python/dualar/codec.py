"""Codes to samples.

Owns `Codec`: the checks on a code matrix and the decoding of whole ones, block by block, so that memory stays bounded
and Ctrl-C is heard between blocks. Leaves the arithmetic to the compiled core and files to `audio.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dualar import _core

# Frames that one call of the core decodes. More means fewer, larger matrix products; memory grows with it.
_BLOCK_FRAMES = 16


class Codec:
    """The neural codec of a model file. `Engine.codec` has one; `Codec.load` opens a file for its codec alone."""

    def __init__(self, core: _core.Codec, *, check: Callable[[], None] | None = None) -> None:
        """core: the compiled codec. check: called before each use; raises where the owner was closed."""
        self._core = core
        self._check = check

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str = "cpu", threads: int | None = None) -> Codec:
        """Load just the codec of a GGUF file. Errors and options as for `dualar.load`."""
        from dualar.engine import load_codec

        return load_codec(path, device=device, threads=threads)

    @property
    def sample_rate(self) -> int:
        """Samples a second."""
        return self._core.sample_rate

    @property
    def samples_per_frame(self) -> int:
        """Samples that one column of codes becomes."""
        return self._core.samples_per_frame

    @property
    def num_codebooks(self) -> int:
        """Rows of a code matrix, the semantic codebook first."""
        return self._core.num_codebooks

    @property
    def codebook_sizes(self) -> list[int]:
        """Entries of each codebook [num_codebooks]."""
        return list(self._core.codebook_sizes)

    @property
    def unused_tensors(self) -> list[str]:
        """Names of the codec tensors in the file that nothing here reads."""
        return list(self._core.unused_tensors)

    def decode(
        self, codes: npt.ArrayLike, *, on_progress: Callable[[int, int], object] | None = None
    ) -> npt.NDArray[np.float32]:
        """Codes int [num_codebooks, T] -> samples float32 [T * samples_per_frame] in [-1, 1].

        A code at or above its codebook's size is legal and means the last entry, as models may draw one. on_progress
        is called with (frames done, T) after each block. Errors: ValueError for another shape or type, or a negative
        code; ModelError where the model gives a sample that is not finite; BackendError where the device fails.
        """
        if self._check is not None:
            self._check()
        return self._decode(codes, on_progress)

    def _decode(
        self, codes: npt.ArrayLike, on_progress: Callable[[int, int], object] | None
    ) -> npt.NDArray[np.float32]:
        """`decode` without asking the owner: for a request that began before the owner was closed."""
        checked = check_codes(codes, num_codebooks=self.num_codebooks)
        frames = checked.shape[1]
        samples = np.zeros(frames * self.samples_per_frame, dtype=np.float32)
        if frames == 0:
            return samples
        block = min(_BLOCK_FRAMES, frames)
        stream = self._core.stream(max_frames=block)
        for start in range(0, frames, block):
            end = min(start + block, frames)
            part = stream.push(np.ascontiguousarray(checked[:, start:end]))
            _refuse_not_finite(part, start, end)
            samples[start * self.samples_per_frame : end * self.samples_per_frame] = part
            if on_progress is not None:
                on_progress(end, frames)
        return samples


def check_codes(codes: npt.ArrayLike, *, num_codebooks: int) -> npt.NDArray[np.int32]:
    """A code matrix as int32 [num_codebooks, T], or ValueError saying what is wrong with it."""
    array: npt.NDArray[Any] = np.asarray(codes)
    if array.ndim != 2 or array.shape[0] != num_codebooks:
        raise ValueError(f"[codes] expected shape [{num_codebooks}, T], got {list(array.shape)}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"[codes] expected integers, got dtype {array.dtype}")
    if array.dtype.kind == "i" and array.size and int(array.min()) < 0:
        codebook, frame = (int(i) for i in np.argwhere(array < 0)[0])
        raise ValueError(
            f"[codes] expected codes >= 0, got {int(array[codebook, frame])} at codebook {codebook}, frame {frame}"
        )
    # Codes past the codebook's end are clamped by the codec; here they only have to survive the narrowing.
    narrowed: npt.NDArray[np.int32] = np.minimum(array.astype(np.uint64), np.uint64(2**31 - 1)).astype(np.int32)
    return narrowed


def _refuse_not_finite(samples: npt.NDArray[np.float32], start: int, end: int) -> None:
    bad = int(np.count_nonzero(~np.isfinite(samples)))
    if bad:
        raise _core.ModelError(
            f"[codec] expected finite samples, got {bad} of {samples.shape[0]} that are NaN or inf in frames "
            f"{start} to {end - 1}: the weights are damaged, or a value overflowed"
        )
