"""`Engine`: a loaded model file, which turns text into speech.

Owns `load`, and `Engine` with its lifetime and its verbs (the methods that make something). Leaves the parts of a file
to `loading.py`, what a verb does to `dualar.speech` and `dualar.narration`, and what differs between families of models
to `dualar.families`.
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
    that `dualar.devices()` lists. threads: most CPU threads to use, by default as many as the machine and its container
    allow; never more are started than there are CPUs, and fewer are used where more would wait for each other. Their
    number changes no bit of a result. fast_ar: "cached" (quick) or "recompute" (slow, for checks; the same codes).
    kv_type: type of the attention cache, "f32", "f16" or "auto" (f32 for F32 weights, else f16). tokenizer: a
    tokenizer.json or a Tokenizer, by default the one beside the file, in its parent folder or in it. im_end_id: the
    token that ends speech, by default the tokenizer's `<|im_end|>`. prefix_cache_bytes: how many bytes of computed
    recordings of voices to keep, so that the next request with the same voice begins sooner; 0 keeps none. lexicon: for
    a model that reads phonemes, how to say certain words: a file with a word and its phonemes in each line, or a map.

    Errors: ValueError for a bad option; ModelError for a file that is missing, damaged or no model file; BackendError
    for a device that this build or machine lacks; FileNotFoundError where no path is given and this build has no voice.
    """
    return Engine(
        default_model() if path is None else path, device=device, threads=threads, fast_ar=fast_ar, kv_type=kv_type,
        tokenizer=tokenizer, im_end_id=im_end_id, prefix_cache_bytes=prefix_cache_bytes, lexicon=lexicon,
    )  # fmt: skip


