"""Fixtures that more than one test file uses: the toy model and the golden files."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    import dualar

FIXTURES = Path(__file__).parent / "fixtures"

settings.register_profile("dualar")  # a busy machine is slow, not wrong
settings.load_profile("dualar")

# A shell starts what ends in `&` with SIGINT ignored, and programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Golden:
    """A golden pair: the model file and the arrays that it must give."""

    gguf: Path
    npz: Path


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    """`golden("s2-tiny")` -> the paths of that pair."""

    def paths(name: str) -> Golden:
        pair = Golden(FIXTURES / "golden" / f"{name}.gguf", FIXTURES / "golden" / f"{name}.npz")
        assert pair.gguf.is_file() and pair.npz.is_file(), f"no golden pair {name}"
        return pair

    return paths


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete tiny S2 file, tokenizer inside, random weights."""
    from fixtures.make_toy_model import write_toy_model

    path = tmp_path_factory.mktemp("toy") / "toy.gguf"
    write_toy_model(path, seed=0)
    return path


@pytest.fixture(scope="session")
def qwen3_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`qwen3_model("tiny", "q8_0")` -> that tiny Qwen3-TTS checkpoint converted, by default to float32."""
    from dualar.convert.model_file import convert
    from fixtures import qwen3

    made: dict[tuple[str, str], Path] = {}

    def get(name: str, weight_type: str = "f32") -> Path:
        if (name, weight_type) not in made:
            folder = tmp_path_factory.mktemp("qwen3")
            path = folder / f"{name}-{weight_type}.gguf"
            convert(qwen3.checkpoint_folder(name, folder / name), path, weight_type=weight_type)
            made[name, weight_type] = path
        return made[name, weight_type]

    return get


@pytest.fixture
def published_copy(tmp_path: Path) -> Callable[[str], Path]:
    """`published_copy("s1-like")` -> a copy of that published folder, to change."""
    return lambda name: Path(shutil.copytree(FIXTURES / "published" / name, tmp_path / name))


@pytest.fixture(scope="session")
def published_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    """`published_file("s1-like")` -> what that folder, as it is, becomes in float32."""
    from dualar.convert.model_file import convert

    made: dict[str, bytes] = {}

    def get(name: str) -> bytes:
        if name not in made:
            path = tmp_path_factory.mktemp("published") / "model.gguf"
            convert(FIXTURES / "published" / name, path, weight_type="f32")
            made[name] = path.read_bytes()
        return made[name]

    return get


@pytest.fixture(scope="module")
def engine(toy_model: Path) -> Iterator[dualar.Engine]:
    """The toy model, loaded once a test file, one thread."""
    import dualar

    with dualar.load(toy_model, threads=1) as loaded:
        yield loaded
