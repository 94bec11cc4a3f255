"""Builds portable wheels for Linux, x86-64 and ARM64, and checks them: one command, on either kind of machine.

    pip install -e ".[wheels]"
    python tools/wheels.py [--machine x86_64|aarch64|all] [--python INTERPRETER ...] [--out wheelhouse]
    python tools/wheels.py --check WHEEL ...

The compiler is zig's clang with the symbols of glibc 2.28 (tools/zig.cmake), so the wheels are manylinux_2_28. A
machine's libraries are compiled once, for the interpreter that runs this; for each further one (`--python`) the
bindings alone. Of an interpreter only its headers are used, and those of x86-64 serve for ARM64 as well, because
CPython's do not differ there. At the end come the checks of `wheel_checks.py`; a wheel that fails one is not given a
manylinux tag.

Owns the builds and the files' names. Leaves the checks to `wheel_checks.py`, and trying a wheel to `wheel_trial.py`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from wheel_checks import Report, check

ROOT = Path(__file__).resolve().parents[1]
BUILDS = ROOT / "build" / "wheels"
MACHINES = ("x86_64", "aarch64")
GLIBC_TAG = "manylinux_2_28"


@dataclass(frozen=True)
class Interpreter:
    """A CPython whose headers are used. version: as "311"."""

    path: str
    version: str
    include: str

    @classmethod
    def of(cls, path: str) -> Interpreter:
        """Ask the interpreter itself; SystemExit for what is no CPython of 3.11 or later with its headers."""
        ask = (
            "import json, sys, sysconfig; print(json.dumps([sys.implementation.name, *sys.version_info[:2], "
            "sysconfig.get_path('include')]))"
        )
        try:
            name, major, minor, include = json.loads(subprocess.check_output([path, "-c", ask], text=True))
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            raise SystemExit(f"{path}: expected a Python interpreter: {error}") from error
        if name != "cpython" or (major, minor) < (3, 11):
            raise SystemExit(f"{path}: expected CPython 3.11 or later, got {name} {major}.{minor}")
        if not Path(include, "Python.h").exists():
            raise SystemExit(f"{path}: expected its headers in {include}, found no Python.h there")
        return cls(path, f"{major}{minor}", include)

    def suffix(self, machine: str) -> str:
        """Of a compiled module's name."""
        return f".cpython-{self.version}-{machine}-linux-gnu.so"


def compilers(machine: str) -> Path:
    """A folder with the programs that tools/zig.cmake names."""
    folder = BUILDS / f"{machine}-compilers"
    folder.mkdir(parents=True, exist_ok=True)
    zig = ROOT / "tools" / "zig_compiler.py"
    commands = {
        "cc": f'"{sys.executable}" "{zig}" cc {machine} "$@"',
        "c++": f'"{sys.executable}" "{zig}" c++ {machine} "$@"',
        "ar": f'"{sys.executable}" -m ziglang ar "$@"',
        "ranlib": f'"{sys.executable}" -m ziglang ranlib "$@"',
    }
    for name, command in commands.items():
        (folder / name).write_text(f"#!/bin/sh\nexec {command}\n")
        (folder / name).chmod(0o755)
    return folder


