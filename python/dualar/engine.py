"""A loaded model file, from text to sound.

Owns `load` and `Engine`: its lifetime and its verbs. Leaves the parts of a file to `loading.py`, what a verb does to
`dualar.speech` and `dualar.narration`, and what differs between families of models to `dualar.families`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Unpack, get_args

from dualar._native import _core
from dualar.audio.clip import Audio
from dualar.codec.codec import Codec
from dualar.config import SamplingConfig
from dualar.default_voice import default_model
from dualar.families.base import CoreModel
from dualar.generation.batch import DEFAULT_MAX_ROWS, Batch
from dualar.generation.frames import Generation
from dualar.generation.many import generate_batch
from dualar.generation.prefix_cache import DEFAULT_PREFIX_CACHE_BYTES, PrefixCache
from dualar.generation.requests import BatchResult, GenerationOptions, GenerationRequest
from dualar.loading import EngineParts, FastAR, KvType, LexiconLike, load_parts
from dualar.model import BuiltPrompt, PromptLike
from dualar.narration import speak
from dualar.narration.config import NarrationConfig
from dualar.narration.plan import NarrationProgress, TextPlan, plan
from dualar.narration.result import Narration
from dualar.narration.speak import DEFAULT_CADENCE, NarrationStream
from dualar.runtime import ForkGuard, number, one_of, open_file, open_runtime
from dualar.speech import verbs
from dualar.speech.request import PromptBuilder, SpeechOptions, SpeechRequest, StyleOptions
from dualar.speech.stream import DEFAULT_MAX_AHEAD, SpeechStream
from dualar.text.spoken import Spoken
from dualar.text.tokenizer import Tokenizer
from dualar.voices.clone import AudioSource, clone_voice
from dualar.voices.speaker_encoder import no_speaker_encoder
from dualar.voices.voice import Voice


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    device: str = "cpu",
    threads: int | None = None,
    fast_ar: FastAR = "cached",
    kv_type: KvType = "auto",
    tokenizer: str | os.PathLike[str] | Tokenizer | None = None,
    im_end_id: int | None = None,
    prefix_cache_bytes: int = DEFAULT_PREFIX_CACHE_BYTES,
    lexicon: LexiconLike | None = None,
) -> Engine:
    """Load a GGUF file; use the result as a context manager, or close() it.

    path: the file, by default the package's own voice (training/README.md), where this build has one. device: a name
    that `dualar.devices()` lists. threads: CPU threads at most, by default the cores that the machine and its container
    allow; no more than their CPUs are started, and fewer are used where more would wait for one another. Their number
    changes no bit of a result. fast_ar: "cached" (quick) or "recompute" (the stateless check; the same codes). kv_type:
    "f32", "f16" or "auto" (f32 for F32 weights, else f16). tokenizer: a tokenizer.json or a Tokenizer, by default the
    one in the file, beside it or in its parent folder. im_end_id: the token that ends speech, by default the
    tokenizer's `<|im_end|>`. prefix_cache_bytes: how much of voices' prompts to keep computed, so that the next request
    with a voice begins sooner; 0 keeps none. lexicon: for a model that reads phonemes, words to say in another way than
    it would: a file with a word and its phonemes in each line, or a mapping.

    Errors: ValueError for a bad option; ModelError for a file that is missing, damaged or of another kind;
    BackendError for a device that this build or machine lacks; FileNotFoundError where no path is given and this build
    has no voice.
    """
    return Engine(
        default_model() if path is None else path, device=device, threads=threads, fast_ar=fast_ar, kv_type=kv_type,
        tokenizer=tokenizer, im_end_id=im_end_id, prefix_cache_bytes=prefix_cache_bytes, lexicon=lexicon,
    )  # fmt: skip


class Engine:
    """One model file on one device. Made by `load`.

    Requests do not see each other: each has its own session, and one engine may serve several threads, whose
    computations take turns. An engine does not survive a fork: in the child, each use is a BackendError.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | _core.ModelFile,
        *,
        device: str = "cpu",
        threads: int | None = None,
        fast_ar: FastAR = "cached",
        kv_type: KvType = "auto",
        tokenizer: str | os.PathLike[str] | Tokenizer | None = None,
        im_end_id: int | None = None,
        prefix_cache_bytes: int = DEFAULT_PREFIX_CACHE_BYTES,
        lexicon: LexiconLike | None = None,
    ) -> None:
        """As `load`, which is the way to make one; path may also be a file that is open already."""
        one_of("fast_ar", fast_ar, get_args(FastAR))
        one_of("kv_type", kv_type, get_args(KvType))
        im_end_id = number("im_end_id", im_end_id, 0)
        prefix_cache = PrefixCache(prefix_cache_bytes)
        file = open_file(path)
        self._path = file.path
        self._fork_guard = ForkGuard(file.path)
        runtime = open_runtime(device=device, threads=threads)
        self._device, self._threads = runtime.device, runtime.threads
        self._parts: EngineParts | None = load_parts(
            file, runtime, tokenizer=tokenizer, im_end_id=im_end_id, prefix_cache=prefix_cache, fast_ar=fast_ar,
            kv_type=kv_type, lexicon=lexicon, check=self._check,
        )  # fmt: skip

    @property
    def parts(self) -> EngineParts:
        """What the engine is made of, for the package's own faces: no part of the public interface.

        A request takes it once, because close() may come from another thread. ValueError once closed, BackendError in a
        forked child.
        """
        parts = self._parts
        if parts is None:
            raise ValueError(f"[engine] expected an open engine, got one that was closed ({self._path})")
        self._fork_guard()
        return parts

    @property
    def path(self) -> str:
        """The file this engine was loaded from."""
        return self._path

    @property
    def device(self) -> str:
        """The device's name."""
        return self._device

    @property
    def threads(self) -> int:
        """CPU threads that are used at most."""
        return self._threads

    @property
    def model(self) -> CoreModel:
        """The Slow-AR and Fast-AR, as a DualAR or a Qwen3TTS.

        ModelError where the file has none, or nothing tells which token ends speech.
        """
        return self.parts.model

    @property
    def codec(self) -> Codec:
        """The codec; ModelError where the file has none."""
        return self.parts.codec

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; ModelError where there is none."""
        return self.parts.tokenizer

    @property
    def prefix_cache(self) -> PrefixCache:
        """What is kept of voices' prompts: nbytes, entries, limit (to set), clear(). It changes no result."""
        return self.parts.prefix_cache

    @property
    def sampling(self) -> SamplingConfig:
        """How codes are drawn where a request does not say: the family's, or what the file was published with."""
        return self.parts.sampling

    def spoken(self, text: str) -> Spoken:
        """What this model says of `text`: its phonemes, and each word with the place in the text that it stands for.

        ValueError for a text that the model's front end cannot read; ModelError for a model that reads letters.
        """
        frontend = self.parts.family.frontend
        if frontend is None:
            raise _core.ModelError(
                f"[spoken] expected a model that reads phonemes, got {self._path}, which reads letters"
            )
        return frontend.speak(text)

    def build_prompt(self, text: str | SpeechRequest, **options: Unpack[StyleOptions]) -> BuiltPrompt:
        """The prompt that makes this model speak `text`: int32 [1 + num_codebooks, T], or a TalkerPrompt.

        options: voice, language, speaker and instruct of `SpeechRequest`. Errors as for `synthesize`.
        """
        parts, request = self.parts, SpeechRequest.of(text, **options)
        return PromptBuilder.of(parts, request).prompt(request.text)

    def clone(
        self, audio_or_path: AudioSource, transcript: str | None = None, *, sample_rate: int | None = None
    ) -> Voice:
        """A recording and the text that is spoken in it, to a Voice for `voice=`; keep it with `Voice.save`.

        audio_or_path: a sound file as for `dualar.read_audio`, or float samples [n] or [n, channels] in [-1, 1] at
        sample_rate, by default the codec's. transcript: may be left out where the model has a speaker encoder
        (Qwen3-TTS's "base"); the voice is then the speaker's vector alone, less like the recording. Errors: as for
        `read_audio` and `Codec.encode`; ValueError for no samples, or too few of them to tell a voice, a transcript
        without words, none where it is needed, or a sample_rate beside a file, which has its own; ModelError for a
        model that was not made to clone voices.
        """
        parts = self.parts
        codec, encoder = parts.codec, parts.speaker_encoder
        if encoder is None and parts.family.needs_speaker_encoder:
            raise _core.ModelError(no_speaker_encoder(self._path))
        return clone_voice(codec, audio_or_path, transcript, speaker_encoder=encoder, sample_rate=sample_rate)

    def plan(self, text: str, config: NarrationConfig | None = None) -> TextPlan:
        """How `narrate` would cut a text into pieces; its `is_long` says whether the text is for `narrate` at all.

        ValueError for a text with nothing to speak.
        """
        return plan(text, config, longest_text=self.parts.family.longest_text)

    def generate(self, prompt: PromptLike, **options: Unpack[GenerationOptions]) -> Generation:
        """Codes for a prompt, which `build_prompt` makes of text. options: the fields of `GenerationRequest`.

        Errors: ValueError for a prompt or number out of range, ModelError for NaN logits, BackendError for the device.
        """
        return verbs.generate(self.parts, GenerationRequest(prompt=prompt, **options))

    def synthesize(
        self,
        text: str | SpeechRequest,
        *,
        on_decode: Callable[[int, int], object] | None = None,
        **options: Unpack[SpeechOptions],
    ) -> Audio:
        """Text to speech. options: the fields of `SpeechRequest`; on_decode is called with (frames decoded, frames) per
        block.

        A model may end before its first frame. Then the Audio has no samples, and saving it is a ValueError;
        min_tokens_before_end=1 rules it out.

        Errors: as for `generate`; ValueError for text that is empty or cannot be encoded, for a voice that is unknown,
        damaged or made by another codec, and for an option that the model does not have; ModelError where the file
        lacks a part that speech needs.
        """
        # All parts at once: a close() by another thread, from here on, does not stop this request.
        return verbs.synthesize(self.parts, SpeechRequest.of(text, **options), on_decode=on_decode)

    def stream(
        self,
        text: str | SpeechRequest,
        *,
        frames_per_chunk: int | Sequence[int] = 1,
        max_ahead: int = DEFAULT_MAX_AHEAD,
        **options: Unpack[SpeechOptions],
    ) -> SpeechStream:
        """Text to speech, chunk by chunk as it is made: an iterator of AudioChunk, to be closed or used with `with`.

        frames_per_chunk: how many frames a chunk has; of several numbers, each is for one chunk and the last for all
        the rest, so (1, 2, 4, 8) starts at once and grows cheaper. The last chunk may be shorter. max_ahead: chunks
        that may wait to be taken; the work stops while so many do. options: the fields of `SpeechRequest`. The codes
        are those of `synthesize` with the same options, the samples too, but for rounding. After the last chunk
        `result` has the whole Generation. Computing starts with the call, in a thread of its own, which calls on_frame.

        Errors: as for `synthesize`, those of the model or the device from the iterator.
        """
        return verbs.stream(
            self.parts, SpeechRequest.of(text, **options), frames_per_chunk=frames_per_chunk, max_ahead=max_ahead,
            check=self._fork_guard,
        )  # fmt: skip

    def batch(self, *, max_rows: int = DEFAULT_MAX_ROWS, max_kv_bytes: int | None = None) -> Batch:
        """A Batch, which requests join and leave while it runs.

        max_rows: rows at once, 1 to 256. max_kv_bytes: of their KV caches together; None is no limit.
        """
        return verbs.batch(self.parts, max_rows=max_rows, max_kv_bytes=max_kv_bytes)

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
        return verbs.synthesize_batch(self.parts, requests, max_rows=max_rows, max_kv_bytes=max_kv_bytes)

    def narrate(
        self,
        text: str | SpeechRequest,
        *,
        config: NarrationConfig | None = None,
        plan: TextPlan | None = None,
        job: str | os.PathLike[str] | None = None,
        on_piece: Callable[[NarrationProgress], object] | None = None,
        **options: Unpack[SpeechOptions],
    ) -> Narration:
        """Text of any length to speech: cut at sentence ends, spoken piece by piece, put together with pauses.

        Each piece is asked for with the turns before it as context, so that the speech goes on as it began. Speaker
        tags (`<|speaker:1|>`) make turns of their own. config: how long pieces and pauses are, how much context, how
        often a piece that fails is tried again; then it is left out, and named in `failed`; and how many pieces are
        spoken at once (`NarrationConfig.rows`). plan: in place of a config, what `Engine.plan` made of the text.
        options: the fields of `SpeechRequest`; Qwen3-TTS models have no place for context.
        seed: the same one, the same samples; each piece has its own from it (`dualar.narration.plan.piece_seed`).

        job: a file in which finished pieces are kept; one that exists is continued, if text, voice, options and model
        are those that began it (else a ValueError says what differs). on_frame is called with each Frame, its index
        counted in its piece (with several rows the frames of several pieces come in turn), on_piece after each piece;
        a return that is False stops, and what was finished is kept.

        Errors: as for `synthesize`; BackendError ends the whole, a job keeps what was finished.
        """
        parts, request = self.parts, SpeechRequest.of(text, **options)
        text_plan = speak.planned(parts, request, config, plan)
        return speak.narrate(parts, request, text_plan=text_plan, job=job, on_piece=on_piece)

    def narrate_stream(
        self,
        text: str | SpeechRequest,
        *,
        config: NarrationConfig | None = None,
        plan: TextPlan | None = None,
        job: str | os.PathLike[str] | None = None,
        on_piece: Callable[[NarrationProgress], object] | None = None,
        frames_per_chunk: int | Sequence[int] = DEFAULT_CADENCE,
        max_ahead: int = DEFAULT_MAX_AHEAD,
        first_sample: int = 0,
        **options: Unpack[SpeechOptions],
    ) -> NarrationStream:
        """`narrate`, chunk by chunk: one iterator of AudioChunk for the whole, to be closed or used with `with`.

        A piece is heard once it is finished, while the next one is made. frames_per_chunk: as for `stream`, anew for
        each piece; with the default the samples are those of `narrate`, else but for rounding. first_sample: begin
        there, which must be the end of a piece that the job has: what is before it was written. The callbacks are
        called in the stream's thread.
        """
        parts, request = self.parts, SpeechRequest.of(text, **options)
        return speak.narrate_stream(
            parts, request, text_plan=speak.planned(parts, request, config, plan), job=job, on_piece=on_piece,
            frames_per_chunk=frames_per_chunk, max_ahead=max_ahead, first_sample=first_sample, check=self._fork_guard,
        )  # fmt: skip

    def close(self) -> None:
        """Give the weights back. Requests still running in other threads end first; a later use is a ValueError."""
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.prefix_cache.limit = 0  # those that still run hold it

    def __enter__(self) -> Engine:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._parts is None else f"device={self._device!r}, threads={self._threads}"
        return f"<dualar.Engine {self._path!r} {state}>"

    def _check(self) -> None:
        self.parts  # noqa: B018  # raises where the engine may not be used
