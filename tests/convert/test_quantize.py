"""`dualar quantize`: which type each tensor gets, that its bytes are those a conversion makes, what the file keeps."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from cli.test_cli import run
from dualar import _core
from dualar.convert.model_file import convert
from dualar.convert.requantize import RECIPE_KEY, prepare
from dualar.runtime import open_file
from fixtures.gguf_raw import ARRAY, STRING, UINT64, Key, RawGguf, Tensor, string

PUBLISHED = Path(__file__).parents[1] / "fixtures" / "published"


def types(file: _core.ModelFile) -> dict[str, str]:
    return {name: kind.lower() for name, kind, _ in file.tensors()}


def quantized(source: Path, out: Path, weight_type: str, keep: dict[str, str] | None = None) -> _core.ModelFile:
    prepare(open_file(source), weight_type=weight_type, keep=keep).write(out)
    return open_file(out)


def assert_same_tensors(got: _core.ModelFile, wanted: _core.ModelFile) -> None:
    assert types(got) == types(wanted)
    for name, _, shape in wanted.tensors():
        a, b = (file.row_bytes(name, 0, shape[0] if shape else 1) for file in (got, wanted))
        np.testing.assert_array_equal(a, b, err_msg=name)


# ------------------------------------------------------------------ the same as a conversion
@pytest.mark.parametrize("weight_type", ["q8_0", "f16", "bf16"])
def test_quantizing_is_converting_to_that_type(
    qwen3_model: Callable[..., Path], tmp_path: Path, weight_type: str
) -> None:
    got = quantized(qwen3_model("tiny"), tmp_path / "a.gguf", weight_type)
    assert_same_tensors(got, open_file(qwen3_model("tiny", weight_type)))


@pytest.mark.parametrize("weight_type", ["q8_0", "f16"])
def test_the_same_for_a_published_folder(
    published_file: Callable[[str], bytes], tmp_path: Path, weight_type: str
) -> None:
    (tmp_path / "f32.gguf").write_bytes(published_file("s1-like"))
    convert(PUBLISHED / "s1-like", tmp_path / "wanted.gguf", weight_type=weight_type)
    got = quantized(tmp_path / "f32.gguf", tmp_path / "a.gguf", weight_type)
    assert_same_tensors(got, open_file(tmp_path / "wanted.gguf"))


# ------------------------------------------------------------------ the rules
@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose rows hold blocks of 256, in F32."""
    from fixtures import s2_layout
    from fixtures.make_toy_model import write_toy_model

    path = tmp_path_factory.mktemp("wide") / "wide.gguf"
    write_toy_model(path, seed=0, geometry=s2_layout.WIDE)
    return path


def test_what_costs_little_and_counts_much_stays_finer(wide: Path, tmp_path: Path) -> None:
    before, after = types(open_file(wide)), types(quantized(wide, tmp_path / "a.gguf", "q4_k"))
    assert set(before.values()) == {"f32"}
    layers = 1 + max(int(name.split(".")[1]) for name in before if name.startswith("layers."))
    for name, kind in after.items():
        shape = next(shape for found, _, shape in open_file(wide).tensors() if found == name)
        if len(shape) < 2 or name.endswith(".alpha"):
            assert kind == "f32", name
        elif name.startswith("c."):
            assert kind == "f16", name
        elif name in (
            "embeddings.weight",
            "codebook_embeddings.weight",
            "fast_embeddings.weight",
            "output.weight",
        ) or name.startswith(("layers.0.", f"layers.{layers - 1}.")):
            assert kind == "q8_0", name
        else:
            assert kind == ("q4_k" if shape[-1] % 256 == 0 else "q8_0"), name
    assert "q4_k" in after.values()


