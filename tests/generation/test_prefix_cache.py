"""Voices' prompts kept computed: the same bits as computed anew, whichever voice comes when, within a limit."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from conftest import Golden
from dualar import _core
from dualar.engine import Engine
from dualar.generation.generate import generate
from dualar.generation.prefix_cache import PrefixCache
from dualar.generation.prompts import checked_prompt
from dualar.generation.requests import CodeOptions
from dualar.narration.config import NarrationConfig
from dualar.voices.voice import Voice
from s2_engine import s2_model, s2_prompt
from scripted_model import BEGIN, GREEDY, IM_END, PROMPT, FakeModel, N

TEXT = "hello there"
SHORT: dict[str, Any] = {"seed": 4, "max_new_tokens": 6, "min_tokens_before_end": 6}
Feed = Callable[[_core.Session], _core.StepOutput]


def voice_of(engine: Engine, frames: int, seed: int, transcript: str = "so it goes") -> Voice:
    codes = np.random.default_rng(seed).integers(0, 64, (engine.codec.num_codebooks, frames))
    return Voice(codes=codes.astype(np.int32), transcript=transcript, sample_rate=44100, codebook_size=128)


@pytest.fixture
def cached(toy_model: Path) -> Any:
    with dualar.load(toy_model, threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def uncached(toy_model: Path) -> Any:
    with dualar.load(toy_model, threads=1, prefix_cache_bytes=0) as engine:
        yield engine


# ------------------------------------------------------------------ snapshots
@pytest.mark.parametrize("kv_type", ["f32", "f16"])
@pytest.mark.parametrize("length", [1, 2, 100, 255, 256, 257, 512, 530])
def test_a_session_goes_on_from_a_snapshot_to_the_same_bits(engine: Engine, kv_type: str, length: int) -> None:
    model = s2_model(engine)
    prompt = s2_prompt(engine, "hello " * 20, voice=voice_of(engine, 560, 1))
    first, rest = np.ascontiguousarray(prompt[:, :length]), np.ascontiguousarray(prompt[:, length : length + 40])
    before = model.session(max_positions=900, kv_type=kv_type)
    before.prefill(first)
    kept = before.snapshot()
    assert (kept.positions, before.kv_type) == (length, kv_type)
    assert kept.nbytes == model.kv_bytes(length, kv_type) - (
        model.kv_bytes(1, kv_type) * 2 - model.kv_bytes(2, kv_type)
    )
    for room in (900, length + 60, 2048):
        after = model.session(max_positions=room, kv_type=kv_type)
        fresh = model.session(max_positions=room, kv_type=kv_type)
        fresh.prefill(first)
        after.restore(kept)
        assert after.position == length
        if fresh.attention_rows(length) != before.attention_rows(length):
            continue
        feeds: tuple[Feed, ...] = (
            lambda s: s.prefill(rest),
            lambda s: s.step(prompt[:, -1]),
            lambda s: s.step(prompt[:, -2]),
        )
        for feed in feeds:
            got, wanted = feed(after), feed(fresh)
            np.testing.assert_array_equal(got.logits, wanted.logits)
            np.testing.assert_array_equal(got.hidden, wanted.hidden)


def test_a_snapshot_does_not_change_with_its_session(engine: Engine) -> None:
    prompt = s2_prompt(engine, TEXT)
    session = s2_model(engine).session(max_positions=100)
    out = session.prefill(prompt)
    kept = session.snapshot()
    session.reset()
    session.prefill(np.ascontiguousarray(prompt[:, ::-1]))
    session.reset()
    session.restore(kept)
    session.truncate(prompt.shape[1] - 1)
    np.testing.assert_allclose(session.step(prompt[:, -1]).logits, out.logits, rtol=1e-4, atol=1e-4)


def test_snapshots_where_they_do_not_belong(engine: Engine, golden: Callable[[str], Golden]) -> None:
    model = s2_model(engine)
    session = model.session(max_positions=20)
    with pytest.raises(ValueError, match="expected a session with positions"):
        session.snapshot()
    for positions in (0, 21):
        with pytest.raises(ValueError, match=rf"\[attention_rows\] expected 1 to 20 positions, got {positions}"):
            session.attention_rows(positions)
    session.prefill(s2_prompt(engine, TEXT)[:, :12].copy())
    kept = session.snapshot()
    with pytest.raises(ValueError, match="expected a session at position 0, got one at 12"):
        session.restore(kept)
    with pytest.raises(ValueError, match="expected at most 11 positions, got 12"):
        model.session(max_positions=11).restore(kept)
    with pytest.raises(ValueError, match="expected a prefix in f16, got f32"):
        model.session(max_positions=20, kv_type="f16").restore(kept)
    with dualar.load(golden("s2-tiny").gguf, threads=1, im_end_id=0) as other:
        foreign = s2_model(other).session(max_positions=20)
    with pytest.raises(ValueError, match="expected a prefix of this session's model"):
        foreign.restore(kept)
    with pytest.raises(TypeError):
        _core.Prefix()  # type: ignore[call-arg, unused-ignore]


# ------------------------------------------------------------------ the rule of the split
def columns(*ids: int) -> Any:
    prompt = np.zeros((1 + N, len(ids)), np.int32)
    prompt[0] = ids
    return prompt


@pytest.mark.parametrize(
    ("ids", "length"),
    [
        ([7, BEGIN + 1, BEGIN, IM_END, 8, 9], 4),
        ([7, BEGIN, IM_END, 8, BEGIN, IM_END, 9], 3),  # the first message alone
        ([7, 8, IM_END, BEGIN, IM_END, 9], 0),  # no recording in it: these codes are an earlier turn's
        ([BEGIN + 63, IM_END, 9], 2),
        ([7, BEGIN, IM_END], 0),  # nothing after it
        ([7, BEGIN, 8], 0),
        ([IM_END, BEGIN, 8], 0),
        ([7], 0),
    ],
)
def test_which_part_of_a_prompt_is_its_prefix(ids: list[int], length: int) -> None:
    assert checked_prompt(FakeModel(), columns(*ids)).prefix_length == length


def test_a_prefix_is_fed_apart_from_the_rest_at_the_beginning_alone() -> None:
    model, prompt = FakeModel(), columns(7, BEGIN, IM_END, 8, 9)
    session = model.session(max_positions=20)

    def fed(prompt: Any) -> int:
        """Calls of `prefill` for a prompt; its columns came in order."""
        calls, start = session.calls.count("prefill"), session.position
        generate(model, prompt, session=session, max_new_tokens=1, sampling=GREEDY)
        assert session.columns[start : start + prompt.shape[1]] == prompt.T.tolist()
        return session.calls.count("prefill") - calls

    assert fed(prompt) == 2
    assert fed(prompt) == 1  # the session goes on
    session = model.session(max_positions=20)
    assert fed(PROMPT) == 1  # no prefix


def test_an_engine_splits_at_the_end_of_the_voice(engine: Engine) -> None:
    prompt = s2_prompt(engine, TEXT, voice=voice_of(engine, 9, 1))
    other = s2_prompt(engine, "something else", voice=voice_of(engine, 9, 1))
    length = checked_prompt(engine.model, prompt).prefix_length
    assert prompt[0, length - 1] == engine.model.im_end_id and (prompt[0, :length] == other[0, :length]).all()
    assert checked_prompt(engine.model, engine.build_prompt(TEXT)).prefix_length == 0


# ------------------------------------------------------------------ voices
def test_voices_in_any_order_say_what_fresh_engines_say(cached: Engine, uncached: Engine) -> None:
    a, b = voice_of(cached, 31, 1), voice_of(cached, 300, 2, "quite another thing")
    fresh = {id(v): uncached.synthesize(TEXT, voice=v, **SHORT).codes for v in (a, b)}
    assert not np.array_equal(fresh[id(a)], fresh[id(b)])
    for voice in (a, a, b, a, b, b):
        np.testing.assert_array_equal(cached.synthesize(TEXT, voice=voice, **SHORT).codes, fresh[id(voice)])
        with cached.stream(TEXT, voice=voice, **SHORT) as stream:
            list(stream)
        np.testing.assert_array_equal(stream.result.codes, fresh[id(voice)])
        np.testing.assert_array_equal(
            cached.generate(cached.build_prompt(TEXT, voice=voice), **SHORT).codes, fresh[id(voice)]
        )
    assert sorted(entry.uses for entry in cached.prefix_cache.entries) == [8, 8]


def test_voices_say_what_fresh_processes_say(cached: Engine, toy_model: Path, tmp_path: Path) -> None:
    voices = {"a": voice_of(cached, 31, 1), "b": voice_of(cached, 60, 2)}
    for name, voice in voices.items():
        voice.save(tmp_path / f"{name}.voice")
    script = (
        "import sys, numpy, dualar\n"
        "with dualar.load(sys.argv[1], threads=1) as engine:\n"
        "    audio = engine.synthesize('hello there', voice=sys.argv[2], seed=4, max_new_tokens=6, "
        "min_tokens_before_end=6)\n"
        "numpy.save(sys.argv[3], audio.codes)\n"
    )
    for name in voices:
        command = [sys.executable, "-c", script, str(toy_model), f"{tmp_path}/{name}.voice", f"{tmp_path}/{name}.npy"]
        subprocess.run(command, check=True, timeout=120)
    for name in "aaba":
        codes = cached.synthesize(TEXT, voice=voices[name], **SHORT).codes
        np.testing.assert_array_equal(codes, np.load(tmp_path / f"{name}.npy"))


def test_two_clips_of_one_length_never_share(cached: Engine, uncached: Engine) -> None:
    codes = np.zeros((10, 40), int)
    voices = []
    for place in ((0, 0), (9, 39), (5, 20)):
        other = codes.copy()
        other[place] = 1
        voices.append(Voice(codes=other, transcript="so", sample_rate=44100, codebook_size=128))
    voices.append(Voice(codes=codes, transcript="as", sample_rate=44100, codebook_size=128))
    for voice in voices:
        said = cached.synthesize(TEXT, voice=voice, **SHORT).codes
        np.testing.assert_array_equal(said, uncached.synthesize(TEXT, voice=voice, **SHORT).codes)
    assert [entry.uses for entry in cached.prefix_cache.entries] == [0] * 4


@pytest.mark.parametrize("room", [1, 40, 200, 1500])
def test_room_for_frames_changes_nothing(cached: Engine, uncached: Engine, room: int) -> None:
    voice = voice_of(cached, 270, 3)
    cached.synthesize(TEXT, voice=voice, seed=4, max_new_tokens=1000, min_tokens_before_end=1)
    options: CodeOptions = {"seed": 4, "max_new_tokens": room, "min_tokens_before_end": min(room, 5)}
    np.testing.assert_array_equal(
        cached.synthesize(TEXT, voice=voice, **options).codes, uncached.synthesize(TEXT, voice=voice, **options).codes
    )
    assert [entry.uses for entry in cached.prefix_cache.entries] == [1]


def test_a_session_of_fewer_rows_does_not_take_over_what_was_computed_over_more(cached: Engine) -> None:
    prompt = cached.build_prompt(TEXT, voice=voice_of(cached, 40, 3))
    for room in (256, 110, 300, 111, 110):
        generate(
            cached.model,
            prompt,
            session=cached.model.session(max_positions=room),
            prefix_cache=cached.prefix_cache,
            max_new_tokens=1,
        )
    assert [entry.uses for entry in cached.prefix_cache.entries] == [1, 0, 1]


def test_a_long_text_computes_its_voice_once(cached: Engine, uncached: Engine) -> None:
    options = {"voice": voice_of(cached, 31, 1), "config": NarrationConfig(piece_size=20), **SHORT}
    text = "The kettle is on. Do we have milk? None, he said."
    got, wanted = cached.narrate(text, **options), uncached.narrate(text, **options)
    np.testing.assert_array_equal(got.samples, wanted.samples)
    (entry,) = cached.prefix_cache.entries
    assert entry.uses == 2 * len(got.pieces) - 1  # each reaches the cap, and is tried twice
    assert uncached.prefix_cache.entries == [] and uncached.prefix_cache.nbytes == 0


def test_threads_share_a_cache(cached: Engine, uncached: Engine) -> None:
    voices = [voice_of(cached, 20 + i, i) for i in range(3)]
    wanted = [uncached.synthesize(TEXT, voice=v, **SHORT).codes.tolist() for v in voices]
    wrong: list[Any] = []

    def work(start: int) -> None:
        for i in range(start, start + 4):
            codes = cached.synthesize(TEXT, voice=voices[i % 3], **SHORT).codes.tolist()
            if codes != wanted[i % 3]:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(cached.prefix_cache.entries) == 3


# ------------------------------------------------------------------ the limit
def test_the_least_recently_used_is_dropped(cached: Engine) -> None:
    cache = cached.prefix_cache
    assert cache.limit == 2**28 and cache.nbytes == 0
    voices = [voice_of(cached, 30, i) for i in range(4)]

    def say(i: int) -> None:
        cached.synthesize(TEXT, voice=voices[i], **SHORT)

    say(0)
    one = cache.nbytes
    (entry,) = cache.entries
    assert (entry.nbytes, entry.uses) == (one, 0) and entry.positions > 30
    assert (
        one
        == cached.model.kv_bytes(entry.positions)
        - (2 * cached.model.kv_bytes(1) - cached.model.kv_bytes(2))
        + 4 * 11 * entry.positions
    )
    cache.limit = 3 * one
    for i in (1, 2, 0, 3, 0, 2):  # 3 takes the place of 1
        say(i)
    assert cache.nbytes == 3 * one and [entry.uses for entry in cache.entries] == [0, 2, 1]
    say(1)  # and 1 that of 3
    assert [entry.uses for entry in cache.entries] == [2, 1, 0]
    cache.limit = 2 * one - 1
    assert [entry.uses for entry in cache.entries] == [0] and cache.nbytes == one
    cache.limit = one - 1
    say(2)
    assert cache.entries == [] and cache.nbytes == 0
    cache.limit = one
    say(2)
    cache.clear()
    assert cache.entries == [] and cache.nbytes == 0 and cache.limit == one


def test_a_closed_engine_keeps_nothing(toy_model: Path) -> None:
    engine = dualar.load(toy_model, threads=1)
    engine.synthesize(TEXT, voice=voice_of(engine, 30, 1), **SHORT)
    cache = engine.prefix_cache
    assert cache.nbytes > 0
    engine.close()
    assert cache.nbytes == cache.limit == 0
    with pytest.raises(ValueError, match="expected an open engine"):
        _ = engine.prefix_cache


@pytest.mark.parametrize("limit", [-1, 1.5, "1 GB", None])
def test_limits_that_are_none(toy_model: Path, limit: Any) -> None:
    with pytest.raises(ValueError, match=r"prefix_cache\.limit"):
        PrefixCache(limit)
    with pytest.raises(ValueError, match=r"prefix_cache\.limit"):
        dualar.load(toy_model, prefix_cache_bytes=limit)


def test_what_happens_is_in_the_log(cached: Engine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="dualar"):
        for _ in range(2):
            cached.synthesize(TEXT, voice=voice_of(cached, 30, 1), **SHORT)
    said = [record.getMessage() for record in caplog.records if "[prefix]" in record.getMessage()]
    assert ["computed" in said[0], "reused" in said[1]] == [True, True] and len(said) == 2
    assert f"({cached.prefix_cache.nbytes} bytes kept of at most {2**28})" in said[1]
