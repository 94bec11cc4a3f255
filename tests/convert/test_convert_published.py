"""What published folders may hold besides, lack, or call otherwise.

A variant that means the same must give the same file, byte for byte.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.convert.model_file import convert
from dualar.convert.s2_config import Config, read_config
from dualar.convert.settings import Settings
from fixtures import torch_files
from fixtures.published_folders import FOLDER, Arrays, Copy, Whole, converted, edit, floats, read, refused, write

# ------------------------------------------------------------------ tensors that may be there
LEFT_OUT = [
    "freqs_cis",
    "causal_mask",
    "rotary_emb.inv_freq",
    "layers.0.attention.kv_cache.k_cache",
    "fast_layers.1.attention.kv_cache.v_cache",
    "layers.0.attention.wqkv.lora_A",
    "embeddings.lora_B",
    "codebook_offsets",
    "audio_projector.weight",
    "audio_tower.layers.0.weight",
    "vision_tower.layers.0.weight",
    "visual.patch_embed.weight",
]


@pytest.mark.parametrize("name", ["s1-like", "s2-like"])
@pytest.mark.parametrize("stem", ["model", "codec"])
def test_what_the_published_loaders_leave_out(
    name: str, stem: str, published_copy: Copy, published_file: Whole
) -> None:
    folder = published_copy(name)
    more = [*LEFT_OUT, "fast_freqs_cis" if name == "s1-like" else "audio_decoder.freqs_cis"]
    if stem == "codec":
        more = [part for part in LEFT_OUT if "audio" not in part] + ["quantizer.semantic_predictor_module.0.weight"]
    if (name, stem) == ("s2-like", "model"):
        more.append("text_model.lm_head.weight")
    extra = {part: floats(704, 64) if "lm_head" in part else floats(2, 3) for part in more}
    write(folder, stem, read(folder, stem) | extra)
    data, conversion = converted(folder)
    assert data == published_file(name)
    found = {"audio_decoder.freqs_cis" if part == "fast_freqs_cis" else part for part in conversion.left_out}
    assert {"audio_decoder.freqs_cis" if part == "fast_freqs_cis" else part for part in more} <= found


@pytest.mark.parametrize(
    "part", ["layers.0.attention.wz.weight", "layers.2.norm.weight", "audioprojector.weight", "lora"]
)
def test_a_tensor_that_nobody_knows_is_named(part: str, published_copy: Copy) -> None:
    folder = published_copy("s1-like")
    write(folder, "model", read(folder, "model") | {part: floats(2)})
    refused(folder, f"[{part}] expected no such tensor, got shape [2]")
    folder = published_copy("s2-like")
    write(folder, "codec", read(folder, "codec") | {part: floats(2)})
    refused(folder, f"[{part}] expected no such tensor, got shape [2]")


def test_a_head_of_its_own_is_no_copy(published_copy: Copy) -> None:
    """The published code would leave it out, and draw from a head that nobody trained."""
    folder = published_copy("s2-like")
    nested = json.loads((folder / "config.json").read_text())["text_config"]
    edit(folder, text_config={**nested, "tie_word_embeddings": False})
    write(folder, "model", read(folder, "model") | {"text_model.lm_head.weight": floats(704, 64)})
    refused(folder, "[output.weight] expected shape [704, 64]", "[text_model.lm_head.weight] expected no such tensor")


def test_a_codec_that_lies_in_a_training_run(published_copy: Copy, published_file: Whole) -> None:
    folder = published_copy("s1-like")
    arrays = {f"generator.{name}": array for name, array in read(folder, "codec").items()}
    write(folder, "codec", arrays | {"discriminator.convs.0.weight": floats(2), "step": floats(1)})
    data, conversion = converted(folder)
    assert data == published_file("s1-like")
    assert {"discriminator.convs.0.weight", "step"} <= set(conversion.left_out)


# ------------------------------------------------------------------ other names for the same
def apart(arrays: Arrays, config: dict[str, tuple[int, int]]) -> Arrays:
    """wqkv as three; config: rows of q and of k, by the prefix of the layers."""
    found = {}
    for name, array in arrays.items():
        if name.endswith(".wqkv.weight"):
            q, kv = config["fast" if re.match("fast_|audio_decoder", name) else "slow"]
            for part, rows in zip("qkv", np.split(array, [q, q + kv]), strict=True):
                found[name.replace("wqkv", f"w{part}")] = np.ascontiguousarray(rows)
        else:
            found[name] = array
    return found


@pytest.mark.parametrize(
    ("name", "rows"),
    [("s1-like", {"slow": (128, 64), "fast": (64, 32)}), ("s2-like", {"slow": (128, 64), "fast": (128, 64)})],
)
def test_projections_apart(
    name: str,
    rows: dict[str, tuple[int, int]],
    published_copy: Copy,
    published_file: Whole,
) -> None:
    folder = published_copy(name)
    arrays = apart(read(folder, "model"), rows)
    assert any(part.endswith("layers.0.attention.wk.weight") for part in arrays)
    write(folder, "model", arrays)
    assert converted(folder)[0] == published_file(name)
    missing = next(part for part in arrays if part.endswith("layers.1.attention.wk.weight"))
    write(folder, "model", {part: array for part, array in arrays.items() if part != missing})
    refused(folder, "layers.1.attention.wk.weight] expected shape [64, 64], found no such tensor")


def test_names_after_model(published_copy: Copy, published_file: Whole) -> None:
    folder = published_copy("s1-like")
    arrays = read(folder, "model")
    torch_files.save(folder / "model.pth", {f"model.{name}": array for name, array in arrays.items()})
    assert converted(folder)[0] == published_file("s1-like")
    storages = torch_files.Storages()
    state = {name: storages.tensor(array) for name, array in arrays.items()}
    torch_files.write_zip(folder / "model.pth", {"state_dict": state, "epoch": 3}, storages)
    assert converted(folder)[0] == published_file("s1-like")


def test_two_tensors_for_one_name(published_copy: Copy) -> None:
    folder = published_copy("s1-like")
    arrays = read(folder, "model")
    write(folder, "model", arrays | {"model.norm.weight": arrays["norm.weight"] + 1})
    refused(folder, "expected one tensor for 'norm.weight', got 'norm.weight' and 'model.norm.weight'")
    folder = published_copy("s2-like")
    arrays = read(folder, "model")
    write(folder, "model", arrays | {"fast_norm.weight": arrays["audio_decoder.norm.weight"]})
    refused(folder, "one tensor for 'fast_norm.weight'", "'audio_decoder.norm.weight'")


@pytest.mark.parametrize("name", ["s1-like", "s2-like"])
def test_files_of_the_older_format(name: str, published_copy: Copy, published_file: Whole) -> None:
    folder = published_copy(name)
    for stem in ("model", "codec") if name == "s1-like" else ("codec",):
        write(folder, stem, read(folder, stem), old=True)
        assert (folder / f"{stem}.pth").read_bytes()[:2] == b"\x80\x02"
    assert converted(folder)[0] == published_file(name)


def test_a_hub_cache(tmp_path: Path, published_file: Whole) -> None:
    """Links to blobs whose names say nothing."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for i, file in enumerate((FOLDER / "s2-like").iterdir()):
        shutil.copy(file, blobs / f"{i:064x}")
        os.symlink(f"../../blobs/{i:064x}", snapshot / file.name)
    convert(snapshot, tmp_path / "model.gguf", weight_type="f32")
    assert (tmp_path / "model.gguf").read_bytes() == published_file("s2-like")


