"""The parts of a model file: which of them are there, and one error for everything that is wrong with them.

Owns the loading of the transformers, the codec and the speaker encoder from one open file. Leaves opening the file to
`runtime.py`, each part's own tensors to the compiled core, and using the parts to `engine.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from dualar._native import _core
from dualar.codec.codec import Codec
from dualar.codec.fingerprint import codec_fingerprint
from dualar.families.base import Family, Model
from dualar.families.registry import family_of
from dualar.runtime import ForkGuard, open_file, open_runtime
from dualar.text.tokenizer import Tokenizer
from dualar.voices.speaker_encoder import SpeakerEncoder


def load_codec(path: str | os.PathLike[str], *, device: str = "cpu", threads: int | None = None) -> Codec:
    """What `Codec.load` does; here because it shares the opening of files and devices."""
    file = open_file(path)
    family = family_of(file)
    if not _has_codec(file, family):
        raise _core.ModelError(no_codec(file.path, family))
    runtime = open_runtime(device=device, threads=threads)
    return make_codec(file, _core.Codec(file, runtime), check=ForkGuard(file.path))


def make_codec(file: _core.ModelFile, core: _core.Codec, *, check: Callable[[], None]) -> Codec:
    """The compiled codec of an open file, with its fingerprint."""
    geometry = [core.sample_rate, core.samples_per_frame, *core.codebook_sizes]
    return Codec(core, check=check, fingerprint=codec_fingerprint(file, geometry=geometry))


def load_parts(
    file: _core.ModelFile, family: Family, runtime: _core.Runtime, tokenizer: Tokenizer | None, im_end_id: int | None
) -> tuple[Model | None, _core.Codec | None, _core.SpeakerEncoder | None, str]:
    """The transformers, the codec, the speaker encoder, and why the first are None. One ModelError for all that is
    wrong with any of them."""
    problems: list[str] = []
    speaker: _core.SpeakerEncoder | None = None
    model: Model | None = None
    codec: _core.Codec | None = None
    no_model = ""
    if not _has_model(file, family):
        no_model = (
            f"[load] expected a speech model in {file.path}, found codec tensors alone: "
            "codes can be decoded with this file, not made"
        )
    else:
        try:
            found = family.load_model(file, runtime, tokenizer, im_end_id)
            if isinstance(found, str):
                no_model = found
            else:
                model = found
        except _core.ModelError as error:
            problems.append(str(error))
    if _has_codec(file, family):
        try:
            codec = _core.Codec(file, runtime)
        except _core.ModelError as error:
            problems.append(str(error))
    if _core.SpeakerEncoder.present(file):
        try:
            speaker = _core.SpeakerEncoder(file, runtime)
        except _core.ModelError as error:
            problems.append(str(error))
    if problems:
        raise _core.ModelError("\n".join(problems))
    if model is not None and codec is not None and model.num_codebooks != codec.num_codebooks:
        raise _core.ModelError(
            f"[load] expected a codec of {model.num_codebooks} codebooks, as the model has, got {codec.num_codebooks}"
        )
    if model is not None:
        model.load()
    return model, codec, speaker, no_model


def load_cloner(
    path: str | os.PathLike[str], *, device: str = "cpu", threads: int | None = None
) -> tuple[Codec, SpeakerEncoder | None]:
    """What a file clones voices with: its codec, and a speaker encoder where its family needs one. ModelError for a
    file that lacks either; else as `load_codec`."""
    codec = load_codec(path, device=device, threads=threads)
    file = open_file(path)
    if not family_of(file).needs_speaker_encoder:
        return codec, None
    if not _core.SpeakerEncoder.present(file):
        raise _core.ModelError(no_speaker_encoder(file.path))
    core = _core.SpeakerEncoder(file, open_runtime(device=device, threads=threads))
    return codec, SpeakerEncoder(core, check=ForkGuard(file.path))


def no_speaker_encoder(path: str) -> str:
    """What to say where a file that would need a speaker encoder has none."""
    return (
        f"[clone] expected a speaker encoder (speaker.*) in {path}, found none: this model was not made to clone voices"
    )


def no_codec(path: str, family: Family) -> str:
    """What to say where a file has no codec."""
    return (
        f"[load] expected codec tensors ({family.codec_prefix}*) in {path}, found none: codes can be made, not decoded"
    )


def _has_codec(file: _core.ModelFile, family: Family) -> bool:
    return any(name.startswith(family.codec_prefix) for name, _, _ in file.tensors())


def _has_model(file: _core.ModelFile, family: Family) -> bool:
    # A file with no tensor at all goes to the core, which says what is missing.
    others = (family.codec_prefix, *family.other_prefixes)
    names = [name for name, _, _ in file.tensors()]
    return not names or any(not name.startswith(others) for name in names)
