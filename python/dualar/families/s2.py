"""The S2 family (Fish Audio S2 and S1): `<|im_end|>` ends the speech, and a model takes one of two kinds of prompt.

Owns what the family declares, and reads the keys of a file that decide it. Leaves the prompts to `s2_prompt.py` (S2: a
chat, with a voice's recording in its system message) and `s1_prompt.py` (S1: turns one after the other).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dualar._native import _core
from dualar.config import FishSampling, SamplingConfig
from dualar.families.base import CoreModel, Family, Rows, Style, Turn
from dualar.families.file_sampling import file_options
from dualar.families.s1_prompt import OPEN, build_interleaved_prompt
from dualar.families.s2_prompt import ASSISTANT_OPEN, CLOSE, build_prompt
from dualar.gguf import names
from dualar.model import BuiltPrompt
from dualar.text.frontend import FRONTENDS
from dualar.text.places import WordMap, word_map
from dualar.text.plain import plain_text
from dualar.text.tokenizer import CHAT, INTERLEAVE, VOICE_CHAT_TOKENS, Tokenizer
from dualar.text.words import require_words
from dualar.voices.voice import Voice

_SAMPLING = {
    "temperature": names.TEMPERATURE,
    "residual_temperature": names.RESIDUAL_TEMPERATURE,
    "ras_window": names.RAS_WINDOW,
}

_GEOMETRY: Rows = [
    (
        "Slow-AR",
        {
            names.BLOCK_COUNT: "{} layers",
            names.EMBEDDING_LENGTH: "width {}",
            names.HEAD_COUNT: "{} heads",
            names.HEAD_COUNT_KV: "{} key/value heads",
            names.KEY_LENGTH: "of {}",
            names.FEED_FORWARD_LENGTH: "feed-forward {}",
            names.VOCAB_SIZE: "vocabulary {}",
            names.CONTEXT_LENGTH: "context {}",
        },
    ),
    (
        "Fast-AR",
        {
            names.FAST_BLOCK_COUNT: "{} layers",
            names.FAST_EMBEDDING_LENGTH: "width {}",
            names.FAST_HEAD_COUNT: "{} heads",
            names.FAST_HEAD_COUNT_KV: "{} key/value heads",
            names.FAST_HEAD_DIM: "of {}",
            names.FAST_FEED_FORWARD_LENGTH: "feed-forward {}",
        },
    ),
    (
        "Codebooks",
        {
            names.NUM_CODEBOOKS: "{}",
            names.CODEBOOK_SIZE: "of {} entries",
            names.SEMANTIC_BEGIN_ID: "tokens {}",
            names.SEMANTIC_END_ID: "to {}",
        },
    ),
    (
        "Codec",
        {
            names.SAMPLE_RATE: "{} Hz",
            names.HOP_LENGTH: "{} samples a step",
            names.DOWNSAMPLE_FACTOR: "steps {} a frame",
            names.LATENT_DIM: "width {}",
            names.ENCODER_RATES: "encoder rates {}",
            names.DECODER_RATES: "decoder rates {}",
            names.RVQ_TRANSFORMER + names.WINDOW_SIZE: "window {}",
        },
    ),
    ("Text", {names.TEXT_FRONTEND: "read as phonemes, by the front end {}"}),
]


class S2Family(Family):
    """The models of the fish-speech architecture. A file says which kind of prompt its model takes (`dualar.prompt`);
    if it does not, the tokenizer's control tokens decide."""

    architecture = names.ARCHITECTURE
    required_tokens = VOICE_CHAT_TOKENS
    parts: ClassVar[dict[str, str]] = {"Codec": names.CODEC_TENSORS, "Fast-AR": "fast_", "Slow-AR": ""}
    model_parts = ("Fast-AR", "Slow-AR")
    geometry = _GEOMETRY
    keeps_prefixes = True
    min_tokens_before_end = 0

    def __init__(self, file: _core.ModelFile) -> None:
        super().__init__(file)
        single_turn = file.get(names.SINGLE_TURN)
        if not isinstance(single_turn, bool | None):
            raise _core.ModelError(
                f"[{names.SINGLE_TURN}] expected true or false in {file.path}, got {str(single_turn)[:64]!r}"
            )
        self.takes_history = not single_turn
        longest = file.get(names.PIECE_SIZE)
        if longest is not None and not (type(longest) is int and longest >= 1):
            raise _core.ModelError(
                f"[{names.PIECE_SIZE}] expected a number of letters in {file.path}, got {str(longest)[:64]!r}"
            )
        self.longest_text = longest
        prompt = file.get(names.PROMPT)
        if prompt not in (None, CHAT, INTERLEAVE):
            raise _core.ModelError(
                f"[{names.PROMPT}] expected {CHAT} or {INTERLEAVE} in {file.path}, got {str(prompt)[:64]!r}"
            )
        self._prompt = prompt
        self._has_alignment = file.get(names.ALIGNMENT_HEADS) is not None
        self._silent_codes = _silent_codes(file)
        frontend = file.get(names.TEXT_FRONTEND)
        if frontend is not None:
            if not isinstance(frontend, str) or frontend not in FRONTENDS:
                raise _core.ModelError(
                    f"[{names.TEXT_FRONTEND}] expected one of {', '.join(FRONTENDS)} in {file.path}, got "
                    f"{str(frontend)[:64]!r}"
                )
            self.frontend_name = frontend
            self.frontend = FRONTENDS[frontend]({})
        self._sampling = _sampling(file)

    @classmethod
    def some_end(cls, file: _core.ModelFile) -> int | None:
        begin, end = file.get(names.SEMANTIC_BEGIN_ID), file.get(names.SEMANTIC_END_ID)
        if type(begin) is int and type(end) is int:  # some token that is not semantic
            return begin - 1 if begin > 0 else end + 1
        return None

    @property
    def takes_voice(self) -> bool:
        return self.takes_history  # a voice is an earlier turn

    def prompt_kind(self, tokenizer: Tokenizer) -> str:
        """Which prompt the model takes, CHAT or INTERLEAVE."""
        return tokenizer.prompt_kind if self._prompt is None else str(self._prompt)

    def prompt_name(self, tokenizer: Tokenizer) -> str:
        return {CHAT: "chat (S2)", INTERLEAVE: "turns one after the other (S1)"}[self.prompt_kind(tokenizer)]

    @property
    def sampling(self) -> SamplingConfig:
        return self._sampling

    def load_model(
        self, file: _core.ModelFile, runtime: _core.Runtime, tokenizer: Tokenizer | None, im_end_id: int | None
    ) -> CoreModel | str:
        end = tokenizer.im_end_id if im_end_id is None and tokenizer is not None else im_end_id
        if end is None:
            return (
                f"[load] expected a tokenizer in {file.path}, or tokenizer.json beside it or in its parent folder; "
                "found none: pass tokenizer=, or im_end_id= to run the model on prompts of your own"
            )
        try:
            model = _core.DualAR(file, runtime, im_end_id=end)
        except ValueError as error:
            if im_end_id is not None:
                raise
            raise _core.ModelError(f"{error}, the tokenizer's <|im_end|>") from error
        if tokenizer is not None:
            tokenizer.check_model(
                vocab_size=model.vocab_size,
                semantic_begin_id=model.semantic_begin_id,
                semantic_end_id=model.semantic_end_id,
            )
            if self.prompt_kind(tokenizer) == INTERLEAVE and tokenizer.control_id(OPEN) is None:
                raise _core.ModelError(
                    f"[{names.PROMPT}] expected the control token {OPEN} in {tokenizer.source}, as {file.path} needs, "
                    "found none"
                )
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
        if given := style.given():
            name, value = next(iter(given.items()))
            raise ValueError(
                f"[{name}] expected none: models of this family ({self.architecture}) have no {name}, got {value!r}"
            )
        if voice is not None and not self.takes_history:
            raise ValueError(f"[voice] expected none: {self.path} speaks with one voice, its own")
        require_words("text", text)
        build = build_prompt if self.prompt_kind(tokenizer) == CHAT else build_interleaved_prompt
        return build(
            text if self.frontend is None else self.frontend.speak(text).phonemes,
            tokenizer=tokenizer,
            num_codebooks=model.num_codebooks,
            codebook_size=model.codebook_size,
            semantic_begin_id=model.semantic_begin_id,
            reference=None if voice is None else voice.reference,
            history=history,
        )

    def times_words(self, tokenizer: Tokenizer) -> bool:
        return self._has_alignment and self.prompt_kind(tokenizer) == CHAT

    def word_map(self, text: str, *, tokenizer: Tokenizer, samples_per_frame: int) -> WordMap:
        if not self._has_alignment:
            raise ValueError(
                f"[word_times] expected a model whose file names the heads that look at the text "
                f"({names.ALIGNMENT_HEADS}), {self.path} does not"
            )
        if self.prompt_kind(tokenizer) != CHAT:
            raise ValueError(f"[word_times] expected a model with {CHAT} prompts, {self.path} takes another kind")
        spoken = None if self.frontend is None else self.frontend.speak(text)
        plain = plain_text(text)
        behind = sum(len(tokenizer.encode_template(piece)) for piece in (CLOSE, ASSISTANT_OPEN))
        tokens = tokenizer.text_places(plain if spoken is None else plain_text(spoken.phonemes))
        return word_map(
            plain,
            tokens,
            spoken=spoken,
            behind=behind,
            samples_per_frame=samples_per_frame,
            silent_codes=self._silent_codes,
        )

    def blank_prompt(self, model: CoreModel, positions: int) -> BuiltPrompt:
        return np.zeros((1 + model.num_codebooks, positions), np.int32)


def _silent_codes(file: _core.ModelFile) -> frozenset[int]:
    codes = file.get(names.SILENT_CODES)
    if codes is None:
        return frozenset()
    if not isinstance(codes, list) or not all(type(code) is int and code >= 0 for code in codes):
        raise _core.ModelError(
            f"[{names.SILENT_CODES}] expected codes of 0 and more in {file.path}, got {str(codes)[:64]!r}"
        )
    return frozenset(codes)


def _sampling(file: _core.ModelFile) -> FishSampling:
    """The sampling that the file asks for; the sampler's defaults for what it does not say."""
    try:
        return FishSampling(**file_options(file, _SAMPLING))
    except ValueError as error:
        raise _core.ModelError(f"[load] {file.path}: {error}") from error
