"""What the tests of an S2 engine ask it for, in that family's types: its model, and prompts that are one matrix."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import numpy.typing as npt
from dualar import _core
from dualar.engine import Engine
from dualar.speech.request import StyleOptions


def s2_model(engine: Engine) -> _core.DualAR:
    """`engine.model`, a DualAR."""
    assert isinstance(engine.model, _core.DualAR)
    return engine.model


def s2_prompt(engine: Engine, text: str, **options: Unpack[StyleOptions]) -> npt.NDArray[np.int32]:
    """`engine.build_prompt`: int32 [1 + num_codebooks, T]."""
    prompt = engine.build_prompt(text, **options)
    assert isinstance(prompt, np.ndarray)
    return prompt
