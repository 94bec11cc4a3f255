"""What every family must do, whatever its models are like: a new one passes these by being registered.

The models have random weights: what they say is noise, and the same noise however it is asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar import _core
from dualar.cli.main import app
from dualar.families.registry import FAMILIES, family_of, kind_of
from dualar.runtime import open_file
from fixtures.gguf_raw import RawGguf
from typer.testing import CliRunner

from families.conftest import Case
from families.makers import MAKERS

TEXTS = ["One two three.", "Hello.", "A word, and another one."]
Another = Callable[..., dualar.Engine]


def test_every_family_has_a_tiny_model() -> None:
    assert {maker.architecture for maker in MAKERS.values()} == {family.architecture for family in FAMILIES}


# ------------------------------------------------------------------ what a family declares
def test_the_declaration_fits_the_file(case: Case) -> None:
    file = open_file(case.path)
    family = family_of(file)
    assert type(family) is kind_of(case.maker.architecture)
    found = {family.part_of(name) for name, _, _ in file.tensors()}
    assert found <= set(family.parts) and set(family.model_parts) <= found
    assert list(family.parts.values())[-1] == "", "the last part takes the tensors that no other has"
    assert family.parts["Codec"] == _core.codec_tensors(file)
    known = [key for _, keys in family.geometry for key in keys if file.get(key) is not None]
    assert len(known) > 10
    assert case.engine.sampling == family.sampling
    assert family.takes_voice or not case.maker.has_voices


def test_info_shows_its_geometry_and_bench_runs(case: Case) -> None:
    told = CliRunner().invoke(app, ["info", str(case.path)])
    assert told.exit_code == 0, told.output
    family = family_of(open_file(case.path))
    for title in (*family.model_parts, "Codec", "Tokenizer", "Memory"):
        assert f"\n{title}" in told.stdout, title
    assert ("Prefix cache" in told.stdout) == family.keeps_prefixes
    measured = CliRunner().invoke(app, ["bench", str(case.path), "--seconds", "0.1", "--threads", "1", "--quiet"])
    assert measured.exit_code == 0, measured.output


# ------------------------------------------------------------------ one result, however it is asked for
def test_one_seed_is_one_speech(case: Case, another: Another) -> None:
    first = case.engine.synthesize(TEXTS[0], seed=1, **case.options)
    other = case.engine.synthesize(TEXTS[0], seed=2, **case.options)
    again = another().synthesize(TEXTS[0], seed=1, **case.options)
    np.testing.assert_array_equal(again.codes, first.codes)
    np.testing.assert_array_equal(again.samples, first.samples)
    assert not np.array_equal(other.codes, first.codes)
    assert np.isfinite(first.samples).all()
    assert first.samples.size == first.codes.shape[1] * case.engine.codec.samples_per_frame


@pytest.mark.parametrize("threads", [2, 3])
def test_the_number_of_threads_changes_no_bit(case: Case, another: Another, threads: int) -> None:
    one = case.engine.synthesize(TEXTS[2], seed=1, **case.options)
    more = another(threads=threads).synthesize(TEXTS[2], seed=1, **case.options)
    np.testing.assert_array_equal(more.codes, one.codes)
    np.testing.assert_array_equal(more.samples, one.samples)


def test_both_ways_of_the_fast_ar_give_the_same_codes(case: Case, another: Another) -> None:
    cached = another(fast_ar="cached").synthesize(TEXTS[0], seed=1, **case.options)
    recomputed = another(fast_ar="recompute").synthesize(TEXTS[0], seed=1, **case.options)
    np.testing.assert_array_equal(cached.codes, recomputed.codes)


def test_rows_of_a_batch_are_their_requests_alone(case: Case) -> None:
    engine, options = case.engine, case.options
    requests = [dualar.SpeechRequest(text=text, seed=i, **options) for i, text in enumerate(TEXTS)]
    for result in engine.synthesize_batch(requests, max_rows=2):
        alone = engine.synthesize(requests[result.index])
        np.testing.assert_array_equal(result.get().codes, alone.codes)
        np.testing.assert_array_equal(result.get().samples, alone.samples)


@pytest.mark.parametrize("cadence", [1, 4])
def test_a_stream_is_the_whole(case: Case, cadence: int) -> None:
    whole = case.engine.synthesize(TEXTS[0], seed=1, **case.options)
    with case.engine.stream(TEXTS[0], frames_per_chunk=cadence, seed=1, **case.options) as stream:
        samples = np.concatenate([chunk.samples for chunk in stream])
        np.testing.assert_array_equal(stream.result.codes, whole.codes)
    np.testing.assert_allclose(samples, whole.samples, rtol=0, atol=3e-5)


def test_any_number_of_rows_reads_a_long_text_alike(case: Case) -> None:
    text = " ".join(TEXTS)

    def narrated(rows: int) -> Any:
        config = dualar.NarrationConfig(piece_size=16, rows=rows)
        return case.engine.narrate(text, config=config, seed=3, **{**case.options, "max_new_tokens": 40})

    two, three = narrated(2), narrated(3)
    assert len(two.pieces) >= 3
    assert [piece.error for piece in two.pieces] == [piece.error for piece in three.pieces]
    assert len(two.failed) < len(two.pieces), "noise may run on, but some of it ends"
    np.testing.assert_array_equal(two.codes, three.codes)
    np.testing.assert_array_equal(two.samples, three.samples)


def test_a_kept_prefix_is_a_fresh_one(case: Case, another: Another) -> None:
    if not case.maker.has_voices:
        pytest.skip("this kind of model takes no voices")
    keeping, fresh = another(), another(prefix_cache_bytes=0)
    for seed in range(2):
        options = {**case.options, "voice": case.maker.voice(case.engine, seed)}
        for text in TEXTS[:2]:
            kept = keeping.synthesize(text, seed=seed, **options)
            np.testing.assert_array_equal(kept.codes, fresh.synthesize(text, seed=seed, **options).codes)
    keeps = family_of(open_file(case.path)).keeps_prefixes
    assert sum(entry.uses for entry in keeping.prefix_cache.entries) == (2 if keeps else 0)


def test_a_session_goes_on_from_a_snapshot(case: Case) -> None:
    model = case.engine.model
    prompt: Any = case.engine.build_prompt(TEXTS[2], **case.maker.options(case.engine))
    options = {"max_positions": prompt.shape[1] + 8}
    before = model.session(**options)
    before.prefill(prompt)
    kept = before.snapshot()
    after = model.session(**options)
    after.restore(kept)
    column = np.array([model.semantic_begin_id + 1, *range(1, 1 + model.num_codebooks)], np.int32)
    column[1] = 1
    if not family_of(open_file(case.path)).keeps_prefixes:  # its prompts have text that lies over later steps
        with pytest.raises(ValueError, match="expected a prompt first"):
            after.step(column)
        return
    for _ in range(3):
        got, wanted = after.step(column), before.step(column)
        np.testing.assert_array_equal(got.logits, wanted.logits)
        np.testing.assert_array_equal(got.hidden, wanted.hidden)


# ------------------------------------------------------------------ ends and errors
def test_a_request_that_is_cancelled_leaves_the_others_alone(case: Case) -> None:
    heard: list[int] = []

    def stop(frame: dualar.Frame) -> bool:
        heard.append(frame.index)
        return len(heard) < 3

    cancelled = case.engine.synthesize(TEXTS[0], seed=1, on_frame=stop, **case.options)
    whole = case.engine.synthesize(TEXTS[0], seed=1, **case.options)
    assert cancelled.finish_reason == "cancelled" and heard == [0, 1, 2]
    np.testing.assert_array_equal(cancelled.codes, whole.codes[:, :3])


def test_a_runaway_is_a_stall(case: Case) -> None:
    request = dualar.GenerationRequest(
        prompt=case.engine.build_prompt(TEXTS[0], **case.maker.options(case.engine)),
        seed=1,
        sampling=dualar.SamplingConfig.hf(),
        max_new_tokens=60,
        min_tokens_before_end=5,
        text_tokens=3,
        stall_guard=dualar.StallGuard(min_frames=5, frames_per_text_token=0.01),
    )
    made = next(iter(case.engine.generate_batch([request]))).get()
    assert made.finish_reason == "stalled" and made.codes.shape[1] == 5


@pytest.mark.parametrize("change", ["rows", "type", "empty", "high", "low"])
def test_columns_that_do_not_fit_are_the_callers_fault(case: Case, change: str) -> None:
    model = case.engine.model
    prompt: Any = case.engine.build_prompt(TEXTS[1], **case.maker.options(case.engine))
    columns = np.array(prompt if isinstance(prompt, np.ndarray) else prompt.columns)
    if change == "rows":
        columns = columns[:-1]
    elif change == "type":
        columns = columns.astype(np.float32)
    elif change == "empty":
        columns = columns[:, :0]
    else:
        columns[-1, 0] = model.codebook_size if change == "high" else -7
    wrong = columns if isinstance(prompt, np.ndarray) else dataclasses.replace(prompt, columns=columns)
    with pytest.raises((ValueError, TypeError), match="expected"):
        case.engine.generate(wrong, max_new_tokens=2, sampling=dualar.SamplingConfig.hf())


def test_styles_that_a_family_lacks_are_refused(case: Case) -> None:
    wrong: dict[str, Any] = {"speaker": "nobody at all", "language": "klingon", "instruct": "softly"}
    refused = 0
    for name, value in wrong.items():
        try:
            case.engine.build_prompt(TEXTS[0], **{**case.maker.options(case.engine), name: value})
        except ValueError as error:
            assert f"[{name}]" in str(error)
            refused += 1
    assert refused >= 2  # a kind of model may take one of them


def test_a_file_that_lacks_a_tensor_names_it(case: Case, tmp_path: Path) -> None:
    data = case.path.read_bytes()
    names = [tensor.name.decode() for tensor in RawGguf.parse(data).tensors]
    told = 0
    for name in names[:: max(1, len(names) // 12)]:
        raw = RawGguf.parse(data)
        raw.tensors = [tensor for tensor in raw.tensors if tensor.name.decode() != name]
        (tmp_path / "x.gguf").write_bytes(raw.write())
        with pytest.raises(dualar.ModelError) as error:
            dualar.load(tmp_path / "x.gguf", threads=1).close()
        assert f"{name}: expected" in str(error.value) and "missing" in str(error.value), str(error.value)[:300]
        told += 1
    assert told >= 10


def test_a_file_that_lacks_a_key_is_refused_or_sound(case: Case, tmp_path: Path) -> None:
    data = case.path.read_bytes()
    keys = [key.name.decode() for key in RawGguf.parse(data).keys]
    refused = 0
    for name in keys[::2]:
        raw = RawGguf.parse(data)
        raw.keys = [key for key in raw.keys if key.name.decode() != name]
        (tmp_path / "x.gguf").write_bytes(raw.write())
        try:
            dualar.load(tmp_path / "x.gguf", threads=1).close()
        except dualar.ModelError as error:
            assert name in str(error) or name.startswith(("tokenizer.", "general.")), str(error)[:300]
            refused += 1
    assert refused >= 5
