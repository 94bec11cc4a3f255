"""Checkpoints to model files: what is in them, in which types, and what is said of those that are wrong."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import dualar
import gguf
import numpy as np
import pytest
from dualar.cli.main import app
from dualar.convert.checkpoint import Joined, Safetensors, open_checkpoint
from dualar.convert.gguf_writer import Tensor, Value, write_gguf
from dualar.convert.model_file import convert
from dualar.convert.plan import Part, Source, Storage, require, same, weight_normed
from dualar.convert.quantize import BLOCKS, nbytes, to_bytes, type_of
from dualar.gguf import names
from dualar.gguf import qwen3_names as keys
from fixtures import qwen3
from typer.testing import CliRunner


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return qwen3.checkpoint_folder("tiny", tmp_path / "checkpoint")


def edit_config(folder: Path, **changes: object) -> None:
    """Set keys of config.json, "a__b" being b inside a; a value of ... removes the key."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for name, value in changes.items():
        *outer, last = name.split("__")
        inside = config
        for part in outer:
            inside = inside[part]
        if value is ...:
            del inside[last]
        else:
            inside[last] = value
    path.write_text(json.dumps(config))


def refused(folder: Path, *parts: str) -> str:
    """The one ModelError's text; nothing is left where the output should be."""
    output = folder.parent / "model.gguf"
    before = set(folder.parent.iterdir())
    with pytest.raises(dualar.ModelError) as error:
        convert(folder, output)
    assert set(folder.parent.iterdir()) == before
    for part in parts:
        assert part in str(error.value)
    return str(error.value)


# ------------------------------------------------------------------------------------------------ what is written


def test_every_tensor_is_the_checkpoints(folder: Path, tmp_path: Path) -> None:
    source = qwen3.read_f32(folder / "model.safetensors")
    convert(folder, tmp_path / "model.gguf", weight_type="f32")
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    found = {t.name: np.array(t.data).reshape(t.shape[::-1]) for t in reader.tensors}
    for i in range(3):
        of, to = f"talker.model.layers.{i}.", f"{keys.LAYER}{i}."
        qkv = np.concatenate([source[f"{of}self_attn.{part}_proj.weight"] for part in "qkv"])
        assert np.array_equal(found[f"{to}{names.WQKV}.weight"], qkv)
        assert np.array_equal(found[to + names.W1], source[f"{of}mlp.gate_proj.weight"])
        assert np.array_equal(found[to + names.W3], source[f"{of}mlp.up_proj.weight"])
        assert np.array_equal(found[to + names.W2], source[f"{of}mlp.down_proj.weight"])
        assert np.array_equal(found[to + names.FFN_NORM], source[f"{of}post_attention_layernorm.weight"])
    for i in range(15):
        of = "talker.code_predictor."
        rows = slice(128 * i, 128 * (i + 1))
        assert np.array_equal(found[keys.PREDICTOR_OUTPUT][rows], source[f"{of}lm_head.{i}.weight"])
        assert np.array_equal(found[keys.PREDICTOR_EMBEDDINGS][rows], source[f"{of}model.codec_embedding.{i}.weight"])
    field = reader.get_field(keys.CODEC_EOS_ID)
    assert field is not None and field.contents() == 230
    field = reader.get_field(keys.ROPE_FREQ_BASE)
    assert field is not None and field.contents() == 1e6
    assert reader.get_field(keys.LANGUAGE_NAMES).contents()[:2] == ["chinese", "english"]  # type: ignore[union-attr]
    assert reader.get_field(keys.LANGUAGE_IDS).contents()[:2] == [135, 130]  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", BLOCKS)
def test_types(kind: str, folder: Path, tmp_path: Path) -> None:
    done = convert(folder, tmp_path / "model.gguf", weight_type=kind)
    types = {name: found for name, found, _ in dualar._core.ModelFile(str(tmp_path / "model.gguf")).tensors()}
    wo = f"{keys.LAYER}0.{names.WO}.weight"  # 64 columns: no row of the K types
    assert types[wo] == {"q6_k": "q8_0", "q5_k": "q8_0", "q4_k": "q8_0"}.get(kind, kind)
    assert (wo in done.finer) == kind.endswith("_k")
    assert types[keys.NORM] == "f32"
    assert types[keys.EMBEDDINGS] == (kind if kind in ("f32", "f16", "bf16") else "q8_0")
    assert type_of(Storage.CODEC, (64, 64, 7), kind) == (kind if kind in ("f32", "f16", "bf16") else "f16")


