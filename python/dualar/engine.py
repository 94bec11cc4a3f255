"""A loaded model file, from text to sound.

Owns `load` and `Engine`: its lifetime, and the way from text over codes to samples. Leaves what a file holds and lacks
to `loading.py`, what differs between families of models to `dualar.families`, codes to `dualar.generation`, samples to
`dualar.codec`, voices to `dualar.voices`, long texts to `dualar.narration`, several requests at once to
`dualar.speech`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Literal, get_args

from dualar._native import _core
from dualar.audio.clip import Audio
from dualar.codec.codec import Codec
from dualar.config import DEFAULT_STALL_GUARD, GenerationConfig, SamplingConfig, StallGuard
from dualar.default_voice import default_model
from dualar.families.base import Model, Style, Turn
from dualar.families.registry import family_of
from dualar.generation.frames import Frame, Generation
from dualar.generation.generate import FrameLoop, generate
from dualar.generation.prefix_cache import DEFAULT_PREFIX_CACHE_BYTES, PrefixCache
from dualar.loading import load_parts, make_codec, no_codec, no_speaker_encoder
from dualar.model import BuiltPrompt, PromptLike
from dualar.narration.speak import Narrates
from dualar.runtime import ForkGuard, number, one_of, open_file, open_runtime
from dualar.speech.stream import DEFAULT_MAX_AHEAD, SpeechStream
from dualar.speech.verbs import Batches, decoded
from dualar.text.frontend import Spoken, read_lexicon
from dualar.text.tokenizer import METADATA_KEY, Tokenizer
from dualar.voices.clone import AudioSource, clone_voice
from dualar.voices.find import find_voice, require_codec
from dualar.voices.speaker_encoder import SpeakerEncoder
from dualar.voices.voice import Voice

FastAR = Literal["cached", "recompute"]
KvType = Literal["auto", "f32", "f16"]
VoiceLike = Voice | str | os.PathLike[str]
LexiconLike = Mapping[str, str] | str | os.PathLike[str]


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

    path: the file, by default the package's own voice (training/README.md), where this build has one. device:
    a name that `dualar.devices()` lists. threads: CPU threads, by default the cores that the machine and its container
    allow; no more than their CPUs are started, for they would wait for one another. fast_ar: "cached" (quick) or
    "recompute" (the stateless check; the same codes). kv_type: "f32", "f16" or "auto" (f32 for F32 weights, else f16).
    tokenizer: a tokenizer.json or a Tokenizer, by default the one in the file, beside it or in its parent folder.
    im_end_id: the token that ends speech, by default the tokenizer's `<|im_end|>`. prefix_cache_bytes: how much
    of voices' prompts to keep computed, so that the next request with a voice begins sooner; 0 keeps none. lexicon: for
    a model that reads phonemes, words to say in another way than it would: a file with a word and its phonemes in each
    line, or a mapping.

    Errors: ValueError for a bad option; ModelError for a file that is missing, damaged or of another kind;
    BackendError for a device that this build or machine lacks; FileNotFoundError where no path is given and this build
    has no voice.
    """
    return Engine(
        default_model() if path is None else path, device=device, threads=threads, fast_ar=fast_ar, kv_type=kv_type,
        tokenizer=tokenizer, im_end_id=im_end_id, prefix_cache_bytes=prefix_cache_bytes, lexicon=lexicon,
    )  # fmt: skip


