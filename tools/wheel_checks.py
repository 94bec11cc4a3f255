"""What must be true of a portable wheel for Linux before it may be called manylinux_2_28.

Owns the list of checks. Reads the wheel alone: nothing is run, so that wheels for other processors can be checked too.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

GLIBC = (2, 28)
ELF_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
# The oldest processors of each kind, and some that must have a variant of their own.
VARIANTS = {
    "x86_64": {"x64", "sse42", "haswell", "skylakex", "icelake", "zen4", "sapphirerapids"},
    "aarch64": {"armv8.0_1", "armv8.2_1", "armv8.2_2", "armv8.6_1"},
}
# Parts of glibc, which PEP 600 lets a manylinux wheel need, and ggml's libraries beside the module.
SYSTEM = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
LOADERS = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
EXECUTABLE = 1  # PF_X


@dataclass
class Report:
    """What was found. voice_bytes: of the voice in it, packed."""

    path: Path
    nbytes: int = 0
    voice_bytes: int = 0
    libraries: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        size = f"{self.nbytes / 1e6:.1f} MB, {(self.nbytes - self.voice_bytes) / 1e6:.1f} without the voice"
        head = f"{self.path.name}: {size}, {self.libraries} libraries"
        return "\n".join([head, *(f"  {problem}" for problem in self.problems or ["every check passed"])])


def check(path: Path, *, machine: str | None = None) -> Report:
    """All checks of one wheel. machine: x86_64 or aarch64; by default what its name says."""
    machine = machine or next((m for m in ELF_MACHINES if path.stem.endswith(m)), None)
    report = Report(path, nbytes=path.stat().st_size)
    if machine is None:
        report.problems.append(f"expected a name that ends in {' or '.join(ELF_MACHINES)}")
        return report
    seen: dict[str, list[str]] = defaultdict(list)
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        for info in wheel.infolist():
            if info.filename.endswith(".gguf"):
                report.voice_bytes += info.compress_size
            if info.filename.endswith(".so") or ".so." in info.filename:
                data = wheel.read(info)
                seen[hashlib.sha256(data).hexdigest()].append(info.filename)
                problems = library_problems(data, machine)
                report.problems += [f"{info.filename}: {problem}" for problem in problems]
                report.libraries += 1
    report.problems += [
        f"the same library under several names: {', '.join(same)}" for same in seen.values() if same[1:]
    ]
    report.problems += name_problems(names, machine)
    return report


def name_problems(names: list[str], machine: str) -> list[str]:
    """What the wheel should carry and does not. A build for the machine that makes it has no variants."""
    problems = []
    if sum(bool(re.fullmatch(r"dualar/_core\..*\.so", name)) for name in names) != 1:
        problems.append("expected one dualar/_core module")
    found = {m[1] for name in names if (m := re.fullmatch(r"dualar/libggml-cpu-(.+)\.so", name))}
    if missing := sorted(VARIANTS[machine] - found):
        problems.append(f"expected ggml's variants for {', '.join(missing)}: is this a portable build?")
    for licence in ("LICENSE", "ggml/LICENSE"):
        if not any(re.fullmatch(rf"[^/]+\.dist-info/licenses/{licence}", name) for name in names):
            problems.append(f"expected the licence licenses/{licence}")
    return problems


def library_problems(data: bytes, machine: str) -> list[str]:
    """What is wrong with a shared library."""
    try:
        elf = ELFFile(io.BytesIO(data))
    except Exception as error:  # pyelftools has several kinds
        return [f"expected an ELF file: {error}"]
    problems = []
    if elf["e_machine"] != ELF_MACHINES[machine]:
        problems.append(f"expected code for {machine}, got {elf['e_machine']}")
    stacks = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_GNU_STACK"]
    if not stacks or any(stack["p_flags"] & EXECUTABLE for stack in stacks):
        problems.append("its stack is executable")
    if elf.get_section_by_name(".symtab") is not None:
        problems.append("it is not stripped")
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            for tag in section.iter_tags():
                if tag.entry.d_tag == "DT_NEEDED" and not _may_need(tag.needed):
                    problems.append(f"it needs {tag.needed}")
                if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
                    path = getattr(tag, "runpath", None) or getattr(tag, "rpath", "")
                    if path != "$ORIGIN":
                        problems.append(f"it looks for libraries in {path}")
        if isinstance(section, GNUVerNeedSection):
            for _, versions in section.iter_versions():
                for version in versions:
                    if (m := re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version.name)) is None:
                        problems.append(f"it needs symbols of {version.name}")
                    elif (int(m[1]), int(m[2])) > GLIBC:
                        problems.append(f"it needs symbols of {version.name}, later than {GLIBC[0]}.{GLIBC[1]}")
    return problems


def _may_need(library: str) -> bool:
    return library in SYSTEM | LOADERS or re.fullmatch(r"libggml(-base)?\.so", library) is not None
