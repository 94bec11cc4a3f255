"""Voices in an engine: the codec's fingerprint, cloning, and `voice=` as the prompt's reference."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from conftest import Golden
from dualar.codec.codec import Codec
from dualar.engine import Engine
from dualar.families.s2_prompt import build_prompt
from dualar.voices.clone import clone_voice
from dualar.voices.store import VoiceStore
from dualar.voices.voice import Reference, Voice
from fixtures.make_toy_model import write_toy_model

TEXT = "hello there"
SHORT: dict[str, Any] = {"max_new_tokens": 6, "min_tokens_before_end": 6}


@pytest.fixture(scope="module")
def clip(engine: Engine) -> np.ndarray:
    rng = np.random.default_rng(3)
    return (0.1 * rng.standard_normal(5 * engine.codec.samples_per_frame - 7)).astype(np.float32)


@pytest.fixture(scope="module")
def voice(engine: Engine, clip: np.ndarray) -> Voice:
    return engine.clone(clip, "so it goes")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VoiceStore:
    monkeypatch.setenv("DUALAR_VOICES", str(tmp_path / "voices"))
    return VoiceStore()


# ------------------------------------------------------------------ fingerprint
def rewritten(source: Path, target: Path, *, change: str = "", half: bool = False, decoy: bool = False) -> Path:
    """The file's codec alone, with another value in the tensor `change`, or other types, keys and alignment."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, arch="fish-speech")
    tensors = [tensor for tensor in reader.tensors if tensor.name.startswith("c.")]
    if decoy:  # the text of a tensor's entry in the metadata, and another alignment
        writer.add_custom_alignment(128)
        tensors.sort(key=lambda tensor: not tensor.name.endswith("codebook.weight"))
        writer.add_string("note", tensors[0].name)
        writer.add_bool("ab", True)  # a length of 2, as the number of dimensions is
    for name, field in reader.fields.items():
        if name.startswith("fish_speech.codec."):
            sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub_type)
    changed = 0
    for tensor in tensors:
        data = np.array(tensor.data)
        if tensor.name == change:
            data.flat[-1] += 0.5
            changed += 1
        if half and tensor.name.endswith("codebook.weight"):
            data = data.astype(np.float16)
        writer.add_tensor(tensor.name, data)
    assert changed == bool(change)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def fingerprint(path: Path) -> str:
    found = Codec.load(path, threads=1).fingerprint
    assert found is not None
    return found


def expected_fingerprint(path: Path, codec: Codec) -> str:
    """By another reader, the gguf package's."""
    digest = hashlib.sha256(repr([codec.sample_rate, codec.samples_per_frame, *codec.codebook_sizes]).encode())
    for tensor in sorted(gguf.GGUFReader(path).tensors, key=lambda tensor: tensor.name):
        if tensor.name.startswith("c.quantizer.") and tensor.name.endswith(".codebook.weight"):
            digest.update(f"{tensor.name} {list(map(int, reversed(tensor.shape)))} ".encode())
            digest.update(tensor.data.astype(np.float16).tobytes())
    return "c1-" + digest.hexdigest()[:32]


@pytest.mark.parametrize("name", ["s2-tiny", "s2-variant", "s2-edge"])
def test_fingerprint_is_the_hash_of_the_codebooks(golden: Callable[[str], Golden], name: str) -> None:
    path = golden(name).gguf
    codec = Codec.load(path, threads=1)
    assert codec.fingerprint == expected_fingerprint(path, codec)


def test_one_codec_has_one_fingerprint_in_any_file(toy_model: Path, tmp_path: Path, engine: Engine) -> None:
    whole = engine.codec.fingerprint
    assert whole is not None and len(whole) == 35
    assert fingerprint(rewritten(toy_model, tmp_path / "codec.gguf")) == whole
    assert fingerprint(rewritten(toy_model, tmp_path / "decoy.gguf", decoy=True)) == whole
    assert fingerprint(rewritten(toy_model, tmp_path / "half.gguf", half=True)) == whole
    write_toy_model(tmp_path / "types.gguf", weight_type="F16", codec_type="F16")
    assert fingerprint(tmp_path / "types.gguf") == whole


def test_another_codec_has_another_fingerprint(toy_model: Path, tmp_path: Path, engine: Engine) -> None:
    seen = {engine.codec.fingerprint}
    names = [tensor.name for tensor in gguf.GGUFReader(toy_model).tensors if tensor.name.endswith("codebook.weight")]
    assert len(names) == 10
    for name in names:
        seen.add(fingerprint(rewritten(toy_model, tmp_path / "changed.gguf", change=name)))
    write_toy_model(tmp_path / "seed.gguf", seed=1)
    seen.add(fingerprint(tmp_path / "seed.gguf"))
    assert len(seen) == 12


# ------------------------------------------------------------------ clone
def test_clone_encodes(engine: Engine, clip: np.ndarray, voice: Voice) -> None:
    codec = engine.codec
    np.testing.assert_array_equal(voice.codes, codec.encode(clip))
    assert voice.codes.shape == (codec.num_codebooks, 5) and voice.transcript == "so it goes"
    assert (voice.sample_rate, voice.samples_per_frame) == (codec.sample_rate, codec.samples_per_frame)
    assert voice.codebook_size == 128 and voice.fingerprint == codec.fingerprint and voice.name is None


