"""ggml's build names ARM's architectures as GCC does; zig has names of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("zig_compiler", Path(__file__).parents[1] / "tools" / "zig_compiler.py")
assert SPEC is not None and SPEC.loader is not None
zig_compiler = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zig_compiler)


@pytest.mark.parametrize(
    ("gcc", "zig"),
    [
        ("-march=armv8-a", "-mcpu=generic+v8a"),
        ("-march=armv8.2-a+dotprod+fp16", "-mcpu=generic+v8_2a+dotprod+fullfp16"),
        ("-march=armv8.6-a+dotprod+fp16+sve+i8mm", "-mcpu=generic+v8_6a+dotprod+fullfp16+sve+i8mm"),
        ("-mavx2", "-mavx2"),
        ("-O3", "-O3"),
    ],
)
def test_architectures_are_spelled_as_zig_does(gcc: str, zig: str) -> None:
    assert zig_compiler.translated(gcc) == zig
