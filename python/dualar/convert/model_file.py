"""From a checkpoint's folder to a model file: which family it is, the checks, the writing.

Owns the order of these and the list of families. Leaves what a model file holds (`ModelFile`) to each family's module.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dualar._native import _core
from dualar.convert.checkpoint import Checkpoint, read_json
from dualar.convert.gguf_writer import Tensor, Value, write_gguf
from dualar.convert.plan import Part, Planned, require
from dualar.convert.quantize import check_type, nbytes, to_bytes, type_of
from dualar.gguf import names

FAMILIES = {"qwen3_tts": "qwen3_tts", "fish_qwen3_omni": "s2", "dual_ar": "s2"}
"""config.json's model_type -> the module here that has `model_file(folder)`."""


@dataclass(frozen=True)
class ModelFile:
    """What a model file holds: its metadata, and its tensors by the checkpoint that they are made of."""

    metadata: dict[str, Value]
    parts: Sequence[Part]


@dataclass(frozen=True, kw_only=True)
class Converted:
    """What was written: the architecture, tensors, their bytes, and which are in another type than was asked for."""

    architecture: str
    tensors: int
    nbytes: int
    finer: tuple[str, ...]


def convert(
    folder: Path, output: Path, *, weight_type: str = "f16", on_tensor: Callable[[int, int], object] | None = None
) -> Converted:
    """Write the checkpoint in `folder` to the GGUF file `output`, whole or not at all.

    weight_type: one of `quantize.BLOCKS`. on_tensor is called with (bytes written, bytes of all). Errors: ValueError
    for another type; ModelError for a folder that holds no checkpoint of a known family, or one that is damaged, with
    all tensors that are missing, misshapen or not expected at once; OSError where the file cannot be written.
    """
    wanted = check_type(weight_type)
    kind = read_json(folder / "config.json").get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise _core.ModelError(
            f"[model_type] expected one of {', '.join(FAMILIES)} in {folder / 'config.json'}, got {kind!r:.80}"
        )
    model: ModelFile = importlib.import_module(f"dualar.convert.{FAMILIES[kind]}").model_file(folder)
    return write_model(model, output, weight_type=wanted, on_tensor=on_tensor)


def write_model(
    model: ModelFile, output: Path, *, weight_type: str, on_tensor: Callable[[int, int], object] | None = None
) -> Converted:
    """Check and write a model file; errors as for `convert`."""
    wanted = check_type(weight_type)
    require(model.parts)
    tensors, finer = [], []
    for part in model.parts:
        for planned in part.plan:
            kept = type_of(planned.storage, planned.shape, wanted)
            if kept != type_of(planned.storage, (256,), wanted):
                finer.append(planned.target)
            tensors.append(Tensor(planned.target, planned.shape, kept, _source(part.checkpoint, planned, kept)))
    write_gguf(output, model.metadata, tensors, on_tensor=on_tensor)
    return Converted(
        architecture=str(model.metadata[names.ARCHITECTURE_KEY]),
        tensors=len(tensors),
        nbytes=sum(nbytes(tensor.shape, tensor.kind) for tensor in tensors),
        finer=tuple(finer),
    )


def _source(checkpoint: Checkpoint, planned: Planned, kind: str) -> Callable[[], npt.NDArray[np.uint8]]:
    return lambda: to_bytes(planned.read(checkpoint), kind, name=planned.target)