def test_clone_takes_files_and_rates(engine: Engine, clip: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    from dualar.audio.wav import write_wav

    write_wav(path, clip, 22050, subtype="FLOAT")
    expected = engine.codec.encode(clip, sample_rate=22050)
    for made in (
        engine.clone(path, "so"),
        engine.clone(str(path), "so"),
        engine.clone(path.read_bytes(), "so"),
        engine.clone(clip, "so", sample_rate=22050),
    ):
        np.testing.assert_array_equal(made.codes, expected)
    with pytest.raises(ValueError, match="with samples alone, got 22050"):
        engine.clone(path, "so", sample_rate=22050)
    with pytest.raises(FileNotFoundError):
        engine.clone(tmp_path / "none.wav", "so")
    with pytest.raises(ValueError, match="got no samples"):
        engine.clone(clip[:0], "so")
    for transcript, words in (("", "no text"), ("<|speaker:0|>", "only speaker tags")):
        with pytest.raises(ValueError, match=words):
            engine.clone(clip, transcript)


# ------------------------------------------------------------------ voice=
def test_a_voice_is_the_reference_of_the_prompt(engine: Engine, voice: Voice) -> None:
    model = engine.model
    prompt = engine.build_prompt(TEXT, voice=voice)
    expected = build_prompt(
        TEXT,
        tokenizer=engine.tokenizer,
        num_codebooks=model.num_codebooks,
        codebook_size=model.codebook_size,
        semantic_begin_id=model.semantic_begin_id,
        reference=Reference(voice.codes, voice.transcript),
    )
    np.testing.assert_array_equal(prompt, expected)
    assert prompt.shape[1] > engine.build_prompt(TEXT).shape[1] + 5


def test_every_way_to_name_a_voice_gives_its_speech(
    engine: Engine, voice: Voice, store: VoiceStore, tmp_path: Path
) -> None:
    store.add("anna", voice)
    voice.save(tmp_path / "a.voice")
    voice.save(tmp_path / "a.s2voice")
    expected = engine.generate(engine.build_prompt(TEXT, voice=voice), seed=4, **SHORT).codes
    without = engine.synthesize(TEXT, seed=4, **SHORT).codes
    assert not np.array_equal(expected, without)
    for named in (voice, "anna", tmp_path / "a.voice", str(tmp_path / "a.s2voice")):
        np.testing.assert_array_equal(engine.synthesize(TEXT, voice=named, seed=4, **SHORT).codes, expected)
        with engine.stream(TEXT, voice=named, seed=4, **SHORT) as stream:
            codes = np.concatenate([chunk.codes for chunk in stream], axis=1)
        np.testing.assert_array_equal(codes, expected)


def test_voices_do_not_mix(engine: Engine, voice: Voice, clip: np.ndarray) -> None:
    other = engine.clone(clip[::-1].copy(), "quite another thing")
    said = [engine.synthesize(TEXT, voice=v, seed=4, **SHORT).codes.tobytes() for v in (voice, voice, other, voice)]
    assert said[0] == said[1] == said[3] != said[2]


def test_an_unknown_voice_is_an_error_before_anything_is_computed(engine: Engine, store: VoiceStore) -> None:
    with pytest.raises(ValueError, match="got 'bob'"):
        engine.synthesize(TEXT, voice="bob")
    with pytest.raises(ValueError, match="got 'bob'"):
        engine.stream(TEXT, voice="bob")
    with pytest.raises(TypeError, match="a Voice, a name or a path"):
        engine.build_prompt(TEXT, voice=3)  # type: ignore[arg-type]


def test_a_voice_of_another_codec_is_refused(
    engine: Engine, voice: Voice, tmp_path: Path, golden: Callable[[str], Golden]
) -> None:
    write_toy_model(tmp_path / "other.gguf", seed=1)
    codec = Codec.load(tmp_path / "other.gguf", threads=1)
    twin = clone_voice(codec, np.zeros(5000, np.float32), "so", name="twin")
    with pytest.raises(ValueError, match="expected a voice for the codec of ") as caught:
        engine.synthesize(TEXT, voice=twin)
    for part in (engine.path, "'twin' for another", str(twin.fingerprint), str(engine.codec.fingerprint)):
        assert part in str(caught.value)
    twin.save(tmp_path / "twin.s2voice")  # which has no fingerprint: the geometry alone is checked, and that fits
    assert engine.build_prompt(TEXT, voice=tmp_path / "twin.s2voice").shape[1] > 0
    fields: dict[str, Any] = {"transcript": "so", "codebook_size": 128, "sample_rate": 44100}
    for change, codebooks in (({"codebook_size": 129}, 10), ({"sample_rate": 22050}, 10), ({}, 9),
                              ({"samples_per_frame": 512}, 10)):  # fmt: skip
        wrong = Voice(codes=np.zeros((codebooks, 2), int), **{**fields, **change})
        for verb in (engine.synthesize, engine.stream, engine.build_prompt):
            with pytest.raises(ValueError, match="got one for another"):
                verb(TEXT, voice=wrong)
