"""Model files that are wrong: each gives one ModelError that names the fault, quickly, and in little memory."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from conftest import FIXTURES
from dualar import _core
from fixtures.gguf_raw import ARRAY, FLOAT32, INT32, STRING, RawGguf, Tensor, string
from fixtures.make_toy_model import train_tokenizer, write_toy_model
from fixtures.s2_geometry import TINY
from refusals import refused

Change = Callable[[RawGguf], object]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a tiny sound file, tokenizer inside."""
    path = tmp_path_factory.mktemp("sound") / "sound.gguf"
    write_toy_model(path, geometry=TINY)
    return path.read_bytes()


def changed(sound: bytes, change: Change, path: Path) -> Path:
    raw = RawGguf.parse(sound)
    change(raw)
    path.write_bytes(raw.write())
    return path


def test_the_sound_file_is_sound(sound: bytes, tmp_path: Path) -> None:
    written = RawGguf.parse(sound).write()
    assert sound[: len(written)] == written and len(sound) - len(written) < 32  # the last tensor is padded
    path = changed(sound, lambda raw: None, tmp_path / "x.gguf")
    with dualar.load(path, threads=1) as engine:
        assert engine.synthesize("hello", seed=1, max_new_tokens=2, min_tokens_before_end=2).samples.size


def test_an_architecture_of_no_family_is_told_by_every_part(sound: bytes, tmp_path: Path) -> None:
    """A file of an unknown family is refused by name, and not read as if it were of a known one."""
    path = changed(sound, lambda raw: raw.set("general.architecture", STRING, string("llama")), tmp_path / "x.gguf")
    file, runtime = _core.ModelFile(str(path)), _core.Runtime(threads=1)
    for make in (_core.Model, _core.Codec, _core.SpeakerEncoder):
        with pytest.raises(dualar.ModelError, match=r"\[general.architecture\] expected .* or .*, got \"llama\""):
            make(file, runtime)


def test_a_family_without_a_speaker_encoder_says_so(sound: bytes, tmp_path: Path) -> None:
    path = changed(sound, lambda raw: None, tmp_path / "x.gguf")
    file = _core.ModelFile(str(path))
    assert not _core.SpeakerEncoder.present(file)
    with pytest.raises(dualar.ModelError, match=r"\[speaker\] expected a file with a speaker encoder"):
        _core.SpeakerEncoder(file, _core.Runtime(threads=1))


def test_the_general_model_asks_for_what_a_file_does_not_say(sound: bytes, tmp_path: Path) -> None:
    path = changed(sound, lambda raw: None, tmp_path / "x.gguf")
    file, runtime = _core.ModelFile(str(path)), _core.Runtime(threads=1)
    with pytest.raises(ValueError, match=r"\[im_end_id\] expected the id that ends speech, got none"):
        _core.Model(file, runtime)
    named, general = _core.DualAR(file, runtime, im_end_id=0), _core.Model(file, runtime, im_end_id=0)
    prompt = np.zeros((1 + named.num_codebooks, 3), np.int32)
    logits = [model.session(max_positions=3).prefill(prompt).logits for model in (named, general)]
    np.testing.assert_array_equal(logits[0], logits[1])


# ------------------------------------------------------------------ what is no GGUF at all
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: None, "No such file"),
        (lambda p: p.mkdir(), "a folder"),
        (lambda p: os.mkfifo(p), "not a file"),
        (lambda p: p.symlink_to(p), "symbolic links"),
        (lambda p: p.write_bytes(b""), "empty file"),
        (lambda p: p.write_bytes(b"G"), "begins with"),
        (lambda p: p.write_bytes(b"GGUF"), "truncated"),
        (lambda p: p.write_bytes(b"RIFF" + bytes(100)), "RIFF"),
        (lambda p: p.write_bytes(b"PK\x03\x04" + bytes(100)), r"PK\\x03"),
        (lambda p: p.write_bytes(bytes(4096)), "begins with"),
        (lambda p: p.write_bytes(b"FUGG" + bytes(40)), "FUGG"),
    ],
    ids=["missing", "folder", "pipe", "loop", "empty", "G", "GGUF", "wav", "zip", "zeros", "swapped"],
)
def test_what_is_no_gguf(tmp_path: Path, make: Callable[[Path], object], says: str) -> None:
    make(tmp_path / "x.gguf")
    text = refused(tmp_path / "x.gguf")
    assert "x.gguf" in text and (says in text or says.replace("\\\\", "\\") in text)


