"""The files of an S2 or S1 checkpoint's folder that hold tensors, and the names of these tensors.

Owns finding them, the renaming to the names of the model file, and which tensors the published loaders leave out.
Leaves which tensors a model must have to `s2.py` and `s2_codec.py`.

`fish_qwen3_omni` and `dual_ar` hold the same model. In `dual_ar` the tensors have the names of the model file, perhaps
after `model.`; in `fish_qwen3_omni` the Slow-AR's are under `text_model.model.`, the Fast-AR's and the codebooks'
embeddings under `audio_decoder.`. The names decide which it is, as in the published loader, not the config.

The kinds of tensors that are left out are listed here; any other tensor that a model does not have is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dualar._native import _core
from dualar.convert.checkpoint import Checkpoint, Renamed, open_checkpoint
from dualar.convert.torch_file import TorchFile
from dualar.gguf import names

_TEXT, _AUDIO, _CODEBOOKS, _FLAT = "text_model.model.", "audio_decoder.", "codebook_embeddings.", "model."
_GENERATOR = "generator."

_COMPUTED = ("freqs_cis", "fast_freqs_cis", "causal_mask", "inv_freq", "codebook_offsets", "k_cache", "v_cache")
"""Buffers that some checkpoints hold, by the last part of their names: they are computed, not learnt."""
_LEFT_OUT = re.compile(
    r"(^|\.)(audio_|vision_|visual\.)"  # towers and projectors for sound or pictures that the model can hear or see
    r"|(^|\.)kv_cache\."
    r"|(^|[._])lora_"  # low-rank changes that were not merged into the weights
)
_TIED_HEAD = (names.OUTPUT, "text_model.lm_head.weight", "lm_head.weight")
"""Names of the output head, which is a copy of the embeddings where the config ties it to them."""
_PREDICTOR = "quantizer.semantic_predictor_module."  # of the codec's training


def language_tensors(folder: Path) -> Renamed:
    """Slow-AR and Fast-AR: model.safetensors, in one file or several, else model.pth; ModelError where it is absent."""
    checkpoint = _open(folder, "model")
    omni = any(name.startswith((_TEXT, _AUDIO)) for name in checkpoint.tensors)
    return Renamed(checkpoint, _of_omni if omni else lambda name: name.removeprefix(_FLAT))


def codec_tensors(folder: Path) -> Renamed:
    """The codec: codec.safetensors, else codec.pth; of a training run's checkpoint, the generator's tensors alone."""
    checkpoint = _open(folder, "codec")
    trained = any(name.startswith(_GENERATOR) for name in checkpoint.tensors)
    return Renamed(checkpoint, _of_generator if trained else lambda name: name)


def language_ignored(*, tied: bool) -> Callable[[str], bool]:
    """Says of a tensor of `language_tensors` that a model file has no use for it. tied: the head is the embeddings."""
    return lambda name: _is_left_out(name) or (tied and name in _TIED_HEAD)


def codec_ignored(name: str) -> bool:
    """The same for `codec_tensors`."""
    return _is_left_out(name) or name.startswith(_PREDICTOR)


def _is_left_out(name: str) -> bool:
    return name.rsplit(".", 1)[-1] in _COMPUTED or _LEFT_OUT.search(name) is not None


def _of_omni(name: str) -> str:
    if name.startswith(_AUDIO):
        rest = name.removeprefix(_AUDIO)
        return rest if rest.startswith(_CODEBOOKS) else f"fast_{rest}"
    return name.removeprefix(_TEXT)


def _of_generator(name: str) -> str | None:
    return name.removeprefix(_GENERATOR) if name.startswith(_GENERATOR) else None


def _open(folder: Path, stem: str) -> Checkpoint:
    single, index = f"{stem}.safetensors", f"{stem}.safetensors.index.json"
    if (folder / single).is_file() or (folder / index).is_file():
        return open_checkpoint(folder, single=single, index=index)
    if (folder / f"{stem}.pth").is_file():
        return TorchFile(folder / f"{stem}.pth", pick=_state_dict)
    raise _core.ModelError(f"[checkpoint] expected {single}, {index} or {stem}.pth in {folder}, found none of them")


def _state_dict(loaded: Any) -> Any:
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        return loaded["state_dict"]
    return loaded
