"""The parts of a model file by the names of their tensors, for `info` and `convert`.

Owns the names of the parts on the command line, and which tensor belongs to which part there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import prod

from dualar.cli import common
from dualar.gguf import qwen3_names

# The beginning of the names of each part's tensors. A tensor belongs to the first part that fits, so the last one takes
# all others. The parts are shown in reverse.
_S2_PARTS = {"Codec": "c.", "Fast-AR": "fast_", "Slow-AR": ""}
_QWEN3_PARTS = {
    "Speaker encoder": qwen3_names.SPEAKER_ENCODER,
    "Codec": qwen3_names.CODEC,
    "Predictor": qwen3_names.PREDICTOR,
    "Talker": "",
}


def types_by_part(architecture: object, tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> list[tuple[str, str]]:
    """(part, text) for each part that has tensors: its parameters by ggml type, most first. tensors: (name, type,
    shape)."""
    prefixes = _QWEN3_PARTS if architecture == qwen3_names.ARCHITECTURE else _S2_PARTS
    parts: dict[str, dict[str, int]] = {name: defaultdict(int) for name in prefixes}
    for name, type_name, shape in tensors:
        part = next(part for part, prefix in prefixes.items() if name.startswith(prefix))
        parts[part][type_name] += prod(shape)
    lines = []
    for part, types in reversed(parts.items()):
        if types:
            ranked = sorted(types.items(), key=lambda item: -item[1])
            lines.append((part, ", ".join(f"{common.count(size)} in {name.upper()}" for name, size in ranked)))
    return lines
