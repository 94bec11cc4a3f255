"""S2 checkpoints to model files: the tensors of a toy model, put into the published layouts, must come back."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dualar
import gguf
import numpy as np
import pytest
from dualar.cli.main import app
from dualar.convert.model_file import convert
from dualar.speech.request import SpeechOptions
from fixtures.make_toy_model import write_toy_model
from typer.testing import CliRunner

Arrays = dict[str, np.ndarray]


def read_gguf(path: Path) -> tuple[dict[str, Any], Arrays]:
    """The keys and the tensors, F32."""
    reader = gguf.GGUFReader(str(path))
    keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    return keys, {tensor.name: np.array(tensor.data, np.float32) for tensor in reader.tensors}


def write_safetensors(path: Path, tensors: Arrays) -> None:
    header, offset = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    data = b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def omni_name(name: str) -> str:
    if name.startswith("codebook_embeddings."):
        return f"audio_decoder.{name}"
    return f"audio_decoder.{name[5:]}" if name.startswith("fast_") else f"text_model.model.{name}"


def omni_config(k: dict[str, Any]) -> dict[str, Any]:
    slow, fish = "fish-speech.", "fish_speech."
    return {
        "model_type": "fish_qwen3_omni",
        "semantic_start_token_id": k[fish + "semantic_begin_id"],
        "semantic_end_token_id": k[fish + "semantic_end_id"],
        "text_config": {
            "vocab_size": k[slow + "vocab_size"],
            "n_layer": k[slow + "block_count"],
            "n_head": k[slow + "attention.head_count"],
            "n_local_heads": k[slow + "attention.head_count_kv"],
            "head_dim": k[slow + "attention.key_length"],
            "dim": k[slow + "embedding_length"],
            "intermediate_size": k[slow + "feed_forward_length"],
            "rope_base": k[slow + "rope.freq_base"],
            "norm_eps": k[slow + "attention.layer_norm_rms_epsilon"],
            "max_seq_len": k[slow + "context_length"],
            "tie_word_embeddings": k[fish + "tie_word_embeddings"],
            "attention_qk_norm": k[fish + "attention_qk_norm"],
            "attention_qkv_bias": k[fish + "attention_qkv_bias"],
            "attention_o_bias": k[fish + "attention_o_bias"],
        },
        "audio_decoder_config": {
            "vocab_size": k[fish + "codebook_size"],
            "num_codebooks": k[fish + "num_codebooks"],
            "n_layer": k[fish + "fast_block_count"],
            "n_head": k[fish + "fast_head_count"],
            "n_local_heads": k[fish + "fast_head_count_kv"],
            "head_dim": k[fish + "fast_head_dim"],
            "dim": k[fish + "fast_embedding_length"],
            "intermediate_size": k[fish + "fast_feed_forward_length"],
            "attention_qk_norm": k[fish + "fast_attention_qk_norm"],
            "attention_qkv_bias": k[fish + "fast_attention_qkv_bias"],
            "attention_o_bias": k[fish + "fast_attention_o_bias"],
        },
    }


def dual_ar_config(k: dict[str, Any]) -> dict[str, Any]:
    """Flat; what the Fast-AR shares with the Slow-AR is absent or null."""
    omni = omni_config(k)
    text, audio = omni["text_config"], omni["audio_decoder_config"]
    config = {
        "model_type": "dual_ar",
        **text,
        "codebook_size": audio["vocab_size"],
        "num_codebooks": audio["num_codebooks"],
        "n_fast_layer": audio["n_layer"],
        "scale_codebook_embeddings": k["fish_speech.scale_codebook_embeddings"],
        "norm_fastlayer_input": k["fish_speech.norm_fastlayer_input"],
    }
    for key, value in audio.items():
        if key in text and key not in ("vocab_size", "n_layer"):
            config[f"fast_{key}"] = None if value == text[key] else value
    return config


def weight_normed(tensors: Arrays, names: tuple[str, str]) -> Arrays:
    """Convolutions as gain and direction, the direction of another length."""
    out: Arrays = {}
    for name, array in tensors.items():
        if array.ndim == 3 and name.endswith(".weight"):
            stem = name.removesuffix("weight")
            out[stem + names[0]] = np.sqrt(np.square(array).sum(axis=(1, 2), keepdims=True))
            out[stem + names[1]] = array * 1.7
        else:
            out[name] = array
    return out


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("toy-s2") / "toy.gguf"
    write_toy_model(path, seed=3)
    return path


@pytest.fixture
def publish(toy: Path, tmp_path: Path) -> Callable[..., Path]:
    """`publish("dual_ar")` -> a checkpoint's folder with the toy model's tensors."""

    def write(kind: str, norm: tuple[str, str] = ("weight_g", "weight_v")) -> Path:
        keys, tensors = read_gguf(toy)
        folder = tmp_path / "checkpoint"
        folder.mkdir()
        config = omni_config(keys) if kind == "fish_qwen3_omni" else dual_ar_config(keys)
        codec = "fish_speech.codec."
        config["codec_config"] = {
            "sample_rate": keys[codec + "sample_rate"],
            "head_dim": keys[codec + "rvq_transformer.head_dim"],
            "encoder_head_dim": keys[codec + "transformer.head_dim"],
            "window_size": keys[codec + "rvq_transformer.window_size"],
            "rope_base": keys[codec + "rvq_transformer.rope_freq_base"],
            "norm_eps": keys[codec + "rvq_transformer.layer_norm_rms_eps"],
        }
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "tokenizer.json").write_text(keys["tokenizer.huggingface.json"])
        rename = omni_name if kind == "fish_qwen3_omni" else str
        model = {rename(name): array for name, array in tensors.items() if not name.startswith("c.")}
        write_safetensors(folder / "model.safetensors", model)
        sound = {name.removeprefix("c."): array for name, array in tensors.items() if name.startswith("c.")}
        write_safetensors(folder / "codec.safetensors", weight_normed(sound, norm))
        return folder

    return write


@pytest.mark.parametrize(
    ("kind", "norm"),
    [
        ("fish_qwen3_omni", ("weight_g", "weight_v")),
        ("dual_ar", ("parametrizations.weight.original0", "parametrizations.weight.original1")),
    ],
)
def test_comes_back(toy: Path, publish: Callable[..., Path], tmp_path: Path, kind: str, norm: tuple[str, str]) -> None:
    output = tmp_path / "model.gguf"
    convert(publish(kind, norm), output, weight_type="f32")
    keys, tensors = read_gguf(toy)
    found_keys, found = read_gguf(output)
    assert set(found) == set(tensors)
    for name, array in tensors.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-8, err_msg=name)
    for key, value in found_keys.items():
        if key.startswith(("fish-speech.", "fish_speech.", "tokenizer.")):
            assert keys[key] == pytest.approx(value) if isinstance(value, float) else keys[key] == value, key
    with dualar.load(toy, threads=1) as first, dualar.load(output, threads=1) as second:
        a, b = (e.synthesize("seven", max_new_tokens=4, seed=1) for e in (first, second))
    np.testing.assert_array_equal(a.codes, b.codes)


def test_a_model_of_one_voice_has_no_other_and_no_earlier_turns(publish: Callable[..., Path], tmp_path: Path) -> None:
    folder = publish("dual_ar")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "single_turn": True}))
    convert(folder, tmp_path / "model.gguf", weight_type="f32")
    text = "The kettle is on. Do we have milk?\n\nNone, he said."
    options: dict[str, Any] = {"seed": 3, "max_new_tokens": 60, "min_tokens_before_end": 8}
    pieces: dict[str, Any] = {"piece_size": 20}
    told = CliRunner().invoke(app, ["info", str(tmp_path / "model.gguf")]).stdout
    assert "its own alone" in told and "Prefix cache" not in told
    with dualar.load(tmp_path / "model.gguf", threads=1) as engine:
        voice = engine.clone(np.zeros(9000, np.float32), "so")
        with pytest.raises(ValueError, match=r"\[voice\] expected none: .*model\.gguf speaks with one voice, its own"):
            engine.synthesize("seven", voice=voice)
        spoken = engine.narrate(text, config=dualar.NarrationConfig(**pieces), **options)
    folder.joinpath("config.json").write_text(json.dumps(config))
    convert(folder, tmp_path / "other.gguf", weight_type="f32")
    with dualar.load(tmp_path / "other.gguf", threads=1) as engine:
        with_context = engine.narrate(text, config=dualar.NarrationConfig(**pieces), **options)
        without = engine.narrate(text, config=dualar.NarrationConfig(context_tokens=0, **pieces), **options)
    np.testing.assert_array_equal(spoken.codes, without.codes)
    assert spoken.codes.shape[1] > 20 and not np.array_equal(spoken.codes, with_context.codes)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("dualar.single_turn", "true or false"),
        ("dualar.piece_size", "a number of letters"),
        ("dualar.text_frontend", "one of english"),
        ("dualar.sampling.temperature", "a number from 0 to 100"),
        ("dualar.sampling.ras_window", "a whole number from 0"),
    ],
)
def test_keys_of_another_type(toy: Path, tmp_path: Path, key: str, words: str) -> None:
    from fixtures.gguf_raw import STRING, Key, RawGguf, string

    raw = RawGguf.parse(toy.read_bytes())
    raw.keys.append(Key(key.encode(), STRING, string("yes")))
    (tmp_path / "x.gguf").write_bytes(raw.write())
    with pytest.raises(dualar.ModelError, match=f"expected {words}"):
        dualar.load(tmp_path / "x.gguf", threads=1)


def test_a_model_of_single_sentences_is_given_single_sentences(publish: Callable[..., Path], tmp_path: Path) -> None:
    folder = publish("dual_ar")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "piece_size": 20}))
    convert(folder, tmp_path / "model.gguf", weight_type="f32")
    text = "It is. So it is. A sentence of more letters than that, said he."
    options: SpeechOptions = {"seed": 1, "max_new_tokens": 9}
    with dualar.load(tmp_path / "model.gguf", threads=1) as engine:
        pieces = [piece.text for piece in engine.narrate(text, **options).pieces]
        assert pieces[:2] == ["It is. ", "So it is. "] and len(pieces) > 3 and "".join(pieces) == text
        given = dualar.NarrationConfig(piece_size=300, one_sentence=False)
        assert len(engine.narrate(text, config=given, **options).pieces) == 1


def test_a_model_is_sampled_as_its_trainer_says(publish: Callable[..., Path], tmp_path: Path) -> None:
    folder = publish("dual_ar")
    config = json.loads((folder / "config.json").read_text())
    options: dict[str, Any] = {"temperature": 0.4, "residual_temperature": 0.2, "ras_window": 0}
    (folder / "config.json").write_text(json.dumps({**config, **options}))
    convert(folder, tmp_path / "model.gguf", weight_type="f32")
    with dualar.load(tmp_path / "model.gguf", threads=1) as engine:
        assert engine.sampling == dualar.SamplingConfig.fish(**options)
        given = engine.synthesize("seven", seed=1, max_new_tokens=9, sampling=dualar.SamplingConfig.fish(**options))
        np.testing.assert_array_equal(engine.synthesize("seven", seed=1, max_new_tokens=9).codes, given.codes)
    (folder / "config.json").write_text(json.dumps({**config, "temperature": -1}))
    with pytest.raises(dualar.ModelError, match="temperature"):
        convert(folder, tmp_path / "other.gguf", weight_type="f32")


def test_a_model_of_phonemes_is_given_phonemes(publish: Callable[..., Path], tmp_path: Path) -> None:
    folder = publish("dual_ar")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "text_frontend": "english"}))
    model, letters = tmp_path / "model.gguf", tmp_path / "letters.gguf"
    convert(folder, model, weight_type="f32")
    (folder / "config.json").write_text(json.dumps(config))
    convert(folder, letters, weight_type="f32")
    text, phonemes = "I paid $5 at 7:30.", "ˌI pˈAd fˈIv dˈɑləɹz æt sˈɛvən θˈɜɹTi."
    lexicon = tmp_path / "own.txt"
    lexicon.write_text("paid pˈIt\n", encoding="utf-8")
    with dualar.load(model, threads=1) as engine, dualar.load(letters, threads=1) as plain:
        assert engine.spoken(text).phonemes == phonemes
        np.testing.assert_array_equal(engine.build_prompt(text), plain.build_prompt(phonemes))
        assert len(engine.narrate("It is. So it is.", max_new_tokens=4, seed=1).pieces) == 1
        with pytest.raises(ValueError, match="expected English, got Greek letters"):
            engine.synthesize("γεια")
        with pytest.raises(ValueError, match="expected something to speak, got only blanks"):
            engine.synthesize("  ")
        with pytest.raises(dualar.ModelError, match=r"reads phonemes, got .*letters\.gguf, which reads letters"):
            plain.spoken(text)
        engine.narrate("It is. So it is.", max_new_tokens=4, seed=1, job=tmp_path / "a.job")
    with dualar.load(model, threads=1, lexicon=lexicon) as engine:
        assert engine.spoken(text).phonemes == phonemes.replace("pˈAd", "pˈIt")
        with pytest.raises(ValueError, match="lexicon"):
            engine.narrate("It is. So it is.", max_new_tokens=4, seed=1, job=tmp_path / "a.job")
    with dualar.load(model, threads=1, lexicon={"paid": "pˈIt"}) as engine:
        assert engine.spoken(text).phonemes == phonemes.replace("pˈAd", "pˈIt")
    with pytest.raises(ValueError, match=r"\[lexicon\] expected none: .*letters\.gguf reads letters"):
        dualar.load(letters, threads=1, lexicon=lexicon)
    shown = CliRunner().invoke(app, ["say", "--phonemes", "-m", str(model), text + " Blorptastic!"])
    assert shown.exit_code == 0 and shown.stdout.startswith(phonemes) and "Blorptastic" in shown.stderr
    shown = CliRunner().invoke(app, ["say", "--phonemes", "--lexicon", str(lexicon), "-m", str(model), text])
    assert shown.stdout == phonemes.replace("pˈAd", "pˈIt") + "\n"
    shown = CliRunner().invoke(app, ["say", "--phonemes", "-m", str(letters), text])
    assert shown.exit_code == 1 and "reads letters" in shown.stderr
    assert "english" in CliRunner().invoke(app, ["info", str(model)]).stdout
    (folder / "config.json").write_text(json.dumps({**config, "text_frontend": "welsh"}))
    with pytest.raises(dualar.ModelError, match=r"\[text_frontend\]"):
        convert(folder, tmp_path / "other.gguf")


def test_all_that_is_wrong_is_told_at_once(publish: Callable[..., Path], tmp_path: Path) -> None:
    folder = publish("dual_ar")
    config = json.loads((folder / "config.json").read_text())
    config |= {"n_head": 3, "n_local_heads": 2, "dim": "64", "rope_base": 0}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(dualar.ModelError) as error:
        convert(folder, tmp_path / "model.gguf")
    for key in ("n_local_heads", "dim", "rope_base"):
        assert f"[{key}]" in str(error.value)
    assert not (tmp_path / "model.gguf").exists()


def test_missing_and_misshapen_tensors(publish: Callable[..., Path], tmp_path: Path) -> None:
    folder = publish("dual_ar")
    content = (folder / "codec.safetensors").read_bytes()
    assert content.count(b"encoder.block.0.conv.bias") == 1
    changed = content.replace(b"encoder.block.0.conv.bias", b"encoder.block.0.conv.bais")
    (folder / "codec.safetensors").write_bytes(changed)
    with pytest.raises(dualar.ModelError, match=r"(?s)encoder\.block\.0\.conv\.bias.*encoder\.block\.0\.conv\.bais"):
        convert(folder, tmp_path / "model.gguf")


def test_semantic_ids_must_be_the_tokenizers(publish: Callable[..., Path], tmp_path: Path) -> None:
    folder = publish("fish_qwen3_omni")
    config = json.loads((folder / "config.json").read_text())
    config["semantic_start_token_id"] += 1
    config["semantic_end_token_id"] += 1
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(dualar.ModelError, match="semantic"):
        convert(folder, tmp_path / "model.gguf")


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors", "codec.safetensors"])
def test_a_missing_file_is_named(publish: Callable[..., Path], tmp_path: Path, name: str) -> None:
    folder = publish("dual_ar")
    (folder / name).unlink()
    with pytest.raises(dualar.ModelError, match=name.split(".")[0]):
        convert(folder, tmp_path / "model.gguf")
