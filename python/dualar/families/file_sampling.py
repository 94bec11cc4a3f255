"""Sampling options in a model file: what its publisher, or whoever trained it, says it speaks best with.

Owns their reading; leaves which keys there are, and the defaults where a file is silent, to each family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dualar._native import _core


def file_options(file: _core.ModelFile, keys: Mapping[str, str]) -> dict[str, Any]:
    """The options that the file has, by their names in a sampling config. keys: option -> key in the file.

    A file keeps 0.9 as a float32; the decimal number is meant, not the float32 next to it.
    """
    values = ((name, file.get(key)) for name, key in keys.items())
    return {n: float(str(np.float32(v))) if isinstance(v, float) else v for n, v in values if v is not None}
