"""Which part of a model file a tensor belongs to, by the architecture that the file names.

Owns the name prefixes of the codec's tensors and of the speaker encoder's. Every other tensor is the model's.
"""

from __future__ import annotations

from dataclasses import dataclass

from dualar.gguf import names, qwen3_names


@dataclass(frozen=True, kw_only=True)
class Prefixes:
    """Beginnings of tensor names. codec: of the codec's tensors; others: of tensors of neither model nor codec."""

    codec: str
    others: tuple[str, ...] = ()


PREFIXES = {
    names.ARCHITECTURE: Prefixes(codec="c."),
    qwen3_names.ARCHITECTURE: Prefixes(codec=qwen3_names.CODEC, others=(qwen3_names.SPEAKER_ENCODER,)),
}
"""The prefixes of each architecture. An architecture that is not listed is unknown to dualar."""


def unknown_architecture(path: str, architecture: str) -> str:
    """The error text for a file whose architecture is not listed."""
    known = " or ".join(map(repr, PREFIXES))
    return f"[{names.ARCHITECTURE_KEY}] expected {known} in {path}, got {architecture[:64]!r}"
