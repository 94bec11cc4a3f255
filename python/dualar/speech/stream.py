"""Speech as a stream: a thread generates and decodes, and puts chunks into a bounded queue from which they are taken.

Owns `AudioChunk`, `SpeechStream`, and `ChunkStream`, the base of all streams: the sizes of chunks, the queue, stopping,
and the result. Leaves the frames to `dualar.generation`, their samples to `dualar.codec`, setting up a request to
`verbs.py`, and streams of long texts to `dualar.narration`.

Generation and decoding take turns in one thread, because both use all threads of the Runtime. A pool of its own for the
codec would hold its weights twice; `benchmarks/bench_stream.py --overlap` measures what it would gain.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from dualar.codec.codec import CodecStream
from dualar.config import whole_number
from dualar.generation.frames import Frame, Generation
from dualar.generation.generate import FrameLoop
from dualar.text.places import TimedWord

R = TypeVar("R")  # the type of a stream's result
S = TypeVar("S", bound="ChunkStream[Any]")

DEFAULT_MAX_AHEAD = 32

_POLL_SECONDS = 0.5  # how often a thread that waits for room in the queue checks whether the program has ended


@dataclass(frozen=True, eq=False)
class AudioChunk:
    """A piece of speech, which follows the piece before it without a gap or a seam.

    samples: float32 [k * samples_per_frame] in [-1, 1], mono. frame_index: the number of its first frame, from 0.
    codes: int32 [num_codebooks, k], the frames that the samples were decoded from. words: where the request asked for
    word times, the words whose end was found since the chunk before, their samples counted from the beginning of the
    speech; a last chunk without samples may bring the rest.
    """

    samples: npt.NDArray[np.float32]
    sample_rate: int
    frame_index: int
    codes: npt.NDArray[np.int32]
    words: tuple[TimedWord, ...] = ()

    @property
    def duration(self) -> float:
        """Seconds of sound."""
        return float(self.samples.size / self.sample_rate)


class ChunkStream(Iterator[AudioChunk], Generic[R]):
    """Iterator over chunks that a thread makes ahead of time; at its end, `result` has the result of the whole.

    A context manager. Leaving it, or close(), stops the work before its end; so does dropping the last reference to the
    stream. Errors of the model or the device are raised by `next`, after the chunks that were made before them.
    """

    def __init__(
        self, work: Callable[[], None], handover: Handover[R], *, check: Callable[[], None] | None = None
    ) -> None:
        """work: run by the thread; puts chunks into the handover, calls its `end`. check: called before each `next`."""
        self._handover = handover
        self._check = check
        # The thread holds no reference to this object, so that dropping the object can stop the thread.
        self._thread = threading.Thread(target=work, name="dualar-stream")
        weakref.finalize(self, self._handover.stop).atexit = False
        self._thread.start()

    def __next__(self) -> AudioChunk:
        if self._check is not None:
            self._check()
        chunk = self._handover.take()
        if chunk is None:
            raise StopIteration
        return chunk

    @property
    def result(self) -> R:
        """The result of the whole, once the stream is at its end or closed.

        Errors: ValueError before the end; the error that ended the work, where one did.
        """
        return self._handover.result()

    def close(self) -> None:
        """Stop, at the latest after the frame or prefill that is being computed. Chunks not yet taken are lost."""
        self._handover.stop()
        self._thread.join()

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SpeechStream(ChunkStream[Generation]):
    """The chunks of one request, as they are made. `Engine.stream` makes one; use it with `with`, or close() it.

    `result` is the Generation, timings and all: its codes are those of all frames that were made, also of chunks that
    were not taken.
    """

    def __init__(
        self,
        loop: FrameLoop,
        decoder: CodecStream,
        *,
        sample_rate: int,
        frames_per_chunk: int | Sequence[int] = 1,
        max_ahead: int = DEFAULT_MAX_AHEAD,
        on_frame: Callable[[Frame], object] | None = None,
        check: Callable[[], None] | None = None,
        began: float | None = None,
    ) -> None:
        """As `Engine.stream`. check: called before each `next`. began: `time.perf_counter()` at the request's start."""
        sizes = check_cadence(frames_per_chunk)
        handover: Handover[Generation] = Handover(whole_number("stream.max_ahead", max_ahead, 1))
        began = time.perf_counter() if began is None else began
        work = _Work(loop, decoder, sizes, sample_rate, handover, on_frame, began)
        super().__init__(work.run, handover, check=check)


