"""Long texts with the toy model: the same whole however it is made - at once, as a stream, in several runs."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.engine import Engine
from dualar.narration.config import NarrationConfig
from dualar.narration.job import model_fingerprint, settled_samples
from dualar.narration.result import Narration, NarrationResult
from dualar.speech.request import SpeechOptions
from fixtures.make_toy_model import write_toy_model

TEXT = "The kettle is on. Do we have milk?\n\nNone, he said. <|speaker:1|>Good."
CONFIG = NarrationConfig(piece_size=20, context_tokens=120)
# The toy model ends at once after earlier turns: it counts frames in all of its context.
OPTIONS: dict[str, Any] = {"seed": 3, "config": CONFIG, "min_tokens_before_end": 8, "max_new_tokens": 60}
COUNT = 4


@pytest.fixture(scope="module")
def whole(engine: Engine) -> Narration:
    return engine.narrate(TEXT, **OPTIONS)


def assert_same(got: Narration, wanted: Narration) -> None:
    np.testing.assert_array_equal(got.samples, wanted.samples)
    np.testing.assert_array_equal(got.codes, wanted.codes)
    assert_same_pieces(got, wanted)


def assert_same_pieces(got: NarrationResult, wanted: NarrationResult) -> None:
    def told(result: NarrationResult) -> list[tuple[Any, ...]]:
        return [
            (p.index, p.text, p.start, p.ends, p.codes.tolist(), p.seed, p.attempts, p.finish_reason, p.error,
             p.padded_frames, p.sample_start, p.sample_count)
            for p in result.pieces
        ]  # fmt: skip

    assert told(got) == told(wanted) and got.seed == wanted.seed


# ------------------------------------------------------------------ what comes out
def test_the_whole_is_its_pieces_and_pauses(engine: Engine, whole: Narration) -> None:
    assert len(whole.pieces) == COUNT and "".join(piece.text for piece in whole.pieces) == TEXT
    assert not whole.failed and not whole.cancelled
    expected = np.zeros(whole.pieces[-1].sample_start + whole.pieces[-1].sample_count, np.float32)
    for piece in whole.pieces:
        assert piece.sample_count == piece.codes.shape[1] * engine.codec.samples_per_frame >= 8
        end = piece.sample_start + piece.sample_count
        expected[piece.sample_start : end] = engine.codec.decode(piece.codes)
    assert whole.samples.dtype == np.float32
    np.testing.assert_allclose(whole.samples, expected, rtol=0, atol=3e-5)
    np.testing.assert_array_equal(whole.codes, np.concatenate([piece.codes for piece in whole.pieces], axis=1))
    assert whole.duration == whole.samples.size / 44100
    assert whole.timings.prefill_ms > 0 and whole.timings.loop_ms > 0 and whole.timings.real_time_factor is not None


def test_the_same_seed_the_same_samples_whatever_ran_before(engine: Engine, whole: Narration) -> None:
    other = engine.narrate(TEXT, **{**OPTIONS, "seed": 4})
    assert other.codes.shape != whole.codes.shape or not np.array_equal(other.codes, whole.codes)
    assert_same(engine.narrate(TEXT, **OPTIONS), whole)


def test_context_is_heard(engine: Engine, whole: Narration) -> None:
    alone = engine.narrate(TEXT, **{**OPTIONS, "config": NarrationConfig(piece_size=20, context_tokens=0)})
    np.testing.assert_array_equal(alone.pieces[0].codes, whole.pieces[0].codes)
    assert not np.array_equal(alone.codes, whole.codes)


def test_one_piece_is_what_synthesize_says(engine: Engine) -> None:
    audio = engine.synthesize("hello there.\n", seed=9)
    narration = engine.narrate("hello there.\n", seed=9)
    np.testing.assert_array_equal(narration.codes, audio.codes)
    np.testing.assert_allclose(narration.samples, audio.samples, rtol=0, atol=3e-5)
    assert narration.audio.finish_reason == "end" and narration.audio.samples is narration.samples


def test_a_voice_speaks_each_piece(engine: Engine) -> None:
    rng = np.random.default_rng(3)
    voice = engine.clone((0.1 * rng.standard_normal(9 * 2048)).astype(np.float32), "so it goes")
    options = {**OPTIONS, "config": NarrationConfig(piece_size=20, context_tokens=0)}
    spoken = engine.narrate(TEXT, voice=voice, **options)
    assert len(spoken.failed) < COUNT
    for piece in spoken.pieces:
        if piece.error is not None:
            continue
        audio = engine.synthesize(
            piece.text if piece.ends == "text" else piece.text.rstrip(), voice=voice, seed=piece.seed,
            max_new_tokens=60, min_tokens_before_end=8,
        )  # fmt: skip
        np.testing.assert_array_equal(piece.codes, audio.codes)


def test_saving(whole: Narration, tmp_path: Path) -> None:
    whole.save(tmp_path / "a.wav")
    whole.audio.save(tmp_path / "b.wav")
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()
    samples, _ = dualar.read_audio(tmp_path / "a.wav")
    np.testing.assert_allclose(samples, whole.samples, rtol=0, atol=2.0**-14)


# ------------------------------------------------------------------ streams
@pytest.mark.parametrize("cadence", [None, 3, (1, 50)])
def test_a_stream_is_the_whole(engine: Engine, whole: Narration, cadence: Any) -> None:
    options = {} if cadence is None else {"frames_per_chunk": cadence}
    with engine.narrate_stream(TEXT, **OPTIONS, **options) as stream:
        chunks = list(stream)
    joined = np.concatenate([chunk.samples for chunk in chunks])
    if cadence is None:
        np.testing.assert_array_equal(joined, whole.samples)
    np.testing.assert_allclose(joined, whole.samples, rtol=0, atol=3e-5)
    np.testing.assert_array_equal(np.concatenate([chunk.codes for chunk in chunks], axis=1), whole.codes)
    frame = 0
    for chunk in chunks:
        assert chunk.frame_index == frame
        frame += chunk.codes.shape[1]
    assert sum(chunk.codes.shape[1] == 0 and not chunk.samples.any() for chunk in chunks) == COUNT - 1  # pauses
    assert_same_pieces(stream.result, whole)
    assert stream.result.timings.first_audio_ms is not None


def test_a_stream_that_is_left_stops(engine: Engine) -> None:
    with engine.narrate_stream(TEXT * 20, **{**OPTIONS, "config": NarrationConfig(piece_size=20)}) as stream:
        next(stream)
    assert stream.result.cancelled and len(stream.result.pieces) < 60
    gc.collect()


def test_an_error_comes_after_the_chunks_before_it(engine: Engine) -> None:
    def fail(progress: Any) -> None:
        if progress.done == 2:
            raise RuntimeError("enough")

    stream = engine.narrate_stream(TEXT, on_piece=fail, **OPTIONS)
    frames = 0
    with pytest.raises(RuntimeError, match="enough"), stream:
        for chunk in stream:
            frames += chunk.codes.shape[1]
    assert frames >= 8


# ------------------------------------------------------------------ jobs
def until(done: int) -> dict[str, Any]:
    return {"on_piece": lambda progress: progress.done < done}


@pytest.mark.parametrize("stops", [[1], [2, 3], [COUNT]])
def test_a_job_continued_is_a_job_done_at_once(
    engine: Engine, whole: Narration, tmp_path: Path, stops: list[int]
) -> None:
    job = tmp_path / "a.job"
    for stop in stops:
        got = engine.narrate(TEXT, job=job, **OPTIONS, **until(stop))
        assert len(got.pieces) == stop and got.cancelled == (stop < COUNT)
    assert_same(engine.narrate(TEXT, job=job, **{**OPTIONS, "seed": None}), whole)
    assert len(job.read_bytes().splitlines()) == 1 + COUNT
    with engine.narrate_stream(TEXT, job=job, **OPTIONS) as stream:
        samples = np.concatenate([chunk.samples for chunk in stream])
    np.testing.assert_array_equal(samples, whole.samples)
    assert stream.result.timings.loop_ms == 0
    ends = settled_samples(job, retries=1)
    assert ends == [piece.sample_start + piece.sample_count for piece in whole.pieces]
    with engine.narrate_stream(TEXT, job=job, first_sample=ends[1], **OPTIONS) as stream:
        rest = np.concatenate([chunk.samples for chunk in stream])
    np.testing.assert_array_equal(rest, whole.samples[ends[1] :])
    stream = engine.narrate_stream(TEXT, job=job, first_sample=ends[1] - 1, **OPTIONS)
    with stream, pytest.raises(ValueError, match="at the end of a piece"):
        list(stream)


def test_a_piece_cut_short_while_it_was_written_is_made_again(engine: Engine, whole: Narration, tmp_path: Path) -> None:
    job = tmp_path / "a.job"
    engine.narrate(TEXT, job=job, **OPTIONS)
    data = job.read_bytes()
    lines = data.splitlines(keepends=True)
    for cut in (len(data) - 1, len(data) - len(lines[-1]) // 2, len(data) - len(lines[-1])):
        job.write_bytes(data[:cut])
        assert_same(engine.narrate(TEXT, job=job, **OPTIONS), whole)
        assert job.read_bytes() == data


def test_a_cancelled_piece_is_not_in_the_job(engine: Engine, whole: Narration, tmp_path: Path) -> None:
    job, seen = tmp_path / "a.job", []

    def on_frame(frame: Any) -> bool:
        seen.append(frame)
        return bool(len(seen) < whole.pieces[0].codes.shape[1] + 3)

    got = engine.narrate(TEXT, job=job, on_frame=on_frame, **OPTIONS)
    assert got.cancelled and len(got.pieces) == 1 and len(job.read_bytes().splitlines()) == 2
    np.testing.assert_array_equal(got.samples, whole.samples[: got.samples.size])
    assert_same(engine.narrate(TEXT, job=job, **OPTIONS), whole)


def test_pieces_that_failed_are_tried_again_where_more_attempts_are_allowed(engine: Engine, tmp_path: Path) -> None:
    job = tmp_path / "a.job"
    text, size = "Is it? The kettle is on the fire. Yes, it is, said the old man. Is it?", 26
    options: SpeechOptions = {"seed": 1, "max_new_tokens": 36, "min_tokens_before_end": 8}

    def config(retries: int) -> NarrationConfig:
        return NarrationConfig(piece_size=size, context_tokens=0, retries=retries)

    first = engine.narrate(text, job=job, config=config(0), **options)
    assert 0 < len(first.failed) < len(first.pieces)
    again = engine.narrate(text, job=job, config=config(0), **options)
    assert_same(again, first)
    more = engine.narrate(text, job=job, config=config(8), **options)
    assert len(more.failed) < len(first.failed)
    assert_same(more, engine.narrate(text, config=config(8), **options))
    assert settled_samples(job, retries=8) == [p.sample_start + p.sample_count for p in more.pieces]
    with engine.narrate_stream(text, job=job, config=config(8), **options) as stream:
        np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in stream]), more.samples)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"text": TEXT + "!"}, "text"),
        ({"max_new_tokens": 61}, "max_new_tokens"),
        ({"min_tokens_before_end": 9}, "min_tokens_before_end"),
        ({"sampling": dualar.SamplingConfig.fish(temperature=0.7)}, "sampling"),
        ({"sampling": dualar.SamplingConfig.hf()}, "sampling"),
        ({"stall_guard": None}, "stall_guard"),
        ({"config": NarrationConfig(piece_size=21, context_tokens=120)}, "piece_size"),
        ({"config": NarrationConfig(piece_size=20, context_tokens=121)}, "context_tokens"),
        ({"config": NarrationConfig(piece_size=20, context_tokens=120, pause_ms=3)}, "pauses"),
        ({"seed": 4}, "seed 3"),
        ({"voice": True}, "voice"),
        ({"config": NarrationConfig(piece_size=20, context_tokens=120, rows=2)}, "context"),
    ],
)
def test_a_job_is_for_one_request(engine: Engine, tmp_path: Path, change: dict[str, Any], name: str) -> None:
    job = tmp_path / "a.job"
    engine.narrate(TEXT, job=job, **OPTIONS, **until(1))
    before = job.read_bytes()
    if "voice" in change:
        change = {"voice": engine.clone(np.zeros(2048, np.float32), "so")}
    options = {**OPTIONS, **change}
    with pytest.raises(ValueError, match=rf"expected (the )?{name}.* with which .*a\.job was begun"):
        engine.narrate(options.pop("text", TEXT), job=job, **options)
    assert job.read_bytes() == before
    engine.narrate(
        TEXT, job=job, **{**OPTIONS, "config": NarrationConfig(piece_size=20, context_tokens=120, retries=5)}
    )


def test_a_job_knows_a_pause_by_its_length(engine: Engine, tmp_path: Path) -> None:
    whole, real = (NarrationConfig(piece_size=20, pause_ms={"sentence": ms}) for ms in (200, 200.0))
    engine.narrate(TEXT, **{**OPTIONS, "config": whole}, job=tmp_path / "a.job", on_piece=lambda _: False)
    done = engine.narrate(TEXT, **{**OPTIONS, "config": real}, job=tmp_path / "a.job")
    assert len(done.pieces) == COUNT


def test_a_job_is_for_one_model(engine: Engine, tmp_path: Path, toy_model: Path) -> None:
    engine.narrate(TEXT, job=tmp_path / "a.job", **OPTIONS, **until(1))
    write_toy_model(tmp_path / "other.gguf", seed=1)
    shutil.copyfile(toy_model, tmp_path / "copy.gguf")
    assert model_fingerprint(str(tmp_path / "copy.gguf")) == model_fingerprint(str(toy_model))
    with (
        dualar.load(tmp_path / "other.gguf", threads=1) as other,
        pytest.raises(ValueError, match="expected the model"),
    ):
        other.narrate(TEXT, job=tmp_path / "a.job", **OPTIONS)
    with (
        dualar.load(toy_model, threads=1, kv_type="f16") as half,
        pytest.raises(ValueError, match="expected the kv_type"),
    ):
        half.narrate(TEXT, job=tmp_path / "a.job", **OPTIONS)


DAMAGES: dict[str, Any] = {
    "empty": lambda lines: [],
    "no job": lambda lines: ["{}"],
    "no JSON": lambda lines: ["RIFF", *lines],
    "newer": lambda lines: [lines[0].replace('"version":1', '"version":2'), *lines[1:]],
    "a seed that is none": lambda lines: [lines[0].replace('"seed":3', '"seed":-3'), *lines[1:]],
    "a code was changed": lambda lines: [lines[0], lines[1].replace('"codes":[[', '"codes":[[1'), *lines[2:]],
    "a code out of range": lambda lines: [lines[0], lines[1].replace('"codes":[[', '"codes":[[99999'), *lines[2:]],
    "a code that is none": lambda lines: [lines[0], lines[1].replace('"codes":[[', '"codes":[["a",'), *lines[2:]],
    "rows of two lengths": lambda lines: [lines[0], lines[1].replace('"codes":[[', '"codes":[[1,'), *lines[2:]],
    "another text": lambda lines: [lines[0], lines[1].replace("kettle", "Kettle"), *lines[2:]],
    "a field is missing": lambda lines: [lines[0], lines[1].replace('"crc"', '"crd"'), *lines[2:]],
    "a list": lambda lines: [lines[0], "[1]", *lines[1:]],
    "an index too high": lambda lines: [*lines, lines[1].replace('"index":0', '"index":70')],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_job_is_refused(engine: Engine, tmp_path: Path, damage: str) -> None:
    job = tmp_path / "a.job"
    engine.narrate(TEXT, job=job, **OPTIONS, **until(2))
    lines = DAMAGES[damage](job.read_text(encoding="utf-8").splitlines())
    job.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(ValueError, match=r"\[job\] expected .*|expected a seed") as caught:
        engine.narrate(TEXT, job=job, **OPTIONS)
    assert "a.job" in str(caught.value) or "seed" in str(caught.value)


def test_a_piece_that_is_missing_is_spoken_again(engine: Engine, whole: Narration, tmp_path: Path) -> None:
    job = tmp_path / "a.job"
    engine.narrate(TEXT, job=job, **OPTIONS)
    lines = job.read_text(encoding="utf-8").splitlines(keepends=True)
    job.write_text("".join([*lines[:2], *lines[3:]]), encoding="utf-8")
    assert settled_samples(job, retries=1) == [whole.pieces[0].sample_count]
    assert_same(engine.narrate(TEXT, job=job, **OPTIONS), whole)


def test_a_job_is_lines_of_json(engine: Engine, whole: Narration, tmp_path: Path) -> None:
    job = tmp_path / "a.job"
    engine.narrate(TEXT, job=job, **OPTIONS)
    header, *pieces = (json.loads(line) for line in job.read_text(encoding="utf-8").splitlines())
    assert (header["format"], header["version"], header["seed"], header["pieces"]) == ("dualar job", 1, 3, COUNT)
    for entry, piece in zip(pieces, whole.pieces, strict=True):
        assert entry["text"] == piece.text and entry["codes"] == piece.codes.tolist()


def test_a_job_that_cannot_be_written(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected an existing folder"):
        engine.narrate(TEXT, job=tmp_path / "none" / "a.job", **OPTIONS)
    with pytest.raises(IsADirectoryError):
        engine.narrate(TEXT, job=tmp_path, **OPTIONS)
