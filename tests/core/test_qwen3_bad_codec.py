"""Qwen3-TTS files whose codec or speaker encoder is wrong: one ModelError that names all of it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar import _core
from dualar.convert.model_file import convert
from dualar.gguf import qwen3_codec_names as keys
from fixtures import qwen3
from fixtures.gguf_raw import ARRAY, FLOAT32, INT32, RawGguf

Change = Callable[[RawGguf], object]
RUNTIME = _core.Runtime(threads=1)


@pytest.fixture(scope="module")
def sound(qwen3_model: Callable[..., Path]) -> bytes:
    return qwen3_model("tiny").read_bytes()


def uint(name: str, value: int) -> Change:
    return lambda raw: raw.set_uint(name, value)


def real(name: str, value: float) -> Change:
    return lambda raw: raw.set(name, FLOAT32, struct.pack("<f", value))


def ints(name: str, *values: int) -> Change:
    return lambda raw: raw.set(name, ARRAY, struct.pack(f"<IQ{len(values)}i", INT32, len(values), *values))


def without_key(name: str) -> Change:
    return lambda raw: setattr(raw, "keys", [k for k in raw.keys if k.name.decode() != name])


def drop(*names: str) -> Change:
    return lambda raw: setattr(raw, "tensors", [t for t in raw.tensors if t.name.decode() not in names])


def resize(name: str, *dims: int) -> Change:
    def change(raw: RawGguf) -> None:
        tensor = raw.tensor(name)
        tensor.dims, tensor.type, tensor.data = list(dims), 0, bytes(4 * int(np.prod(dims)))

    return change


T = keys.TRANSFORMER
NEEDED = (keys.SAMPLE_RATE, keys.NUM_CODEBOOKS, keys.UPSAMPLING_RATIOS, T + "window_size", keys.ENCODER_RATES)
CODEC: dict[str, tuple[Change, str]] = {
    **{
        f"no {name}": (without_key(name), name)
        for name in (
            keys.SAMPLE_RATE,
            keys.NUM_CODEBOOKS,
            keys.UPSAMPLING_RATIOS,
            T + "window_size",
            keys.ENCODER_RATES,
        )
    },
    "no codebooks": (uint(keys.NUM_CODEBOOKS, 0), keys.NUM_CODEBOOKS),
    "one codebook": (uint(keys.NUM_CODEBOOKS, 1), keys.NUM_CODEBOOKS),
    "too many codebooks": (uint(keys.NUM_CODEBOOKS, 1 << 20), keys.NUM_CODEBOOKS),
    "a codebook more": (uint(keys.NUM_CODEBOOKS, 17), "codec.codebook.16.weight"),
    "codebooks of 2^40": (uint(keys.CODEBOOK_SIZE, 1 << 40), keys.CODEBOOK_SIZE),
    "codebooks of another size": (uint(keys.CODEBOOK_SIZE, 64), "codec.codebook.15.weight: expected (64, 16)"),
    "rate 0": (ints(keys.DECODER_RATES, 8, 5, 0, 3), keys.DECODER_RATES),
    "no rates": (ints(keys.DECODER_RATES), keys.DECODER_RATES),
    "huge rates": (ints(keys.DECODER_RATES, 4096, 4096, 4096, 4096), "samples a frame"),
    "17 rates": (ints(keys.DECODER_RATES, *[1] * 17), "1 to 16 values"),
    "odd width": (uint(keys.DECODER_DIM, 65), "multiple of 2^4"),
    "other rates": (ints(keys.DECODER_RATES, 8, 5, 4, 2), keys.ENCODER_RATES),
    "no window": (uint(T + "window_size", 0), "window_size"),
    "a huge window": (uint(T + "window_size", 1 << 30), "window_size"),
    "no heads": (uint(T + "n_head", 0), "n_head"),
    "an odd head": (uint(T + "head_dim", 15), "head_dim"),
    "eps": (real(T + "layer_norm_rms_eps", float("nan")), "layer_norm_rms_eps"),
    "rope base 0": (real(T + "rope_freq_base", 0.0), "rope_freq_base"),
    "odd filters": (uint(keys.ENCODER_FILTERS, 3), keys.ENCODER_FILTERS),
    "many filters": (uint(keys.ENCODER_FILTERS, 1 << 20), keys.ENCODER_FILTERS),
    "an encoder rate that does not fit": (ints(keys.ENCODER_RATES, 4, 5, 7, 8), keys.ENCODER_RATES),
    "text for a number": (lambda raw: raw.set(keys.LATENT_DIM, 8, struct.pack("<Q", 1) + b"x"), keys.LATENT_DIM),
}


@pytest.mark.parametrize("name", CODEC)
def test_a_wrong_codec(sound: bytes, tmp_path: Path, name: str) -> None:
    change, says = CODEC[name]
    raw = RawGguf.parse(sound)
    change(raw)
    path = tmp_path / "x.gguf"
    path.write_bytes(raw.write())
    with pytest.raises(dualar.ModelError) as error:
        _core.Codec(_core.ModelFile(str(path)), RUNTIME)
    assert says in str(error.value)


def test_all_that_is_wrong_at_once(sound: bytes, tmp_path: Path) -> None:
    raw = RawGguf.parse(sound)
    drop("codec.codebook.3.weight", "codec.decoder.2.block.3.act1.beta", "codec.encoder.6.conv.bias")(raw)
    resize("codec.semantic.out_proj.weight", 16, 31)(raw)
    resize("codec.encoder_codebook.5.weight", 15, 128)(raw)
    path = tmp_path / "x.gguf"
    path.write_bytes(raw.write())
    with pytest.raises(dualar.ModelError, match="5 tensor") as error:
        _core.Codec(_core.ModelFile(str(path)), RUNTIME)
    for text in ("codebook.3.weight: expected (128, 16), missing", "act1.beta", "got (31, 16)", "encoder.6.conv.bias",
                 "encoder_codebook.5.weight: expected (128, 16), got (128, 15)"):  # fmt: skip
        assert text in str(error.value)


def test_nan_weights_are_not_hidden_by_the_clamp(sound: bytes, tmp_path: Path) -> None:
    from dualar.codec.codec import Codec

    raw = RawGguf.parse(sound)
    raw.tensor("codec.decoder.6.conv.bias").data = struct.pack("<f", float("nan"))
    path = tmp_path / "x.gguf"
    path.write_bytes(raw.write())
    codec = Codec(_core.Codec(_core.ModelFile(str(path)), RUNTIME))
    with pytest.raises(dualar.ModelError, match="finite samples"):
        codec.decode(np.zeros((16, 2), int))


SPEAKER: dict[str, tuple[Change, str]] = {
    "no channels": (without_key(keys.SPEAKER_CHANNELS), keys.SPEAKER_CHANNELS),
    "two layers": (ints(keys.SPEAKER_CHANNELS, 32, 32), "3 to 64"),
    "unequal blocks": (ints(keys.SPEAKER_CHANNELS, 32, 32, 16, 32, 96), "expected 32 in all blocks"),
    "too few kernels": (ints(keys.SPEAKER_KERNEL_SIZES, 5, 3), "expected 5 values"),
    "dilation 0": (ints(keys.SPEAKER_DILATIONS, 1, 0, 3, 4, 1), keys.SPEAKER_DILATIONS),
    "scale": (uint(keys.SPEAKER_SCALE, 5), "divisor of the 32"),
    "scale 1": (uint(keys.SPEAKER_SCALE, 1), keys.SPEAKER_SCALE),
    "no mel": (uint(keys.SPEAKER_MEL_DIM, 0), keys.SPEAKER_MEL_DIM),
    "another mel": (uint(keys.SPEAKER_MEL_DIM, 80), "speaker.blocks.0.conv.weight: expected (32, 80, 5)"),
    "tensors": (drop("speaker.fc.bias", "speaker.blocks.3.se_block.conv2.weight"), "2 tensor"),
}


@pytest.mark.parametrize("name", SPEAKER)
def test_a_wrong_speaker_encoder(sound: bytes, tmp_path: Path, name: str) -> None:
    change, says = SPEAKER[name]
    raw = RawGguf.parse(sound)
    change(raw)
    path = tmp_path / "x.gguf"
    path.write_bytes(raw.write())
    with pytest.raises(dualar.ModelError) as error:
        _core.SpeakerEncoder(_core.ModelFile(str(path)), RUNTIME)
    assert says in str(error.value)


# ------------------------------------------------------------------------------------------------ checkpoints
def edit(path: Path, outer: str, **changes: Any) -> None:
    config = json.loads(path.read_text())
    inside = config[outer] if outer else config
    for name, value in changes.items():
        if value is ...:
            del inside[name]
        else:
            inside[name] = value
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("outer", "changes", "says"),
    [
        ("decoder_config", {"codebook_dim": ...}, "[decoder_config.codebook_dim]"),
        ("decoder_config", {"num_quantizers": 8}, "[decoder_config.num_quantizers] expected 16, as the talker"),
        ("decoder_config", {"upsample_rates": [8, 5, 4, 2]}, "1920 samples a frame"),
        ("decoder_config", {"num_key_value_heads": 2}, "[decoder_config.num_key_value_heads]"),
        ("decoder_config", {"hidden_act": "gelu"}, "nothing else is supported"),
        ("encoder_config", {"pad_mode": "reflect"}, "[encoder_config.pad_mode]"),
        ("encoder_config", {"num_residual_layers": 2}, "[encoder_config.num_residual_layers]"),
        ("encoder_config", {"upsampling_ratios": [8, 6, 5, 7]}, "[encoder_config.upsampling_ratios]"),
        ("encoder_config", {"codebook_size": 64}, "as the decoder has"),
        ("encoder_config", {"num_quantizers": 8}, "[encoder_config.num_quantizers]"),
        ("", {"model_type": "qwen3_tts_tokenizer_25hz"}, "[model_type]"),
        ("", {"encoder_valid_num_quantizers": 15}, "[encoder_valid_num_quantizers] expected 16"),
        ("", {"decoder_config": None}, "[decoder_config]"),
    ],
)
def test_a_wrong_tokenizer_config(tmp_path: Path, outer: str, changes: dict[str, Any], says: str) -> None:
    folder = qwen3.checkpoint_folder("tiny", tmp_path / "checkpoint")
    edit(folder / "speech_tokenizer" / "config.json", outer, **changes)
    with pytest.raises(dualar.ModelError) as error:
        convert(folder, tmp_path / "model.gguf", weight_type="f32")
    assert says in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"enc_dim": 32}, "[speaker_encoder_config.enc_dim] expected 64"),
        ({"enc_channels": [32, 32, 16, 32, 96]}, "32 in all blocks"),
        ({"enc_res2net_scale": 7}, "divisor of the 32"),
        ({"enc_kernel_sizes": [5]}, "as many as enc_kernel_sizes"),
        ({"mel_dim": ...}, "[speaker_encoder_config.mel_dim]"),
    ],
)
def test_a_wrong_speaker_config(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    folder = qwen3.checkpoint_folder("tiny", tmp_path / "checkpoint")
    edit(folder / "config.json", "speaker_encoder_config", **changes)
    with pytest.raises(dualar.ModelError) as error:
        convert(folder, tmp_path / "model.gguf", weight_type="f32")
    assert says in str(error.value)


def test_all_tensors_of_both_files_that_are_wrong_at_once(tmp_path: Path) -> None:
    folder = qwen3.checkpoint_folder("tiny", tmp_path / "checkpoint")
    for file, missing in (
        (folder / "model.safetensors", "speaker_encoder.fc.bias"),
        (folder / "speech_tokenizer" / "model.safetensors", "decoder.pre_conv.conv.weight"),
    ):
        tensors = qwen3.read_f32(file)
        tensors["strange." + missing] = tensors.pop(missing)
        qwen3.write_safetensors(file, tensors)
    with pytest.raises(dualar.ModelError, match="4 tensors are not as expected") as error:
        convert(folder, tmp_path / "model.gguf", weight_type="f32")
    assert "[speaker_encoder.fc.bias] expected shape [64]" in str(error.value)
    assert "[decoder.pre_conv.conv.weight] expected shape [40, 32, 3]" in str(error.value)
    for name in ("speaker_encoder.fc.bias", "decoder.pre_conv.conv.weight"):
        assert f"[strange.{name}] expected no such tensor" in str(error.value)


def test_dead_codebook_rows_are_kept_whole(qwen3_model: Callable[..., Path], tmp_path: Path) -> None:
    """A row that training never used is divided by 1e-5, not by 0, and no type of file cuts it off."""
    raw = RawGguf.parse(qwen3_model("tiny", "f16").read_bytes())
    tensor = raw.tensor("codec.codebook.0.weight")
    rows = np.frombuffer(tensor.data[: 128 * 16 * 4], "<f4").reshape(128, 16)
    published = qwen3.read_f32(qwen3.FOLDER / "speech_tokenizer" / "model.safetensors")
    prefix = "decoder.quantizer.rvq_first.vq.layers.0._codebook."
    assert tensor.type == 0 and published[prefix + "cluster_usage"][64] == 0
    np.testing.assert_array_equal(rows[64], published[prefix + "embedding_sum"][64] / np.float32(1e-5))
