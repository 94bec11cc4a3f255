"""`SpeechRequest`: one request for every verb, and its keywords, which are written down once."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.engine import Engine
from dualar.generation.requests import CodeOptions, CodeRequest, GenerationOptions, GenerationRequest
from dualar.speech.request import SpeechOptions, SpeechRequest

TEXT = "hello there"
SHORT: dict[str, Any] = {"max_new_tokens": 5, "min_tokens_before_end": 5, "seed": 3}


@pytest.mark.parametrize(
    ("keywords", "request_class", "own"),
    [
        (CodeOptions, CodeRequest, set()),
        (GenerationOptions, GenerationRequest, {"prompt"}),
        (SpeechOptions, SpeechRequest, {"text"}),
    ],
)
def test_keywords_are_the_fields_of_the_request(keywords: type, request_class: type, own: set[str]) -> None:
    fields = typing.get_type_hints(request_class)
    assert {field.name for field in dataclasses.fields(request_class)} == set(fields)
    assert {name: fields[name] for name in fields if name not in own} == typing.get_type_hints(keywords)


def test_a_request_speaks_as_its_keywords_do(engine: Engine) -> None:
    request = SpeechRequest(text=TEXT, **SHORT)
    want = engine.synthesize(TEXT, **SHORT)
    for got in (engine.synthesize(request), next(iter(engine.synthesize_batch([request]))).get()):
        np.testing.assert_array_equal(got.codes, want.codes)
        np.testing.assert_array_equal(got.samples, want.samples)
    np.testing.assert_array_equal(engine.build_prompt(request), engine.build_prompt(TEXT))
    pieces = [(p.text, p.seed, p.attempts, p.finish_reason) for p in engine.narrate(request).pieces]
    assert pieces == [(p.text, p.seed, p.attempts, p.finish_reason) for p in engine.narrate(TEXT, **SHORT).pieces]
    with engine.stream(request) as stream:
        np.testing.assert_array_equal(np.concatenate([chunk.codes for chunk in stream], axis=1), want.codes)


def test_keywords_beside_a_request_take_the_place_of_its_own(engine: Engine) -> None:
    request = SpeechRequest(text=TEXT, **SHORT)
    got, want = engine.synthesize(request, seed=4), engine.synthesize(TEXT, **{**SHORT, "seed": 4})
    assert got.seed == 4
    np.testing.assert_array_equal(got.codes, want.codes)
    assert request.seed == 3


def test_an_unknown_keyword_is_a_type_error(engine: Engine) -> None:
    for verb in (engine.synthesize, engine.stream, engine.narrate, engine.narrate_stream, engine.build_prompt):
        with pytest.raises(TypeError, match="colour"):
            verb(TEXT, colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        engine.generate(engine.build_prompt(TEXT), colour="red")  # type: ignore[call-arg]


def test_a_stream_calls_on_frame_and_stops_when_it_says_so(engine: Engine) -> None:
    seen: list[dualar.Frame] = []

    def on_frame(frame: dualar.Frame) -> bool:
        seen.append(frame)
        return len(seen) < 3

    with engine.stream(TEXT, on_frame=on_frame, **SHORT) as stream:
        heard = np.concatenate([chunk.codes for chunk in stream], axis=1)
    assert [frame.index for frame in seen] == [0, 1, 2] and stream.result.finish_reason == "cancelled"
    np.testing.assert_array_equal(heard, np.stack([frame.codes for frame in seen], axis=1))
    np.testing.assert_array_equal(stream.result.codes, heard)


def test_a_voice_is_looked_up_once_and_a_text_is_planned_once(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dualar.narration import speak
    from dualar.narration.plan import plan as plan_text
    from dualar.speech import request as request_module
    from dualar.voices.find import find_voice

    rng = np.random.default_rng(0)
    codes = rng.integers(0, 32, (engine.codec.num_codebooks, 9))
    voice = dualar.Voice(
        codes=codes.astype(np.int32), transcript="well", sample_rate=engine.codec.sample_rate,
        codebook_size=max(engine.codec.codebook_sizes),
    )  # fmt: skip
    voice.save(tmp_path / "anna.voice")
    calls: dict[str, int] = {"voice": 0, "plan": 0}

    def counting(name: str, real: Any) -> Any:
        def counted(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return real(*args, **options)

        return counted

    monkeypatch.setattr(request_module, "find_voice", counting("voice", find_voice))
    monkeypatch.setattr(speak, "plan", counting("plan", plan_text))
    text = "One sentence. " * 3
    config = dualar.NarrationConfig(piece_size=16)
    options: dict[str, Any] = {"voice": tmp_path / "anna.voice", "max_new_tokens": 3, "seed": 1}
    made = engine.narrate(text, config=config, job=tmp_path / "a.job", **options)
    assert len(made.pieces) == 3 and calls == {"voice": 1, "plan": 1}
    engine.synthesize(TEXT, **options)
    assert calls == {"voice": 2, "plan": 1}
    plan = engine.plan(text, config)
    assert plan.is_long and not engine.plan(TEXT).is_long
    again = engine.narrate(text, plan=plan, **options)
    np.testing.assert_array_equal(again.codes, made.codes)
    assert calls == {"voice": 3, "plan": 1}  # the plan was made beforehand


def test_a_plan_of_another_text_or_beside_a_config_is_refused(engine: Engine) -> None:
    plan = engine.plan("One. Two.")
    with pytest.raises(ValueError, match=r"\[narrate.plan\] expected the plan of the text"):
        engine.narrate("One. Three.", plan=plan)
    with pytest.raises(ValueError, match=r"\[narrate.config\] expected none beside a plan"):
        engine.narrate("One. Two.", plan=plan, config=dualar.NarrationConfig())
    with pytest.raises(ValueError, match="something to speak"):
        engine.plan(" \n")
