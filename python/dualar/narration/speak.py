"""From the pieces of a long text to its sound: whole, or as a stream.

Owns `NarrationStream` and the steps from pieces to chunks. Leaves the order and the attempts of the pieces to
`narrator.py`, the queue and its thread to `dualar.speech.stream`.

Each piece is decoded on its own, from silence, and a pause of zeros stands between two pieces: so a piece sounds the
same whatever came before it, and whether or not it was made in this run. No chunk of a piece is given out before the
piece is finished, because a piece that fails is spoken again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dualar.codec.codec import CodecStream
from dualar.config import GenerationConfig, whole_number
from dualar.families.base import Turn
from dualar.generation.batch import Batch
from dualar.generation.checks import checked_seed, frame_budget
from dualar.generation.frames import Frame, Timings
from dualar.generation.generate import FrameLoop
from dualar.generation.requests import GenerationRequest
from dualar.loading import EngineParts
from dualar.model import BuiltPrompt
from dualar.narration.config import NarrationConfig
from dualar.narration.job import Job, JobRequest
from dualar.narration.narrator import Narrator
from dualar.narration.plan import NarratedPiece, NarrationProgress, TextPlan, plan
from dualar.narration.result import Narration, NarrationResult
from dualar.narration.timeline import piece_words
from dualar.speech.request import PromptBuilder, SpeechRequest
from dualar.speech.stream import AudioChunk, ChunkStream, Handover, check_cadence
from dualar.text.places import TimedWord
from dualar.text.plain import plain_text

Int32 = npt.NDArray[np.int32]

DEFAULT_CADENCE = (1, 2, 4, 8, 16)  # frames of a piece's chunks: the first sound at once, the rest in cheaper steps


class NarrationStream(ChunkStream[NarrationResult]):
    """The chunks of a long text, as they are made: one run of samples. `Engine.narrate_stream` makes one.

    Use it with `with`, or close() it. A pause is a chunk without codes. `result` has the pieces and their results.
    """


class EnginePieces:
    """The `PieceModel` of one narration: an engine's parts, which it holds so that a close() does not stop it."""

    def __init__(self, builder: PromptBuilder, request: SpeechRequest, config: GenerationConfig) -> None:
        """request: the options of each piece but its seed; config: the same, checked."""
        parts = builder.parts
        self._parts, self._builder, self._request, self._config = parts, builder, request, config
        self._loop = {"fast_ar": parts.fast_ar, "kv_type": parts.kv_type, "prefix_cache": parts.prefix_cache}
        self.num_codebooks = parts.model.num_codebooks
        self.context_length = parts.model.context_length

    def prompt(self, text: str, history: Sequence[Turn]) -> BuiltPrompt:
        return self._builder.prompt(text, history)

    def check(self, prompt: BuiltPrompt) -> None:
        frame_budget(self._parts.model, self._config, prompt.shape[1], None)

    def loop(self, prompt: BuiltPrompt, text: str, seed: int) -> FrameLoop:
        tokens = self._builder.count_tokens(text)
        return FrameLoop(
            self._parts.model, prompt, self._config, seed=seed, text_tokens=tokens,
            word_map=self._builder.word_map(text, prompt), **self._loop,  # type: ignore[arg-type]
        )  # fmt: skip

    def batch(self, rows: int) -> Batch:
        return Batch(self._parts.model, max_rows=rows, **self._loop)  # type: ignore[arg-type]

    def request(
        self, prompt: BuiltPrompt, text: str, seed: int, on_frame: Callable[[Frame], object] | None
    ) -> GenerationRequest:
        return self._builder.request(self._config, prompt, text, seed=seed, on_frame=on_frame)


class Speech:
    """Turns a narrator's pieces into chunks, and adds up the timings."""

    def __init__(
        self, narrator: Narrator, decoder: CodecStream, sizes: tuple[int, ...], sample_rate: int, first_sample: int
    ) -> None:
        """first_sample: the end of a piece; the samples before it are left out."""
        self._narrator = narrator
        self._decoder = decoder
        self._sizes = sizes
        self._rate = sample_rate
        self._sample = first_sample
        self._told = -1  # words that end up to this sample were given out
        self._began = time.perf_counter()
        self._decode_s, self._decoded = 0.0, 0
        self._first_audio_s: float | None = None

    def chunks(self) -> Iterator[AudioChunk]:
        frames = 0
        with self._decoder:
            for piece in self._narrator:
                if piece.sample_start + piece.sample_count > self._sample:
                    yield from self._chunks_of(piece, frames)
                    self._sample = piece.sample_start + piece.sample_count
                frames += piece.codes.shape[1]

    def _chunks_of(self, piece: NarratedPiece, first: int) -> Iterator[AudioChunk]:
        pause = piece.sample_start - self._sample
        if pause < 0:
            raise ValueError(f"[narrate_stream] expected first_sample at the end of a piece, got {self._sample}")
        if pause > 0:
            yield AudioChunk(np.zeros(pause, np.float32), self._rate, first, piece.codes[:, :0])
        self._decoder.reset()
        start = number = 0
        while start < piece.codes.shape[1]:
            codes = piece.codes[:, start : start + self._sizes[min(number, len(self._sizes) - 1)]]
            began = time.perf_counter()
            samples = self._decoder.push(codes)
            now = time.perf_counter()
            self._decode_s += now - began
            self._decoded += samples.size
            if self._first_audio_s is None:
                self._first_audio_s = now - self._began
            words = self._words_until(piece, (start + codes.shape[1]) * self._decoder.samples_per_frame)
            yield AudioChunk(samples, self._rate, first + start, codes, words)
            start, number = start + codes.shape[1], number + 1

    def _words_until(self, piece: NarratedPiece, sample: int) -> tuple[TimedWord, ...]:
        """The piece's words that end up to a sample of its sound and were not told yet, as words of the whole."""
        words = piece_words(piece)
        first = sum(word.sample_end <= self._told for word in words) if self._told >= piece.sample_start else 0
        self._told = piece.sample_start + sample
        return tuple(word for word in words[first:] if word.sample_end <= self._told)

    def result(self) -> dict[str, Any]:
        """The fields of a NarrationResult."""
        narrator = self._narrator
        spent = narrator.prefill_ms + narrator.loop_ms + self._decode_s * 1e3
        # The time spent compares with the sound only where each piece that was heard was made in this run.
        whole = self._decoded > 0 and narrator.frames_kept * self._decoder.samples_per_frame == self._decoded
        timings = Timings(
            prefill_ms=narrator.prefill_ms,
            loop_ms=narrator.loop_ms,
            ms_per_frame=narrator.loop_ms / narrator.frames_made if narrator.frames_made else 0.0,
            decode_ms=self._decode_s * 1e3,
            real_time_factor=spent / 1e3 / (self._decoded / self._rate) if whole else None,
            first_audio_ms=None if self._first_audio_s is None else self._first_audio_s * 1e3,
        )
        return {
            "pieces": tuple(narrator.pieces),
            "sample_rate": self._rate,
            "seed": narrator.seed,
            "cancelled": narrator.cancelled,
            "timings": timings,
        }