def test_sizes_of_types_are_ggmls() -> None:
    values = np.linspace(-1, 1, 512, dtype=np.float32).reshape(2, 256)
    for kind in BLOCKS:
        assert to_bytes(values, kind, name="x").nbytes == nbytes((2, 256), kind)


def test_half_precision_refuses_what_it_cannot_hold() -> None:
    values = np.full((1, 32), 7e4, np.float32)
    for kind in ("f16", "q8_0"):
        with pytest.raises(dualar.ModelError, match=r"\[w\] expected values up to 65504.*7"):
            to_bytes(values, kind, name="w")
    assert np.array_equal(to_bytes(values, "f32", name="w").view("<f4"), values[0])


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_narrow_checkpoints(dtype: str, folder: Path, tmp_path: Path) -> None:
    source = qwen3.read_f32(folder / "model.safetensors")
    qwen3.write_safetensors(folder / "model.safetensors", source, dtype)
    convert(folder, tmp_path / "model.gguf", weight_type="f32")
    found = next(t for t in gguf.GGUFReader(tmp_path / "model.gguf").tensors if t.name == keys.OUTPUT)
    want = source["talker.codec_head.weight"]
    if dtype == "F16":
        want = want.astype(np.float16).astype(np.float32)
    else:
        want = (want.view(np.uint32) & 0xFFFF0000).view(np.float32)
    assert np.array_equal(np.array(found.data).reshape(want.shape), want)


def test_several_files(folder: Path, tmp_path: Path) -> None:
    convert(folder, tmp_path / "one.gguf")
    source = qwen3.read_f32(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    halves = [dict(list(source.items())[i::2]) for i in (0, 1)]
    listed: dict[str, str] = {}
    for i, half in enumerate(halves):
        qwen3.write_safetensors(folder / f"part-{i}.safetensors", half)
        listed |= dict.fromkeys(half, f"part-{i}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    assert isinstance(open_checkpoint(folder), Joined)
    convert(folder, tmp_path / "two.gguf")
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "two.gguf").read_bytes()
    qwen3.write_safetensors(folder / "part-1.safetensors", source)
    refused(folder, "expected each tensor once")
    qwen3.write_safetensors(folder / "part-1.safetensors", {})
    refused(folder, "only one of them has")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "../model.safetensors"}}))
    refused(folder, "names of files beside it")


def test_weight_norm_is_folded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    gain = rng.standard_normal((4, 1, 1)).astype(np.float32)
    direction = rng.standard_normal((4, 3, 5)).astype(np.float32)
    qwen3.write_safetensors(tmp_path / "x.safetensors", {"g": gain, "v": direction})
    planned = weight_normed("w", Source("g", (4, 1, 1)), Source("v", (4, 3, 5)), Storage.CODEC)
    got = np.concatenate(list(planned.pieces(Safetensors(tmp_path / "x.safetensors"), values=20)))
    for channel in range(4):
        assert np.linalg.norm(got[channel]) == pytest.approx(abs(gain[channel, 0, 0]), rel=1e-6)
        cosine = (got[channel] * direction[channel]).sum() / np.linalg.norm(direction[channel])
        assert cosine == pytest.approx(gain[channel, 0, 0], rel=1e-6)


