"""The Qwen3-TTS family: which options each kind of model takes, and the sampling that it was published with.

Owns these rules, which are those of the published code. Leaves the description in a file to `qwen3_layout.py`, and the
prompt to `qwen3_prompt.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dualar._native import _core
from dualar.config import HFSampling, SamplingConfig
from dualar.families.base import CoreModel, Family, Rows, Style, Turn
from dualar.families.file_sampling import file_options
from dualar.families.qwen3_layout import AUTO, Qwen3Layout
from dualar.families.qwen3_prompt import Qwen3Voice, TalkerPrompt, build_talker_prompt
from dualar.gguf import qwen3_names as keys
from dualar.model import BuiltPrompt
from dualar.text.tokenizer import Tokenizer
from dualar.voices.voice import Voice

_SAMPLING = {
    "temperature": keys.TEMPERATURE,
    "top_k": keys.TOP_K,
    "top_p": keys.TOP_P,
    "repetition_penalty": keys.REPETITION_PENALTY,
}
_RESIDUAL = {
    "temperature": keys.PREDICTOR_TEMPERATURE,
    "top_k": keys.PREDICTOR_TOP_K,
    "top_p": keys.PREDICTOR_TOP_P,
}

_GEOMETRY: Rows = [
    (
        "Model",
        {
            keys.MODEL_KIND: "{}",
            keys.MODEL_SIZE: "of size {}",
        },
    ),
    ("Languages", {keys.LANGUAGE_NAMES: "{}"}),
    ("Speakers", {keys.SPEAKER_NAMES: "{}"}),
    (
        "Talker",
        {
            keys.BLOCK_COUNT: "{} layers",
            keys.EMBEDDING_LENGTH: "width {}",
            keys.HEAD_COUNT: "{} heads",
            keys.HEAD_COUNT_KV: "{} key/value heads",
            keys.KEY_LENGTH: "of {}",
            keys.FEED_FORWARD_LENGTH: "feed-forward {}",
            keys.VOCAB_SIZE: "vocabulary {}",
            keys.TEXT_VOCAB_SIZE: "text vocabulary {}",
            keys.CONTEXT_LENGTH: "context {}",
        },
    ),
    (
        "Predictor",
        {
            keys.PREDICTOR_BLOCK_COUNT: "{} layers",
            keys.PREDICTOR_EMBEDDING_LENGTH: "width {}",
            keys.PREDICTOR_HEAD_COUNT: "{} heads",
            keys.PREDICTOR_HEAD_COUNT_KV: "{} key/value heads",
            keys.PREDICTOR_KEY_LENGTH: "of {}",
            keys.PREDICTOR_FEED_FORWARD_LENGTH: "feed-forward {}",
        },
    ),
    (
        "Codebooks",
        {
            keys.NUM_CODEBOOKS: "{}",
            keys.CODEBOOK_SIZE: "of {} entries",
        },
    ),
]


class Qwen3Family(Family):
    """Qwen3-TTS: cloned voices ("base"), named speakers ("custom_voice") or voices by description ("voice_design")."""

    architecture = keys.ARCHITECTURE
    required_tokens = ("<|im_start|>", "<|im_end|>")
    parts: ClassVar[dict[str, str]] = {
        "Speaker encoder": keys.SPEAKER_ENCODER,
        "Codec": keys.CODEC,
        "Predictor": keys.PREDICTOR,
        "Talker": "",
    }
    model_parts = ("Predictor", "Talker")
    geometry = _GEOMETRY
    keeps_prefixes = False  # the recording does not stand at a prompt's beginning
    takes_history = False
    min_tokens_before_end = 2  # as the published code has it
    needs_speaker_encoder = True

    def __init__(self, file: _core.ModelFile) -> None:
        """ModelError for a file whose sampling options are out of range."""
        super().__init__(file)
        self._file = file
        self._layout: Qwen3Layout | None = None
        self._sampling = _sampling(file)

    @property
    def speakers(self) -> tuple[str, ...]:
        return tuple(self.layout.speakers)

    @property
    def layout(self) -> Qwen3Layout:
        """Kind, control ids, languages and speakers' names, read on first use; ModelError where they are missing or
        malformed."""
        if self._layout is None:
            self._layout = Qwen3Layout.read(self._file, source=self.path)
        return self._layout

    @property
    def sampling(self) -> SamplingConfig:
        return self._sampling

    def load_model(
        self, file: _core.ModelFile, runtime: _core.Runtime, tokenizer: Tokenizer | None, im_end_id: int | None
    ) -> CoreModel | str:
        if im_end_id is not None:
            raise ValueError(f"[im_end_id] expected None: a model of this family names its own, got {im_end_id}")
        model = _core.Qwen3TTS(file, runtime)
        self.layout  # noqa: B018  # so that a malformed file is refused now and not at the first request
        if tokenizer is not None:
            tokenizer.check_model(vocab_size=model.text_vocab_size, semantic_begin_id=0, semantic_end_id=0)
        return model

    def build_prompt(
        self,
        text: str,
        *,
        model: CoreModel,
        tokenizer: Tokenizer,
        voice: Voice | None,
        style: Style,
        history: Sequence[Turn] = (),
    ) -> BuiltPrompt:
        if history:
            raise ValueError("[prompt] expected no earlier turns: models of this family have no place for them")
        self._check(voice, style)
        return build_talker_prompt(
            text,
            tokenizer=tokenizer,
            layout=self.layout,
            language=AUTO if style.language is None else style.language,
            speaker=style.speaker,
            voice=None if voice is None else self._voice(voice),
            instruct=style.instruct,
        )

    def decoded_before(self, voice: Voice | None) -> npt.NDArray[np.int32] | None:
        # The model continues the recording in its prompt, so the codec must continue the recording's sound.
        return None if voice is None or voice.speaker is None or voice.frames == 0 else voice.codes

    def blank_prompt(self, model: CoreModel, positions: int) -> BuiltPrompt:
        columns = np.full((1 + model.num_codebooks, positions), -1, np.int32)
        columns[0] = columns[1] = 0
        return TalkerPrompt(columns, np.zeros(0, np.int32))

    def _check(self, voice: Voice | None, style: Style) -> None:
        layout = self.layout
        model = f"{self.path}, a {layout.kind} model"
        if layout.kind == "base":
            if voice is None:
                raise ValueError(f"[voice] expected a voice: {model}, speaks with cloned ones, got none")
            for name in ("speaker", "instruct"):
                if name in style.given():
                    raise ValueError(
                        f"[{name}] expected none: {model}, takes a voice alone, got {getattr(style, name)!r}"
                    )
            return
        if voice is not None:
            raise ValueError(f"[voice] expected none: {model}, cannot clone voices, got {voice!r}")
        if layout.kind == "custom_voice":
            if style.speaker is None:
                raise ValueError(
                    f"[speaker] expected one of {', '.join(sorted(layout.speakers))}, the voices of {model}, got none"
                )
            if style.instruct is not None and layout.size == "0b6":
                # The published wrapper drops it without a word.
                raise ValueError(
                    f"[instruct] expected none: {model} of the 0.6B size, was not made to take one, got "
                    f"{style.instruct!r}"
                )
        elif style.speaker is not None:
            raise ValueError(f"[speaker] expected none: {model}, has no named voices, got {style.speaker!r}")

    def _voice(self, voice: Voice) -> Qwen3Voice:
        if voice.speaker is None:
            raise ValueError(
                f"[voice] expected a voice with a speaker's vector, as cloning with {self.path} makes it, got {voice!r}"
            )
        if voice.frames == 0:
            return Qwen3Voice(voice.speaker)
        return Qwen3Voice(voice.speaker, voice.codes, voice.transcript)


def _sampling(file: _core.ModelFile) -> HFSampling:
    """The sampling that the model was published with; the family's defaults for what the file does not say."""
    main, residual = file_options(file, _SAMPLING), file_options(file, _RESIDUAL)
    try:
        config = HFSampling(**main)
        differing = {f"residual_{name}": v for name, v in residual.items() if v != getattr(config, name)}
        return HFSampling(**main, **differing)
    except ValueError as error:
        raise _core.ModelError(f"[load] {file.path}: {error}") from error
