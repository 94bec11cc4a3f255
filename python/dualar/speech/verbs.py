"""Requests to speech: how a batch of texts becomes sound, and what turns a generation's codes into a clip.

Owns the way from requests over codes to `Audio`. Leaves the rows to `dualar.generation`, samples to `dualar.codec`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from dualar.codec.codec import Codec
    from dualar.generation.frames import Generation
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from dualar.audio.clip import Audio
from dualar.codec.codec import Codec
from dualar.generation.batch import DEFAULT_MAX_ROWS, Batch, BatchRow
from dualar.generation.frames import Generation
from dualar.generation.requests import BatchResult, GenerationRequest
from dualar.generation.rules import FrameRules
from dualar.voices.find import find_voice

if TYPE_CHECKING:
    from dualar.engine import Engine
from dualar.speech.request import SpeechRequest


def decoded(
    generation: Generation,
    codec: Codec,
    on_decode: Callable[[int, int], object] | None = None,
    *,
    before: npt.NDArray[np.int32] | None = None,
) -> Audio:
    """The sound of a generation, with the decoding in its timings; on_decode as for `Engine.synthesize`. before: codes
    that the codec is given first, and whose sound is dropped."""
    started = time.perf_counter()
    samples = codec._decode(generation.codes, on_decode, before=before)
    decode_ms = (time.perf_counter() - started) * 1e3
    timings = generation.timings
    seconds = samples.shape[0] / codec.sample_rate
    spent = (timings.prefill_ms + timings.loop_ms + decode_ms) / 1e3
    return Audio(
        samples=samples,
        sample_rate=codec.sample_rate,
        codes=generation.codes,
        finish_reason=generation.finish_reason,
        seed=generation.seed,
        timings=replace(timings, decode_ms=decode_ms, real_time_factor=spent / seconds if seconds > 0 else None),
        padded_frames=generation.padded_frames,
    )


class Batches:
    """What `Engine` can do with several requests at once."""

    def batch(self, *, max_rows: int = DEFAULT_MAX_ROWS, max_kv_bytes: int | None = None) -> Batch:
        """A Batch, which requests join and leave while it runs.

        max_rows: rows at once, 1 to 256. max_kv_bytes: of their KV caches together; None is no limit.
        """
        engine = cast("Engine", self)
        return Batch(
            engine.model,
            max_rows=max_rows,
            max_kv_bytes=max_kv_bytes,
            fast_ar=engine._fast_ar,
            kv_type=engine._kv_type,
            sampling=engine.sampling,
            min_tokens_before_end=engine._at_least(None),
            prefix_cache=engine._prefix_cache,
        )

    def generate_batch(
        self,
        requests: Iterable[GenerationRequest],
        *,
        max_rows: int = DEFAULT_MAX_ROWS,
        max_kv_bytes: int | None = None,
    ) -> Iterator[BatchResult[Generation]]:
        """Codes for many prompts, max_rows at a time: each request's result as it ends, so in any order.

        A row that fails has its error in its result and does not disturb the others; `BatchResult.get` raises it. So
        does one whose `on_frame` raises. Requests start in order, as rows and memory become free. Closing the iterator
        cancels what still runs. ValueError, before anything is computed, for a request that is wrong or needs more than
        max_kv_bytes for itself.
        """
        return generate_batch(self.batch(max_rows=max_rows, max_kv_bytes=max_kv_bytes), requests)

    def synthesize_batch(
        self,
        requests: Iterable[str | SpeechRequest],
        *,
        max_rows: int = DEFAULT_MAX_ROWS,
        max_kv_bytes: int | None = None,
    ) -> Iterator[BatchResult[Audio]]:
        """Speech for many texts, as `generate_batch`: each one's Audio as it ends.

        A text is decoded when it has ended, while the others wait: the decoder is bound by arithmetic and not by
        reading its weights, so nothing would be gained by decoding several at once (`benchmarks/bench_codec.py`).
        """
        engine = cast("Engine", self)
        codec, tokenizer = engine.codec, engine.tokenizer
        prompts: list[GenerationRequest] = []
        before: list[npt.NDArray[np.int32] | None] = []
        for request in requests:
            speech = SpeechRequest(text=request) if isinstance(request, str) else request
            if not isinstance(speech, SpeechRequest):
                raise ValueError(f"[batch] expected a str or a SpeechRequest, got {type(speech).__name__}")
            voice = None if speech.voice is None else find_voice(speech.voice)
            before.append(engine._family.decoded_before(voice))
            prompts.append(
                GenerationRequest(
                    prompt=engine.build_prompt(
                        speech.text,
                        voice=voice,
                        language=speech.language,
                        speaker=speech.speaker,
                        instruct=speech.instruct,
                    ),
                    max_new_tokens=speech.max_new_tokens,
                    min_tokens_before_end=speech.min_tokens_before_end,
                    sampling=speech.sampling,
                    seed=speech.seed,
                    on_frame=speech.on_frame,
                    stall_guard=speech.stall_guard,
                    text_tokens=len(tokenizer.encode_text(speech.text)),
                )
            )
        return _decoded(self.generate_batch(prompts, max_rows=max_rows, max_kv_bytes=max_kv_bytes), codec, before)


def generate_batch(batch: Batch, requests: Iterable[GenerationRequest]) -> Iterator[BatchResult[Generation]]:
    """What `Engine.generate_batch` does, through a batch that nothing else uses."""
    asked = list(requests)
    ready: list[tuple[FrameRules, int]] = []
    for request in asked:
        rules = batch._checked(request)
        ready.append((rules, batch._bytes_of(rules)))
    return _run(batch, asked, ready)


def _run(
    batch: Batch, requests: list[GenerationRequest], ready: list[tuple[FrameRules, int]]
) -> Iterator[BatchResult[Generation]]:
    indices: dict[BatchRow, int] = {}
    entered = 0
    try:
        while entered < len(ready) or batch.rows:
            # In order: a request that must wait for memory is not overtaken.
            while entered < len(ready) and batch._has_room(ready[entered][1]):
                indices[batch._enter(ready[entered][0], requests[entered].on_frame)] = entered
                entered += 1
            for row in batch.step():
                value = None if row.error is not None else row.result()
                yield BatchResult(index=indices.pop(row), value=value, error=row.error)
    finally:
        batch.close()


def _decoded(
    results: Iterator[BatchResult[Generation]], codec: Codec, before: list[npt.NDArray[np.int32] | None]
) -> Iterator[BatchResult[Audio]]:
    """before: for each request, the codes whose sound its own goes on from."""
    for result in results:
        value, error = None, result.error
        if result.value is not None:
            try:
                value = decoded(result.value, codec, before=before[result.index])
            except Exception as failed:
                error = failed
        yield BatchResult(index=result.index, value=value, error=error)