class Engine(Narrates, Batches):
    """One model file on one device. Made by `load`.

    Requests do not see each other: each has its own session, and one engine may serve several threads, whose
    computations take turns. An engine does not survive a fork: in the child, each use is a BackendError.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
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
        """As `load`, which is the way to make one."""
        one_of("fast_ar", fast_ar, get_args(FastAR))
        one_of("kv_type", kv_type, get_args(KvType))
        im_end_id = number("im_end_id", im_end_id, 0)
        self._prefix_cache = PrefixCache(prefix_cache_bytes)
        file = open_file(path)
        self._family = family_of(file)
        if lexicon is not None:
            self._family.take_lexicon(lexicon if isinstance(lexicon, Mapping) else read_lexicon(lexicon))
        self._fast_ar = fast_ar
        self._kv_type = kv_type
        self._fork_guard = ForkGuard(file.path)
        self._closed = False
        self._path = file.path
        self._runtime: _core.Runtime | None = open_runtime(device=device, threads=threads)
        self._device, self._threads = self._runtime.device, self._runtime.threads
        self._tokenizer: Tokenizer | None
        if isinstance(tokenizer, Tokenizer):
            self._tokenizer = tokenizer
        else:
            self._tokenizer = Tokenizer.find_or_none(
                file.path,
                metadata_value=file.get(METADATA_KEY),
                explicit=tokenizer,
                required=self._family.required_tokens,
            )
        self._model: Model | None
        self._codec: Codec | None = None
        self._speaker: SpeakerEncoder | None = None
        self._model, codec, speaker, self._no_model = load_parts(
            file, self._family, self._runtime, self._tokenizer, im_end_id
        )
        if codec is not None:
            self._codec = make_codec(file, codec, check=self._check)
        if speaker is not None:
            self._speaker = SpeakerEncoder(speaker, check=self._check)

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
        """CPU threads in use."""
        return self._threads

    @property
    def model(self) -> Model:
        """The Slow-AR and Fast-AR, as a DualAR or a Qwen3TTS.

        ModelError where the file has none, or nothing tells which token ends speech.
        """
        model = self._model  # before the check: close() may come from another thread
        self._check()
        if model is None:
            raise _core.ModelError(self._no_model)
        return model

    @property
    def codec(self) -> Codec:
        """The codec; ModelError where the file has none."""
        codec = self._codec
        self._check()
        if codec is None:
            raise _core.ModelError(no_codec(self._path, self._family))
        return codec

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; ModelError where there is none."""
        tokenizer = self._tokenizer
        self._check()
        if tokenizer is None:
            raise _core.ModelError(
                f"[load] expected a tokenizer in {self._path}, or tokenizer.json beside it or in its parent folder; "
                "found none: pass tokenizer="
            )
        return tokenizer

    @property
    def prefix_cache(self) -> PrefixCache:
        """What is kept of voices' prompts: nbytes, entries, limit (to set), clear(). It changes no result."""
        self._check()
        return self._prefix_cache

    @property
    def sampling(self) -> SamplingConfig:
        """How codes are drawn where a request does not say: the family's, or what the file was published with."""
        return self._family.sampling

    def spoken(self, text: str) -> Spoken:
        """What this model says of `text`: its phonemes, and each word with the place in the text that it stands for.

        ValueError for a text that the model's front end cannot read; ModelError for a model that reads letters.
        """
        if self._family.frontend is None:
            raise _core.ModelError(
                f"[spoken] expected a model that reads phonemes, got {self._path}, which reads letters"
            )
        return self._family.frontend.speak(text)

    def build_prompt(
        self,
        text: str,
        *,
        voice: VoiceLike | None = None,
        language: str | None = None,
        speaker: str | None = None,
        instruct: str | None = None,
    ) -> BuiltPrompt:
        """The prompt that makes this model speak `text`: int32 [1 + num_codebooks, T], or a TalkerPrompt.

        Options and errors as for `synthesize`.
        """
        style = Style(language=language, speaker=speaker, instruct=instruct)
        return self._prompt(text, voice, style, self.model, self._codec, self.tokenizer)

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
        codec, speaker = self.codec, self._speaker
        if speaker is None and self._family.needs_speaker_encoder:
            raise _core.ModelError(no_speaker_encoder(self._path))
        return clone_voice(codec, audio_or_path, transcript, speaker_encoder=speaker, sample_rate=sample_rate)

    def generate(
        self,
        prompt: PromptLike,
        *,
        max_new_tokens: int | None = None,
        min_tokens_before_end: int | None = None,
        sampling: SamplingConfig | None = None,
        seed: int | None = None,
        on_frame: Callable[[Frame], object] | None = None,
        stall_guard: StallGuard | None = DEFAULT_STALL_GUARD,
        text_tokens: int | None = None,
    ) -> Generation:
        """Codes for a prompt, which `build_prompt` makes of text.

        max_new_tokens: frames at most, by default 1024 or what the context leaves. min_tokens_before_end: frames at
        least, by default 0, or 2 for Qwen3-TTS. sampling: by default `Engine.sampling`. seed: by default a random one,
        given back. on_frame is called with each Frame as it is made; a return that is False stops, and keeps the frames
        so far. stall_guard ends runaways; None turns it off. text_tokens: the text's length, for the guard's limit of
        frames per text token.

        Errors: ValueError for a prompt or number out of range, ModelError for NaN logits, BackendError for the device.
        """
        return generate(
            self.model,
            prompt,
            max_new_tokens=max_new_tokens,
            min_tokens_before_end=self._at_least(min_tokens_before_end),
            sampling=self.sampling if sampling is None else sampling,
            seed=seed,
            on_frame=on_frame,
            stall_guard=stall_guard,
            text_tokens=text_tokens,
            fast_ar=self._fast_ar,
            kv_type=self._kv_type,
            prefix_cache=self._prefix_cache,
        )

    def synthesize(
        self,
        text: str,
        *,
        voice: VoiceLike | None = None,
        language: str | None = None,
        speaker: str | None = None,
        instruct: str | None = None,
        seed: int | None = None,
        sampling: SamplingConfig | None = None,
        max_new_tokens: int | None = None,
        min_tokens_before_end: int | None = None,
        on_frame: Callable[[Frame], object] | None = None,
        on_decode: Callable[[int, int], object] | None = None,
        stall_guard: StallGuard | None = DEFAULT_STALL_GUARD,
    ) -> Audio:
        """Text to speech. Options as for `generate`; on_decode is called with (frames decoded, frames) per block.

        voice: a Voice, a path of a voice file, or the name of a voice in the store (`dualar voice list`); a str is a
        path where it has a separator or ends in .voice or .s2voice. By default the model chooses one. language (a
        name or "auto"), speaker (one of the model's own voices), instruct (how to speak, in words): of Qwen3-TTS
        models, each where its kind has it.

        A model may end before its first frame. Then the Audio has no samples, and saving it is a ValueError;
        min_tokens_before_end=1 rules it out.

        Errors: as for `generate`; ValueError for text that is empty or cannot be encoded, for a voice that is unknown,
        damaged or made by another codec, and for an option that the model does not have; ModelError where the file
        lacks a part that speech needs.
        """
        # All parts at once: a close() by another thread, from here on, does not stop this request.
        model, codec, tokenizer = self.model, self.codec, self.tokenizer
        style = Style(language=language, speaker=speaker, instruct=instruct)
        found = None if voice is None else find_voice(voice)
        generation = generate(
            model,
            self._prompt(text, found, style, model, codec, tokenizer),
            max_new_tokens=max_new_tokens,
            min_tokens_before_end=self._at_least(min_tokens_before_end),
            sampling=self.sampling if sampling is None else sampling,
            seed=seed,
            on_frame=on_frame,
            stall_guard=stall_guard,
            text_tokens=len(tokenizer.encode_text(text)),
            fast_ar=self._fast_ar,
            kv_type=self._kv_type,
            prefix_cache=self._prefix_cache,
        )
        return decoded(generation, codec, on_decode, before=self._family.decoded_before(found))

    def stream(
        self,
        text: str,
        *,
        voice: VoiceLike | None = None,
        language: str | None = None,
        speaker: str | None = None,
        instruct: str | None = None,
        frames_per_chunk: int | Sequence[int] = 1,
        seed: int | None = None,
        sampling: SamplingConfig | None = None,
        max_new_tokens: int | None = None,
        min_tokens_before_end: int | None = None,
        stall_guard: StallGuard | None = DEFAULT_STALL_GUARD,
        max_ahead: int = DEFAULT_MAX_AHEAD,
    ) -> SpeechStream:
        """Text to speech, chunk by chunk as it is made: an iterator of AudioChunk, to be closed or used with `with`.

        frames_per_chunk: how many frames a chunk has; of several numbers, each is for one chunk and the last for all
        the rest, so (1, 2, 4, 8) starts at once and grows cheaper. The last chunk may be shorter. max_ahead: chunks
        that may wait to be taken; the work stops while so many do. Other options as for `generate`. The codes are
        those of `synthesize` with the same options, the samples too, but for rounding. After the last chunk `result`
        has the whole Generation. Computing starts with the call, in a thread of its own.

        Errors: as for `synthesize`, those of the model or the device from the iterator.
        """
        began = time.perf_counter()
        model, codec, tokenizer = self.model, self.codec, self.tokenizer
        style = Style(language=language, speaker=speaker, instruct=instruct)
        config = GenerationConfig(
            max_new_tokens=max_new_tokens,
            min_tokens_before_end=self._at_least(min_tokens_before_end),
            sampling=self.sampling if sampling is None else sampling,
            stall_guard=stall_guard,
        )
        found = None if voice is None else find_voice(voice)
        loop = FrameLoop(
            model,
            self._prompt(text, found, style, model, codec, tokenizer),
            config,
            seed=seed,
            text_tokens=len(tokenizer.encode_text(text)),
            fast_ar=self._fast_ar,
            kv_type=self._kv_type,
            prefix_cache=self._prefix_cache,
        )
        return SpeechStream(
            loop,
            codec._stream(None, before=self._family.decoded_before(found)),
            sample_rate=codec.sample_rate,
            frames_per_chunk=frames_per_chunk,
            max_ahead=max_ahead,
            check=self._fork_guard,
            began=began,
        )

    def close(self) -> None:
        """Give the weights back. Requests still running in other threads end first; a later use is a ValueError."""
        self._closed = True
        self._prefix_cache.limit = 0  # those that still run hold it
        self._model = self._codec = self._speaker = self._runtime = self._tokenizer = None

    def __enter__(self) -> Engine:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"device={self._device!r}, threads={self._threads}"
        return f"<dualar.Engine {self._path!r} {state}>"

    def _check(self) -> None:
        if self._closed:
            raise ValueError(f"[engine] expected an open engine, got one that was closed ({self._path})")
        self._fork_guard()

    def _at_least(self, frames: int | None) -> int:
        return self._family.min_tokens_before_end if frames is None else frames

    def _prompt(
        self,
        text: str,
        voice: VoiceLike | None,
        style: Style,
        model: Model,
        codec: Codec | None,
        tokenizer: Tokenizer,
        history: Sequence[Turn] = (),
    ) -> BuiltPrompt:
        found = None
        if voice is not None:
            found = find_voice(voice)
            if codec is not None:  # without one, the shape and range of the codes are checked with the prompt
                require_codec(found, codec, source=self._path)
        return self._family.build_prompt(
            text, model=model, tokenizer=tokenizer, voice=found, style=style, history=history
        )