class Engine:
    """One model file on one device. Made by `load`.

    Requests are independent: each has its own session. One engine may serve several threads, whose computations take
    turns. An engine cannot be used in a forked child: each use there is a BackendError.
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
        """Use `load` to make one. path may also be an open file; the other options are those of `load`."""
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
        """The model, codec, tokenizer and options, for the package's own modules: not part of the public interface.

        A request takes them once, so that a close() by another thread does not stop it. ValueError once closed,
        BackendError in a forked child.
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

        ModelError where the file has none, or where neither tokenizer nor im_end_id says which token ends speech.
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
        """The cache of computed recordings: nbytes, entries, limit (may be set), clear(). It changes no result."""
        return self.parts.prefix_cache

    @property
    def sampling(self) -> SamplingConfig:
        """How codes are drawn unless a request says: the family's default, or what the file was published with."""
        return self.parts.sampling

    def spoken(self, text: str) -> Spoken:
        """How this model says `text`: its phonemes, and each spoken word with the place in the text it stands for.

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
        """Make a Voice of a recording and the text that is spoken in it, for `voice=`; `Voice.save` keeps it.

        audio_or_path: a sound file as for `dualar.read_audio`, or float samples [n] or [n, channels] in [-1, 1] at
        sample_rate (Hz), by default the codec's. transcript: may be left out where the model has a speaker encoder
        (Qwen3-TTS's "base"); the voice is then the speaker's vector alone, less like the recording. Errors: as for
        `read_audio` and `Codec.encode`; ValueError for no samples, too few for a speaker's vector, a transcript without
        words, a missing transcript where one is needed, or a sample_rate given with a file, which has its own;
        ModelError for a model that was not made to clone voices.
        """
        parts = self.parts
        codec, encoder = parts.codec, parts.speaker_encoder
        if encoder is None and parts.family.needs_speaker_encoder:
            raise _core.ModelError(no_speaker_encoder(self._path))
        return clone_voice(codec, audio_or_path, transcript, speaker_encoder=encoder, sample_rate=sample_rate)

    def plan(self, text: str, config: NarrationConfig | None = None) -> TextPlan:
        """How `narrate` would cut a text into pieces; `is_long` of the plan says whether there are several.

        config: as for `narrate`. ValueError for a text with nothing to speak.
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
        """Text to speech. options: the fields of `SpeechRequest`. on_decode is called with (frames decoded so far, all
        frames) while the codes are decoded.

        A model may end the speech before its first frame: then the Audio has no samples, and saving it is a ValueError.
        min_tokens_before_end=1 prevents this.

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

        frames_per_chunk: how many frames a chunk has; several numbers are for one chunk each, the last of them for all
        that follow: (1, 2, 4, 8) starts at once and goes on in larger, cheaper steps. The last chunk may be shorter.
        max_ahead: how many chunks may wait to be taken before the work pauses. options: the fields of `SpeechRequest`.
        The codes are those of `synthesize` with the same options, the samples too, but for rounding. After the last
        chunk `result` has the whole Generation. Computing starts with the call, in a thread of its own, which also
        calls on_frame.

        Errors: as for `synthesize`; those of the model or the device are raised by the iterator.
        """
        return verbs.stream(
            self.parts, SpeechRequest.of(text, **options), frames_per_chunk=frames_per_chunk, max_ahead=max_ahead,
            check=self._fork_guard,
        )  # fmt: skip

    def batch(self, *, max_rows: int = DEFAULT_MAX_ROWS, max_kv_bytes: int | None = None) -> Batch:
        """A Batch, which requests may join and leave while it runs.

        max_rows: most rows at once, 1 to 256. max_kv_bytes: most bytes of their KV caches together; None is no limit.
        """
        return verbs.batch(self.parts, max_rows=max_rows, max_kv_bytes=max_kv_bytes)

    def generate_batch(
        self,
        requests: Iterable[GenerationRequest],
        *,
        max_rows: int = DEFAULT_MAX_ROWS,
        max_kv_bytes: int | None = None,
    ) -> Iterator[BatchResult[Generation]]:
        """Codes for many prompts, max_rows at a time: yields each result when its request ends, so in any order.

        Where a request fails, or its `on_frame` raises, its result has the error, which `BatchResult.get` raises; the
        others go on. Requests start in order, as rows and memory become free. Closing the iterator cancels those that
        still run. ValueError, before anything is computed, for a request out of range, or one that needs more than
        max_kv_bytes by itself.
        """
        return generate_batch(self.batch(max_rows=max_rows, max_kv_bytes=max_kv_bytes), requests)

    def synthesize_batch(
        self,
        requests: Iterable[str | SpeechRequest],
        *,
        max_rows: int = DEFAULT_MAX_ROWS,
        max_kv_bytes: int | None = None,
    ) -> Iterator[BatchResult[Audio]]:
        """Speech for many texts, as `generate_batch`: yields each Audio when its text is spoken.

        A text's codes are decoded when they are complete, while the other texts wait: the codec is bound by arithmetic
        and not by reading its weights, so decoding several at once would gain nothing (`benchmarks/bench_codec.py`).
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

        The model is given earlier pieces as context for each piece, so that the speech goes on as it began; Qwen3-TTS
        models take no context. The text after a speaker tag (`<|speaker:1|>`) is a piece of its own. config: how long
        pieces and pauses are, how much context a piece is given, how often a piece that fails is tried again before it
        is left out (`failed` lists these), and how many pieces are spoken at once. plan: in place of a config, what
        `Engine.plan` made of the text. options: the fields of `SpeechRequest`. The same seed gives the same samples;
        each piece's own seed follows from it (`dualar.narration.plan.piece_seed`).

        job: a file that keeps finished pieces. A job that exists is continued if text, voice, options and model are
        those that it was begun with; otherwise a ValueError says what differs. on_frame is called with each Frame,
        whose index counts from the beginning of its piece (with several rows, frames of several pieces alternate), and
        on_piece after each piece; where one of them returns False the narration stops, and finished pieces are kept.

        Errors: as for `synthesize`. A BackendError ends the narration; the job keeps the finished pieces.
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

        The chunks of a piece come once the piece is finished, while the next piece is made. frames_per_chunk: as for
        `stream`, from its first number on for each piece; with the default the samples are exactly those of `narrate`,
        with others the same but for rounding. first_sample: leave out the samples before this one, which must be the
        end of a piece that the job has. The callbacks are called in the stream's thread.
        """
        parts, request = self.parts, SpeechRequest.of(text, **options)
        return speak.narrate_stream(
            parts, request, text_plan=speak.planned(parts, request, config, plan), job=job, on_piece=on_piece,
            frames_per_chunk=frames_per_chunk, max_ahead=max_ahead, first_sample=first_sample, check=self._fork_guard,
        )  # fmt: skip

    def close(self) -> None:
        """Free the weights, as soon as requests that still run in other threads end. A later use is a ValueError."""
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.prefix_cache.limit = 0  # freed at once, though requests that still run hold the parts

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
