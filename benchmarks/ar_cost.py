"""What a frame of a dual-AR model costs at least: bytes of weights to read, and the FLOP of a prefill.

Owns counting from a file's tensors and metadata (names as in the GGUF layout of `fish-speech`); measures nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import gguf
from dualar import _core


@dataclass(frozen=True, kw_only=True)
class FrameCost:
    """Of one frame. A pass reads each of its weights once; embedding rows are too few to count.

    slow_bytes: the Slow-AR's layers and the rows of its head that may be emitted (semantic ids and the end token).
    fast_bytes: layers and head of the Fast-AR for each of the N - 1 residual codebooks, the input projection once.
    slow_weights: weights of the Slow-AR's layers. head_weights: of those rows of the head.
    """

    slow_bytes: int
    fast_bytes: int
    slow_weights: int
    head_weights: int
    attention_width: int  # query heads * head_dim * layers
    passes: int
    types: tuple[str, ...]

    @property
    def frame_bytes(self) -> int:
        """Slow-AR and Fast-AR together."""
        return self.slow_bytes + self.fast_bytes

    def prefill_flop(self, length: int) -> int:
        """Of a prompt of so many positions, the head for the last alone: products, and causal attention's two."""
        attention = 2 * 2 * self.attention_width * length * (length + 1) // 2
        return 2 * self.slow_weights * length + 2 * self.head_weights + attention

    def describe(self) -> str:
        """One line."""
        return (
            f"{'/'.join(self.types)}, Slow-AR {self.slow_weights / 1e9:.2f} G weights in its layers, "
            f"a frame reads {self.frame_bytes / 1e9:.2f} GB ({self.slow_bytes / 1e9:.2f} + {self.fast_bytes / 1e9:.2f})"
        )

    @classmethod
    def of(cls, file: _core.ModelFile) -> FrameCost:
        """Count a file's tensors."""
        shapes = {name: shape for name, _, shape in file.tensors()}
        types = {name: type_name for name, type_name, _ in file.tensors()}

        def nbytes(name: str, rows: int | None = None) -> int:
            shape = shapes[name] if rows is None else (rows, *shapes[name][1:])
            return _elements(shape) * _block_bytes(types[name]) // _block_size(types[name])

        slow = [n for n in shapes if n.startswith("layers.")]
        fast = [n for n in shapes if n.startswith(("fast_layers.", "fast_norm.", "fast_output."))]
        rows = int(file.get("fish_speech.codebook_size")) + 1
        head = "output.weight" if "output.weight" in shapes else "embeddings.weight"
        passes = int(file.get("fish_speech.num_codebooks")) - 1 if fast else 0
        once = [n for n in shapes if n.startswith("fast_project_in.")]
        matrices = {types[n].upper() for n in slow if len(shapes[n]) > 1}
        wo = [shapes[n][1] for n in slow if n.endswith("attention.wo.weight")]
        return cls(
            slow_bytes=sum(map(nbytes, slow)) + nbytes("norm.weight") + nbytes(head, rows),
            fast_bytes=passes * sum(map(nbytes, fast)) + sum(map(nbytes, once)),
            slow_weights=sum(_elements(shapes[n]) for n in slow if len(shapes[n]) > 1),
            head_weights=rows * shapes[head][1],
            attention_width=sum(wo),
            passes=passes,
            types=tuple(sorted(matrices)),
        )


def matrices(file: _core.ModelFile, prefixes: tuple[str, ...]) -> tuple[list[str], int]:
    """Names of the matrices under the prefixes, and their bytes together."""
    found = [(n, t, s) for n, t, s in file.tensors() if n.startswith(prefixes) and len(s) == 2]
    return [n for n, _, _ in found], sum(_elements(s) * _block_bytes(t) // _block_size(t) for _, t, s in found)


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _block_size(type_name: str) -> int:
    return int(gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name.upper()]][0])


def _block_bytes(type_name: str) -> int:
    return int(gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name.upper()]][1])
