"""What the checks of a portable wheel refuse: libraries and wheels that are made wrong on purpose."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import wheel_checks as checks

MACHINE = platform.machine()
OTHER = "aarch64" if MACHINE == "x86_64" else "x86_64"
CODE = "int dualar_one(void) { return 1; }\n"
Library = Callable[..., bytes]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or MACHINE not in checks.ELF_MACHINES, reason="libraries of Linux on x86-64 or ARM64"
)


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """A shared library's bytes, compiled of CODE with the given options."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")

    def made(*options: str) -> bytes:
        source, out = tmp_path / "a.c", tmp_path / "a.so"
        source.write_text(CODE)
        subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(out), *options], check=True)
        return out.read_bytes()

    return made


def test_a_good_library(library: Library) -> None:
    assert checks.library_problems(library("-s", "-Wl,-rpath,$ORIGIN"), MACHINE) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "it is not stripped"),
        (["-s", "-Wl,-z,execstack"], "its stack is executable"),
        (["-s", "-Wl,-rpath,/usr/local/lib"], "it looks for libraries in /usr/local/lib"),
        (["-s", "-Wl,--no-as-needed", "-lresolv"], "it needs libresolv.so.2"),
    ],
)
def test_libraries_that_are_refused(library: Library, options: list[str], problem: str) -> None:
    assert checks.library_problems(library(*options), MACHINE) == [problem]


def test_libraries_of_another_machine_or_none(library: Library) -> None:
    assert checks.library_problems(library("-s"), OTHER)[0].startswith(f"expected code for {OTHER}")
    assert checks.library_problems(b"no library", MACHINE)[0].startswith("expected an ELF file")


def test_symbols_of_a_later_glibc(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "GLIBC", (2, 1))
    found = checks.library_problems(library("-s", "-Wl,--no-as-needed", "-lm"), MACHINE)
    assert found == [] or all("later than 2.1" in problem for problem in found)
    # A library that calls into glibc needs a version of it.
    symbols = checks.library_problems(Path(sys.executable).resolve().read_bytes(), MACHINE)
    assert any("later than 2.1" in problem for problem in symbols)


@pytest.mark.parametrize("tool", ["wheels", "wheel_trial"])
def test_the_tools_say_what_they_do(tool: str) -> None:
    command = [sys.executable, str(Path(checks.__file__).parent / f"{tool}.py")]
    assert f"python tools/{tool}.py" in subprocess.check_output([*command, "--help"], text=True)
    wrong = ["--python", "/bin/false"] if tool == "wheels" else ["nowhere-x86_64.whl"]
    done = subprocess.run([*command, *wrong], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "Traceback" not in done.stderr and wrong[-1] in done.stderr


def names(machine: str) -> list[str]:
    modules = [f"dualar/libggml-cpu-{variant}.so" for variant in checks.VARIANTS[machine]]
    return [f"dualar/_core.cpython-311-{machine}-linux-gnu.so", *modules, "dualar-1.dist-info/licenses/LICENSE",
            "dualar-1.dist-info/licenses/ggml/LICENSE"]  # fmt: skip


def test_what_a_wheel_carries() -> None:
    for machine in checks.VARIANTS:
        whole = names(machine)
        assert checks.name_problems(whole, machine) == []
        for name in whole:
            (problem,) = checks.name_problems([other for other in whole if other != name], machine)
            assert problem.startswith("expected ")
    # A build for the machine that makes it has its kernels in the module, and no variants.
    native = [name for name in names("x86_64") if "libggml" not in name]
    assert "is this a portable build?" in checks.name_problems(native, "x86_64")[0]


def test_a_wheel_is_weighed_and_its_twins_are_found(library: Library, tmp_path: Path) -> None:
    path = tmp_path / f"dualar-1-cp311-cp311-linux_{MACHINE}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for i, name in enumerate(names(MACHINE)):
            wheel.writestr(name, library("-s", f"-DNUMBER={i}", f"-Wl,-soname,{i}") if name.endswith(".so") else b"MIT")
        wheel.writestr("dualar/resources/voice.gguf", bytes(3000))
    report = checks.check(path)
    assert report.problems == [] and report.voice_bytes == 3000 and report.libraries == len(names(MACHINE)) - 2
    assert "every check passed" in str(report) and "without the voice" in str(report)
    with zipfile.ZipFile(path, "a") as wheel:
        same = wheel.read(names(MACHINE)[1])
        wheel.writestr("dualar/libggml.so.0", same)
    assert any("the same library under several names" in problem for problem in checks.check(path).problems)
    assert "expected a name that ends in" in checks.check(path.rename(tmp_path / "a-any.whl")).problems[0]
