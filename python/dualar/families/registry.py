"""Which family a model file belongs to, by its architecture.

Owns `family_of` and the list of families. A file of an architecture that is not listed is a ModelError.
"""

from __future__ import annotations

from dualar._native import _core
from dualar.families.base import Family
from dualar.families.qwen3_tts import Qwen3Family
from dualar.families.s2 import S2Family
from dualar.gguf.parts import unknown_architecture

FAMILIES: tuple[type[Family], ...] = (S2Family, Qwen3Family)


def family_of(file: _core.ModelFile) -> Family:
    """The family of a file, by its architecture; ModelError for one that no family has."""
    for family in FAMILIES:
        if file.architecture == family.architecture:
            return family(file)
    raise _core.ModelError(unknown_architecture(file.path, file.architecture))
