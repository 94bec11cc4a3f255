"""The parts of a model file by the names of their tensors, for `info` and `convert`.

Owns what is told of them; leaves which tensor belongs to which part to the file's family.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from dualar.cli import common

if TYPE_CHECKING:
    from dualar.families.base import Family


def types_by_part(
    family: type[Family] | None, tensors: Iterable[tuple[str, str, tuple[int, ...]]]
) -> list[tuple[str, str]]:
    """(part, text) for each part that has tensors: its parameters by ggml type, most first. family: the file's; None
    where it has none that is known, and so no parts. tensors: (name, type, shape)."""
    # A family's first part that fits takes a tensor, so its last one takes all others; it is shown first.
    titles = ["Tensor"] if family is None else [*family.parts][::-1]
    parts: dict[str, dict[str, int]] = {title: defaultdict(int) for title in titles}
    for name, type_name, shape in tensors:
        parts[titles[0] if family is None else family.part_of(name)][type_name] += prod(shape)
    lines = []
    for part, types in parts.items():
        if types:
            ranked = sorted(types.items(), key=lambda item: -item[1])
            lines.append((part, ", ".join(f"{common.count(size)} in {name.upper()}" for name, size in ranked)))
    return lines
