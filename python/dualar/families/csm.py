"""The CSM family (Sesame CSM-1B): voices as earlier turns, speakers by number, and the end as a frame of zeros.

Owns what the family declares, and the sampling that a file asks for. Leaves the prompt to `csm_prompt.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dualar._native import _core
from dualar.config import HFSampling, SamplingConfig
from dualar.families.base import CoreModel, Family, Rows, Style, Turn
from dualar.families.csm_prompt import CLOSE, OPEN, CsmPrompt, build_csm_prompt
from dualar.families.file_sampling import file_options
from dualar.gguf import csm_names as keys
from dualar.gguf import names
from dualar.model import BuiltPrompt
from dualar.text.tokenizer import Tokenizer
from dualar.voices.voice import Voice

# As published; a file that is silent about top_k means 50, not "off".
_DEFAULTS = {"temperature": 0.9, "top_k": 50, "top_p": 1.0, "repetition_penalty": 1.0}
_SAMPLING = {"temperature": keys.TEMPERATURE, "top_k": keys.TOP_K, "top_p": keys.TOP_P}
_DEPTH_SAMPLING = {"temperature": keys.DEPTH_TEMPERATURE, "top_k": keys.DEPTH_TOP_K, "top_p": keys.DEPTH_TOP_P}

_SPEAKERS = tuple(map(str, range(10)))  # to choose among in a list; a request may name any number
_GEOMETRY: Rows = [
    (
        "Backbone",
        {
            keys.BLOCK_COUNT: "{} layers",
            keys.EMBEDDING_LENGTH: "width {}",
            keys.HEAD_COUNT: "{} heads",
            keys.HEAD_COUNT_KV: "{} key/value heads",
            keys.KEY_LENGTH: "of {}",
            keys.FEED_FORWARD_LENGTH: "feed-forward {}",
            keys.TEXT_VOCAB_SIZE: "text vocabulary {}",
            keys.CONTEXT_LENGTH: "context {}",
        },
    ),
    (
        "Depth decoder",
        {
            keys.DEPTH_BLOCK_COUNT: "{} layers",
            keys.DEPTH_EMBEDDING_LENGTH: "width {}",
            keys.DEPTH_HEAD_COUNT: "{} heads",
            keys.DEPTH_HEAD_COUNT_KV: "{} key/value heads",
            keys.DEPTH_KEY_LENGTH: "of {}",
            keys.DEPTH_FEED_FORWARD_LENGTH: "feed-forward {}",
        },
    ),
    ("Codebooks", {keys.NUM_CODEBOOKS: "{}", keys.CODEBOOK_SIZE: "of {} entries"}),
    (
        "Codec",
        {
            keys.SAMPLE_RATE: "{} Hz",
            keys.LATENT_DIM: "width {}",
            keys.DECODER_RATES: "rates {}",
            keys.TRANSFORMER + names.WINDOW_SIZE: "window {}",
        },
    ),
]


class CsmFamily(Family):
    """Models of Sesame's CSM."""

    architecture = keys.ARCHITECTURE
    required_tokens = (OPEN, CLOSE)
    parts: ClassVar[dict[str, str]] = {"Codec": keys.CODEC, "Depth decoder": keys.DEPTH, "Backbone": ""}
    model_parts = ("Depth decoder", "Backbone")
    geometry = _GEOMETRY
    keeps_prefixes = True
    takes_history = True
    min_tokens_before_end = 0

    def __init__(self, file: _core.ModelFile) -> None:
        """ModelError for a file whose sampling options are out of range."""
        super().__init__(file)
        main: dict[str, Any] = {**_DEFAULTS, **file_options(file, _SAMPLING)}
        depth = {**_DEFAULTS, **file_options(file, _DEPTH_SAMPLING)}
        differing = {f"residual_{name}": value for name, value in depth.items() if value != main[name]}
        try:
            self._sampling = HFSampling(**main, **differing)
        except ValueError as error:
            raise _core.ModelError(f"[load] {file.path}: {error}") from error

    @property
    def speakers(self) -> tuple[str, ...]:
        return _SPEAKERS

    @property
    def sampling(self) -> SamplingConfig:
        return self._sampling

    def load_model(
        self, file: _core.ModelFile, runtime: _core.Runtime, tokenizer: Tokenizer | None, im_end_id: int | None
    ) -> CoreModel | str:
        if im_end_id is not None:
            raise ValueError(f"[im_end_id] expected None: no id ends speech in models of this family, got {im_end_id}")
        model = _core.Model(file, runtime)
        if tokenizer is not None:
            tokenizer.check_model(
                vocab_size=int(file.get(keys.TEXT_VOCAB_SIZE)), semantic_begin_id=0, semantic_end_id=0
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
        for name in ("language", "instruct"):
            if name in style.given():
                raise ValueError(
                    f"[{name}] expected none: models of this family ({self.architecture}) have no {name}, got "
                    f"{getattr(style, name)!r}"
                )
        return build_csm_prompt(
            text,
            tokenizer=tokenizer,
            num_codebooks=model.num_codebooks,
            codebook_size=model.codebook_size,
            speaker=style.speaker,
            voice=None if voice is None else Turn(voice.transcript, voice.codes),
            history=history,
        )

    def blank_prompt(self, model: CoreModel, positions: int) -> BuiltPrompt:
        columns = np.full((1 + model.num_codebooks, positions), -1, np.int32)
        columns[0] = 0
        return CsmPrompt(columns)
