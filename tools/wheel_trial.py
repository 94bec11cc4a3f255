"""Tries a wheel on processors that are not here, with qemu's user mode: which kernels it chooses, speech, and tests.

    python tools/wheel_trial.py WHEEL [--cpu NAME ...] [--tests FILE ...] [--no-tests] [--minutes N]

A wheel for ARM64 runs in a Debian root for ARM64, which is made on first use (mmdebstrap), with the packages that
dualar and its tests need (pip, for that platform). A wheel for x86-64 runs on this machine's interpreter, which must be
of the wheel's version. Both need Debian's package qemu-user-static. For each processor the voice says a sentence with a
fixed seed, and the tests run that look into the core. These need a wheel with `dualar._core.testing`:

    python tools/wheels.py --machine aarch64 --define DUALAR_TESTING=ON --out build/wheels/testing

Owns the root, the processors and the list of tests.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILDS = ROOT / "build" / "wheels"
CPUS = {"aarch64": ["cortex-a53", "cortex-a76", "max"], "x86_64": ["Nehalem", "Haswell", "max"]}
TESTS = [
    "core/test_kernels.py", "core/test_dual_ar.py", "core/test_quantized.py", "core/test_codec_core.py",
    "core/test_wavenet.py", "core/test_csm.py", "test_engine.py", "sampling/test_sampling.py", "test_shipped_voice.py",
]  # fmt: skip
# Without the processes that tests start: qemu runs one program, and what that starts is the system's to run.
DESELECTED = "not subprocess and not process and not fork"
NEEDED = [
    "numpy>=1.26,<3", "tokenizers>=0.20,<1", "soundfile>=0.12,<1", "soxr>=0.3,<2", "typer>=0.20,<1", "rich>=13,<16",
    "pytest>=8,<10", "hypothesis>=6.100,<7", "gguf>=0.19,<1", "scipy>=1.11,<2",
]  # fmt: skip
SAY = """
import hashlib, platform, dualar
from dualar import _core
with dualar.load(threads=1) as engine:
    spoken = engine.synthesize("Turn on the kitchen light, please.", seed=1)
codes = hashlib.sha256(spoken.codes.tobytes()).hexdigest()[:16]
kernels = f"{platform.machine()}, {_core.cpu_kernels()} kernels"
print(f"{kernels}, {spoken.codes.shape[1]} frames, ended by {spoken.finish_reason}, codes {codes}")
"""


def arm_root() -> Path:
    """A Debian root for ARM64 with Python, made on first use."""
    root = BUILDS / "arm64-root"
    if not any(root.glob("usr/bin/python3.*")):
        command = ["mmdebstrap", "--arch=arm64", "--variant=extract", "--include=python3", "stable", str(root)]
        subprocess.run(command, check=True)
    return root


def arm_site(version: str) -> Path:
    """The packages for ARM64 and a version of CPython, as "3.11"; fetched on first use."""
    site = BUILDS / f"arm64-site-{version}"
    if not site.exists():
        platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (28, 27, 17)]
        wanted = [*platforms, "--python-version", version, "--implementation", "cp", "--target", str(site), *NEEDED]
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--only-binary=:all:", *wanted], check=True)
    return site


def emulator(machine: str, cpu: str, root: Path | None) -> tuple[list[str], str]:
    """(command before the interpreter's arguments, the interpreter's version)."""
    if machine == "aarch64":
        assert root is not None
        python = next(path for path in sorted((root / "usr/bin").glob("python3.*")) if path.name.count(".") == 1)
        version = python.name.removeprefix("python")
        return ["qemu-aarch64-static", "-cpu", cpu, "-L", str(root), str(python)], version
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return ["qemu-x86_64-static", "-cpu", cpu, os.path.realpath(sys.executable)], version


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--cpu", action="append", metavar="NAME", help="as qemu names it; may be given several times")
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="FILE", help="below tests/ (default: %(default)s)")
    parser.add_argument("--no-tests", action="store_true", help="the sentence alone")
    parser.add_argument("--minutes", type=float, default=15, help="for one file of tests, at most (%(default)s)")
    options = parser.parse_args()
    machine = next((m for m in CPUS if options.wheel.stem.endswith(m)), None)
    if machine is None or not options.wheel.exists():
        raise SystemExit(f"{options.wheel}: expected a wheel for {' or '.join(CPUS)}")
    root = arm_root() if machine == "aarch64" else None
    package = BUILDS / f"trial-{machine}"
    with zipfile.ZipFile(options.wheel) as wheel:
        subprocess.run(["rm", "-rf", str(package)], check=True)
        wheel.extractall(package)
    failed = []
    for cpu in options.cpu or CPUS[machine]:
        command, version = emulator(machine, cpu, root)
        if f"-cp{version.replace('.', '')}-" not in options.wheel.name:
            raise SystemExit(f"{options.wheel.name}: expected a wheel for CPython {version}, which runs it here")
        site = arm_site(version) if machine == "aarch64" else next(p for p in sys.path if p.endswith("site-packages"))
        environment = {**os.environ, "PYTHONPATH": f"{package}:{site}", "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment.pop("VIRTUAL_ENV", None)
        runs = [("a sentence", ["-c", SAY])]
        if not options.no_tests:
            runs += [
                (name, ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", DESELECTED, f"tests/{name}"])
                for name in options.tests
            ]
        for name, arguments in runs:
            began = time.monotonic()
            try:
                done = subprocess.run(
                    [*command, *arguments], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, timeout=60 * options.minutes, check=False,
                )  # fmt: skip
                code, said = done.returncode, done.stdout.strip()
            except subprocess.TimeoutExpired as error:
                code, said = -1, f"{(error.stdout or b'').decode()[-500:]}\nnot done after {options.minutes:g} minutes"
            last = said.splitlines()[-1] if said else ""
            print(f"{cpu:<12}{name:<28}{last}  [{time.monotonic() - began:.0f} s]", flush=True)
            if code != 0:
                failed.append(f"{cpu}: {name}")
                print(re.sub(r"^", "    ", said[-4000:], flags=re.M), flush=True)
    if failed:
        raise SystemExit("failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
