"""Conversion in pieces, what is told of it before and while it writes, and that its pieces make the whole."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dualar.cli.main import app
from dualar.convert import qwen3_tts, s2
from dualar.convert.checkpoint import Safetensors
from dualar.convert.model_file import prepare
from dualar.convert.plan import Planned, Source, Storage
from dualar.convert.quantize import BLOCKS, to_bytes, type_of
from dualar.convert.torch_file import TorchFile
from fixtures import qwen3
from fixtures.published_folders import FOLDER, Copy, read, refused, write
from typer.testing import CliRunner


# ------------------------------------------------------------------ in pieces
def all_of(folder: Path, values: int, kind: str) -> dict[str, bytes]:
    """Each tensor's bytes in a type, made of pieces of so many values."""
    found = {}
    for part in _parts(folder):
        for planned in part.plan:
            kept = type_of(planned.storage, planned.shape, kind)
            pieces = planned.pieces(part.checkpoint, values=values)
            found[planned.target] = b"".join(to_bytes(piece, kept, name="x").tobytes() for piece in pieces)
    return found


def _parts(folder: Path) -> Any:
    module = qwen3_tts if (folder / "vocab.json").exists() else s2
    return module.model_file(folder).parts


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("name", ["s1-like", "s2-like", "qwen3"])
def test_pieces_are_the_whole(name: str, kind: str, tmp_path: Path) -> None:
    folder = qwen3.checkpoint_folder("tiny", tmp_path / "x") if name == "qwen3" else FOLDER / name
    whole = all_of(folder, 1 << 40, kind)
    assert all_of(folder, 100, kind) == whole
    assert all_of(folder, 3000, kind) == whole


def test_a_piece_is_no_larger_than_was_asked_for() -> None:
    for part in _parts(FOLDER / "s1-like"):
        for planned in part.plan:
            row = max(math.prod(source.shape[1:]) for source in planned.sources)
            for piece in planned.pieces(part.checkpoint, values=200):
                assert piece.size <= max(200, row)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_memory_is_that_of_pieces(dtype: str, tmp_path: Path) -> None:
    """A tensor of 8 million values, 32 MB in float32, and what all of Python and numpy allocate meanwhile."""
    qwen3.write_safetensors(tmp_path / "x.safetensors", {"w": np.ones((8192, 1024), np.float32)}, dtype)
    planned = Planned("w", (Source("w", (8192, 1024)),), (8192, 1024), Storage.MATRIX)
    checkpoint = Safetensors(tmp_path / "x.safetensors")
    tracemalloc.start()
    try:
        written = sum(to_bytes(piece, "q8_0", name="w").nbytes for piece in planned.pieces(checkpoint))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written == 8192 * 1024 // 32 * 34
    assert peak < 20_000_000  # a piece is 4 MB, and has a copy or two


def test_values_that_are_not_finite_are_placed(published_copy: Copy) -> None:
    folder = published_copy("s1-like")
    arrays = read(folder, "model")
    arrays["embeddings.weight"][600, 3] = np.nan
    write(folder, "model", arrays)
    refused(folder, "expected finite values, got 1 of 40960", "rows 0 to 639 of embeddings.weight")


# ------------------------------------------------------------------ the command line
def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_dry_run_tells_and_writes_nothing(tmp_path: Path) -> None:
    code, out, err = run("convert", FOLDER / "s1-like", "--dry-run", "--type", "q4_k", "-o", tmp_path / "x.gguf")
    assert code == 0 and err == "" and not list(tmp_path.iterdir())
    lines = {line[:23].strip(): line[23:] for line in out.splitlines()}
    assert out.startswith("fish-speech: 341 tensors, 1.2 MB\n")
    assert lines["Slow-AR"] == "229.4 k in Q8_0, 448 in F32" and lines["Codec"] == "398.0 k in F16, 5.8 k in F32"
    assert lines["In a finer type"].startswith("22, whose rows q4_k cannot hold: layers.0.attention.wqkv.weight, ")
    assert lines["Left out"].startswith("6 that a model file has no use for: encoder.block.4.block.5.freqs_cis, ")
    assert out.endswith("(-v lists all)\n")
    code, out, _ = run("convert", FOLDER / "s1-like", "--dry-run", "-v")
    assert code == 0 and "quantizer.post_module.causal_mask" in out and "..." not in out
    code, out, err = run("convert", FOLDER / "s1-like", "--dry-run", "-q")
    assert (code, out, err) == (0, "", "")


def test_what_will_be_written_is_told_first(tmp_path: Path) -> None:
    output = tmp_path / "x.gguf"
    code, out, err = run("convert", FOLDER / "s2-like", "-o", output, "--type", "f32")
    assert code == 0 and out == ""
    assert err.startswith("fish-speech: 340 tensors, 2.9 MB\nSlow-AR ") and err.endswith(f"{output}: written, 2.9 MB\n")
    assert prepare(FOLDER / "s2-like", weight_type="f32").nbytes == output.stat().st_size


def test_a_file_to_write_is_asked_for() -> None:
    code, out, err = run("convert", FOLDER / "s2-like")
    assert code == 2 and "--output" in out + err and "--dry-run" in out + err


def test_progress(tmp_path: Path) -> None:
    """On a terminal there is a bar with the bytes and the time left."""
    import pty

    main_end, terminal = pty.openpty()
    command = [sys.executable, "-m", "dualar", "convert", str(FOLDER / "s2-like"), "-o", str(tmp_path / "x.gguf")]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, stderr=terminal, stdin=subprocess.DEVNULL, env=environment)
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(main_end, 4096):
            shown += part
    except OSError:  # the other end was closed
        pass
    finally:
        os.close(main_end)
    assert process.wait() == 0
    text = shown.decode()
    assert "converting" in text and re.search(r"[\d.]+/[\d.]+ MB", text) and re.search(r"\d\d:\d\d|--:--", text)


def test_every_piece_is_reported(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    conversion = prepare(FOLDER / "s1-like")
    conversion.write(tmp_path / "x.gguf", on_progress=lambda done, total: told.append((done, total)))
    total = sum(tensor.nbytes for tensor in conversion.tensors)
    assert told[-1] == (total, total) and [done for done, _ in told] == sorted(done for done, _ in told)


def test_planned_rows_are_checked() -> None:
    checkpoint = TorchFile(FOLDER / "s1-like" / "model.pth")
    wrong = Planned("x", (Source("norm.weight", (64,)),), (64, 2), Storage.VECTOR)
    with pytest.raises(AssertionError, match="planned rows"):
        list(wrong.pieces(checkpoint))
