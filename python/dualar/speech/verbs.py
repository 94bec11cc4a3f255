"""The work of `Engine`'s verbs: a request becomes a clip, a stream, or one of many rows of a batch.

Owns the steps from a request to codes and from codes to `Audio`. Leaves rows and rules to `dualar.generation`, samples
to `dualar.codec`, threads to `stream.py`, and long texts to `dualar.narration`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dualar.audio.clip import Audio
from dualar.codec.codec import Codec
from dualar.generation.batch import Batch
from dualar.generation.frames import Generation
from dualar.generation.generate import FrameLoop, run
from dualar.generation.many import generate_batch
from dualar.generation.requests import BatchResult, GenerationRequest
from dualar.loading import EngineParts
from dualar.speech.request import PromptBuilder, SpeechRequest
from dualar.speech.stream import SpeechStream


def synthesize(parts: EngineParts, request: SpeechRequest, *, on_decode: Callable[[int, int], object] | None) -> Audio:
    """`Engine.synthesize`."""
    codec, builder = parts.codec, PromptBuilder.of(parts, request)
    made = generate(parts, asked(builder, request))
    return decoded(made, codec, on_decode, before=builder.decoded_before)


def stream(
    parts: EngineParts,
    request: SpeechRequest,
    *,
    frames_per_chunk: int | Sequence[int],
    max_ahead: int,
    check: Callable[[], None],
) -> SpeechStream:
    """`Engine.stream`. check: called before each `next`."""
    began = time.perf_counter()
    codec, builder = parts.codec, PromptBuilder.of(parts, request)
    return SpeechStream(
        loop_of(parts, asked(builder, request)),
        codec._stream(None, before=builder.decoded_before),
        sample_rate=codec.sample_rate,
        frames_per_chunk=frames_per_chunk,
        max_ahead=max_ahead,
        on_frame=request.on_frame,
        check=check,
        began=began,
    )


def batch(parts: EngineParts, *, max_rows: int, max_kv_bytes: int | None) -> Batch:
    """`Engine.batch`."""
    return Batch(
        parts.model,
        max_rows=max_rows,
        max_kv_bytes=max_kv_bytes,
        fast_ar=parts.fast_ar,
        kv_type=parts.kv_type,
        sampling=parts.sampling,
        min_tokens_before_end=parts.family.min_tokens_before_end,
        prefix_cache=parts.prefix_cache,
    )


def synthesize_batch(
    parts: EngineParts, requests: Iterable[str | SpeechRequest], *, max_rows: int, max_kv_bytes: int | None
) -> Iterator[BatchResult[Audio]]:
    """`Engine.synthesize_batch`."""
    codec = parts.codec
    prompts: list[GenerationRequest] = []
    before: list[npt.NDArray[np.int32] | None] = []
    for request in requests:
        if not isinstance(request, str | SpeechRequest):
            raise ValueError(f"[batch] expected a str or a SpeechRequest, got {type(request).__name__}")
        speech = SpeechRequest.of(request)
        builder = PromptBuilder.of(parts, speech)
        prompts.append(asked(builder, speech))
        before.append(builder.decoded_before)
    rows = batch(parts, max_rows=max_rows, max_kv_bytes=max_kv_bytes)
    return _decoded_in_turn(generate_batch(rows, prompts), codec, before)


def loop_of(parts: EngineParts, request: GenerationRequest) -> FrameLoop:
    """The loop that runs a request alone."""
    return FrameLoop(
        parts.model,
        request.prompt,
        request.config(sampling=parts.sampling, min_tokens_before_end=parts.family.min_tokens_before_end),
        seed=request.seed,
        text_tokens=request.text_tokens,
        word_map=request.word_map,
        fast_ar=parts.fast_ar,
        kv_type=parts.kv_type,
        prefix_cache=parts.prefix_cache,
    )


def generate(parts: EngineParts, request: GenerationRequest) -> Generation:
    """`Engine.generate`."""
    return run(loop_of(parts, request), request.on_frame)


def asked(builder: PromptBuilder, request: SpeechRequest) -> GenerationRequest:
    """The request for codes that a request for speech makes: its prompt built, its options checked."""
    parts = builder.parts
    config = request.config(sampling=parts.sampling, min_tokens_before_end=parts.family.min_tokens_before_end)
    prompt = builder.prompt(request.text)
    room = parts.model.context_length - prompt.shape[1]
    if room < 1:
        raise ValueError(
            f"[text] expected a text that leaves room to speak in the model's context of {parts.model.context_length} "
            f"positions, got one whose prompt takes {prompt.shape[1]}: Engine.narrate, and `dualar say`, speak texts "
            "of any length piece by piece"
        )
    return builder.request(config, prompt, request.text, seed=request.seed, on_frame=request.on_frame)


def decoded(
    generation: Generation,
    codec: Codec,
    on_decode: Callable[[int, int], object] | None = None,
    *,
    before: npt.NDArray[np.int32] | None = None,
) -> Audio:
    """The sound of a generation, with the decoding in its timings; on_decode as for `Engine.synthesize`. before: codes
    that are decoded first, their sound dropped."""
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
        words=generation.words,
    )


def _decoded_in_turn(
    results: Iterator[BatchResult[Generation]], codec: Codec, before: list[npt.NDArray[np.int32] | None]
) -> Iterator[BatchResult[Audio]]:
    """Decode each result when it comes. before: for each request, codes that are decoded first, their sound dropped."""
    for result in results:
        value, error = None, result.error
        if result.value is not None:
            try:
                value = decoded(result.value, codec, before=before[result.index])
            except Exception as failed:
                error = failed
        yield BatchResult(index=result.index, value=value, error=error)