# ------------------------------------------------------------------ what a config leaves open
def read_values(values: dict[str, Any]) -> Config:
    return read_config(Settings(values, source="config.json"))


def test_a_flat_config_that_says_nothing() -> None:
    c = read_values({"model_type": "dual_ar"})
    assert (c.vocab_size, c.context_length, c.codebook_size, c.num_codebooks) == (32000, 2048, 160, 4)
    assert (c.rope_base, c.eps, c.tied, c.scaled, c.normed) == (10000.0, 1e-5, True, False, False)
    s, f = c.slow, c.fast
    assert (s.dim, s.layers, s.heads, s.kv_heads, s.head_dim, s.feed_forward) == (4096, 32, 32, 32, 64, 11008)
    assert (f.dim, f.layers, f.heads, f.kv_heads, f.head_dim, f.feed_forward) == (4096, 4, 32, 32, 64, 11008)
    assert not any((s.qk_norm, s.qkv_bias, s.o_bias, f.qk_norm, f.qkv_bias, f.o_bias))


NESTED: dict[str, Any] = {
    "model_type": "fish_qwen3_omni",
    "text_config": {"vocab_size": 700, "n_layer": 2, "n_head": 4, "dim": 96},
    "audio_decoder_config": {"vocab_size": 96, "num_codebooks": 10, "n_layer": 3},
}


