"""Loads the parts of a model file: those that are there, with one error for everything that is wrong with them.

Owns `EngineParts`, which an engine is made of, and its loading from one open file. Leaves opening the file to
`runtime.py`, each part's own tensors to the compiled core, and using the parts to `engine.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from dualar._native import _core
from dualar.codec.codec import Codec, has_codec, no_codec
from dualar.config import SamplingConfig
from dualar.families.base import CoreModel, Family
from dualar.families.registry import family_of
from dualar.generation.prefix_cache import PrefixCache
from dualar.runtime import ForkGuard, open_file, open_runtime
from dualar.text.frontend import read_lexicon
from dualar.text.tokenizer import METADATA_KEY, Tokenizer
from dualar.voices.speaker_encoder import SpeakerEncoder, no_speaker_encoder

FastAR = Literal["cached", "recompute"]
KvType = Literal["auto", "f32", "f16"]
LexiconLike = Mapping[str, str] | str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineParts:
    """The parts of an engine. A request takes them once, so that closing the engine meanwhile does not stop it.

    path: the file's. runtime: the device and its threads. found_*: the parts, None where the file has none; no_model
    and no_codec: the error texts for a file without one. fast_ar, kv_type: as for `dualar.load`.
    """

    path: str
    runtime: _core.Runtime
    family: Family
    found_model: CoreModel | None
    found_codec: Codec | None
    found_tokenizer: Tokenizer | None
    speaker_encoder: SpeakerEncoder | None
    no_model: str
    no_codec: str
    prefix_cache: PrefixCache
    fast_ar: FastAR
    kv_type: KvType

    @property
    def model(self) -> CoreModel:
        """The Slow-AR and Fast-AR; ModelError where there are none."""
        if self.found_model is None:
            raise _core.ModelError(self.no_model)
        return self.found_model

    @property
    def codec(self) -> Codec:
        """The codec; ModelError where the file has none."""
        if self.found_codec is None:
            raise _core.ModelError(self.no_codec)
        return self.found_codec

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; ModelError where there is none."""
        if self.found_tokenizer is None:
            raise _core.ModelError(
                f"[load] expected a tokenizer in {self.path}, or tokenizer.json beside it or in its parent folder; "
                "found none: pass tokenizer="
            )
        return self.found_tokenizer

    @property
    def sampling(self) -> SamplingConfig:
        """How codes are drawn unless a request says: the family's default, or what the file was published with."""
        return self.family.sampling


def load_parts(
    file: _core.ModelFile,
    runtime: _core.Runtime,
    *,
    tokenizer: str | os.PathLike[str] | Tokenizer | None,
    im_end_id: int | None,
    prefix_cache: PrefixCache,
    fast_ar: FastAR,
    kv_type: KvType,
    lexicon: LexiconLike | None,
    check: Callable[[], None],
) -> EngineParts:
    """All parts of an open file; one ModelError for all that is wrong with any of them. check: called before each use
    of the codec or speaker encoder by a caller. Other options as for `dualar.load`."""
    family = family_of(file)
    if lexicon is not None:
        family.take_lexicon(lexicon if isinstance(lexicon, Mapping) else read_lexicon(lexicon))
    if not isinstance(tokenizer, Tokenizer):
        tokenizer = Tokenizer.find_or_none(
            file.path, metadata_value=file.get(METADATA_KEY), explicit=tokenizer, required=family.required_tokens
        )
    problems: list[str] = []
    model, no_model = _model_of(file, family, runtime, tokenizer, im_end_id, problems)
    codec: _core.Codec | None = None
    speaker_encoder: _core.SpeakerEncoder | None = None
    if has_codec(file):
        try:
            codec = _core.Codec(file, runtime)
        except _core.ModelError as error:
            problems.append(str(error))
    if _core.SpeakerEncoder.present(file):
        try:
            speaker_encoder = _core.SpeakerEncoder(file, runtime)
        except _core.ModelError as error:
            problems.append(str(error))
    if problems:
        raise _core.ModelError("\n".join(problems))
    if model is not None and codec is not None and model.num_codebooks != codec.num_codebooks:
        raise _core.ModelError(
            f"[load] expected a codec of {model.num_codebooks} codebooks, as the model has, got {codec.num_codebooks}"
        )
    # All that is done once is done here, so that the first request takes no longer than the next.
    if model is not None:
        model.load()
    if codec is not None:
        codec.load()
    return EngineParts(
        path=file.path,
        runtime=runtime,
        family=family,
        found_model=model,
        found_codec=None if codec is None else Codec.of(file, codec, check=check),
        found_tokenizer=tokenizer,
        speaker_encoder=None if speaker_encoder is None else SpeakerEncoder(speaker_encoder, check=check),
        no_model=no_model,
        no_codec=no_codec(file),
        prefix_cache=prefix_cache,
        fast_ar=fast_ar,
        kv_type=kv_type,
    )


def load_cloner(
    path: str | os.PathLike[str], *, device: str = "cpu", threads: int | None = None
) -> tuple[Codec, SpeakerEncoder | None]:
    """The parts of a file that clone voices: its codec, and a speaker encoder where its family needs one. ModelError
    for a file that lacks one of them; other errors as for `Codec.load`."""
    file = open_file(path)
    family = family_of(file)
    if not has_codec(file):
        raise _core.ModelError(no_codec(file))
    runtime, check = open_runtime(device=device, threads=threads), ForkGuard(file.path)
    codec = Codec.of(file, _core.Codec(file, runtime), check=check)
    if not family.needs_speaker_encoder:
        return codec, None
    if not _core.SpeakerEncoder.present(file):
        raise _core.ModelError(no_speaker_encoder(file.path))
    return codec, SpeakerEncoder(_core.SpeakerEncoder(file, runtime), check=check)


def _model_of(
    file: _core.ModelFile,
    family: Family,
    runtime: _core.Runtime,
    tokenizer: Tokenizer | None,
    im_end_id: int | None,
    problems: list[str],
) -> tuple[CoreModel | None, str]:
    """The model, its weights not loaded yet, or None and the reason; appends what is wrong with it to `problems`."""
    tensors = [name for name, _, _ in file.tensors()]
    # A file with no tensor at all goes to the core, which says what is missing.
    if tensors and not any(family.part_of(name) in family.model_parts for name in tensors):
        return None, (
            f"[load] expected a speech model in {file.path}, found codec tensors alone: "
            "codes can be decoded with this file, not made"
        )
    try:
        found = family.load_model(file, runtime, tokenizer, im_end_id)
    except _core.ModelError as error:
        problems.append(str(error))
        return None, ""
    return (None, found) if isinstance(found, str) else (found, "")
