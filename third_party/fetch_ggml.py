"""Bring ggml's source to third_party/ggml, by the pin in ggml.pin.

Owns fetching, checking and unpacking; CMakeLists.txt calls it when the folder is absent. It asks pip for one source
distribution, so whatever index, proxy or mirror the user's pip is set up for is what is used here.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def read_pin() -> dict[str, str]:
    """The `name = value` lines of ggml.pin."""
    lines = (HERE / "ggml.pin").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("=", 1) for line in lines if line.strip() and not line.startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}


def download(pin: dict[str, str], folder: Path) -> Path:
    """pip's copy of the pinned source distribution, in `folder`."""
    name, requirement = pin["distribution"], f"{pin['distribution']}=={pin['version']}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", name]
    command += ["--dest", str(folder), requirement]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = list(folder.glob("*.tar.gz"))
    if result.returncode or len(archives) != 1:
        raise SystemExit(
            f"[ggml] expected pip to download {requirement}, it failed:\n{result.stdout}{result.stderr}\n"
            "[ggml] either let pip reach a package index once, or point the build at a ggml checkout: "
            "pip install . -C cmake.define.DUALAR_GGML_DIR=/path/to/ggml"
        )
    return archives[0]


def check(archive: Path, expected: str) -> None:
    """Refuse an archive with another sha256."""
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != expected:
        raise SystemExit(f"[ggml] {archive.name}: expected sha256 {expected}, got {found}; nothing was unpacked")


def unpack(archive: Path, target: Path) -> None:
    """The archive's folder ggml/ as `target`, in one rename."""
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        with tarfile.open(archive) as tar:
            if hasattr(tarfile, "data_filter"):  # Python 3.10 and 3.11 have it from their later patch releases
                tar.extractall(temporary, filter="data")
            else:
                tar.extractall(temporary)
        (tree,) = Path(temporary).glob("*/ggml")
        shutil.rmtree(target, ignore_errors=True)
        tree.rename(target)


def main() -> None:
    """Fetch, check, unpack; say nothing when the folder is there already."""
    target = HERE / "ggml"
    if (target / "CMakeLists.txt").exists():
        return
    pin = read_pin()
    with tempfile.TemporaryDirectory() as temporary:
        archive = download(pin, Path(temporary))
        check(archive, pin["sha256"])
        unpack(archive, target)


if __name__ == "__main__":
    main()
