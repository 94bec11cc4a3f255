"""Turns codes into samples, all at once or a few frames at a time, and samples into codes.

Owns `Codec` and `CodecStream`: the checks on what goes in and comes out, and the work in blocks, so that memory stays
bounded and Ctrl-C is heard between blocks. Leaves the arithmetic to the compiled core, the state after a voice's
recording to `warm_start.py`, and sound files to `dualar.audio`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType

import numpy as np
import numpy.typing as npt

from dualar._native import _core
from dualar.audio.read import mix_and_resample
from dualar.codec.fingerprint import codec_fingerprint
from dualar.codec.warm_start import WarmStarts
from dualar.codes import check_codes
from dualar.config import whole_number
from dualar.runtime import ForkGuard, open_file, open_runtime

# Frames that one call of the core works on. More means fewer, larger matrix products; memory grows with it.
BLOCK_FRAMES = 16
# The same for a stream, which is mostly pushed a frame or a few at a time and keeps its buffers as long as it lives.
_STREAM_FRAMES = 8
LEFT_CONTEXT = 25
"""Frames of context of the chunked decoding, as published with Qwen3-TTS."""


class Codec:
    """The neural codec of a model file. `Engine.codec` has one; `Codec.load` opens a file for its codec alone."""

    def __init__(
        self, core: _core.Codec, *, check: Callable[[], None] | None = None, fingerprint: str | None = None
    ) -> None:
        """core: the compiled codec. check: called before each use; raises where the owner was closed."""
        self._core = core
        self._check = check
        self._fingerprint = fingerprint
        self._warm_starts = WarmStarts()

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str = "cpu", threads: int | None = None) -> Codec:
        """Load just the codec of a GGUF file. Errors and options as for `dualar.load`."""
        file = open_file(path)
        if not has_codec(file):
            raise _core.ModelError(no_codec(file))
        core = _core.Codec(file, open_runtime(device=device, threads=threads))
        return cls.of(file, core, check=ForkGuard(file.path))

    @classmethod
    def of(cls, file: _core.ModelFile, core: _core.Codec, *, check: Callable[[], None]) -> Codec:
        """`core`, the compiled codec of an open file, with its fingerprint. check: called before each use."""
        geometry = [core.sample_rate, core.samples_per_frame, *core.codebook_sizes]
        return cls(core, check=check, fingerprint=codec_fingerprint(file, geometry=geometry))

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
    def fingerprint(self) -> str | None:
        """Which codec this is: files with one fingerprint give their codes one meaning, in F32 and F16 alike."""
        return self._fingerprint

    @property
    def unused_tensors(self) -> list[str]:
        """Names of the codec tensors in the file that nothing here reads."""
        return list(self._core.unused_tensors)

    @property
    def can_encode(self) -> bool:
        """Whether the file has the encoder too; without it `encode` is a ModelError."""
        return self._core.can_encode

    @property
    def clamps_codes(self) -> bool:
        """Whether a code at or above its codebook's size means the last entry, as S2's do, or is a ValueError."""
        return self._core.clamps_codes

    def decode(
        self,
        codes: npt.ArrayLike,
        *,
        chunk_frames: int | None = None,
        left_context: int | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> npt.NDArray[np.float32]:
        """Codes int [num_codebooks, T] -> samples float32 [T * samples_per_frame] in [-1, 1].

        A code at or above its codebook's size means the last entry where `clamps_codes` is true: S2 models may draw
        such a code. By default the decoding is exact for any T. chunk_frames: decode chunks of this many frames, each
        from a fresh state after up to left_context earlier frames (by default 25) whose samples are dropped.
        Qwen3-TTS's published code does this with 300; it is an approximation with seams between chunks.
        on_progress is called with (frames done, T) after each block. Errors: ValueError for another shape or type, a
        code out of range, chunk_frames < 1, left_context < 0 or without chunk_frames; ModelError where the model gives
        a sample that is not finite; BackendError where the device fails.
        """
        if self._check is not None:
            self._check()
        if chunk_frames is None:
            if left_context is not None:
                raise ValueError(f"[decode.left_context] expected it with chunk_frames, got {left_context!r} alone")
            return self._decode(codes, on_progress)
        chunk = whole_number("decode.chunk_frames", chunk_frames, 1)
        context = whole_number("decode.left_context", LEFT_CONTEXT if left_context is None else left_context, 0)
        checked = self._checked(codes)
        frames = checked.shape[1]
        samples = np.zeros(frames * self.samples_per_frame, dtype=np.float32)
        for start in range(0, frames, chunk):
            first, end = max(start - context, 0), min(start + chunk, frames)
            part = self._decode(checked[:, first:end], None)
            samples[start * self.samples_per_frame : end * self.samples_per_frame] = part[
                (start - first) * self.samples_per_frame :
            ]
            if on_progress is not None:
                on_progress(end, frames)
        return samples

    def stream(self) -> CodecStream:
        """A decoder that takes codes as they come; each has a state of its own. Errors as for `decode`."""
        if self._check is not None:
            self._check()
        return self._stream(self._check)

    def _stream(
        self,
        check: Callable[[], None] | None,
        *,
        before: npt.NDArray[np.int32] | None = None,
        max_frames: int = _STREAM_FRAMES,
    ) -> CodecStream:
        """`stream` with another check, or none. before: codes int32 [num_codebooks, n] that the first push decodes
        first, without their samples. max_frames: how many frames the core works on at a time; where this is
        BLOCK_FRAMES, and as many are pushed at a time, the samples are those of `_decode`, bit for bit."""
        core = self._core.stream(max_frames=max_frames)
        return CodecStream(
            core,
            samples_per_frame=self.samples_per_frame,
            checked=self._checked,
            check=check,
            begin=partial(self._warm_starts.enter, codes=before),
        )

    def encode(
        self,
        samples: npt.ArrayLike,
        *,
        sample_rate: int | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> npt.NDArray[np.int32]:
        """Samples float [n], or [n, channels], in [-1, 1] -> codes int32 [num_codebooks, T].

        T is n / samples_per_frame, rounded up. Channels are averaged. sample_rate: the samples' rate in Hz, by default
        the codec's; samples of another rate are resampled. No samples give no frames. on_progress is called with
        (frames done, T) after each block. Errors: ValueError for another shape or type, samples that are not finite, or
        an impossible rate; ModelError for a file whose codec lacks its encoder; BackendError where the device fails.
        """
        if self._check is not None:
            self._check()
        clip = mix_and_resample(samples, self.sample_rate if sample_rate is None else sample_rate, self.sample_rate)
        size = self.samples_per_frame
        frames = -(-clip.shape[0] // size)
        codes = np.zeros((self.num_codebooks, frames), dtype=np.int32)
        if frames == 0:
            return codes
        block = min(BLOCK_FRAMES, frames)
        encoder = self._core.encoder(max_frames=block)
        for start in range(0, frames, block):
            end = min(start + block, frames)
            part = np.ascontiguousarray(clip[start * size : end * size])
            codes[:, start:end] = encoder.push(part) if end < frames else encoder.finish(part)
            if on_progress is not None:
                on_progress(end, frames)
        return codes

    def _decode(
        self,
        codes: npt.ArrayLike,
        on_progress: Callable[[int, int], object] | None,
        *,
        before: npt.NDArray[np.int32] | None = None,
    ) -> npt.NDArray[np.float32]:
        """`decode` without the check whether the owner was closed: for a request that began before it was. before:
        codes int32 [num_codebooks, n] that are decoded first, and whose samples are left out."""
        checked = self._checked(codes)
        frames = checked.shape[1]
        samples = np.zeros(frames * self.samples_per_frame, dtype=np.float32)
        if frames == 0:
            return samples
        block = min(BLOCK_FRAMES, frames)
        stream = self._core.stream(max_frames=block)
        self._warm_starts.enter(stream, before)
        for start in range(0, frames, block):
            end = min(start + block, frames)
            part = stream.push(np.ascontiguousarray(checked[:, start:end]))
            _refuse_not_finite(part, start, end)
            samples[start * self.samples_per_frame : end * self.samples_per_frame] = part
            if on_progress is not None:
                on_progress(end, frames)
        return samples

    def _checked(self, codes: npt.ArrayLike) -> npt.NDArray[np.int32]:
        limits = None if self.clamps_codes else self.codebook_sizes
        return check_codes(codes, num_codebooks=self.num_codebooks, limits=limits)


def has_codec(file: _core.ModelFile) -> bool:
    """Whether a file has tensors of a codec; ModelError for an architecture that is not known."""
    prefix = _core.codec_tensors(file)
    return any(name.startswith(prefix) for name, _, _ in file.tensors())


def no_codec(file: _core.ModelFile) -> str:
    """The error text for a file without a codec."""
    return (
        f"[load] expected codec tensors ({_core.codec_tensors(file)}*) in {file.path}, found none: codes can be made, "
        "not decoded"
    )


class CodecStream:
    """Codes in, samples out at once: no look-ahead, and the same samples however the codes are cut into pushes.

    `Codec.stream` makes one. It keeps the codec's state after the frames so far, apart from all other streams. A
    context manager; one thread at a time.
    """

    def __init__(
        self,
        core: _core.CodecStream,
        *,
        samples_per_frame: int,
        checked: Callable[[npt.ArrayLike], npt.NDArray[np.int32]],
        check: Callable[[], None] | None = None,
        begin: Callable[[_core.CodecStream], None] = lambda core: None,
    ) -> None:
        """Use `Codec.stream` to make one. checked: turns a caller's codes into those that the core takes, or raises
        ValueError. check: called before each push; raises where the owner was closed. begin: called before the first
        push, and the first after a reset; brings the core's stream to the state in which decoding begins."""
        self._core: _core.CodecStream | None = core
        self._samples_per_frame = samples_per_frame
        self._checked = checked
        self._check = check
        self._begin = begin
        self._begun = False
        self._frames = 0
        self._failed = False
        self._turn = threading.Lock()

    @property
    def samples_per_frame(self) -> int:
        """Samples that one column of codes becomes."""
        return self._samples_per_frame

    @property
    def frames(self) -> int:
        """Frames that were pushed since the stream was made or last reset."""
        return self._frames

    def push(self, codes: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Codes int [num_codebooks, k] of the next k >= 0 frames -> float32 [k * samples_per_frame] in [-1, 1].

        Errors: as for `Codec.decode`; ValueError after close(), and after a push that failed in the device or gave
        samples that are not finite, until reset(). Codes that are refused change nothing.
        """
        core = self._open()
        if self._check is not None:
            self._check()
        checked = self._checked(codes)
        if not self._turn.acquire(blocking=False):
            raise ValueError("[codec.stream] expected one thread at a time, got a second caller")
        try:
            return self._push(core, checked)
        finally:
            self._turn.release()

    def reset(self) -> None:
        """Return to the state of a new stream. ValueError after close()."""
        core = self._open()
        core.reset()
        self._frames, self._failed, self._begun = 0, False, False

    def close(self) -> None:
        """Free the state's memory. A later push or reset is a ValueError; a second close() does nothing."""
        self._core = None

    def __enter__(self) -> CodecStream:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> _core.CodecStream:
        if self._core is None:
            raise ValueError("[codec.stream] expected an open stream, got one that was closed")
        return self._core

    def _push(self, core: _core.CodecStream, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        if self._failed:
            raise ValueError("[codec.stream] expected reset() or a new stream after a push that failed, got a push")
        frames = codes.shape[1]
        samples = np.zeros(frames * self._samples_per_frame, dtype=np.float32)
        self._failed = True  # until all blocks are decoded: the state after a part of a push is of no use
        if not self._begun:
            self._begin(core)
            self._begun = True
        for start in range(0, frames, core.max_frames):
            end = min(start + core.max_frames, frames)
            part = core.push(np.ascontiguousarray(codes[:, start:end]))
            _refuse_not_finite(part, self._frames + start, self._frames + end)
            samples[start * self._samples_per_frame : end * self._samples_per_frame] = part
        self._failed = False
        self._frames += frames
        return samples


def _refuse_not_finite(samples: npt.NDArray[np.float32], start: int, end: int) -> None:
    bad = int(np.count_nonzero(~np.isfinite(samples)))
    if bad:
        raise _core.ModelError(
            f"[codec] expected finite samples, got {bad} of {samples.shape[0]} that are NaN or inf in frames "
            f"{start} to {end - 1}: the weights are damaged, or a value overflowed"
        )