def test_metadata_types(tmp_path: Path) -> None:
    metadata: dict[str, Value] = {
        "general.architecture": "x",
        "a": True,
        "b": 7,
        "c": -7,
        "d": 0.5,
        "e": ["ä", ""],
        "f": [1, -2],
        "g": [0.5],
    }
    data = np.arange(12, dtype=np.uint8)
    write_gguf(tmp_path / "x.gguf", metadata, [Tensor("t", (1, 3), "f32", lambda: [data])])
    file = dualar._core.ModelFile(str(tmp_path / "x.gguf"))
    assert file.metadata == metadata
    assert file.tensors() == [("t", "f32", (1, 3))]
    reader = gguf.GGUFReader(tmp_path / "x.gguf")
    assert {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")} == metadata


# ---------------------------------------------------------------------------------------------- what is wrong


def test_all_tensors_that_are_wrong_are_listed(folder: Path) -> None:
    source = qwen3.read_f32(folder / "model.safetensors")
    del source["talker.model.norm.weight"], source["talker.code_predictor.lm_head.7.weight"]
    source["talker.codec_head.weight"] = source["talker.codec_head.weight"][:-1]
    source["talker.model.layers.3.mlp.up_proj.weight"] = np.zeros((2, 2), np.float32)
    qwen3.write_safetensors(folder / "model.safetensors", source)
    text = refused(
        folder,
        "4 tensors are not as expected",
        "[talker.model.norm.weight] expected shape [64], found no such tensor",
        "[talker.code_predictor.lm_head.7.weight]",
        "[talker.codec_head.weight] expected shape [1152, 64], got [1151, 64]",
        "[talker.model.layers.3.mlp.up_proj.weight] expected no such tensor, got shape [2, 2]",
    )
    assert len(text.splitlines()) == 5


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite(bad: float, folder: Path) -> None:
    source = qwen3.read_f32(folder / "model.safetensors")
    source["talker.model.norm.weight"] = np.where(np.arange(64) == 5, bad, 1).astype(np.float32)
    qwen3.write_safetensors(folder / "model.safetensors", source)
    refused(folder, "expected finite values, got 1 of 64", "talker.model.norm.weight")


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"talker_config": None}, "[talker_config] expected an object, got null"),
        ({"talker_config__head_dim": ...}, "[talker_config.head_dim] expected a whole number"),
        ({"talker_config__spk_id": None}, "[talker_config.spk_id] expected an object, got null"),
        ({"talker_config__codec_language_id": ...}, "[talker_config.codec_language_id] expected an object"),
        ({"talker_config__rope_scaling": None}, "[talker_config.rope_scaling] expected an object, got null"),
        ({"talker_config__codec_language_id": {"english": 99999}}, "codec_language_id.english] expected"),
        ({"talker_config__codec_eos_token_id": 1152}, "codec_eos_token_id] expected a whole number from 128 to 1151"),
        ({"talker_config__codec_eos_token_id": 17}, "codec_eos_token_id] expected a whole number from 128 to 1151"),
        ({"tts_pad_token_id": 512}, "[tts_pad_token_id] expected a whole number from 0 to 511, got 512"),
        ({"talker_config__num_key_value_heads": 3}, "num_key_value_heads] expected a divisor of the 4 heads, got 3"),
        ({"talker_config__attention_bias": True}, "attention_bias] expected False"),
        ({"talker_config__code_predictor_config__vocab_size": 127}, "code_predictor_config.vocab_size] expected 128"),
        ({"tokenizer_type": "qwen3_tts_tokenizer_25hz"}, "[tokenizer_type] expected qwen3_tts_tokenizer_12hz"),
        ({"model_type": "qwen2"}, "[model_type] expected one of qwen3_tts"),
        ({"talker_config__rms_norm_eps": float("nan")}, "rms_norm_eps] expected a number"),
        ({"talker_config__hidden_size": 10**30}, "hidden_size] expected a whole number"),
    ],
)
def test_config(changes: dict[str, object], expected: str, folder: Path) -> None:
    edit_config(folder, **changes)
    refused(folder, expected)


def test_all_that_a_config_lacks_is_listed(folder: Path) -> None:
    edit_config(folder, talker_config__head_dim=..., tts_eos_token_id=..., talker_config__code_predictor_config=None)
    refused(folder, "[talker_config.head_dim]", "[tts_eos_token_id]", "code_predictor_config] expected an object")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "vocab.json", "merges.txt"])
def test_missing_files(file: str, folder: Path) -> None:
    (folder / file).unlink()
    refused(folder, file)


