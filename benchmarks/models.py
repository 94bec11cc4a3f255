"""Model files with random weights at published geometries, for the benchmarks: made on first use, then kept.

    python benchmarks/models.py mini s2-pro codec [--folder FOLDER] [--force]

Owns the presets and the values of the transformers' matrices; leaves keys, tensors and writing to
`tests/fixtures/s2_layout.py`, and the codec's values to the toy model's maker there. One preset, one file, the same
bytes each time. Nothing is quantized but a small pool of blocks, of which every matrix is a random sequence, so that
a file takes about as long as writing it does.

The weights are scaled so that activations stay finite; what such a model says is noise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from dualar import _core

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from fixtures.make_toy_model import ToyWeights, train_tokenizer
from fixtures.s2_layout import MINI, S2_PRO, S2Geometry, TensorSpec, metadata, tensor_specs, write_model

IM_END_ID = 151645  # in the vocabulary that these geometries have
DEFAULT_FOLDER = Path(tempfile.gettempdir()) / "dualar-bench"

_RECIPE = 1  # raise it when the values change: older files are then made again
_RECIPE_KEY = "benchmarks.recipe"
_CHUNK = 256  # elements: a whole number of any type's blocks
_POOL_CHUNKS = 4096
_PIECE_CHUNKS = 1 << 16  # what is gathered at a time

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A file to make: a geometry, the ggml type of the transformers' matrices (None: codec alone), a line about it."""

    geometry: S2Geometry
    weight_type: str | None
    about: str

    def specs(self) -> list[TensorSpec]:
        """The file's tensors; the codec's matrices are F16, as published files have them, its vectors F32."""
        specs = tensor_specs(self.geometry, weight_type=self.weight_type or "F32", codec_type="F16")
        return specs if self.weight_type else [s for s in specs if s.name.startswith("c.")]


PRESETS = {
    "mini": Preset(geometry=MINI, weight_type="Q8_0", about="0.6 B class, Q8_0, with the S2-Pro codec in F16"),
    "mini-f32": Preset(geometry=MINI, weight_type="F32", about="the same in F32: no quantized product, more to read"),
    "s2-pro": Preset(geometry=S2_PRO, weight_type="Q4_K", about="S2-Pro, Q4_K, with its codec in F16"),
    "codec": Preset(geometry=S2_PRO, weight_type=None, about="the S2-Pro codec alone, F16"),
}


class RandomWeights:
    """`data(spec)` gives a tensor's values or packed bytes: a function of the preset and the tensor's name alone."""

    def __init__(self, geometry: S2Geometry) -> None:
        self._geometry = geometry
        self._codec = ToyWeights(geometry, seed=0, im_end_id=IM_END_ID)

    def data(self, spec: TensorSpec) -> npt.NDArray[Any]:
        """float32 values of spec.shape, or uint8 [spec.nbytes]."""
        if spec.name.startswith("c."):
            return self._codec.values(spec)
        rng = np.random.default_rng(zlib.crc32(spec.name.encode()))
        if len(spec.shape) == 1:
            noise = rng.standard_normal(spec.shape, np.float32) / 10
            return 1 + noise if spec.name.endswith("norm.weight") else noise
        return _random_blocks(rng, spec, self._deviation(spec))

    def _deviation(self, spec: TensorSpec) -> float:
        """Of one weight: 1 / sqrt(fan-in), so that a product keeps its input's scale."""
        if spec.name in ("codebook_embeddings.weight", "fast_embeddings.weight"):
            return 1.0
        heads = ("embeddings.weight", "output.weight", "fast_output.weight")
        gain = 2.5 if spec.name in heads else 1.0  # logits of that deviation, so that draws vary
        return gain / float(np.sqrt(spec.shape[-1]))


def _random_blocks(rng: np.random.Generator, spec: TensorSpec, deviation: float) -> Bytes:
    """A tensor as a random sequence of the pool's chunks."""
    count, rest = divmod(int(np.prod(spec.shape)), _CHUNK)
    if rest:
        raise ValueError(f"{spec.name} {spec.shape}: expected a multiple of {_CHUNK} weights")
    pool = _pool(spec.type_name, deviation)
    out = np.empty((count, pool.shape[1]), np.uint8)
    for start in range(0, count, _PIECE_CHUNKS):
        part = out[start : start + _PIECE_CHUNKS]
        np.take(pool, rng.integers(_POOL_CHUNKS, size=len(part)), axis=0, out=part)
    return out.reshape(-1)