def test_patterns_choose_and_the_first_counts(wide: Path, tmp_path: Path) -> None:
    keep = {"fast_layers.*.w2.*": "f32", "fast_*": "q8_0", "layers.0.attention.wo.weight": "q4_0"}
    quantization = prepare(open_file(wide), weight_type="q4_k", keep=keep)
    found = {tensor.name: tensor.kind for tensor in quantization.tensors}
    assert found["fast_layers.0.feed_forward.w2.weight"] == "f32"
    assert found["fast_layers.0.feed_forward.w1.weight"] == found["fast_output.weight"] == "q8_0"
    assert found["layers.0.attention.wo.weight"] == "q4_0"
    assert quantization.changed["layers.0.attention.wo.weight"] == ("f32", "q4_0")
    assert quantization.recipe == {"type": "q4_k", "keep": keep, "dualar": dualar.__version__}


def test_nothing_is_made_wider(wide: Path, tmp_path: Path) -> None:
    small = quantized(wide, tmp_path / "a.gguf", "q4_k")
    for weight_type in ("f32", "f16", "q8_0", "q4_k"):
        again = prepare(small, weight_type=weight_type)
        assert {tensor.name: tensor.kind for tensor in again.tensors} == types(small) and not again.changed


def test_a_quantized_model_speaks(wide: Path, tmp_path: Path) -> None:
    quantized(wide, tmp_path / "a.gguf", "q4_k")
    with dualar.load(tmp_path / "a.gguf", threads=1) as engine:
        audio = engine.synthesize("hello", seed=1, max_new_tokens=6, min_tokens_before_end=6)
    assert audio.codes.shape[1] == 6 and np.isfinite(audio.samples).all()


# ------------------------------------------------------------------ the file
def test_all_metadata_is_kept_as_it_is(tmp_path: Path) -> None:
    texts = struct.pack("<IQ", STRING, 2) + string("é") + string("")
    keys = [
        Key(b"general.architecture", STRING, string("fish-speech")), Key(b"a.u64", UINT64, struct.pack("<Q", 2**63)),
        Key(b"a.u8", 0, b"\xff"), Key(b"a.f64", 12, struct.pack("<d", 0.1)), Key(b"a.texts", ARRAY, texts),
        Key(b"a.none", ARRAY, struct.pack("<IQ", 1, 0)), Key(b"a.i16s", ARRAY, struct.pack("<IQhh", 3, 2, -1, 5)),
    ]  # fmt: skip
    tensor = Tensor(b"embeddings.weight", [32, 2], 0, np.arange(64, dtype="<f4").tobytes())
    (tmp_path / "a.gguf").write_bytes(RawGguf(keys, [tensor]).write())
    file = open_file(tmp_path / "a.gguf")
    out = quantized(tmp_path / "a.gguf", tmp_path / "b.gguf", "q8_0")
    assert set(file.metadata) == {key.name.decode() for key in keys}
    for key in RawGguf.parse((tmp_path / "b.gguf").read_bytes()).keys[: len(keys)]:
        assert key in keys
    assert {key: out.metadata_bytes(key) for key in file.metadata} == {
        key: file.metadata_bytes(key) for key in file.metadata
    }
    assert set(out.metadata) - set(file.metadata) == {RECIPE_KEY}
    np.testing.assert_allclose(out.rows("embeddings.weight", 0, 2).ravel(), np.arange(64), atol=0.5)
    np.testing.assert_array_equal(out.rows("embeddings.weight", 1, 2), out.rows("embeddings.weight", 0, 2)[1:])


def test_real_metadata_is_kept_and_the_recipe_added(toy_model: Path, tmp_path: Path) -> None:
    file, out = open_file(toy_model), quantized(toy_model, tmp_path / "a.gguf", "q8_0", {"fast_*": "f16"})
    assert out.metadata == {**file.metadata, RECIPE_KEY: out.get(RECIPE_KEY)}
    for key in file.metadata:
        assert out.metadata_bytes(key) == file.metadata_bytes(key)
    assert json.loads(out.get(RECIPE_KEY)) == {"type": "q8_0", "keep": {"fast_*": "f16"}, "dualar": dualar.__version__}
    again = prepare(out, weight_type="q8_0").recipe
    assert json.loads(again["before"])["keep"] == {"fast_*": "f16"}


