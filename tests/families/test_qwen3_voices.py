"""Cloning with Qwen3-TTS: the speaker's vector and the recording's codes, kept in a voice and spoken with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.cli.main import app
from dualar.config import SamplingConfig
from fixtures import qwen3
from typer.testing import CliRunner

GREEDY = SamplingConfig.hf(temperature=0)
OPTIONS: dict[str, Any] = {"sampling": GREEDY, "max_new_tokens": 5, "seed": 1}


@pytest.fixture(scope="module")
def engine(qwen3_model: Callable[..., Path]) -> Iterator[dualar.Engine]:
    with dualar.load(qwen3_model("tiny"), threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def clip() -> Any:
    return qwen3.golden("codec12hz_encode_a")


@pytest.fixture(scope="module")
def voice(engine: dualar.Engine, clip: Any) -> dualar.Voice:
    return engine.clone(clip["wav"], "What is said.")


def test_a_clone_has_both(engine: dualar.Engine, voice: dualar.Voice, clip: Any) -> None:
    np.testing.assert_array_equal(voice.codes, clip["codes"].T)
    heard = qwen3.golden("speaker_encoder")
    again = engine.clone(heard["wav"], "What is said.")
    assert again.speaker is not None
    np.testing.assert_allclose(again.speaker, heard["embedding"], atol=2e-5, rtol=0)
    assert voice.fingerprint == engine.codec.fingerprint and voice.sample_rate == 24000


def test_a_batch_goes_on_from_the_recording_too(engine: dualar.Engine, voice: dualar.Voice, clip: Any) -> None:
    voices = [voice, engine.clone(clip["wav"])]
    asked = [dualar.SpeechRequest(text="hello there", voice=v, **OPTIONS) for v in voices]
    for result in engine.synthesize_batch(asked, max_rows=2):
        alone = engine.synthesize("hello there", voice=voices[result.index], **OPTIONS)
        np.testing.assert_array_equal(result.get().codes, alone.codes)
        np.testing.assert_array_equal(result.get().samples, alone.samples)


def test_a_clone_without_a_transcript_is_the_vector_alone(
    engine: dualar.Engine, voice: dualar.Voice, clip: Any, tmp_path: Path
) -> None:
    alone = engine.clone(clip["wav"])
    assert alone.frames == 0 and alone.transcript == "" and alone.speaker is not None and voice.speaker is not None
    np.testing.assert_array_equal(alone.speaker, voice.speaker)
    alone.save(tmp_path / "a.voice")
    loaded = dualar.Voice.load(tmp_path / "a.voice")
    assert loaded.speaker is not None and loaded.codes.shape == (16, 0)
    np.testing.assert_array_equal(loaded.speaker, alone.speaker)
    with pytest.raises(ValueError, match="vector alone"):
        alone.save(tmp_path / "a.s2voice")
    a = engine.synthesize("hello", voice=alone, **OPTIONS)
    b = engine.synthesize("hello", voice=loaded, **OPTIONS)
    np.testing.assert_array_equal(a.samples, b.samples)


def test_without_a_vector_there_must_be_a_recording() -> None:
    fields: dict[str, Any] = {"sample_rate": 24000, "codebook_size": 128}
    with pytest.raises(ValueError, match="T >= 1"):
        dualar.Voice(codes=np.zeros((16, 0), int), transcript="", **fields)
    vector = np.ones(64, np.float32)
    with pytest.raises(ValueError, match="T >= 1"):
        dualar.Voice(codes=np.zeros((16, 0), int), transcript="words", speaker=vector, **fields)
    with pytest.raises(ValueError, match="something to speak"):
        dualar.Voice(codes=np.zeros((16, 2), int), transcript="", speaker=vector, **fields)


def test_the_sound_goes_on_from_the_recordings(engine: dualar.Engine, voice: dualar.Voice) -> None:
    """As the published code has it: the reference's codes are decoded before the new ones, and their sound is cut."""
    audio = engine.synthesize("hello there", voice=voice, **OPTIONS)
    size = engine.codec.samples_per_frame
    whole = engine.codec.decode(np.concatenate([voice.codes, audio.codes], axis=1))
    np.testing.assert_allclose(audio.samples, whole[voice.frames * size :], atol=6e-5, rtol=0)
    assert np.abs(audio.samples - engine.codec.decode(audio.codes)).max() > 1e-3
    with engine.stream("hello there", voice=voice, frames_per_chunk=2, **OPTIONS) as stream:
        streamed = np.concatenate([chunk.samples for chunk in stream])
    np.testing.assert_allclose(streamed, audio.samples, atol=6e-5, rtol=0)


