"""The computations of several sessions at once: in one graph for the core's models, in turn for any others.

Owns the choice between the compiled `_core.Batch` and its like in Python. Leaves what is computed when to
`batch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dualar.model import Model

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]


class Steps(Protocol):
    """The computations of several sessions at once, as `_core.Batch` has them."""

    def step(self, sessions: Sequence[Any], columns: Int32, /) -> tuple[Float32, Float32]: ...
    def fast_begin(self, sessions: Sequence[Any], hidden: Float32, codes: Int32, /) -> Float32: ...
    def fast_step(self, sessions: Sequence[Any], codes: Int32, /) -> Float32: ...


class InTurn:
    """The same by each session's own calls, for models that are not the core's, as tests have them."""

    def step(self, sessions: Sequence[Any], columns: Int32, /) -> tuple[Float32, Float32]:
        out = [session.step(column) for session, column in zip(sessions, columns, strict=True)]
        return np.stack([o.logits for o in out]), np.stack([o.hidden for o in out])

    def fast_begin(self, sessions: Sequence[Any], hidden: Float32, codes: Int32, /) -> Float32:
        return np.stack([s.fast_begin(h, int(c)) for s, h, c in zip(sessions, hidden, codes, strict=True)])

    def fast_step(self, sessions: Sequence[Any], codes: Int32, /) -> Float32:
        return np.stack([s.fast_step(int(c)) for s, c in zip(sessions, codes, strict=True)])


def steps_of(model: Model) -> Steps:
    """What steps several sessions of this model."""
    from dualar._native import _core

    return _core.Batch(model) if isinstance(model, _core.BatchModel) else InTurn()
