"""When a text's pieces and sentences are heard, to the sample, and the subtitle files that tell it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from cli.test_cli import run
from dualar.audio.wav import encode_wav
from dualar.narration import subtitles
from dualar.narration.config import NarrationConfig
from dualar.narration.timed import TimedPiece, TimedSentence
from dualar.narration.timeline import Timeline

TEXT = (
    "The kettle is on. It sings, and the cat listens to it from the top of the stove, as every day at this hour, for "
    "it is warm there and smells of bread. Do we have milk? No, there is none left.\n\n"
    "<|speaker:1|>Good <evening> & more, said the man at the door."
)
OPTIONS = ["--min-tokens-before-end", "8", "--threads", "1", "--seed", "5"]


@pytest.fixture(scope="module")
def spoken(toy_model: Path) -> dualar.Narration:
    with dualar.load(toy_model, threads=1) as engine:
        return engine.narrate(TEXT, seed=5, min_tokens_before_end=8)


def encode(timeline: Timeline, name: str | Path) -> bytes:
    return subtitles.encode(timeline.pieces, timeline.sample_rate, name)


def assert_is_of(timeline: Timeline, narration: dualar.NarrationResult) -> None:
    heard = [piece for piece in narration.pieces if piece.error is None]
    assert [(p.index, p.text, p.start, p.sample_start, p.sample_end) for p in timeline.pieces] == [
        (p.index, p.text, p.start, p.sample_start, p.sample_start + p.sample_count) for p in heard
    ]


def test_each_piece_is_where_its_codes_are_heard(engine: dualar.Engine, spoken: dualar.Narration) -> None:
    timeline = spoken.timeline
    assert_is_of(timeline, spoken)
    assert len(timeline.pieces) > 2 and timeline.sample_rate == spoken.sample_rate
    assert timeline.pieces[-1].sample_end == spoken.samples.size
    for piece, made in zip(timeline.pieces, spoken.pieces, strict=True):
        heard = spoken.samples[piece.sample_start : piece.sample_end]
        np.testing.assert_allclose(heard, engine.codec.decode(made.codes), rtol=0, atol=3e-5)
    for before, after in zip(timeline.pieces, timeline.pieces[1:], strict=False):
        assert not spoken.samples[before.sample_end : after.sample_start].any()  # the pause


def test_sentences_fill_their_piece(spoken: dualar.Narration) -> None:
    plain = dualar.plain_text(TEXT)
    for piece in spoken.timeline.pieces:
        ends = [piece.sample_start, *(sentence.sample_end for sentence in piece.sentences)]
        assert [sentence.sample_start for sentence in piece.sentences] == ends[:-1] and ends[-1] == piece.sample_end
        assert "".join(sentence.text for sentence in piece.sentences) == piece.text
        assert {sentence.exact for sentence in piece.sentences} == {len(piece.sentences) == 1}
    for sentence in spoken.timeline.sentences:
        assert plain[sentence.start :].startswith(sentence.text)
    clip = Timeline.of_clip("One two. Three.\r\nFour five six.", 1000, 100)
    assert [(s.text, s.start, s.sample_start, s.sample_end) for s in clip.sentences] == [
        ("One two. ", 0, 0, 285), ("Three.\n", 9, 285, 500), ("Four five six.", 16, 500, 1000),
    ]  # fmt: skip  # 8, 6 and 14 letters
    assert Timeline.of_clip("One.", 0, 100).pieces == () and Timeline.of_clip(" ", 5, 100).pieces == ()


def test_what_could_not_be_spoken_is_not_in_it(engine: dualar.Engine) -> None:
    config = NarrationConfig(context_tokens=0, retries=0)
    narration = engine.narrate(TEXT, seed=5, max_new_tokens=70, min_tokens_before_end=8, config=config)
    assert narration.failed and len(narration.timeline.pieces) == len(narration.pieces) - len(narration.failed)
    assert_is_of(narration.timeline, narration)


@pytest.mark.parametrize("rows", [1, 3])
def test_streams_jobs_and_rows_have_the_same_timeline(engine: dualar.Engine, tmp_path: Path, rows: int) -> None:
    options: dict[str, Any] = {"seed": 5, "min_tokens_before_end": 8, "config": NarrationConfig(rows=rows)}
    whole = engine.narrate(TEXT, **options)
    with engine.narrate_stream(TEXT, job=tmp_path / "job", on_piece=lambda progress: False, **options) as stream:
        for _ in stream:
            pass
    assert stream.result.cancelled and stream.result.timeline.pieces == whole.timeline.pieces[:1]
    again = engine.narrate(TEXT, job=tmp_path / "job", **options)
    np.testing.assert_array_equal(again.samples, whole.samples)
    assert again.timeline == whole.timeline


def test_a_timeline_can_be_cut() -> None:
    clip = Timeline.of_clip("One two. Three. Four five six.", 1000, 100)
    assert [s.sample_end for s in clip.cut(400).sentences] == [285, 400]
    assert clip.cut(400).pieces[0].sample_end == 400 and clip.cut(0).pieces == () and clip.cut(2000) == clip


# ------------------------------------------------------------------ files
def timeline(text: str, start: int, end: int, rate: int = 1000) -> Timeline:
    sentence = TimedSentence(text=text, start=0, sample_start=start, sample_end=end, exact=True)
    piece = TimedPiece(index=0, text=text, start=0, sample_start=start, sample_end=end, sentences=(sentence,))
    return Timeline(pieces=(piece,), sample_rate=rate)


def test_the_formats() -> None:
    cue = timeline("<|speaker:1|>Tom & <Jerry>\n said.\n\n", 3_723_004, 36_000_000)
    assert encode(cue, "a.srt") == b"1\n01:02:03,004 --> 10:00:00,000\nTom & <Jerry> said.\n"
    assert encode(cue, "a.VTT") == b"WEBVTT\n\n01:02:03.004 --> 10:00:00.000\nTom &amp; &lt;Jerry&gt; said.\n"
    assert json.loads(encode(cue, Path("a.json"))) == {
        "sample_rate": 1000,
        "pieces": [{
            "index": 0, "text": cue.pieces[0].text, "start": 0, "sample_start": 3_723_004, "sample_end": 36_000_000,
            "seconds_start": 3723.004, "seconds_end": 36000.0,
            "sentences": [{
                "text": cue.pieces[0].text, "start": 0, "sample_start": 3_723_004, "sample_end": 36_000_000,
                "seconds_start": 3723.004, "seconds_end": 36000.0, "exact": True, "words": [],
            }],
        }],
    }  # fmt: skip
    long = encode(timeline("word " * 30, 0, 1), "a.srt").decode().splitlines()[2:]
    assert len(long) == 4 and max(map(len, long)) <= 42
    assert encode(timeline("Naïve: 漢字", 44, 22050, 44100), "a.srt").decode().splitlines()[1:] == [
        "00:00:00,001 --> 00:00:00,500", "Naïve: 漢字",
    ]  # fmt: skip
    assert encode(timeline("<|speaker:1|>", 0, 5), "a.vtt") == b"WEBVTT\n"


def test_a_name_of_no_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ending in \.srt, \.vtt or \.json, got"):
        timeline("One.", 0, 5).save(tmp_path / "a.txt")
    assert os.listdir(tmp_path) == []


# ------------------------------------------------------------------ the command line
@pytest.fixture
def default_model(monkeypatch: pytest.MonkeyPatch, toy_model: Path) -> None:
    monkeypatch.setenv("DUALAR_MODEL", str(toy_model))


@pytest.mark.usefixtures("default_model")
@pytest.mark.parametrize("way", ["whole", "stream", "trimmed"])
def test_say_writes_subtitles_of_a_long_text(spoken: dualar.Narration, tmp_path: Path, way: str) -> None:
    out, told = tmp_path / "a.wav", tmp_path / "a.vtt"
    options = {"stream": ["--stream"], "trimmed": ["--trim-silence"]}.get(way, [])
    assert run("say", TEXT, "-o", out, "--subtitles", told, *options, *OPTIONS).exit_code == 0
    audio = spoken.audio.trim_silence() if way == "trimmed" else spoken.audio
    assert out.read_bytes() == encode_wav(audio.samples, audio.sample_rate)
    assert told.read_bytes() == encode(spoken.timeline.cut(audio.samples.size), "a.vtt")
    assert sorted(os.listdir(tmp_path)) == ["a.vtt", "a.wav"]
    again = run("say", TEXT, "-o", tmp_path / "b.wav", "--subtitles", told, *OPTIONS)
    assert again.exit_code == 2 and "a.vtt exists; pass --force" in again.stderr.replace("\n", " ")


@pytest.mark.usefixtures("default_model")
@pytest.mark.parametrize("way", ["whole", "stream", "stdout"])
def test_say_writes_subtitles_of_a_short_text(tmp_path: Path, way: str) -> None:
    out, told = "-" if way == "stdout" else tmp_path / "a.wav", tmp_path / "a.json"
    options = ["--max-new-tokens", "8", *OPTIONS, *(["--stream"] if way == "stream" else [])]
    plain = run("say", "hello. you", "-o", out, *options)
    before = plain.stdout_bytes if way == "stdout" else (tmp_path / "a.wav").read_bytes()[44:]
    result = run("say", "hello. you", "-o", out, "--subtitles", told, "--force", *options)
    after = result.stdout_bytes if way == "stdout" else (tmp_path / "a.wav").read_bytes()[44:]
    assert result.exit_code == 0 and after == before
    entries = json.loads(told.read_bytes())
    assert [piece["sample_end"] for piece in entries["pieces"]] == [len(after) // 2]
    assert [sentence["text"] for sentence in entries["pieces"][0]["sentences"]] == ["hello. you"]


@pytest.mark.usefixtures("default_model")
def test_a_wrong_name_is_refused_before_any_work(tmp_path: Path) -> None:
    result = run("say", "hello", "-o", tmp_path / "a.wav", "--subtitles", tmp_path / "a.ass", *OPTIONS)
    assert result.exit_code == 2 and "[subtitles] expected a file name" in result.stderr
    assert os.listdir(tmp_path) == []