def test_too_short_a_recording(engine: dualar.Engine) -> None:
    with pytest.raises(ValueError, match=r"at least 0\.053 s"):
        engine.clone(np.zeros(100, np.float32), "Words.")


def test_models_that_do_not_clone_say_so(qwen3_model: Callable[..., Path], clip: Any) -> None:
    other = dualar.load(qwen3_model("tiny-eq"), threads=1)
    with pytest.raises(dualar.ModelError, match="not made to clone"):
        other.clone(clip["wav"], "Words.")
    other.close()


def test_s2_needs_a_transcript(toy_model: Path) -> None:
    with dualar.load(toy_model, threads=1) as s2, pytest.raises(ValueError, match="expected a transcript"):
        s2.clone(np.zeros(9000, np.float32))


def test_a_broken_speaker_encoder_is_told_with_the_rest(qwen3_model: Callable[..., Path], tmp_path: Path) -> None:
    from fixtures.gguf_raw import RawGguf

    raw = RawGguf.parse(qwen3_model("tiny").read_bytes())
    gone = {b"speaker.fc.bias", b"codec.pre_conv.conv.bias", b"norm.weight"}
    raw.tensors = [tensor for tensor in raw.tensors if tensor.name not in gone]
    (tmp_path / "x.gguf").write_bytes(raw.write())
    with pytest.raises(dualar.ModelError) as error:
        dualar.load(tmp_path / "x.gguf", threads=1)
    assert all(name.decode() in str(error.value) for name in gone)


def test_the_command_line(
    qwen3_model: Callable[..., Path], clip: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import soundfile

    monkeypatch.setenv("DUALAR_VOICES", str(tmp_path / "voices"))
    wav, model = tmp_path / "a.wav", qwen3_model("tiny")
    soundfile.write(wav, clip["wav"], 24000, subtype="FLOAT")

    def run(*words: object) -> Any:
        return CliRunner().invoke(app, [str(word) for word in words])

    added = run("voice", "add", "anna", wav, "--transcript", "Words.", "-m", model, "--threads", 1)
    assert added.exit_code == 0, added.output
    assert run("voice", "add", "bea", wav, "--no-transcript", "-m", model, "--threads", 1).exit_code == 0
    both = run("voice", "add", "cleo", wav, "--no-transcript", "--transcript", "Words.", "-m", model)
    assert both.exit_code == 2 and "exclude" in both.output
    shown = run("voice", "show", "bea")
    assert "a vector of 64 numbers" in shown.stdout and "a speaker's vector" in run("voice", "list").stdout
    kept = dualar.VoiceStore().get("anna")
    np.testing.assert_array_equal(kept.codes, clip["codes"].T)
    assert kept.speaker is not None
    for name in ("anna", "bea"):
        said = run("say", "Hello.", "--voice", name, "-m", model, "-o", tmp_path / f"{name}.wav", "--threads", 1,
                   "--max-new-tokens", 4, "--seed", 1)  # fmt: skip
        assert said.exit_code == 0, said.output
    refused = run("voice", "add", "dora", wav, "--no-transcript", "-m", qwen3_model("tiny-eq"))
    assert refused.exit_code == 1 and "not made to clone" in refused.output
