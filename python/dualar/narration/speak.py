"""From the pieces of a long text to its sound: whole, or as a stream.

Owns `NarrationStream` and the way from pieces to chunks. Leaves which piece is spoken when and how to `narrator.py`,
the queue and its thread to `dualar.speech.stream`.

Each piece is decoded on its own, from silence, and between two stands a pause of zeros: so a piece sounds the same
whatever came before it and whether or not it was made in this run. A piece is heard once it is whole, because one that
fails is spoken again: what was heard cannot be taken back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from dualar.codec.codec import Codec, CodecStream
from dualar.config import DEFAULT_STALL_GUARD, GenerationConfig, SamplingConfig, StallGuard, whole_number
from dualar.families.base import Style, Turn
from dualar.generation.batch import Batch
from dualar.generation.checks import checked_seed, frame_budget
from dualar.generation.frames import Frame, Timings
from dualar.generation.generate import FrameLoop
from dualar.generation.requests import GenerationRequest
from dualar.model import BuiltPrompt
from dualar.narration.config import NarrationConfig
from dualar.narration.job import Job, Request
from dualar.narration.narrator import Narrator
from dualar.narration.plan import NarratedPiece, NarrationProgress
from dualar.speech.stream import DEFAULT_MAX_AHEAD, AudioChunk, ChunkStream, Handover, check_cadence
from dualar.text.plain import plain_text
from dualar.voices.find import find_voice

if TYPE_CHECKING:
    from dualar.engine import Engine, VoiceLike
    from dualar.families.base import Model
    from dualar.text.tokenizer import Tokenizer
from dualar.narration.result import Narration, NarrationResult

Int32 = npt.NDArray[np.int32]

DEFAULT_CADENCE = (1, 2, 4, 8, 16)  # frames: the first sound of a finished piece at once, the rest in cheaper steps


class NarrationStream(ChunkStream[NarrationResult]):
    """The chunks of a long text, as they are made: one run of samples. `Engine.narrate_stream` makes one.

    Use it with `with`, or close() it. A pause is a chunk without codes. `result` says what became of the pieces.
    """


class Voiced:
    """The `Speaker` that an engine is for one narration: its parts, held so that a close() does not stop it."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        build: Callable[[str, Sequence[Turn]], BuiltPrompt],
        config: GenerationConfig,
        loop_options: dict[str, Any],
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._config = config
        self._loop_options = loop_options
        self.num_codebooks = model.num_codebooks
        self.context_length = model.context_length
        self.prompt = build

    def check(self, prompt: BuiltPrompt) -> None:
        frame_budget(self._model, self._config, prompt.shape[1], None)

    def loop(self, prompt: BuiltPrompt, text: str, seed: int) -> FrameLoop:
        tokens = len(self._tokenizer.encode_text(text))
        return FrameLoop(self._model, prompt, self._config, seed=seed, text_tokens=tokens, **self._loop_options)

    def batch(self, rows: int) -> Batch:
        return Batch(self._model, max_rows=rows, **self._loop_options)

    def request(
        self, prompt: BuiltPrompt, text: str, seed: int, on_frame: Callable[[Frame], object] | None
    ) -> GenerationRequest:
        config = self._config
        return GenerationRequest(
            prompt=prompt,
            max_new_tokens=config.max_new_tokens,
            min_tokens_before_end=config.min_tokens_before_end,
            sampling=config.sampling,
            seed=seed,
            on_frame=on_frame,
            stall_guard=config.stall_guard,
            text_tokens=len(self._tokenizer.encode_text(text)),
        )


