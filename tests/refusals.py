"""What every test of a wrong model file asks for."""

from __future__ import annotations

import time
from pathlib import Path

import dualar
import pytest


def refused(path: Path, *, within: float = 2.0) -> str:
    """The text of the one ModelError that loading gives."""
    started = time.perf_counter()
    with pytest.raises(dualar.ModelError) as caught:
        dualar.load(path, threads=1)
    assert time.perf_counter() - started < within
    text = str(caught.value)
    assert text.startswith("["), text
    return text
