"""What holds the house together: layers that point one way, one list of names, no path of a build machine."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from dualar.gguf import names, qwen3_codec_names, qwen3_names

ROOT = Path(__file__).parents[1]
LAYERS = ["runtime", "nn", "models", "bindings"]


def test_layers_include_downwards_only() -> None:
    seen = 0
    for layer in LAYERS:
        for source in (ROOT / "csrc" / layer).iterdir():
            for included in re.findall(r'#include "(\w+)/', source.read_text(encoding="utf-8")):
                assert LAYERS.index(included) <= LAYERS.index(layer), f"{source.name} includes {included}/"
                seen += 1
    assert seen > 40


def test_lower_layers_know_no_names() -> None:
    for layer in ("runtime", "nn"):
        for source in (ROOT / "csrc" / layer).iterdir():
            code = source.read_text(encoding="utf-8")
            assert "fish" not in code, f"{source.name} knows a model family"
            assert '.weight"' not in code, f"{source.name} knows a tensor name"


@pytest.mark.parametrize(
    ("header", "module", "at_least"),
    [("names.h", names, 80), ("qwen3_names.h", qwen3_names, 50), ("qwen3_codec_names.h", qwen3_codec_names, 50)],
)
def test_names_agree_between_cpp_and_python(header: str, module: ModuleType, at_least: int) -> None:
    code = (ROOT / "csrc" / "models" / header).read_text(encoding="utf-8")
    cpp = dict(re.findall(r'inline constexpr const char\* k(\w+) =\s+"(.*)";', code))
    in_python = {
        "".join(part.capitalize() for part in name.lower().split("_")): value
        for name, value in vars(module).items()
        if name.isupper()
    }
    assert len(cpp) > at_least
    assert in_python == cpp


def test_cpp_files_stay_readable() -> None:
    for source in (ROOT / "csrc").rglob("*.*"):
        assert len(source.read_text(encoding="utf-8").splitlines()) <= 400, source.name