def narrate(
    parts: EngineParts,
    request: SpeechRequest,
    *,
    text_plan: TextPlan,
    job: str | os.PathLike[str] | None,
    on_piece: Callable[[NarrationProgress], object] | None,
) -> Narration:
    """`Engine.narrate`."""
    narrator, builder = narrator_of(parts, request, text_plan, job, on_piece)
    codec = parts.codec
    decoder = codec._stream(None, before=builder.decoded_before)
    speech = Speech(narrator, decoder, DEFAULT_CADENCE, codec.sample_rate, 0)
    samples = [chunk.samples for chunk in speech.chunks()]
    joined = np.concatenate(samples) if samples else np.zeros(0, np.float32)
    return Narration(samples=joined, **speech.result())


def narrate_stream(
    parts: EngineParts,
    request: SpeechRequest,
    *,
    text_plan: TextPlan,
    job: str | os.PathLike[str] | None,
    on_piece: Callable[[NarrationProgress], object] | None,
    frames_per_chunk: int | Sequence[int],
    max_ahead: int,
    first_sample: int,
    check: Callable[[], None],
) -> NarrationStream:
    """`Engine.narrate_stream`. check: called before each `next`."""
    sizes = check_cadence(frames_per_chunk)
    handover: Handover[NarrationResult] = Handover(whole_number("stream.max_ahead", max_ahead, 1))
    on_frame = request.on_frame

    def watched(frame: Frame) -> object:
        return False if not handover.wanted() else None if on_frame is None else on_frame(frame)

    narrator, builder = narrator_of(parts, SpeechRequest.of(request, on_frame=watched), text_plan, job, on_piece)
    codec = parts.codec
    start = whole_number("first_sample", first_sample, 0, 2**62)
    decoder = codec._stream(None, before=builder.decoded_before)
    speech = Speech(narrator, decoder, sizes, codec.sample_rate, start)
    return NarrationStream(partial(_work, speech, narrator, handover), handover, check=check)


def planned(
    parts: EngineParts, request: SpeechRequest, config: NarrationConfig | None, text_plan: TextPlan | None
) -> TextPlan:
    """The plan that was given, or the one of the request's text; ValueError for one of another text, or for both a plan
    and a config."""
    if text_plan is None:
        return plan(request.text, config, longest_text=parts.family.longest_text)
    if config is not None:
        raise ValueError("[narrate.config] expected none beside a plan, which has its own")
    if text_plan.text != plain_text(request.text):
        raise ValueError("[narrate.plan] expected the plan of the text that is to be spoken, got that of another text")
    return text_plan


def narrator_of(
    parts: EngineParts,
    request: SpeechRequest,
    text_plan: TextPlan,
    job_path: str | os.PathLike[str] | None = None,
    on_piece: Callable[[NarrationProgress], object] | None = None,
) -> tuple[Narrator, PromptBuilder]:
    """Who makes the pieces, and who builds their prompts."""
    model, codec = parts.model, parts.codec
    config = request.config(sampling=parts.sampling, min_tokens_before_end=parts.family.min_tokens_before_end)
    builder = PromptBuilder.of(parts, request)
    job, seed = None, request.seed
    if job_path is not None:
        asked = JobRequest.of(
            text_plan, voice=builder.voice, generation=config, model=parts.path,
            loop={"fast_ar": parts.fast_ar, "kv_type": parts.kv_type, **builder.style.given(),
              **parts.family.text_options},
        )  # fmt: skip
        job = Job.open(job_path, asked, seed=seed, num_codebooks=model.num_codebooks, codec=codec)
        seed = job.seed
    narrator = Narrator(
        text_plan,
        EnginePieces(builder, request, config),
        seed=checked_seed(seed),
        max_new_tokens=request.max_new_tokens,
        sample_rate=codec.sample_rate,
        samples_per_frame=codec.samples_per_frame,
        job=job,
        on_frame=request.on_frame,
        on_piece=on_piece,
    )
    return narrator, builder


def _work(speech: Speech, narrator: Narrator, handover: Handover[NarrationResult]) -> None:
    """What a stream's thread runs."""
    try:
        for chunk in speech.chunks():
            if not handover.put(chunk):
                break
        narrator.close()
        handover.end(NarrationResult(**speech.result()), None)
    except BaseException as error:  # any error is raised in the thread that takes the chunks
        handover.end(None, error)
