"""When each word is heard: the heads' attention against the plain numpy model, the path, the words in letters, and all
ways in which a request may be run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from cli.test_cli import run
from dualar import _core
from dualar.convert.requantize import prepare
from dualar.families.base import Style
from dualar.generation.word_times import WordPath
from dualar.gguf import names
from dualar.narration import subtitles
from dualar.narration.config import NarrationConfig
from dualar.narration.timeline import Timeline, piece_words
from dualar.runtime import open_file, open_runtime
from dualar.text.english import EnglishFrontend
from dualar.text.places import PAUSE, TimedWord, WordMap, token_units, word_map, written_words
from fixtures.gguf_raw import ARRAY, INT32, Key, RawGguf
from reference.gguf_weights import Weights
from reference.s2 import DualAR, rms_norm, rope, softmax
from s2_engine import s2_model, s2_prompt

HEADS = [0, 1, 1, 0]
EIGHT: dict[str, Any] = {"seed": 5, "max_new_tokens": 40, "min_tokens_before_end": 40}


def with_numbers(source: Path, out: Path, key: str, numbers: list[int]) -> Path:
    raw = RawGguf.parse(source.read_bytes())
    count = np.array([len(numbers)], "<u8").tobytes()
    value = np.array([INT32], "<u4").tobytes() + count + np.array(numbers, "<i4").tobytes()
    raw.keys.append(Key(key.encode(), ARRAY, value))
    out.write_bytes(raw.write())
    return out


def with_heads(source: Path, out: Path, heads: list[int]) -> Path:
    return with_numbers(source, out, names.ALIGNMENT_HEADS, heads)


@pytest.fixture(scope="module")
def named(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_heads(toy_model, tmp_path_factory.mktemp("named") / "toy.gguf", HEADS)


@pytest.fixture(scope="module")
def speaker(named: Path) -> Iterator[dualar.Engine]:
    with dualar.load(named, threads=1) as engine:
        yield engine


# ------------------------------------------------------------------ the core
def oracle(model: DualAR, columns: np.ndarray, first: int, last: int, heads: list[int]) -> np.ndarray:
    """[T, heads, last - first]: a softmax over these positions alone of every position behind them."""
    w, c = model.w, model.slow
    session = model.session()
    pos = np.arange(columns.shape[1])
    x, queries, found = model.embed(columns), {}, []
    from reference import s2

    for i in range(model.slow_layers):
        h = rms_norm(x, w[f"layers.{i}.attention_norm.weight"], c.eps)
        q = w.linear(f"layers.{i}.attention.wqkv", h)[:, : c.heads * c.head_dim].reshape(len(x), c.heads, c.head_dim)
        if c.qk_norm:
            q = rms_norm(q, w[f"layers.{i}.attention.q_norm.weight"], c.eps)
        queries[i] = rope(q, pos, c.rope_base)
        x = s2.block(w, f"layers.{i}.", x, pos, c, session.cache)
    for layer, head in zip(heads[::2], heads[1::2], strict=True):
        keys = session.cache[f"layers.{layer}."][0][first:last, head // (c.heads // c.kv_heads)]
        found.append(softmax(queries[layer][:, head] @ keys.T / np.sqrt(c.head_dim)))
    return np.stack(found, axis=1)


@pytest.mark.parametrize("name", ["s2-tiny", "s2-variant", "s2-edge"])
def test_attention_is_that_of_the_plain_model(golden: Callable[[str], Any], tmp_path: Path, name: str) -> None:
    pair = golden(name)
    heads = [1, 1, 0, 0]
    data = np.load(pair.npz)
    path = with_heads(pair.gguf, tmp_path / "a.gguf", heads)
    model = _core.DualAR(
        open_file(path),
        open_runtime(device="cpu", threads=1),
        im_end_id=int(data["im_end_id"]) if "im_end_id" in data else 1,
    )
    assert model.alignment_heads == [(1, 1), (0, 0)]
    prompt, codes = data["prompt"], data["forced_codes"]
    columns = np.concatenate([prompt, np.concatenate([model.semantic_begin_id + codes[:1], codes])], axis=1)
    T = prompt.shape[1]
    wanted = oracle(DualAR(Weights(pair.gguf)), columns, 2, T - 1, heads)
    session = model.session(max_positions=columns.shape[1])
    session.watch(2, T - 1)
    session.prefill(prompt)
    for t in range(codes.shape[1]):
        np.testing.assert_allclose(session.alignment(), wanted[T - 1 + t], rtol=1e-4, atol=1e-4)
        session.step(columns[:, T + t])
    session.truncate(0)
    with pytest.raises(ValueError, match="expected positions that are watched"):
        session.alignment()
    session.prefill(prompt[:, :T])
    np.testing.assert_allclose(session.alignment(), wanted[T - 1], rtol=1e-4, atol=1e-4)


def test_rows_of_a_batch_see_what_they_see_alone(speaker: dualar.Engine) -> None:
    model = s2_model(speaker)
    prompts = [s2_prompt(speaker, text) for text in ("hello there", "one two three, four", "you")]
    rng = np.random.default_rng(0)
    rows, alone = ([model.session(max_positions=99) for _ in prompts] for _ in range(2))
    for sessions in (rows, alone):
        for session, prompt in zip(sessions, prompts, strict=True):
            session.watch(3, prompt.shape[1] - 2)
            session.prefill(prompt)
    batch = _core.Batch(model)
    for _ in range(3):
        codes = rng.integers(0, model.codebook_size, (len(rows), model.num_codebooks))
        columns = np.concatenate([model.semantic_begin_id + codes[:, :1], codes], axis=1).astype(np.int32)
        logits, _ = batch.step(rows, columns)
        for i, session in enumerate(alone):
            np.testing.assert_array_equal(session.step(columns[i]).logits, logits[i])
            np.testing.assert_array_equal(session.alignment(), rows[i].alignment())


def test_what_is_computed_has_the_same_bits(toy_model: Path, speaker: dualar.Engine) -> None:
    with dualar.load(toy_model, threads=1) as plain:
        wanted = plain.synthesize("hello there", **EIGHT)
    for asked in (False, True):
        got = speaker.synthesize("hello there", word_times=asked, **EIGHT)
        np.testing.assert_array_equal(got.samples, wanted.samples)
        assert (got.words is not None) == asked and wanted.words is None


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        ([], "1 to 16 pairs"),
        ([1], "1 to 16 pairs"),
        ([9, 0], "a layer below"),
        ([0, 9], "a head below"),
        ([-1, 0], "-1"),
    ],
)
def test_files_that_name_heads_that_are_not_there(
    toy_model: Path, tmp_path: Path, heads: list[int], words: str
) -> None:
    path = with_heads(toy_model, tmp_path / "a.gguf", heads)
    with pytest.raises(dualar.ModelError, match=rf"dualar\.alignment_heads.*{words}"):
        dualar.load(path)


@pytest.mark.parametrize("codes", [[-1], [3, -2]])
def test_files_whose_silent_codes_are_none(toy_model: Path, tmp_path: Path, codes: list[int]) -> None:
    path = with_numbers(toy_model, tmp_path / "a.gguf", names.SILENT_CODES, codes)
    with pytest.raises(dualar.ModelError, match=r"dualar\.silent_codes\] expected codes of 0 and more"):
        dualar.load(path)


def test_a_file_that_names_none(engine: dualar.Engine, qwen3_model: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=r"\[word_times\] expected a model whose file names the heads"):
        engine.synthesize("hello", word_times=True)
    session = s2_model(engine).session(max_positions=9)
    with pytest.raises(ValueError, match="this one names none"):
        session.watch(0, 1)
    with dualar.load(qwen3_model("tiny-eq"), threads=1) as other, pytest.raises(ValueError, match="the S2 family"):
        other.synthesize("hello", speaker="ryan", word_times=True)


def test_watched_positions_are_checked(speaker: dualar.Engine) -> None:
    session = s2_model(speaker).session(max_positions=9)
    for first, last in ((-1, 2), (2, 2), (0, 10)):
        with pytest.raises(ValueError, match=r"\[watch\] expected positions within 0 to 9"):
            session.watch(first, last)
    with pytest.raises(ValueError, match="expected positions that are watched"):
        session.alignment()


# ------------------------------------------------------------------ which token is of which word
def test_words_as_they_are_written() -> None:
    text = "“Naïve?” isn't $5 - 7:30, e.g. 漢字です ok\u0301."
    found = [text[a:b] for a, b in written_words(text)]
    assert found == ["Naïve", "isn't", "5", "7:30", "e.g", "漢", "字", "で", "す", "ok\u0301"]
    assert written_words("") == written_words(" - ") == []


def test_tokens_of_letters(speaker: dualar.Engine) -> None:
    tokenizer = speaker.tokenizer
    text = "Hello there, <|speaker:1|>naïve 漢字!"
    places = tokenizer.text_places(text)
    assert len(places) == len(tokenizer.encode_text(text))
    covered = {i for start, end in places for i in range(start, end)}
    assert covered == set(range(len(text)))
    found = word_map(text, places, spoken=None, behind=3, samples_per_frame=10)
    assert [text[a:b] for a, b in found.words if b > 12 + 13 or a < 12][:2] == ["Hello", "there"]
    assert found.owners[0] == 0 and found.owners[-1] == PAUSE
    said = [owner for owner in found.owners if owner != PAUSE]
    assert said == sorted(said)


def test_the_map_points_at_the_text_in_the_prompt(speaker: dualar.Engine) -> None:
    parts, text = speaker.parts, "one two three"
    prompt = s2_prompt(speaker, text)
    found = parts.family.word_map(text, tokenizer=speaker.tokenizer, samples_per_frame=7)
    first, last = found.span(prompt.shape[1])
    assert prompt[0, first : last - 1].tolist() == speaker.tokenizer.encode_text(text)
    assert found.samples_per_frame == 7 and len(found.words) == 3


def test_phonemes_come_back_in_letters() -> None:
    text = "Dr. Lee paid $5 at 7:30, twice."
    spoken = EnglishFrontend().speak(text)
    tokens = [(i, i + 1) for i in range(len(spoken.phonemes))]
    found = word_map(text, tokens, spoken=spoken, behind=2, samples_per_frame=10)
    assert [text[a:b] for a, b in found.words] == ["Dr.", "Lee", "paid", "$5", "at", "7:30", "twice"]
    units = [owner for _, _, owner in token_units(found.owners)]
    assert [owner for owner in dict.fromkeys(units) if owner != PAUSE] == list(range(7))
    path = WordPath(found)
    for i in range(len(tokens)):  # each letter is heard for one frame
        path.add(np.eye(len(tokens) + 1, dtype=np.float32)[i][None])
    words = path.words(ended=True)
    assert [word.text for word in words] == [text[a:b] for a, b in found.words]
    for word, (start, end) in zip(words, found.words, strict=True):
        assert (word.start, word.end) == (start, end)
    five = words[3]
    assert spoken.phonemes[five.sample_start // 10 : five.sample_end // 10] == "fˈIv dˈɑləɹz"


# ------------------------------------------------------------------ the path
def a_map(owners: list[int], text: str = "one two three") -> WordMap:
    return WordMap(
        text=text, words=tuple(written_words(text)), owners=(*owners, PAUSE), behind=2, samples_per_frame=100
    )


def heard(found: WordMap, tokens: list[int], noise: float = 0.0) -> WordPath:
    path, rng = WordPath(found), np.random.default_rng(0)
    for token in tokens:
        rows = np.full((2, len(found.owners)), 1e-3, np.float32) + noise * rng.random((2, len(found.owners)))
        rows[:, token] += 1
        path.add((rows / rows.sum(1, keepdims=True)).astype(np.float32))
    return path


def times(words: tuple[TimedWord, ...]) -> list[tuple[str, int, int]]:
    return [(word.text, round(word.sample_start, -1), round(word.sample_end, -1)) for word in words]


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_the_path_follows_what_is_heard(noise: float) -> None:
    found = a_map([0, 0, PAUSE, 1, 2])
    words = heard(found, [0, 0, 1, 2, 2, 3, 3, 4, 5, 5], noise).words(ended=True)
    wanted = [("one", 0, 300), ("two", 500, 700), ("three", 700, 800)]
    for word, (text, start, end) in zip(words, wanted, strict=True):
        assert word.text == text and abs(word.sample_start - start) <= 20 + 100 * noise
        assert abs(word.sample_end - end) <= 20 + 100 * noise


def test_a_pause_may_take_no_time_and_a_word_may_not() -> None:
    found = a_map([0, PAUSE, 1, 2])
    assert times(heard(found, [0, 0, 2, 2, 3, 4]).words(ended=True)) == [
        ("one", 0, 200), ("two", 200, 400), ("three", 400, 500),
    ]  # fmt: skip
    words = heard(found, [0, 0, 0, 3, 3, 3]).words(ended=True)  # "two" was not looked at
    assert [word.text for word in words] == ["one", "two", "three"]
    assert words[1].sample_end > words[1].sample_start
    glance = heard(found, [0, 3, 0, 0, 2, 2, 3, 3]).words(ended=True)  # a frame that looks elsewhere
    assert times(glance) == [("one", 0, 400), ("two", 400, 600), ("three", 600, 800)]


def test_speech_that_was_cut_has_the_words_so_far() -> None:
    found = a_map([0, PAUSE, 1, 2])
    path = heard(found, [0, 0, 2, 2])
    assert times(path.words(ended=False)) == [("one", 0, 200), ("two", 200, 400)]
    assert [word.text for word in path.words(ended=True)] == ["one", "two", "three"]
    assert path.words(ended=False, frames=2) == heard(found, [0, 0]).words(ended=False)
    assert heard(found, []).words(ended=True) == () == WordPath(found).next_words(last=True)
    assert [word.text for word in heard(found, [0]).words(ended=True)] == ["one"]


def test_words_are_told_once_and_in_order() -> None:
    tokens = [0, 0, 1, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4]
    found = a_map([0, PAUSE, 1, 2])
    path, told = WordPath(found), []
    for token in tokens:
        path.add(np.eye(5, dtype=np.float32)[token][None])
        told.append([word.text for word in path.next_words(last=False)])
    assert [word for some in told for word in some] == ["one", "two"] and told.index(["one"]) == 6
    assert [word.text for word in path.next_words(last=True, ended=True)] == ["three"]
    assert path.next_words(last=True, ended=True) == ()


def test_a_word_is_without_the_silence_beside_it() -> None:
    found = dataclasses.replace(a_map([0, PAUSE, 1, 2]), silent_codes=frozenset({7, 9}))
    tokens = [0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 3, 3, 3, 3, 3]
    #         .  .  one one .  .  two . two .  three  .  .
    codes = [7, 9, 1, 1, 7, 7, 1, 7, 1, 7, 1, 1, 1, 7, 7]
    path = heard(found, tokens)
    wanted = [("one", 200, 600), ("two", 600, 1000), ("three", 1000, 1300)]  # two silent frames are no pause
    assert times(path.words(ended=True, codes=np.array(codes, np.int32))) == wanted
    codes[5:8] = [7, 7, 7]
    codes[3] = 9
    path = heard(found, tokens)
    longer = [("one", 200, 300), ("two", 600, 1000), ("three", 1000, 1300)]
    assert times(path.words(ended=True, codes=np.array(codes, np.int32))) == longer
    told: list[TimedWord] = []  # the same as it is spoken
    path = WordPath(found)
    for i, token in enumerate(tokens):
        path.add(np.eye(5, dtype=np.float32)[token][None])
        told += path.next_words(last=False, codes=np.array(codes[: i + 1], np.int32))
    assert len(told) == 2
    told += path.next_words(last=True, ended=True, codes=np.array(codes, np.int32))
    assert times(tuple(told)) == longer
    # Frames whose codes are not known yet are heard, and so is a word of nothing but silence.
    assert times(path.words(ended=True, codes=np.array([7], np.int32)))[0] == ("one", 100, 600)
    silent = path.words(ended=True, codes=np.full(15, 7, np.int32))
    assert silent == path.words(ended=True)


# ------------------------------------------------------------------ requests
TEXT = (
    "The kettle is on. It sings, and the cat listens to it. Do we have milk? No, there is none left at all, she said."
)


def test_every_way_to_run_a_request_has_the_same_words(speaker: dualar.Engine) -> None:
    text = "one two three, four"
    wanted = speaker.synthesize(text, word_times=True, **EIGHT)
    assert wanted.words and wanted.words[0].text == "one"
    assert all(a.sample_end <= b.sample_start + 1 for a, b in pairwise(wanted.words))
    assert wanted.words[-1].sample_end <= wanted.samples.size
    request = dualar.SpeechRequest(text=text, word_times=True, **EIGHT)
    rows = [speaker.synthesize_batch([request, dualar.SpeechRequest(text="hello", **EIGHT), request])]
    results = {result.index: result.get() for result in rows[0]}
    assert results[0].words == results[2].words == wanted.words and results[1].words is None
    with speaker.stream(text, word_times=True, frames_per_chunk=4, **EIGHT) as stream:
        chunks = list(stream)
    assert stream.result.words == wanted.words
    told = [word for chunk in chunks for word in chunk.words]
    assert [word.text for word in told] == [word.text for word in wanted.words]
    with speaker.stream(text, frames_per_chunk=4, **EIGHT) as stream:
        assert [chunk.words for chunk in stream] == [()] * 10


@pytest.mark.parametrize("rows", [1, 3])
def test_a_narration_has_the_words_of_its_pieces(speaker: dualar.Engine, tmp_path: Path, rows: int) -> None:
    options: dict[str, Any] = {
        "seed": 5,
        "min_tokens_before_end": 8,
        "config": NarrationConfig(rows=rows, piece_size=40),
    }
    plain = speaker.narrate(TEXT, **options)
    whole = speaker.narrate(TEXT, word_times=True, job=tmp_path / "job", **options)
    np.testing.assert_array_equal(whole.samples, plain.samples)
    assert plain.timeline.words == () and len(whole.pieces) > 2
    words = whole.timeline.words
    assert words and [TEXT[word.start : word.end] for word in words] == [word.text for word in words]
    assert all(a.sample_start <= b.sample_start for a, b in pairwise(words))
    for piece in whole.pieces:
        for word in piece_words(piece):
            assert piece.sample_start <= word.sample_start <= word.sample_end <= piece.sample_start + piece.sample_count
    again = speaker.narrate(TEXT, word_times=True, job=tmp_path / "job", **options)
    assert again.timeline == whole.timeline and again.pieces[0].words == whole.pieces[0].words
    with speaker.narrate_stream(TEXT, word_times=True, **options) as stream:
        told = [word for chunk in stream for word in chunk.words]
    assert told == list(words)


def test_a_sentence_begins_with_its_first_word() -> None:
    text = "One two. Three."
    words = tuple(
        TimedWord(text=text[a:b], start=a, end=b, sample_start=start, sample_end=end)
        for (a, b), start, end in zip(written_words(text), (0, 30, 80), (30, 70, 100), strict=True)
    )
    timeline = Timeline.of_clip(text, 100, 1000, words=words)
    assert [(s.sample_start, s.sample_end) for s in timeline.sentences] == [(0, 80), (80, 100)]
    assert [len(s.words) for s in timeline.sentences] == [2, 1] and timeline.words == words
    assert timeline.cut(75).words == words[:2]
    shown = subtitles.encode(timeline.pieces, 1000, "a.vtt").decode()
    assert "<00:00:00.000>One <00:00:00.030>two.\n" in shown and "\n<00:00:00.080>Three.\n" in shown
    assert "<" not in subtitles.encode(timeline.pieces, 1000, "a.srt").decode()
    entries = json.loads(subtitles.encode(timeline.pieces, 1000, "a.json"))["pieces"][0]["sentences"]
    assert [word["text"] for word in entries[0]["words"]] == ["One", "two"]
    assert entries[1]["words"][0]["seconds_start"] == 0.08 and entries[1]["words"][0]["end"] == 14


def test_say_marks_words_where_the_model_can(named: Path, tmp_path: Path) -> None:
    options: list[str | Path] = ["-m", named, "--min-tokens-before-end", "8", "--threads", "1", "--seed", "5"]
    plain, told = tmp_path / "a.wav", tmp_path / "b.wav"
    for text in ("one two three", TEXT * 3):
        assert run("say", text, "-o", plain, "--force", *options).exit_code == 0
        result = run("say", text, "-o", told, "--subtitles", tmp_path / "b.vtt", "--force", *options)
        assert result.exit_code == 0 and plain.read_bytes() == told.read_bytes()
        assert "<00:00:00.0" in (tmp_path / "b.vtt").read_text()


def test_the_heads_stay_when_a_file_is_quantized(named: Path, tmp_path: Path) -> None:
    prepare(open_file(named), weight_type="q8_0").write(tmp_path / "a.gguf")
    with dualar.load(tmp_path / "a.gguf", threads=1) as engine:
        assert s2_model(engine).alignment_heads == [(0, 1), (1, 0)]
        assert engine.parts.family.build_prompt(
            "hi", model=engine.model, tokenizer=engine.tokenizer, voice=None, style=Style()
        ).shape[1] > 3  # fmt: skip
