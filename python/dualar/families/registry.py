"""Which family a model file belongs to, by its architecture.

Owns `family_of` and the list of families. A file of an architecture that is not listed is a ModelError.
"""

from __future__ import annotations

from dualar._native import _core
from dualar.families.base import Family
from dualar.families.csm import CsmFamily
from dualar.families.qwen3_tts import Qwen3Family
from dualar.families.s2 import S2Family
from dualar.gguf import names

FAMILIES: tuple[type[Family], ...] = (S2Family, Qwen3Family, CsmFamily)


def kind_of(architecture: object) -> type[Family] | None:
    """The family of an architecture; None for one that no family has, or what is no name at all."""
    return next((family for family in FAMILIES if family.architecture == architecture), None)


def family_of(file: _core.ModelFile) -> Family:
    """The family of a file, by its architecture; ModelError for one that no family has."""
    kind = kind_of(file.architecture)
    if kind is None:
        known = " or ".join(repr(family.architecture) for family in FAMILIES)
        raise _core.ModelError(
            f"[{names.ARCHITECTURE_KEY}] expected {known} in {file.path}, got {file.architecture[:64]!r}"
        )
    return kind(file)
