"""A GGUF file as numpy arrays, for the reference models.

Owns reading: metadata values, and tensors of any type that the gguf package can dequantize, in numpy order and one
floating-point type. Leaves the arithmetic to the models beside it.
"""

from __future__ import annotations

import os
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]


class Weights:
    """`w[name]` is a tensor, `w.kv(key)` a metadata value. Tensors are converted on first use and kept.

    dtype: what to compute in, float64 or float32. Quantized, F16 and BF16 tensors become float32 first, exactly, so
    that float64 changes the arithmetic and never the weights.
    """

    def __init__(self, path: str | os.PathLike[str], *, dtype: type[np.floating[Any]] | str = np.float64) -> None:
        reader = gguf.GGUFReader(os.fspath(path))
        self.dtype: np.dtype[np.floating[Any]] = np.dtype(dtype)
        self._kv = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
        self._packed = {t.name: t for t in reader.tensors}
        self._tensors: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._tensors:
            packed = self._packed[name]
            values = gguf.quants.dequantize(packed.data, packed.tensor_type)
            self._tensors[name] = np.asarray(values).astype(self.dtype)
        return self._tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self._packed

    def names(self) -> list[str]:
        """Tensor names in file order."""
        return list(self._packed)

    def type_name(self, name: str) -> str:
        """The ggml type that the file holds this tensor in, e.g. "Q8_0"."""
        return str(self._packed[name].tensor_type.name)

    def kv(self, key: str, default: Any = None) -> Any:
        """A metadata value, or `default` where the key is absent."""
        return self._kv.get(key, default)

    def scalar(self, value: float) -> np.floating[Any]:
        """A Python number in this dtype, so that float32 arithmetic stays float32 under any numpy."""
        return self.dtype.type(value)

    def linear(self, name: str, x: Array) -> Array:
        """x [..., in] -> [..., out]; the bias is added where the file has one."""
        y = x @ self[name + ".weight"].T
        return y + self[name + ".bias"] if name + ".bias" in self else y
