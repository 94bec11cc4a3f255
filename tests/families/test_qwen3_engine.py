"""Qwen3-TTS behind the engine and the command line: who may be asked for what, and the defaults of each family."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar import _core
from dualar.cli.main import app
from dualar.config import FishSampling, HFSampling, SamplingConfig
from dualar.convert.model_file import convert
from dualar.families.qwen3_prompt import TalkerPrompt
from dualar.sampling.chains import sample
from fixtures import qwen3
from typer.testing import CliRunner

GREEDY = SamplingConfig.hf(temperature=0)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], dualar.Engine]]:
    """An engine of each kind of model: the tiny checkpoints, described as what they are not."""
    made: dict[str, dualar.Engine] = {}
    sizes = {"base": ("tiny", "base", "1b7"), "design": ("tiny", "voice_design", "1b7")}
    sizes |= {"small": ("tiny-eq", "custom_voice", "0b6"), "large": ("tiny-eq", "custom_voice", "1b7")}

    def get(name: str) -> dualar.Engine:
        if name not in made:
            checkpoint, kind, size = sizes[name]
            folder = qwen3.checkpoint_folder(checkpoint, tmp_path_factory.mktemp(name) / "checkpoint")
            config = json.loads((folder / "config.json").read_text())
            config |= {"tts_model_type": kind, "tts_model_size": size}
            (folder / "config.json").write_text(json.dumps(config))
            if kind != "base":  # the only kind with a speaker encoder
                weights = folder / "model.safetensors"
                tensors = qwen3.read_f32(weights)
                kept = {n: tensors[n] for n in tensors if not n.startswith("speaker_encoder.")}
                qwen3.write_safetensors(weights, kept)
            convert(folder, folder.parent / "model.gguf", weight_type="f32")
            made[name] = dualar.load(folder.parent / "model.gguf", threads=1)
        return made[name]

    yield get
    for engine in made.values():
        engine.close()


def voice_of(arrays: Any, *, speaker: bool = True) -> dualar.Voice:
    return dualar.Voice(
        codes=arrays["ref_code"].T,
        transcript=arrays["ref_utf8"].tobytes().decode(),
        sample_rate=24000,
        codebook_size=128,
        speaker=arrays["speaker_embedding"] if speaker else None,
    )


def test_the_family_is_the_files(kinds: Callable[[str], dualar.Engine], engine: dualar.Engine) -> None:
    assert isinstance(kinds("base").model, _core.Qwen3TTS)
    assert kinds("base").sampling == HFSampling()
    assert isinstance(engine.model, _core.DualAR)
    assert engine.sampling == FishSampling()
    assert engine.model.num_codebooks != kinds("base").model.num_codebooks == 16


def test_golden_speech_by_name(kinds: Callable[[str], dualar.Engine]) -> None:
    case = qwen3.GENERATIONS[6]
    arrays, small = case.arrays(), kinds("small")
    prompt = small.build_prompt(arrays["text_utf8"].tobytes().decode(), speaker="Serena", language="Japanese")
    made = small.generate(prompt, sampling=GREEDY)
    assert np.array_equal(made.codes, arrays["codes"].T)
    assert made.finish_reason == "end"


def test_golden_speech_with_a_cloned_voice(kinds: Callable[[str], dualar.Engine]) -> None:
    arrays, base = qwen3.GENERATIONS[1].arrays(), kinds("base")
    text = arrays["text_utf8"].tobytes().decode()
    prompt = base.build_prompt(text, voice=voice_of(arrays), language="english")
    assert np.array_equal(base.generate(prompt, sampling=GREEDY, max_new_tokens=24).codes, arrays["codes"].T)


def test_golden_speech_by_description(kinds: Callable[[str], dualar.Engine]) -> None:
    arrays, design = qwen3.GENERATIONS[3].arrays(), kinds("design")
    text, instruct = (arrays[f"{name}_utf8"].tobytes().decode() for name in ("text", "instruct"))
    prompt = design.build_prompt(text, instruct=instruct)
    assert np.array_equal(design.generate(prompt, sampling=GREEDY, max_new_tokens=24).codes, arrays["codes"].T)


VOICE = "a voice"


@pytest.mark.parametrize(
    "kind, options, expected",
    [
        ("base", {}, "[voice] expected a voice"),
        ("base", {"voice": VOICE, "speaker": "ryan"}, "[speaker] expected none"),
        ("base", {"voice": VOICE, "instruct": "softly"}, "[instruct] expected none"),
        ("base", {"voice": VOICE, "language": "klingon"}, "[language] expected auto or one of chinese"),
        ("design", {"voice": VOICE}, "[voice] expected none"),
        ("design", {"speaker": "ryan"}, "[speaker] expected none"),
        ("small", {}, "[speaker] expected one of aiden, dylan"),
        ("small", {"voice": VOICE, "speaker": "ryan"}, "[voice] expected none"),
        ("small", {"speaker": "ryan", "instruct": "softly"}, "of the 0.6B size"),
        ("small", {"speaker": "anna"}, "[speaker] expected one of aiden"),
    ],
)
def test_rules(kind: str, options: dict[str, Any], expected: str, kinds: Callable[[str], dualar.Engine]) -> None:
    voice = voice_of(qwen3.GENERATIONS[1].arrays())
    given: dict[str, Any] = {k: voice if v is VOICE else v for k, v in options.items()}
    with pytest.raises(ValueError) as error:
        kinds(kind).build_prompt("hello", **given)
    assert expected in str(error.value)


def test_what_the_rules_allow(kinds: Callable[[str], dualar.Engine]) -> None:
    assert isinstance(kinds("large").build_prompt("hello", speaker="ryan", instruct="softly"), TalkerPrompt)
    assert isinstance(kinds("design").build_prompt("hello"), TalkerPrompt)
    without = voice_of(qwen3.GENERATIONS[1].arrays(), speaker=False)
    with pytest.raises(ValueError, match="speaker's vector"):
        kinds("base").build_prompt("hello", voice=without)


def test_s2_models_have_none_of_these_options(engine: dualar.Engine) -> None:
    for name in ("language", "speaker", "instruct"):
        options: dict[str, Any] = {name: "x"}
        with pytest.raises(ValueError, match=rf"\[{name}\] expected none.*fish-speech.*got 'x'"):
            engine.build_prompt("hello", **options)
        with pytest.raises(ValueError, match=rf"\[{name}\]"):
            engine.synthesize("hello", **options)
        with pytest.raises(ValueError, match=rf"\[{name}\]"):
            engine.stream("hello", **options)


def test_prompts_do_not_cross(kinds: Callable[[str], dualar.Engine], engine: dualar.Engine) -> None:
    prompt = kinds("design").build_prompt("hello")
    with pytest.raises(ValueError, match="got a TalkerPrompt"):
        engine.generate(prompt)
    with pytest.raises(ValueError, match="expected a TalkerPrompt, got ndarray"):
        kinds("design").generate(engine.build_prompt("hello"))


def test_two_frames_come_before_the_end(kinds: Callable[[str], dualar.Engine]) -> None:
    design = kinds("design")
    prompt = design.build_prompt("hello")
    lengths = {design.generate(prompt, seed=seed, max_new_tokens=3).codes.shape[1] for seed in range(5)}
    assert min(lengths) >= 2
    assert design.generate(prompt, seed=1, max_new_tokens=1, min_tokens_before_end=0).codes.shape[1] <= 1


def test_the_end_is_the_models_own(qwen3_model: Callable[[str], Path]) -> None:
    with pytest.raises(ValueError, match=r"\[im_end_id\] expected None.*got 7"):
        dualar.load(qwen3_model("tiny"), im_end_id=7)


def test_published_defaults_are_the_files(tmp_path: Path) -> None:
    folder = qwen3.checkpoint_folder("tiny", tmp_path / "checkpoint")
    settings = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2}
    settings |= {"subtalker_dosample": False, "subtalker_temperature": 0.5, "subtalker_top_k": 20}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    convert(folder, tmp_path / "model.gguf")
    with dualar.load(tmp_path / "model.gguf", threads=1) as engine:
        found = engine.sampling
    want = {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2, "residual_temperature": 0.0}
    for name, value in want.items():
        assert getattr(found, name) == pytest.approx(value), name
    assert found.residual.temperature == 0 and found.residual.top_k == 20
    # A residual code is then the likeliest, a main one is drawn.
    logits = np.random.default_rng(0).standard_normal((1, 50)).astype(np.float32)
    drawn = [
        {int(sample(logits, found, seed=seed, step=0, stream=stream)[0]) for seed in range(50)} for stream in (0, 1)
    ]
    assert len(drawn[0]) > 1 and drawn[1] == {int(logits.argmax())}


def test_voice_files_keep_the_speaker(tmp_path: Path) -> None:
    voice = voice_of(qwen3.GENERATIONS[1].arrays())
    voice.save(tmp_path / "a.voice")
    found = dualar.Voice.load(tmp_path / "a.voice")
    assert found.speaker is not None and voice.speaker is not None and np.array_equal(found.speaker, voice.speaker)
    assert not found.speaker.flags.writeable
    wrong: tuple[Any, ...] = (np.zeros(0), np.full(3, np.nan), np.zeros((2, 2)), "x", [None], [10**400], {})
    for bad in wrong:
        with pytest.raises(ValueError, match="speaker's vector"):
            dualar.Voice(
                codes=voice.codes,
                transcript="x",
                sample_rate=24000,
                codebook_size=128,
                speaker=bad,
            )


# ------------------------------------------------------------------------------------------------ the command line


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    return result.exit_code, result.output + result.stderr


def test_info(qwen3_model: Callable[[str], Path]) -> None:
    code, text = run("info", qwen3_model("tiny-eq"))
    assert code == 0, text
    for part in ("custom_voice, of size 0b6", "Talker", "Predictor", "ryan", "english", "3 layers", "in F32"):
        assert part in text
    code, text = run("info", qwen3_model("tiny"))
    assert code == 0 and "Speaker encoder types " in text
    assert "Speakers" not in text and "[]" not in text


def test_say_refuses_what_a_family_lacks(toy_model: Path, tmp_path: Path) -> None:
    for option in ("--language", "--speaker", "--instruct"):
        code, text = run("say", "Hello.", "-m", toy_model, "-o", tmp_path / "x.wav", option, "x")
        assert code == 2 and f"[{option[2:]}] expected none" in text
    assert not (tmp_path / "x.wav").exists()
