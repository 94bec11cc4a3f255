"""Prompts that callers give, checked against a model before anything is computed.

Owns `MatrixPrompt`, the prompt that is one matrix, and `checked_prompt`. Leaves prompts of other shapes, and building
prompts from text, to `dualar.families`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dualar.model import Int32, Model, Prompt, PromptLike


@dataclass(frozen=True, eq=False)
class MatrixPrompt:
    """A prompt of one matrix, int32 [1 + N, T]: token ids in row 0, and below semantic ones the codes of their frames.

    prefix_length: columns of the first message where it holds a voice's recording; 0 where it does not, or where no
    message follows it.
    """

    columns: Int32
    prefix_length: int
    divisible: bool = True

    @property
    def shape(self) -> tuple[int, int]:
        """(1 + N, T)."""
        rows, count = self.columns.shape
        return rows, count

    def piece(self, start: int, stop: int) -> Int32:
        """Columns start to stop, int32 [1 + N, stop - start], contiguous."""
        return np.ascontiguousarray(self.columns[:, start:stop])

    @classmethod
    def of(cls, prompt: npt.ArrayLike, model: Model) -> MatrixPrompt:
        """A caller's prompt int [1 + N, T]; ValueError where it does not fit the model."""
        rows = 1 + model.num_codebooks
        x: npt.NDArray[Any] = np.asarray(prompt)
        if x.dtype.kind not in "iu" or x.ndim != 2 or x.shape[0] != rows or x.shape[1] == 0:
            raise ValueError(f"[prompt] expected int [{rows}, T >= 1], got {x.dtype} {list(x.shape)}")
        for name, part, size in (("token ids", x[:1], model.vocab_size), ("codes", x[1:], model.codebook_size)):
            bad = (part < 0) | (part >= size)
            if bad.any():
                raise ValueError(f"[prompt] expected {name} from 0 to {size - 1}, got {part[bad][0]}")
        columns = np.ascontiguousarray(x, np.int32)
        return cls(columns, _prefix_length(columns[0], model.main_ids))


def checked_prompt(model: Model, prompt: PromptLike) -> Prompt:
    """The prompt as the model's sessions take it; ValueError where it does not fit the model."""
    check = getattr(prompt, "checked", None)
    if check is not None:
        checked: Prompt = check(model)
        return checked
    if getattr(model, "text_vocab_size", None) is not None:
        raise ValueError(f"[prompt] expected a TalkerPrompt, got {type(prompt).__name__}")
    return MatrixPrompt.of(prompt, model)  # type: ignore[arg-type]  # what has no `checked` is array-like


def _prefix_length(ids: Int32, main_ids: Int32) -> int:
    ends = np.flatnonzero(ids == main_ids[-1])
    if ends.size == 0 or ends[0] + 1 == ids.size:
        return 0
    length = int(ends[0]) + 1
    spoken = (ids[:length] >= main_ids[0]) & (ids[:length] <= main_ids[-2])
    return length if spoken.any() else 0
