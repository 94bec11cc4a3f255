"""What the build decides before it compiles: for which processor, and what it says where there is no compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CMAKE = shutil.which("cmake")
pytestmark = pytest.mark.skipif(CMAKE is None, reason="needs cmake")


def target(folder: Path, **known: str) -> str:
    """What cmake/target.cmake makes of CMake's variables: "processor ON|OFF", or its error."""
    script = folder / "target.cmake"
    rules = (ROOT / "cmake" / "target.cmake").as_posix()
    script.write_text(f'include("{rules}")\nmessage("${{dualar_processor}} ${{dualar_runs_here}}")\n')
    options = [f"-DCMAKE_{name}={value}" for name, value in known.items()]
    result = subprocess.run([str(CMAKE), *options, "-P", str(script)], capture_output=True, text=True, check=False)
    return " ".join((result.stdout + result.stderr).split())


def test_native_flags_only_where_the_result_runs(tmp_path: Path) -> None:
    here = {"HOST_SYSTEM_PROCESSOR": "x86_64"}
    assert target(tmp_path, **here, SYSTEM_PROCESSOR="x86_64") == "x86_64 ON"
    assert target(tmp_path, **here, SYSTEM_PROCESSOR="aarch64", CROSSCOMPILING="ON") == "aarch64 OFF"


def test_on_macos_the_processor_is_the_wanted_one(tmp_path: Path) -> None:
    mac = {"HOST_SYSTEM_PROCESSOR": "arm64", "SYSTEM_PROCESSOR": "arm64"}
    assert target(tmp_path, **mac, OSX_ARCHITECTURES="arm64") == "arm64 ON"
    assert target(tmp_path, **mac, OSX_ARCHITECTURES="x86_64") == "x86_64 OFF"
    assert "expected one architecture, got x86_64;arm64" in target(tmp_path, **mac, OSX_ARCHITECTURES="x86_64;arm64")


def test_without_a_compiler_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text("#!/bin/sh\nexit 1\n")
    make.chmod(0o755)
    # A script that starts cmake, as some installations have in its place, would not find its own tools on that path.
    where = tmp_path / "where.cmake"
    where.write_text('message("${CMAKE_COMMAND}")\n')
    cmake = subprocess.run([str(CMAKE), "-P", str(where)], capture_output=True, text=True, check=True).stderr.strip()
    command = [cmake, "-S", str(ROOT), "-B", str(tmp_path / "build"), "-G", "Unix Makefiles"]
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "CMAKE_GENERATOR")}
    result = subprocess.run(
        [*command, f"-DCMAKE_MAKE_PROGRAM={make}"], env=environment | {"PATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = " ".join(result.stderr.split())
    assert result.returncode != 0
    for system in ("`apt install g++`", "`dnf install gcc-c++`", "`xcode-select --install`", "`pkg install clang`"):
        assert system in said


PORTABLE = [path for path in (ROOT / "csrc").rglob("*.cpp") if "DUALAR_BACKEND_DL" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("source", PORTABLE, ids=lambda path: path.name)
def test_what_only_a_portable_build_compiles(source: Path) -> None:
    compiler, ggml = shutil.which("c++"), Path(os.environ.get("DUALAR_GGML_DIR", ROOT / "third_party" / "ggml"))
    if compiler is None or not (ggml / "include" / "ggml.h").exists():
        pytest.skip("needs a compiler, and ggml's headers in third_party/ggml, where a build leaves them")
    options = ["-std=c++17", "-fsyntax-only", "-DDUALAR_BACKEND_DL", "-DGGML_BACKEND_DL", "-DGGML_SHARED"]
    includes = [f"-I{ROOT / 'csrc'}", f"-I{ggml / 'include'}"]
    subprocess.run([compiler, *options, *includes, str(source)], check=True)