class Handover(Generic[R]):
    """The queue between the thread that makes chunks and the one that takes them, and how the work ended."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._changed = threading.Condition()
        self._chunks: deque[AudioChunk] = deque()
        self._result: R | None = None
        self._error: BaseException | None = None
        self.stopped = False

    def put(self, chunk: AudioChunk) -> bool:
        """Wait for room and add the chunk; False where it is not wanted any more."""
        with self._changed:
            while len(self._chunks) >= self._capacity and not self.stopped:
                if not self._changed.wait(_POLL_SECONDS) and _program_has_ended():
                    self.stopped = True
            if not self.stopped:
                self._chunks.append(chunk)
                self._changed.notify_all()
            return not self.stopped

    def take(self) -> AudioChunk | None:
        """Wait for a chunk; None after the last one or once stopped. Raises the error that ended the work."""
        with self._changed:
            while not (self._chunks or self.stopped or self._ended):
                self._changed.wait()
            if self.stopped:
                return None
            if self._chunks:
                chunk = self._chunks.popleft()
                self._changed.notify_all()
                return chunk
            if self._error is not None:
                raise self._error
            return None

    def wanted(self) -> bool:
        """Whether more chunks are to be made."""
        return not (self.stopped or _program_has_ended())

    def stop(self) -> None:
        with self._changed:
            self.stopped = True
            self._chunks.clear()
            self._changed.notify_all()

    def end(self, result: R | None, error: BaseException | None) -> None:
        with self._changed:
            self._result, self._error = result, error
            self._changed.notify_all()

    def result(self) -> R:
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._result is None or (self._chunks and not self.stopped):
                raise ValueError("[stream.result] expected a stream at its end or closed, got one that goes on")
            return self._result

    @property
    def _ended(self) -> bool:
        return self._result is not None or self._error is not None


class _Work:
    """What the thread does: takes frames from the loop, decodes them, and puts chunks into the queue."""

    def __init__(
        self,
        loop: FrameLoop,
        decoder: CodecStream,
        sizes: tuple[int, ...],
        sample_rate: int,
        handover: Handover[Generation],
        on_frame: Callable[[Frame], object] | None,
        began: float,
    ) -> None:
        self._loop = loop
        self._on_frame = on_frame
        self._decoder = decoder
        self._sizes = sizes
        self._sample_rate = sample_rate
        self._handover = handover
        self._began = began
        self._chunks = 0
        self._no_codes = np.zeros((0, 0), np.int32)
        self._decode_s = 0.0
        self._first_audio_s: float | None = None

    def run(self) -> None:
        try:
            waiting: list[npt.NDArray[np.int32]] = []
            for frame in self._loop:
                if not self._handover.wanted():
                    break
                waiting.append(frame.codes)
                if self._on_frame is not None and self._on_frame(frame) is False:
                    self._loop.close()  # the frames so far are kept, and heard
                if len(waiting) == self._sizes[min(self._chunks, len(self._sizes) - 1)]:
                    if not self._emit(waiting):
                        break
                    waiting = []
            else:
                words = self._loop.next_words(last=True)
                if waiting:
                    self._emit(waiting, words)
                elif words:
                    self._put(np.zeros(0, np.float32), self._decoder.frames, self._no_codes, words)
            self._handover.end(self._result(), None)
        except BaseException as error:  # any error is raised in the thread that takes the chunks
            self._handover.end(None, error)
        finally:
            self._loop.close()
            self._decoder.close()

    def _emit(self, frames: list[npt.NDArray[np.int32]], words: tuple[TimedWord, ...] | None = None) -> bool:
        codes = np.stack(frames, axis=1)
        self._no_codes = codes[:, :0]
        started, first = time.perf_counter(), self._decoder.frames
        samples = self._decoder.push(codes)
        now = time.perf_counter()
        self._decode_s += now - started
        if self._first_audio_s is None:
            self._first_audio_s = now - self._began
        self._chunks += 1
        return self._put(samples, first, codes, self._loop.next_words() if words is None else words)

    def _put(
        self,
        samples: npt.NDArray[np.float32],
        first: int,
        codes: npt.NDArray[np.int32],
        words: tuple[TimedWord, ...],
    ) -> bool:
        return self._handover.put(AudioChunk(samples, self._sample_rate, first, codes, words))

    def _result(self) -> Generation:
        generation = self._loop.result()
        decoded = self._decoder.frames
        decode_ms = self._decode_s * 1e3
        factor = None
        if decoded and decoded == generation.codes.shape[1]:  # else some frames were generated and not decoded
            seconds = decoded * self._decoder.samples_per_frame / self._sample_rate
            factor = (generation.timings.prefill_ms + generation.timings.loop_ms + decode_ms) / 1e3 / seconds
        first_ms = None if self._first_audio_s is None else self._first_audio_s * 1e3
        timings = replace(generation.timings, decode_ms=decode_ms, real_time_factor=factor, first_audio_ms=first_ms)
        return replace(generation, timings=timings)


def check_cadence(frames_per_chunk: int | Sequence[int]) -> tuple[int, ...]:
    """How many frames each chunk has, the last number for all that follow; ValueError unless numbers >= 1."""
    given = frames_per_chunk if isinstance(frames_per_chunk, list | tuple) else (frames_per_chunk,)
    if not given:
        raise ValueError("[stream.frames_per_chunk] expected at least one number, got none")
    return tuple(whole_number("stream.frames_per_chunk", size, 1) for size in given)


def _program_has_ended() -> bool:
    """Whether nothing but streams' threads and daemons still runs: these threads must not keep the program alive."""
    if threading.main_thread().is_alive():
        return False
    return all(thread.daemon or thread.name == "dualar-stream" for thread in threading.enumerate() if thread.is_alive())