def test_a_nested_config_that_says_little() -> None:
    c = read_values(NESTED)
    assert (c.context_length, c.rope_base, c.eps, c.tied, c.semantic) == (2048, 10000.0, 1e-5, True, (None, None))
    assert (c.slow.kv_heads, c.slow.head_dim, c.slow.feed_forward) == (4, 64, 256)
    assert (c.fast.dim, c.fast.heads, c.fast.kv_heads, c.fast.head_dim, c.fast.feed_forward) == (96, 4, 4, 64, 256)


def test_the_fast_ar_is_built_like_the_slow_one() -> None:
    told = {"n_local_heads": 2, "head_dim": 32, "intermediate_size": 100, "attention_qk_norm": True}
    told |= {"attention_qkv_bias": True, "attention_o_bias": True}
    for values in (
        {**NESTED, "text_config": NESTED["text_config"] | told},
        {"model_type": "dual_ar", **NESTED["text_config"], **told},
        {"model_type": "dual_ar", **NESTED["text_config"], **told, **{f"fast_{key}": None for key in (*told, "dim")}},
    ):
        f = read_values(values).fast
        assert (f.dim, f.heads, f.kv_heads, f.head_dim, f.feed_forward) == (96, 4, 2, 32, 100)
        assert f.qk_norm and f.qkv_bias and f.o_bias


def test_a_head_dim_of_null() -> None:
    """In a flat config null is the width over the heads; in a nested one it is as if it were not there."""
    flat = {"model_type": "dual_ar", **NESTED["text_config"]}
    assert read_values({**flat, "head_dim": None}).slow.head_dim == 24
    assert read_values({**flat, "head_dim": None}).fast.head_dim == 24
    nested = {**NESTED, "text_config": NESTED["text_config"] | {"head_dim": None}}
    assert read_values(nested).slow.head_dim == 64


def test_what_a_nested_config_must_say() -> None:
    with pytest.raises(dualar.ModelError) as error:
        read_values({"model_type": "fish_qwen3_omni", "text_config": {}, "audio_decoder_config": {"dim": 0}})
    for key in ("text_config.vocab_size", "text_config.n_layer", "text_config.n_head", "text_config.dim"):
        assert f"[{key}] expected a whole number" in str(error.value)
    for key in ("vocab_size", "num_codebooks", "n_layer", "dim"):
        assert f"[audio_decoder_config.{key}] expected a whole number" in str(error.value)


def test_semantic_ids_are_the_tokenizers(published_copy: Copy, published_file: Whole) -> None:
    folder = published_copy("s2-like")
    edit(folder, semantic_start_token_id=...)
    assert converted(folder)[0] == published_file("s2-like")
    edit(folder, semantic_end_token_id=649)
    refused(folder, "semantic")
    edit(folder, semantic_end_token_id=None)
    assert converted(folder)[0] == published_file("s2-like")
