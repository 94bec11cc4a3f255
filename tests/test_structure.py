"""What holds the house together: layers that point one way, one list of names, no path of a build machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import dualar
import pytest
from dualar.families.registry import FAMILIES
from dualar.gguf import csm_names, names, qwen3_codec_names, qwen3_names

ROOT = Path(__file__).parents[1]
LAYERS = ["runtime", "nn", "models", "bindings"]


def test_layers_include_downwards_only() -> None:
    seen = 0
    for layer in LAYERS:
        for source in (ROOT / "csrc" / layer).rglob("*.*"):
            for included in re.findall(r'#include "(\w+)/', source.read_text(encoding="utf-8")):
                assert LAYERS.index(included) <= LAYERS.index(layer), f"{source.name} includes {included}/"
                seen += 1
    assert seen > 40


def test_lower_layers_know_no_names() -> None:
    for layer in ("runtime", "nn"):
        for source in (ROOT / "csrc" / layer).rglob("*.*"):
            code = source.read_text(encoding="utf-8")
            assert "fish" not in code, f"{source.name} knows a model family"
            assert '.weight"' not in code, f"{source.name} knows a tensor name"


@pytest.mark.parametrize(
    ("headers", "module", "at_least"),
    [
        (["names.h", "s2/names.h", "wavenet/names.h"], names, 80),
        (["qwen3_tts/names.h"], qwen3_names, 50),
        (["qwen3_tts/codec_names.h"], qwen3_codec_names, 50),
        (["csm/names.h"], csm_names, 60),
    ],
)
def test_names_agree_between_cpp_and_python(headers: list[str], module: ModuleType, at_least: int) -> None:
    code = "".join((ROOT / "csrc" / "models" / header).read_text(encoding="utf-8") for header in headers)
    cpp = dict(re.findall(r'inline constexpr const char\* k(\w+) =\s+"(.*)";', code))
    in_python = {
        "".join(part.capitalize() for part in name.lower().split("_")): value
        for name, value in vars(module).items()
        if name.isupper()
    }
    assert len(cpp) > at_least
    assert in_python == cpp


# ------------------------------------------------------------------ the Python package
PACKAGE = ROOT / "python" / "dualar"
# A module imports only from its own room and from rooms that stand before it.
ROOMS = [
    "_version", "_moved", "_native", "config", "files", "codes", "default_voice", "gguf", "model", "runtime", "text",
    "sampling", "generation", "audio", "codec", "voices", "families", "loading", "speech", "narration", "engine",
    "comparison", "wavenet", "convert", "__init__", "server", "cli", "__main__",
]  # fmt: skip


def python_modules() -> dict[str, Path]:
    """Each module of the package by its name below `dualar`; a package by its folder's, the root as "__init__"."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return found


def imported(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of the package that a file imports, wherever the statement stands, also for type checkers alone."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.removeprefix("dualar.") for alias in node.names if alias.name.startswith("dualar.")}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            package, _, home = (node.module or "").partition(".")
            for alias in node.names if package == "dualar" else ():
                full = f"{home}.{alias.name}" if home else alias.name
                names.add(full if full in modules or full == "_core" else home or "__init__")
    return names


def test_python_modules_import_downwards_only() -> None:
    modules = python_modules()
    assert {name.partition(".")[0] for name in modules} == set(ROOMS), "a room is missing in the list, or gone"
    arrows = 0
    for name, path in modules.items():
        for target in imported(path, modules) - {"_core"}:
            assert ROOMS.index(target.partition(".")[0]) <= ROOMS.index(name.partition(".")[0]), f"{name} -> {target}"
            arrows += 1
    assert arrows > 200


def test_tests_mirror_the_package() -> None:
    """A folder of tests is that of one room; those of the core, of the documents and of no single room stand apart."""
    tests = ROOT / "tests"
    folders = {path.parent.relative_to(tests).as_posix() for path in tests.rglob("test_*.py")} - {".", "core", "docs"}
    assert folders <= set(ROOMS) and len(folders) > 10
    for path in tests.glob("test_*.py"):
        room = path.stem.removeprefix("test_")
        assert not (PACKAGE / room / "__init__.py").exists(), f"{path.name} belongs into tests/{room}"


def test_python_modules_import_in_no_circle() -> None:
    modules = python_modules()
    waiting = {name: imported(path, modules) & set(modules) - {name} for name, path in modules.items()}
    while ready := [name for name, targets in waiting.items() if not targets]:
        for name in ready:
            del waiting[name]
        for targets in waiting.values():
            targets.difference_update(ready)
    assert not waiting, f"a circle goes through some of these: {sorted(waiting)}"


def test_one_module_imports_the_core() -> None:
    for name, path in python_modules().items():
        if name not in ("_native", "__init__"):
            code = path.read_text(encoding="utf-8")
            assert "from dualar._core" not in code and "from dualar import _core" not in code, name


# The converters may be used without an engine, and WaveNet is a family of its own.
@pytest.mark.parametrize(("room", "highest"), [("convert", "sampling"), ("wavenet", "sampling")])
def test_rooms_that_use_only_the_lower_ones(room: str, highest: str) -> None:
    modules = python_modules()
    for name in (name for name in modules if name.partition(".")[0] == room):
        for target in imported(modules[name], modules):
            used = target.partition(".")[0]
            assert used == room or ROOMS.index(used) <= ROOMS.index(highest), f"{name} -> {target}"


def test_only_families_know_families_by_name() -> None:
    """A new family is a file in families/, one in convert/ and a line in the registry: nobody else asks which it is."""
    modules = python_modules()
    names = {family.architecture for family in FAMILIES} | {"DualAR", "Qwen3TTS"}  # the last two: classes of the core
    general = {"ARCHITECTURE_KEY"}  # keys of every file
    looked_at = 0
    for name, path in modules.items():
        # gguf/ has the names of the formats, __init__ and _moved those that users import; WaveNet is no such family.
        if name.partition(".")[0] in ("families", "convert", "gguf", "wavenet", "_moved", "__init__"):
            continue
        for target in imported(path, modules):
            if target.startswith("families."):
                assert target in ("families.base", "families.registry"), f"{name} imports {target}"
            assert not target.endswith("names") or target == "gguf.names", f"{name} imports {target}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            looked_at += 1
            if isinstance(node, ast.Constant):
                assert node.value not in names, f"{name}, line {node.lineno}: {node.value!r}"
            if isinstance(node, ast.Attribute):
                assert node.attr not in names, f"{name}, line {node.lineno}: {node.attr}"
                if isinstance(node.value, ast.Name) and node.value.id == "names":
                    assert node.attr in general or not node.attr.isupper(), f"{name}, line {node.lineno}: {node.attr}"
    assert looked_at > 10_000


def test_names_for_type_checkers_are_those_that_are_loaded() -> None:
    typed = {"__version__"}
    for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.If):
            typed |= {alias.name for line in node.body if isinstance(line, ast.ImportFrom) for alias in line.names}
    assert typed == set(dualar.__all__) == {"__version__", *dualar._HOMES}


def test_files_stay_readable() -> None:
    sources = [*(ROOT / "csrc").rglob("*.*"), *PACKAGE.rglob("*.py")]
    for source in sources:
        assert len(source.read_text(encoding="utf-8").splitlines()) <= 400, source.name


def test_functions_stay_readable() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                length = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                assert length <= 62, f"{path.name}: {node.name} has {length} lines"