def test_memory_holds_a_piece_of_a_tensor(toy_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dualar.convert import requantize

    monkeypatch.setattr(requantize, "PIECE", 200)
    whole = prepare(open_file(toy_model), weight_type="q8_0")
    for tensor in whole.tensors:
        row = tensor.nbytes // (tensor.shape[0] if tensor.shape else 1)
        pieces = list(tensor.pieces())
        assert max(piece.nbytes for piece in pieces) <= max(row, 200 * 4) and len(pieces) >= 1
        assert sum(piece.nbytes for piece in pieces) == tensor.nbytes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weight_type": "q3_k"}, "expected a type among f32"),
        ({"weight_type": "q8_0", "keep": {"fast*": "q3_k"}}, "expected a type among f32"),
        ({"weight_type": "q8_0", "keep": {"slow*": "f16"}}, r"pattern that fits a matrix of .*, got 'slow\*'"),
        ({"weight_type": "q8_0", "keep": {"norm.weight": "f16"}}, r"got 'norm\.weight' with f16"),
        ({"weight_type": "q8_0", "keep": {"layers.0.attention.wo.weight": "q4_k"}}, r"wo\.weight' with q4_k"),
        ({"weight_type": "q8_0", "keep": {"fast_*": "f16", "fast_output.*": "f32"}}, r"got 'fast_output\.\*' with f32"),
    ],
)
def test_what_is_refused(toy_model: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        prepare(open_file(toy_model), **options)


def test_files_that_cannot_be_quantized(wide: Path, golden: Any, tmp_path: Path) -> None:
    small = quantized(wide, tmp_path / "a.gguf", "q4_k")
    with pytest.raises(dualar.ModelError, match=r"expected f32, f16, bf16, q8_0, .* got q4_k"):
        prepare(small, weight_type="q4_0", keep={"fast_layers.*": "q4_0"})
    with pytest.raises(dualar.ModelError, match=r"general\.architecture.*wavenet"):
        prepare(open_file(golden("wavenet-tiny").gguf), weight_type="q8_0")


@pytest.mark.parametrize(("value", "words"), [(np.nan, "expected finite values"), (1e9, "expected values up to 65504")])
def test_a_failure_leaves_nothing(toy_model: Path, tmp_path: Path, value: float, words: str) -> None:
    data = bytearray(toy_model.read_bytes())
    last = open_file(toy_model).row_bytes("c.decoder.model.0.conv.weight", 0, 1).tobytes()
    at = bytes(data).index(last)
    data[at : at + 4] = np.float32(value).tobytes()
    (tmp_path / "a.gguf").write_bytes(data)
    with pytest.raises(dualar.ModelError, match=words):
        quantized(tmp_path / "a.gguf", tmp_path / "b.gguf", "q8_0")
    assert os.listdir(tmp_path) == ["a.gguf"]


# ------------------------------------------------------------------ the command lines
def test_the_command(wide: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.gguf"
    result = run("quantize", wide, out, "--type", "Q4_K", "--keep", "fast_output.*=q8_0", "--dry-run")
    assert result.exit_code == 0 and "Q4_K" in result.stdout and not out.exists()
    result = run("quantize", wide, out, "--type", "Q4_K", "--keep", "fast_output.*=q8_0")
    assert (
        result.exit_code == 0
        and result.stdout == ""
        and "Changed" in result.stderr
        and "a.gguf: written" in result.stderr
    )
    assert types(open_file(out))["fast_output.weight"] == "q8_0"
    assert "Quantized" in run("info", out).stdout
    assert run("quantize", wide, out).exit_code == 2 and run("quantize", wide, out, "--force", "-q").output == ""
    for wrong in (["--keep", "fast_*"], ["--keep", "=q8_0"], ["--type", "q9"]):
        assert run("quantize", wide, tmp_path / "b.gguf", *wrong).exit_code == 2
    assert run("quantize", out, out, "--force").exit_code == 2
    assert run("quantize", tmp_path / "none.gguf", out).exit_code == 2
    assert os.listdir(tmp_path) == ["a.gguf"]
    page = " ".join(run("quantize", "--help").stdout.split())
    for words in ("first and the last layer of the Slow-AR", "the tables and the head are q8_0", "Fast-AR's too"):
        assert words in page
