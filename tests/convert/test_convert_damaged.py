"""Files of published folders that are not what they stand for, and messages that stay short whatever a file brings."""

from __future__ import annotations

import json
from pathlib import Path

import dualar
import numpy as np
import pytest
from fixtures.published_folders import FOLDER, Copy, Whole, converted, edit, floats, read, refused, write

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 1735520\n"


# ------------------------------------------------------------------ what is no file of its kind
@pytest.mark.parametrize(
    ("name", "file"),
    [
        *(
            ("s1-like", file)
            for file in ("config.json", "tokenizer.tiktoken", "special_tokens.json", "model.pth", "codec.pth")
        ),
        *(("s2-like", file) for file in ("tokenizer.json", "model.safetensors.index.json", "codec.pth")),
        ("s2-like", "model-00002-of-00002.safetensors"),
    ],
)
def test_git_lfs_pointers(name: str, file: str, published_copy: Copy) -> None:
    folder = published_copy(name)
    (folder / file).write_text(POINTER)
    text = refused(folder, f"{folder / file}: expected the file itself of 1735520 bytes, got a Git LFS pointer to it")
    assert "git lfs pull" in text


def test_git_lfs_pointers_where_a_model_is_loaded(tmp_path: Path, published_file: Whole) -> None:
    (tmp_path / "x.gguf").write_text(POINTER)
    with pytest.raises(dualar.ModelError, match="of 1735520 bytes, got a Git LFS pointer to it"):
        dualar.load(tmp_path / "x.gguf")
    (tmp_path / "x.gguf").write_bytes(published_file("s1-like"))
    (tmp_path / "tokenizer.json").write_text(POINTER)
    with pytest.raises(dualar.ModelError, match=r"tokenizer\.json: expected the file itself of 1735520 bytes"):
        dualar.load(tmp_path / "x.gguf")


@pytest.mark.parametrize(
    ("name", "file"), [("s2-like", "tokenizer.json"), ("s2-like", "config.json"), ("s1-like", "special_tokens.json")]
)
def test_byte_order_marks(name: str, file: str, published_copy: Copy, published_file: Whole) -> None:
    folder = published_copy(name)
    content = (folder / file).read_text(encoding="utf-8")
    (folder / file).write_text(f"\ufeff{content}", encoding="utf-8")
    assert converted(folder)[0] == published_file(name)
    (folder / file).write_text(content, encoding="utf-16")
    refused(folder, f"{folder / file}: expected UTF-8, got UTF-16")
    (folder / file).write_bytes(b"{\xff}")
    refused(folder, f"{folder / file}: expected UTF-8, got invalid start byte at 1")


def test_a_byte_order_mark_beside_a_model(tmp_path: Path, published_file: Whole) -> None:
    (tmp_path / "x.gguf").write_bytes(published_file("s2-like"))
    content = (FOLDER / "s2-like" / "tokenizer.json").read_text(encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text(f"\ufeff{content}", encoding="utf-8")
    with dualar.load(tmp_path / "x.gguf", threads=1) as engine:
        assert engine.tokenizer.source == str(tmp_path / "tokenizer.json")


def test_8_bit_floats(published_copy: Copy) -> None:
    folder = published_copy("s2-like")
    write(folder, "model", read(folder, "model"))
    data = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    entry = header["text_model.model.norm.weight"]
    entry |= {"dtype": "F8_E4M3", "data_offsets": [entry["data_offsets"][0], entry["data_offsets"][0] + 64]}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    refused(folder, "[norm.weight] expected floats, got F8_E4M3 (8-bit floats, whose scales are elsewhere: take the")


def test_all_tensors_of_another_type_are_listed(published_copy: Copy) -> None:
    folder = published_copy("s1-like")
    arrays = read(folder, "model")
    for name in ("norm.weight", "fast_norm.weight"):
        arrays[name] = arrays[name].astype(np.int64)
    write(folder, "model", arrays)
    refused(
        folder, "2 tensors", "[norm.weight] expected floats, got I64", "[fast_norm.weight] expected floats, got I64"
    )


# ------------------------------------------------------------------ messages that stay short
HUGE = "x" * 2_000_000


def test_huge_names_in_an_index(published_copy: Copy) -> None:
    folder = published_copy("s2-like")
    index = folder / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    shard = next(iter(weight_map.values()))
    for changed in (
        weight_map | {HUGE: shard},
        weight_map | {f"{i}{HUGE[:5000]}": shard for i in range(50)},
        weight_map | {"a": HUGE},
        weight_map | {"a": f"../{HUGE}"},
        weight_map | {"a": f"{HUGE}\0"},
        weight_map | {"a": "\ud800"},
    ):
        index.write_text(json.dumps({"weight_map": changed}))
        refused(folder, "expected" if "a" not in changed else "", most=3000)


@pytest.mark.parametrize("name", ["s1-like", "s2-like"])
def test_huge_names_of_tensors(name: str, published_copy: Copy) -> None:
    folder = published_copy(name)
    arrays = read(folder, "model")
    write(folder, "model", arrays | {HUGE: floats(2)})
    refused(folder, "(2000000 characters)] expected no such tensor")
    write(folder, "model", arrays | {f"{HUGE[:3000]}{i}": floats(2) for i in range(500)})
    text = refused(folder, "500 tensors are not as expected", "and 400 more", most=40_000)
    assert len(text.splitlines()) == 102
    write(folder, "model", arrays | {f"model.{HUGE}": floats(2), HUGE: floats(2)})
    refused(folder, "expected no such tensor" if name == "s2-like" else "expected one tensor for")


def test_huge_names_elsewhere(published_copy: Copy) -> None:
    folder = published_copy("s1-like")
    special = json.loads((folder / "special_tokens.json").read_text())
    (folder / "special_tokens.json").write_text(json.dumps({**special, HUGE: 1}))
    refused(folder, "(2000000 characters)")
    folder = published_copy("s2-like")
    edit(folder, model_type=HUGE)
    refused(folder, "model_type")
    edit(folder, model_type="fish_qwen3_omni", semantic_start_token_id=HUGE)
    refused(folder, "semantic_start_token_id")