@pytest.mark.parametrize(
    "file, content",
    [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("config.json", "[" * 100_000),
        ("vocab.json", '{"a": "b"}'),
        ("merges.txt", "a b c\n"),
        ("merges.txt", "zzz yyy\n"),
        ("tokenizer_config.json", "{}"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {}}}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"600": {"content": "<|x|>"}}}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"410": {"content": "<|x|>"}}}'),
        ("generation_config.json", '{"temperature": "hot"}'),
    ],
)
def test_damaged_text_files(file: str, content: str, folder: Path) -> None:
    (folder / file).write_text(content)
    refused(folder)


def header_of(text: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> bytes:
    return json.dumps({"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\1\2\3",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 100) + b"{}",
        header_of(b"nonsense"),
        header_of(b"[1]"),
        header_of(b'{"x": 3}'),
        header_of(b"\xff\xfe"),
        header_of(b"[" * 50_000),
        header_of(entry(), b"\0" * 7),  # cut short
        header_of(entry(dtype="F31"), b"\0" * 8),
        header_of(entry(dtype=["F32"]), b"\0" * 8),
        header_of(entry(shape=[2.0]), b"\0" * 8),
        header_of(entry(shape=[-2]), b"\0" * 8),
        header_of(entry(shape=[2**40, 2**40]), b"\0" * 8),
        header_of(entry(shape=[3]), b"\0" * 8),
        header_of(entry(shape=None), b"\0" * 8),
        header_of(entry(offsets=[8, 0]), b"\0" * 8),
        header_of(entry(offsets=[0]), b"\0" * 8),
        header_of(entry(offsets=[-8, 0]), b"\0" * 8),
        header_of(entry(offsets="ab"), b"\0" * 8),
        header_of(entry()[:-1] + b", " + entry()[1:], b"\0" * 8),  # a name twice
        header_of(entry()[:-1] + b", " + entry(offsets=(4, 12)).replace(b'"x"', b'"y"')[1:], b"\0" * 12),  # overlapping
    ],
)
def test_damaged_safetensors(content: bytes, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(content)
    text = refused(folder, "model.safetensors", "expected")
    assert len(text.splitlines()) == 1


def test_truncated_safetensors(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    for size in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        (folder / "model.safetensors").write_bytes(whole[:size])
        refused(folder, "model.safetensors")


def test_integers_where_floats_belong(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    assert data.count(b'"F32"') > 1
    (folder / "model.safetensors").write_bytes(data.replace(b'"F32"', b'"I32"'))
    refused(folder, "expected floats, got I32")


def test_require_lists_every_part(tmp_path: Path) -> None:
    qwen3.write_safetensors(tmp_path / "a", {"x": np.zeros((2, 3), np.float32)})
    part = Part(Safetensors(tmp_path / "a"), [same("x", "x", (3, 2), Storage.MATRIX)])
    with pytest.raises(dualar.ModelError) as error:
        require([part, part])
    assert str(error.value).count("[x] expected shape [3, 2], got [2, 3]") == 2


# ------------------------------------------------------------------------------------------------ the command line


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    return result.exit_code, result.output + result.stderr


def test_command(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "model.gguf"
    code, text = run("convert", folder, "-o", output, "--type", "Q8_0")
    assert code == 0 and "qwen3-tts" in text and output.is_file()
    before = output.read_bytes()
    code, text = run("convert", folder, "-o", output)
    assert code == 2 and "--force" in text and output.read_bytes() == before
    code, text = run("convert", folder, "-o", output, "--force", "--quiet")
    assert code == 0 and text == "" and output.read_bytes() != before
    code, text = run("convert", folder, "-o", tmp_path / "x.gguf", "--type", "q3")
    assert code == 2 and "q3" in text and not (tmp_path / "x.gguf").exists()
    code, text = run("convert", tmp_path / "nowhere", "-o", tmp_path / "x.gguf")
    assert code == 2 and "folder" in text
    code, text = run("convert", tmp_path, "-o", tmp_path / "x.gguf")
    assert code == 1 and "config.json" in text and not (tmp_path / "x.gguf").exists()
