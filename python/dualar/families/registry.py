"""Which family a model file belongs to, by its architecture.

Owns `family_of` and the list of families. A file of an architecture that is not listed is a ModelError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualar._native import _core
from dualar.gguf import names, qwen3_names

if TYPE_CHECKING:
    pass
from dualar.families.base import Family
from dualar.families.s2 import S2Family


def family_of(file: _core.ModelFile) -> Family:
    """The family of a file, by its architecture; ModelError for one that no family has."""
    if file.architecture == S2Family.architecture:
        return S2Family(file)
    if file.architecture == qwen3_names.ARCHITECTURE:
        from dualar.families.qwen3_tts import Qwen3Family

        return Qwen3Family(file)
    known = f"{S2Family.architecture!r} or {qwen3_names.ARCHITECTURE!r}"
    raise _core.ModelError(
        f"[{names.ARCHITECTURE_KEY}] expected {known} in {file.path}, got {file.architecture[:64]!r}"
    )
