"""From a checkpoint's folder to a model file: finds the family, checks the tensors, writes the file.

Owns the order of these steps and the list of families. Leaves the content of a model file (`ModelFile`) to each
family's module.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dualar._native import _core
from dualar.convert.checkpoint import Checkpoint
from dualar.convert.gguf_writer import Tensor, Value, file_size, write_gguf
from dualar.convert.plan import Part, Planned, left_out, require
from dualar.convert.published import read_json
from dualar.convert.quantize import check_type, to_bytes, type_of
from dualar.gguf import names

FAMILIES = {"qwen3_tts": "qwen3_tts", "fish_qwen3_omni": "s2", "dual_ar": "s2", "csm": "csm"}
"""config.json's model_type -> the module here that has `model_file(folder)`."""


@dataclass(frozen=True)
class ModelFile:
    """What a model file holds: its metadata, and its tensors by the checkpoint that they are made of."""

    metadata: dict[str, Value]
    parts: Sequence[Part]


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """A checked model file that is yet to be written.

    nbytes: of the file. finer: the tensors in a finer type than was asked for, because their rows do not fit it.
    left_out: the checkpoint's tensors that a model file has no use for.
    """

    architecture: str
    metadata: dict[str, Value]
    tensors: Sequence[Tensor]
    nbytes: int
    finer: tuple[str, ...]
    left_out: tuple[str, ...]

    def write(self, output: Path, *, on_progress: Callable[[int, int], object] | None = None) -> None:
        """Write it to `output`, whole or not at all. on_progress is called with (bytes of tensors written, of all).
        ModelError for values that are NaN, infinite or too large for their type; OSError where writing fails."""
        write_gguf(output, self.metadata, self.tensors, on_progress=on_progress)


def convert(
    folder: Path, output: Path, *, weight_type: str = "f16", on_progress: Callable[[int, int], object] | None = None
) -> Conversion:
    """`prepare` and `Conversion.write` in one."""
    conversion = prepare(folder, weight_type=weight_type)
    conversion.write(output, on_progress=on_progress)
    return conversion


def prepare(folder: Path, *, weight_type: str = "f16") -> Conversion:
    """What the checkpoint in `folder` becomes; nothing is written, and of the tensors only names and shapes are read.

    weight_type: one of `quantize.BLOCKS`. Errors: ValueError for another type; ModelError for a folder that holds no
    checkpoint of a known family, or one that is damaged, with all tensors that are missing, misshapen or not expected
    at once.
    """
    wanted = check_type(weight_type)
    kind = read_json(folder / "config.json").get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise _core.ModelError(
            f"[model_type] expected one of {', '.join(FAMILIES)} in {folder / 'config.json'}, got {kind!r:.80}"
        )
    model: ModelFile = importlib.import_module(f"dualar.convert.{FAMILIES[kind]}").model_file(folder)
    require(model.parts)
    tensors, finer = [], []
    for part in model.parts:
        for planned in part.plan:
            kept = type_of(planned.storage, planned.shape, wanted)
            if kept != type_of(planned.storage, (256,), wanted):
                finer.append(planned.target)
            tensors.append(Tensor(planned.target, planned.shape, kept, _pieces(part.checkpoint, planned, kept)))
    return Conversion(
        architecture=str(model.metadata[names.ARCHITECTURE_KEY]),
        metadata=model.metadata,
        tensors=tensors,
        nbytes=file_size(model.metadata, tensors),
        finer=tuple(finer),
        left_out=tuple(name for part in model.parts for name in left_out(part)),
    )


def _pieces(checkpoint: Checkpoint, planned: Planned, kind: str) -> Callable[[], Iterator[npt.NDArray[np.uint8]]]:
    def pieces() -> Iterator[npt.NDArray[np.uint8]]:
        for values in planned.pieces(checkpoint):
            yield to_bytes(values, kind, name=planned.target)

    return pieces