@pytest.mark.parametrize(
    ("version", "says"), [(0, "got 0"), (1, "got 1"), (4, "got 4"), (3 << 24, "big-endian"), ((1 << 32) - 1, "version")]
)
def test_another_version(sound: bytes, tmp_path: Path, version: int, says: str) -> None:
    assert says in refused(changed(sound, lambda raw: setattr(raw, "version", version), tmp_path / "x.gguf"))


def test_version_2_is_read_as_3(sound: bytes, tmp_path: Path) -> None:
    dualar.load(changed(sound, lambda raw: setattr(raw, "version", 2), tmp_path / "x.gguf"), threads=1).close()


# ------------------------------------------------------------------ cut short
def test_truncation_at_every_boundary(sound: bytes, tmp_path: Path) -> None:
    raw = RawGguf.parse(sound)
    data = raw.write()
    path = tmp_path / "x.gguf"
    cuts = {at + more for at in raw.marks.values() for more in (-1, 0, 1, 3)} & set(range(len(data)))
    assert len(cuts) > 1000
    for cut in sorted(cuts):
        path.write_bytes(data[:cut])
        with pytest.raises(dualar.ModelError, match=r"truncated|empty file|begins with"):
            _core.ModelFile(str(path))


# ------------------------------------------------------------------ tables that do not fit together
def resize(name: str, dims: list[int], kind: int = 0) -> Change:
    """Another shape or type, with data that fits it."""

    def change(raw: RawGguf) -> None:
        tensor = raw.tensor(name)
        tensor.dims, tensor.type = dims, kind
        tensor.data = bytes(int(np.prod(dims)) * (4 if kind == 0 else 2))

    return change


def drop(*names: str) -> Change:
    return lambda raw: setattr(raw, "tensors", [t for t in raw.tensors if t.name.decode() not in names])


def uint(name: str, value: int) -> Change:
    return lambda raw: raw.set_uint(name, value)


def both(*changes: Change) -> Change:
    """One change after the other."""

    def change(raw: RawGguf) -> None:
        for one in changes:
            one(raw)

    return change


def ints(name: str, *values: int) -> Change:
    return lambda raw: raw.set(name, ARRAY, struct.pack(f"<IQ{len(values)}i", INT32, len(values), *values))


def misaligned(raw: RawGguf) -> None:
    raw.alignment = 8
    raw.set_uint("general.alignment", 8)
    raw.tensors.insert(0, Tensor(b"x", [2], 0, bytes(8)))