@lru_cache(maxsize=32)
def _pool(type_name: str, deviation: float) -> Bytes:
    """uint8 [_POOL_CHUNKS, bytes of a chunk]: normal values in a ggml type."""
    values = np.random.default_rng(20).standard_normal((_POOL_CHUNKS, _CHUNK), np.float32) * np.float32(deviation)
    return np.asarray(_core.quantize(values, type_name)).reshape(_POOL_CHUNKS, -1)


def ensure(
    name: str, *, folder: Path = DEFAULT_FOLDER, force: bool = False, log: Callable[[str], None] = print
) -> Path:
    """The path of a preset's file, which is made if it is not there, or was made by another recipe."""
    if name not in PRESETS:
        raise ValueError(f"[models] expected a preset among {', '.join(PRESETS)}, got {name!r}")
    preset = PRESETS[name]
    specs = preset.specs()
    recipe = _fingerprint(preset, specs)
    path = folder / f"{name}.gguf"
    if not force and _is_made(path, recipe):
        return path
    size = sum(s.nbytes for s in specs)
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < size * 1.05:
        raise OSError(f"[models] expected {size / 1e9:.2f} GB free in {folder} for {name}, found {free / 1e9:.2f} GB")
    log(f"making {path} ({size / 1e9:.2f} GB)")
    began = time.perf_counter()
    partial = folder / f"{name}.{os.getpid()}.partial"
    try:
        write_model(
            partial,
            geometry=preset.geometry,
            specs=specs,
            data=RandomWeights(preset.geometry).data,
            quantize=_core.quantize,
            extra_metadata={_RECIPE_KEY: recipe},
        )
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    log(f"made in {time.perf_counter() - began:.0f} s")
    return path


def resolve(model: str, *, folder: Path = DEFAULT_FOLDER) -> Path:
    """A preset's file, or `model` itself as a path."""
    return ensure(model, folder=folder) if model in PRESETS else Path(model)


def tokenizer_beside(path: Path) -> None:
    """Write tokenizer.json beside a preset's file, unless one is there: the toy model's text tokens, and the control
    and semantic tokens at the ids that these geometries have. What lies between stands for nothing."""
    target = path.parent / "tokenizer.json"
    if target.exists():
        return
    found = json.loads(train_tokenizer(MINI.codebook_size))
    vocabulary: dict[str, int] = found["model"]["vocab"]
    moved, semantic = IM_END_ID - _id_of(found, "<|im_end|>"), _id_of(found, "<|semantic:0|>")
    for token in found["added_tokens"]:
        old = token["id"]
        token["id"] = old - semantic + MINI.semantic_begin_id if old >= semantic else old + moved
        vocabulary[token["content"]] = token["id"]
    taken = set(vocabulary.values())
    for free in range(MINI.semantic_begin_id):
        if free not in taken:
            vocabulary[f"unused {free}"] = free
    target.write_text(json.dumps(found), encoding="utf-8")


def _id_of(tokenizer: dict[str, Any], content: str) -> int:
    return next(int(token["id"]) for token in tokenizer["added_tokens"] if token["content"] == content)


def _fingerprint(preset: Preset, specs: list[TensorSpec]) -> str:
    text = repr((_RECIPE, specs, metadata(preset.geometry)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_made(path: Path, recipe: str) -> bool:
    if not path.exists():
        return False
    try:
        return bool(_core.ModelFile(str(path)).get(_RECIPE_KEY) == recipe)
    except _core.ModelError:  # truncated, or no GGUF at all
        return False


def add_folder_option(parser: argparse.ArgumentParser) -> None:
    """--folder, the same in every script."""
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="where model files are kept (%(default)s)")


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    presets = "".join(f"\n  {name:10}{preset.about}" for name, preset in PRESETS.items())
    parser = argparse.ArgumentParser(
        description="Make model files with random weights for the benchmarks.",
        epilog=f"presets:{presets}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", choices=PRESETS, metavar="PRESET", help="which files (see below)")
    parser.add_argument("--force", action="store_true", help="make them again even if they are there")
    add_folder_option(parser)
    options = parser.parse_args(arguments)
    for name in options.names:
        print(ensure(name, folder=options.folder, force=options.force))


if __name__ == "__main__":
    main()