def run(command: list[str], environment: dict[str, str]) -> None:
    """Shows the command's output only where it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout[-8000:]}\n{' '.join(command[:6])} ... failed")


def first_wheel(machine: str, python: Interpreter, defines: list[str], folder: Path) -> Path:
    """Build everything, for the interpreter that runs this."""
    environment = {
        "DUALAR_WHEEL_MACHINE": machine,
        "DUALAR_WHEEL_COMPILERS": str(compilers(machine)),
        "CMAKE_TOOLCHAIN_FILE": str(ROOT / "tools" / "zig.cmake"),
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "SETUPTOOLS_EXT_SUFFIX": python.suffix(machine),
    }
    # What is not named here keeps its value from the build before.
    wanted = [
        "DUALAR_PORTABLE=ON",
        "DUALAR_TESTING=OFF",
        "CMAKE_INTERPROCEDURAL_OPTIMIZATION=OFF",
        f"Python_INCLUDE_DIR={python.include}",
    ]
    options = [word for define in [*wanted, *defines] for word in ("-C", f"cmake.define.{define}")]
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-build-isolation", "--no-deps", "-w", str(folder)]
    run([*command, "-C", f"build-dir={BUILDS / machine}", *options], environment)
    return next(folder.glob("dualar-*.whl"))


def further_wheel(machine: str, python: Interpreter, first: Path, folder: Path) -> Path:
    """The first wheel with the bindings of another interpreter."""
    build = BUILDS / machine
    environment = {
        "DUALAR_WHEEL_MACHINE": machine,
        "DUALAR_WHEEL_COMPILERS": str(compilers(machine)),
    }
    soabi = python.suffix(machine).removeprefix(".").removesuffix(".so")
    run(["cmake", "-S", ".", "-B", str(build), "-U", "Python_*", "-U", "_Python*", f"-DSKBUILD_SOABI={soabi}",
         f"-DPython_EXECUTABLE={python.path}", f"-DPython_INCLUDE_DIR={python.include}"], environment)  # fmt: skip
    run(["cmake", "--build", str(build), "--target", "_core"], environment)
    tag = f"cp{python.version}"
    with tempfile.TemporaryDirectory() as scratch:
        run([sys.executable, "-m", "wheel", "unpack", str(first), "-d", scratch], {})
        unpacked = next(Path(scratch).iterdir())
        next((unpacked / "dualar").glob("_core.*.so")).unlink()
        module = next(path for path in build.rglob(f"_core{python.suffix(machine)}") if "CMakeFiles" not in path.parts)
        shutil.copy(module, unpacked / "dualar")
        about = next(unpacked.glob("*.dist-info")) / "WHEEL"
        lines = [line for line in about.read_text().splitlines() if line and not line.startswith("Tag:")]
        about.write_text("\n".join([*lines, f"Tag: {tag}-{tag}-linux_{machine}", ""]))
        run([sys.executable, "-m", "wheel", "pack", str(unpacked), "-d", str(folder)], {})
    return next(folder.glob(f"dualar-*-{tag}-*.whl"))


def tagged(wheel: Path, machine: str, out: Path) -> Path:
    """The wheel under its manylinux name, in `out`."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(shutil.copy(wheel, scratch))
        run(
            [sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", f"{GLIBC_TAG}_{machine}", str(copy)],
            {},
        )
        made = next(Path(scratch).glob("*.whl"))
        return Path(shutil.move(made, out / made.name))


def build(machine: str, pythons: list[Interpreter], defines: list[str], out: Path) -> list[Report]:
    """Build, check and name one machine's wheels."""
    reports = []
    with tempfile.TemporaryDirectory() as scratch:
        first: Path | None = None
        for python in pythons:
            began = time.monotonic()
            folder = Path(scratch) / python.version
            folder.mkdir()
            if first is None:
                made = first = first_wheel(machine, python, defines, folder)
            else:
                made = further_wheel(machine, python, first, folder)
            report = check(made, machine=machine)
            print(f"{made.name}: built in {time.monotonic() - began:.0f} s", flush=True)
            if report.problems:
                print(report, flush=True)
            else:
                report.path = tagged(made, machine, out)
            reports.append(report)
    return reports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=[*MACHINES, "all"], default="all", help="(default: all)")
    parser.add_argument(
        "--python", action="append", metavar="INTERPRETER", default=[],
        help="a further CPython to build for, as /usr/bin/python3.13; may be given several times",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=ROOT / "wheelhouse", metavar="FOLDER", help="(default: wheelhouse)")
    parser.add_argument(
        "--define", action="append", metavar="NAME=VALUE", default=[],
        help="for CMake, as DUALAR_GGML_DIR=FOLDER; may be given several times",
    )  # fmt: skip
    parser.add_argument("--check", nargs="+", type=Path, metavar="WHEEL", help="check these, and build nothing")
    options = parser.parse_args()
    if options.check:
        reports = [check(path) for path in options.check]
    else:
        pythons = [Interpreter.of(path) for path in (sys.executable, *options.python)]
        for name in ("ziglang", "wheel", "scikit-build-core", "pybind11"):
            try:
                importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                raise SystemExit(f'{name} is missing: pip install -e ".[wheels]"') from None
        options.out.mkdir(parents=True, exist_ok=True)
        machines = MACHINES if options.machine == "all" else (options.machine,)
        reports = [r for machine in machines for r in build(machine, pythons, options.define, options.out)]
    for report in reports:
        print(report)
    if any(report.problems for report in reports):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