RVQ = "fish_speech.codec.rvq_transformer."
CHANGES: dict[str, tuple[Change, str]] = {
    "no architecture": (
        lambda r: setattr(r, "keys", [k for k in r.keys if k.name != b"general.architecture"]),
        "architecture",
    ),
    "another architecture": (lambda r: r.set("general.architecture", STRING, string("llama")), "'llama'"),
    "an architecture of escapes": (lambda r: r.set("general.architecture", STRING, string("\x1b[2J")), r"\x1b"),
    "an architecture that is no text": (uint("general.architecture", 3), "expected a string"),
    "a key twice": (lambda r: r.keys.append(r.keys[-1]), "once"),
    "a tensor twice": (lambda r: r.tensors.append(r.tensors[0]), "once"),
    "tensors on one another": (lambda r: setattr(r.tensors[1], "offset", 0), "overlap"),
    "a tensor past the end": (lambda r: setattr(r.tensors[3], "offset", 1 << 30), "truncated"),
    "misaligned data": (misaligned, "aligned to 32"),
    "no width": (
        lambda r: setattr(r, "keys", [k for k in r.keys if k.name != b"fish-speech.embedding_length"]),
        "no such key",
    ),
    "a width that is text": (lambda r: r.set("fish-speech.embedding_length", STRING, string("32")), "an integer"),
    "a width that is a float": (
        lambda r: r.set("fish-speech.embedding_length", FLOAT32, struct.pack("<f", 32)),
        "an integer",
    ),
    "a base that is an integer": (uint("fish-speech.rope.freq_base", 10000), "a float"),
    "a base that is NaN": (
        lambda r: r.set("fish-speech.rope.freq_base", FLOAT32, struct.pack("<f", float("nan"))),
        "nan",
    ),
    "a flag that is a number": (uint("fish_speech.tie_word_embeddings", 1), "a bool"),
    "width 0": (uint("fish-speech.embedding_length", 0), "got 0"),
    "width -1": (
        lambda r: r.set("fish-speech.embedding_length", INT32, struct.pack("<i", -1)),
        "got -1",
    ),
    "width 2^63": (uint("fish-speech.embedding_length", 1 << 63), "got 9223372036854775808"),
    "another feed-forward width": (uint("fish-speech.feed_forward_length", 64), "expected (64, 32), got (32, 32)"),
    "no layers": (uint("fish-speech.block_count", 0), "got 0"),
    "2^31 layers": (uint("fish-speech.block_count", 1 << 31), "1024"),
    "no heads": (uint("fish-speech.attention.head_count", 0), "got 0"),
    "2^20 heads": (uint("fish-speech.attention.head_count", 1 << 20), "wqkv"),
    "3 heads for 2": (uint("fish-speech.attention.head_count_kv", 2), "wqkv"),
    "kv heads that divide nothing": (
        both(uint("fish-speech.attention.head_count", 3), uint("fish-speech.attention.head_count_kv", 2)),
        "a divisor",
    ),
    "an odd head_dim": (uint("fish-speech.attention.key_length", 15), "even"),
    "a huge head_dim": (uint("fish-speech.attention.key_length", 1 << 20), "wqkv"),
    "a huge vocabulary": (uint("fish-speech.vocab_size", (1 << 31) - 1), "embeddings.weight"),
    "a context of 2^31": (uint("fish-speech.context_length", 1 << 31), "context_length"),
    "semantic ids past the vocabulary": (uint("fish_speech.semantic_end_id", 1 << 20), "semantic_end_id"),
    "semantic ids backwards": (uint("fish_speech.semantic_end_id", 3), "semantic_end_id"),
    "no codebooks": (uint("fish_speech.num_codebooks", 0), "got 0"),
    "codebooks unlike the codec's": (
        both(uint("fish_speech.num_codebooks", 2), resize("codebook_embeddings.weight", [32, 64])),
        "a codec of 2 codebooks",
    ),
    "end of speech among the semantic ids": (
        both(
            uint("fish_speech.semantic_begin_id", 0),
            lambda r: r.set("tokenizer.huggingface.json", STRING, r.key("tokenizer.huggingface.json").value),
        ),
        "the tokenizer's <|im_end|>",
    ),
    "a Fast-AR without its width": (
        lambda r: setattr(r, "keys", [k for k in r.keys if k.name != b"fish_speech.fast_embedding_length"]),
        "fast_embedding_length",
    ),
    "a Fast-AR of another width": (uint("fish_speech.fast_embedding_length", 16), "fast_project_in"),
    "a sample rate of 0": (uint("fish_speech.codec.sample_rate", 0), "got 0"),
    "no rates": (ints("fish_speech.codec.decoder_rates"), "1 to 16 values"),
    "a rate of 0": (ints("fish_speech.codec.decoder_rates", 4, 0), "got 0"),
    "rates that are not the hop": (ints("fish_speech.codec.decoder_rates", 2, 4), "a product of 4"),
    "rates whose product wraps": (ints("fish_speech.codec.decoder_rates", *[4096] * 16), "a product of 4"),
    "factors whose product wraps": (
        ints("fish_speech.codec.quantizer_downsample_factor", *[4096] * 16),
        "samples a frame",
    ),
    "rates that are text": (
        lambda r: r.set("fish_speech.codec.decoder_rates", ARRAY, struct.pack("<IQ", STRING, 1) + string("2")),
        "an integer array",
    ),
    "a decoder that cannot be halved": (uint("fish_speech.codec.decoder_dim", 18), "2^2"),
    "a window of 0": (uint(RVQ + "window_size", 0), "got 0"),
    "a window of 2^31": (uint(RVQ + "window_size", 1 << 31), "window_size"),
    "a window of more memory than the file": (
        both(uint(RVQ + "window_size", 1 << 14), uint(RVQ + "head_dim", 1 << 12)),
        "less memory",
    ),
    "5 local heads": (lambda r: r.set(RVQ + "n_local_heads", INT32, struct.pack("<i", 5)), "n_local_heads"),
    "an odd codec head_dim": (uint(RVQ + "head_dim", 3), "even"),
    "a type this project does not read": (
        both(
            lambda r: setattr(r.tensor("layers.0.attention.wqkv.weight"), "type", 3),  # Q4_1
            lambda r: setattr(r.tensor("layers.0.attention.wqkv.weight"), "data", bytes(64 * 20)),
        ),
        "got q4_1",
    ),
    "a tokenizer that is a number": (uint("tokenizer.huggingface.json", 3), "expected a string"),
    "a tokenizer that is no JSON": (
        lambda r: r.set("tokenizer.huggingface.json", STRING, string("{")),
        "[tokenizer]",
    ),
    "a tokenizer that is no UTF-8": (
        lambda r: r.set("tokenizer.huggingface.json", STRING, string(b"{\xff}")),
        "UTF-8",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_part_is_named(sound: bytes, tmp_path: Path, name: str) -> None:
    change, says = CHANGES[name]
    text = refused(changed(sound, change, tmp_path / "x.gguf"))
    assert says in text, text
    assert text.replace("\n", "").isprintable()


def test_every_wrong_tensor_of_both_parts_is_listed(sound: bytes, tmp_path: Path) -> None:
    def change(raw: RawGguf) -> None:
        drop("norm.weight", "layers.0.feed_forward.w2.weight", "c.decoder.model.0.conv.bias")(raw)
        resize("fast_output.weight", [32, 31])(raw)
        resize("c.decoder.model.4.conv.weight", [7, 4, 2])(raw)

    text = refused(changed(sound, change, tmp_path / "x.gguf"))
    for line in (
        "norm.weight: expected (32), missing",
        "layers.0.feed_forward.w2.weight: expected (32, 32), missing",
        "fast_output.weight: expected (32, 32), got (31, 32)",
        "c.decoder.model.0.conv.bias: expected (16), missing",
        "c.decoder.model.4.conv.weight: expected (1, 4, 7), got (2, 4, 7)",
    ):
        assert f"  {line}\n" in text + "\n"
    assert text.count("\n") == 5 + 1


def test_a_long_list_is_cut(sound: bytes, tmp_path: Path) -> None:
    text = refused(changed(sound, uint("fish-speech.block_count", 1024), tmp_path / "x.gguf"))
    assert len(text.splitlines()) == 52 and text.endswith("\n  and 9157 more")  # 9 of each of 1023 layers


def test_shapes_keep_their_leading_ones(sound: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(sound)
    shapes = {name: shape for name, _, shape in _core.ModelFile(str(tmp_path / "x.gguf")).tensors()}
    assert shapes["c.decoder.model.3.alpha"] == (1, 4, 1)
    assert shapes["c.decoder.model.4.conv.weight"] == (1, 4, 7)


@pytest.mark.parametrize(
    ("remove", "says"),
    [("<|im_end|>", "<|im_end|>"), ("<|voice|>", "<|voice|>"), ("<|im_start|>", "<|im_start|>")],
)
def test_a_tokenizer_without_control_tokens(sound: bytes, tmp_path: Path, remove: str, says: str) -> None:
    content = json.loads(train_tokenizer(TINY.codebook_size))
    content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] != remove]
    raw = RawGguf.parse(sound)
    raw.set("tokenizer.huggingface.json", STRING, string(json.dumps(content)))
    (tmp_path / "x.gguf").write_bytes(raw.write())
    assert says in refused(tmp_path / "x.gguf")


@pytest.mark.parametrize(
    "make", [lambda p: p.mkdir(), os.mkfifo, lambda p: p.write_bytes(b"\xff"), lambda p: p.touch()]
)
def test_a_tokenizer_beside_the_file_that_is_none(sound: bytes, tmp_path: Path, make: Callable[[Path], object]) -> None:
    (tmp_path / "x.gguf").write_bytes(sound)
    make(tmp_path / "tokenizer.json")
    assert "tokenizer.json" in refused(tmp_path / "x.gguf")


# ------------------------------------------------------------------ chance
def test_thousands_of_damaged_files(tmp_path: Path) -> None:
    """In a process of its own: a crash would name its case and leave the file. More by hand: tests/fuzz."""
    fuzz = FIXTURES.parent / "fuzz" / "fuzz_gguf.py"
    command: list[Any] = [sys.executable, fuzz, "--cases", "3000", "--keep", tmp_path / "finds"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["cases"] == 3000 and not counts["finds"]
    for outcome in ("no file", "no model, sound", "frame, no codec", "frame, sound"):  # every depth is reached
        assert counts["outcomes"][outcome] >= 50