class Speech:
    """From a narrator's pieces to chunks, and the sum of it."""

    def __init__(
        self, narrator: Narrator, decoder: CodecStream, sizes: tuple[int, ...], sample_rate: int, first_sample: int
    ) -> None:
        """first_sample: what stands before it is there already, and is not decoded; the end of a piece."""
        self._narrator = narrator
        self._decoder = decoder
        self._sizes = sizes
        self._rate = sample_rate
        self._sample = first_sample
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
            yield AudioChunk(samples, self._rate, first + start, codes)
            start, number = start + codes.shape[1], number + 1

    def result(self) -> dict[str, Any]:
        """The fields of a NarrationResult."""
        narrator = self._narrator
        spent = narrator.prefill_ms + narrator.loop_ms + self._decode_s * 1e3
        # Only where each piece was made in this run does what was spent stand for what was heard.
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


class Narrates:
    """What `Engine` can do with long texts."""

    def narrate(
        self,
        text: str,
        *,
        voice: VoiceLike | None = None,
        language: str | None = None,
        speaker: str | None = None,
        instruct: str | None = None,
        seed: int | None = None,
        config: NarrationConfig | None = None,
        sampling: SamplingConfig | None = None,
        max_new_tokens: int | None = None,
        min_tokens_before_end: int | None = None,
        stall_guard: StallGuard | None = DEFAULT_STALL_GUARD,
        job: str | os.PathLike[str] | None = None,
        on_frame: Callable[[Frame], object] | None = None,
        on_piece: Callable[[NarrationProgress], object] | None = None,
    ) -> Narration:
        """Text of any length to speech: cut at sentence ends, spoken piece by piece, put together with pauses.

        Each piece is asked for with the turns before it as context, so that the speech goes on as it began. Speaker
        tags (`<|speaker:1|>`) make turns of their own. config: how long pieces and pauses are, how much context, how
        often a piece that fails is tried again; then it is left out, and named in `failed`; and how many pieces are
        spoken at once (`NarrationConfig.rows`). voice, language, speaker, instruct, sampling and stall_guard: as for
        `synthesize`; Qwen3-TTS models have no place for context.
        max_new_tokens and min_tokens_before_end: of each piece.
        seed: the same one, the same samples; each piece has its own from it (`dualar.narration.plan.piece_seed`).

        job: a file in which finished pieces are kept; one that exists is continued, if text, voice, options and model
        are those that began it (else a ValueError says what differs). on_frame is called with each Frame, its index
        counted in its piece (with several rows the frames of several pieces come in turn), on_piece after each piece;
        a return that is False stops, and what was finished is kept.

        Errors: as for `synthesize`; BackendError ends the whole, a job keeps what was finished.
        """
        narrator, codec, before = self._narrator(
            text, voice, Style(language=language, speaker=speaker, instruct=instruct), seed, config, sampling,
            max_new_tokens, min_tokens_before_end, stall_guard, job, on_frame, on_piece,
        )  # fmt: skip
        speech = Speech(narrator, codec._stream(None, before=before), DEFAULT_CADENCE, codec.sample_rate, 0)
        samples = [chunk.samples for chunk in speech.chunks()]
        joined = np.concatenate(samples) if samples else np.zeros(0, np.float32)
        return Narration(samples=joined, **speech.result())

    def narrate_stream(
        self,
        text: str,
        *,
        voice: VoiceLike | None = None,
        language: str | None = None,
        speaker: str | None = None,
        instruct: str | None = None,
        frames_per_chunk: int | Sequence[int] = DEFAULT_CADENCE,
        seed: int | None = None,
        config: NarrationConfig | None = None,
        sampling: SamplingConfig | None = None,
        max_new_tokens: int | None = None,
        min_tokens_before_end: int | None = None,
        stall_guard: StallGuard | None = DEFAULT_STALL_GUARD,
        job: str | os.PathLike[str] | None = None,
        on_frame: Callable[[Frame], object] | None = None,
        on_piece: Callable[[NarrationProgress], object] | None = None,
        max_ahead: int = DEFAULT_MAX_AHEAD,
        first_sample: int = 0,
    ) -> NarrationStream:
        """`narrate`, chunk by chunk: one iterator of AudioChunk for the whole, to be closed or used with `with`.

        A piece is heard once it is finished, while the next one is made. frames_per_chunk: as for `stream`, anew for
        each piece; with the default the samples are those of `narrate`, else but for rounding. first_sample: begin
        there, which must be the end of a piece that the job has: what is before it was written. The callbacks are
        called in the stream's thread.
        """
        sizes = check_cadence(frames_per_chunk)
        handover: Handover[NarrationResult] = Handover(whole_number("stream.max_ahead", max_ahead, 1))

        def watched(frame: Frame) -> object:
            return False if not handover.wanted() else None if on_frame is None else on_frame(frame)

        narrator, codec, before = self._narrator(
            text, voice, Style(language=language, speaker=speaker, instruct=instruct), seed, config, sampling,
            max_new_tokens, min_tokens_before_end, stall_guard, job, watched, on_piece,
        )  # fmt: skip
        speech = Speech(
            narrator,
            codec._stream(None, before=before),
            sizes,
            codec.sample_rate,
            whole_number("first_sample", first_sample, 0, 2**62),
        )
        check = cast("Engine", self)._fork_guard
        return NarrationStream(partial(_work, speech, narrator, handover), handover, check=check)

    def _narrator(
        self,
        text: str,
        voice: VoiceLike | None,
        style: Style,
        seed: int | None,
        config: NarrationConfig | None,
        sampling: SamplingConfig | None,
        max_new_tokens: int | None,
        min_tokens_before_end: int | None,
        stall_guard: StallGuard | None,
        job_path: str | os.PathLike[str] | None,
        on_frame: Callable[[Frame], object] | None,
        on_piece: Callable[[NarrationProgress], object] | None,
    ) -> tuple[Narrator, Codec, Int32 | None]:
        """Who makes the pieces, what decodes them, and the codes that each piece's sound goes on from."""
        engine = cast("Engine", self)
        model, codec, tokenizer = engine.model, engine.codec, engine.tokenizer
        config = (config or NarrationConfig()).for_model(engine._family.longest_text)
        generation = GenerationConfig(
            max_new_tokens=max_new_tokens,
            min_tokens_before_end=engine._at_least(min_tokens_before_end),
            sampling=engine.sampling if sampling is None else sampling,
            stall_guard=stall_guard,
        )
        found = None if voice is None else find_voice(voice)

        def build(words: str, history: Sequence[Turn]) -> BuiltPrompt:
            turns = history if engine._family.takes_history else ()
            return engine._prompt(words, found, style, model, codec, tokenizer, turns)

        job = None
        if job_path is not None:
            request = Request.of(
                plain_text(text), voice=found, generation=generation, config=config, model=engine.path,
                loop={
                    "fast_ar": engine._fast_ar, "kv_type": engine._kv_type, **style.given(),
                    **engine._family.text_options,
                },
            )  # fmt: skip
            job = Job.open(job_path, request, seed=seed, num_codebooks=model.num_codebooks, codec=codec)
            seed = job.seed
        loop = {"fast_ar": engine._fast_ar, "kv_type": engine._kv_type, "prefix_cache": engine._prefix_cache}
        narrator = Narrator(
            text,
            Voiced(model, tokenizer, build, generation, loop),
            config,
            seed=checked_seed(seed),
            max_new_tokens=max_new_tokens,
            sample_rate=codec.sample_rate,
            samples_per_frame=codec.samples_per_frame,
            job=job,
            on_frame=on_frame,
            on_piece=on_piece,
        )
        return narrator, codec, engine._family.decoded_before(found)


def _work(speech: Speech, narrator: Narrator, handover: Handover[NarrationResult]) -> None:
    """What a stream's thread does."""
    try:
        for chunk in speech.chunks():
            if not handover.put(chunk):
                break
        narrator.close()
        handover.end(NarrationResult(**speech.result()), None)
    except BaseException as error:  # of any kind: whoever takes the chunks is told
        handover.end(None, error)
