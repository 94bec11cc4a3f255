"""`dualar voice add|list|show|remove` and `say --voice`: what they print, refuse and leave behind."""

from __future__ import annotations

from pathlib import Path

import dualar
import numpy as np
import pytest
from dualar.audio.wav import write_wav
from dualar.voices.store import VoiceStore
from dualar.voices.voice import Voice
from fixtures.make_toy_model import write_toy_model

from cli.test_cli import SHORT, run


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VoiceStore:
    monkeypatch.delenv("DUALAR_MODEL", raising=False)
    monkeypatch.setenv("DUALAR_VOICES", str(tmp_path / "voices"))
    return VoiceStore()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "clip.wav"
    write_wav(path, (0.1 * np.random.default_rng(0).standard_normal(9000)).astype(np.float32), 44100)
    return path


@pytest.fixture
def voice() -> Voice:
    """A voice of the toy's geometry, by nobody's codec."""
    codes = np.random.default_rng(0).integers(0, 64, (10, 7))
    return Voice(codes=codes.astype(np.int32), transcript="so it\ngoes", sample_rate=44100, codebook_size=128)


def test_a_recording_becomes_a_voice_to_speak_with(
    recording: Path, toy_model: Path, tmp_path: Path, store: VoiceStore
) -> None:
    result = run("voice", "add", "anna", recording, "--transcript", "hello", "-m", toy_model, "--threads", "1")
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert "anna: 0.23 s, 5 frames" in result.stderr and str(store.folder) in result.stderr
    with dualar.load(toy_model, threads=1) as engine:
        expected = engine.clone(recording, "hello")
        np.testing.assert_array_equal(store.get("anna").codes, expected.codes)
        assert store.get("anna").fingerprint == expected.fingerprint
        audio = engine.synthesize("good day", voice=expected, seed=5, max_new_tokens=4, min_tokens_before_end=4)
    ways: tuple[tuple[str | Path, list[str]], ...] = (
        ("anna", []),
        (store.folder / "anna.voice", []),
        ("anna", ["--stream"]),
    )
    for i, (named, extra) in enumerate(ways):
        out: list[str | Path] = [tmp_path / f"{i}.wav", "--codes", tmp_path / f"{i}.npy"]
        result = run("say", "good day", "--voice", named, "-m", toy_model, "-o", *out, "-s", "5", *SHORT, *extra)
        assert result.exit_code == 0, result.output
        np.testing.assert_array_equal(np.load(tmp_path / f"{i}.npy"), audio.codes)


def test_list_show_remove(store: VoiceStore, voice: Voice, tmp_path: Path) -> None:
    empty = run("voice", "list")
    assert (empty.exit_code, empty.stdout) == (0, "") and str(store.folder) in empty.stderr
    voice.save(tmp_path / "a.s2voice")
    assert run("voice", "add", "小红", tmp_path / "a.s2voice").exit_code == 0
    assert run("voice", "add", "bert", store.folder / "小红.voice", "-q").output == ""
    assert run("voice", "list").stdout == "bert  7 frames  so it goes\n小红    7 frames  so it goes\n"
    shown = run("voice", "show", "bert").stdout
    assert "10 codebooks of up to 128, 44100 Hz" in shown and "so it\ngoes" in shown and "bert" in shown
    assert run("voice", "show", tmp_path / "a.s2voice").stdout.replace("none", "bert", 1) == shown
    unknown = run("voice", "remove", "小红", "ber")
    assert unknown.exit_code == 2 and "did you mean 'bert'" in unknown.stderr
    assert store.names() == ["bert", "小红"]
    assert run("voice", "remove", "小红", "bert", "bert").exit_code == 0
    assert store.names() == []


def test_what_a_terminal_would_obey_is_not_printed(store: VoiceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.zeros((10, 1), int)
    store.add("a", Voice(codes=codes, transcript="so\x1b[2J\x07 it\ngoes", sample_rate=44100, codebook_size=128))
    for command in (["list"], ["show", "a"]):
        printed = run("voice", *command).stdout
        assert "so\ufffd[2J\ufffd it" in printed and not {"\x1b", "\x07"} & set(printed)


def test_an_existing_voice_is_replaced_with_force_alone(store: VoiceStore, voice: Voice, tmp_path: Path) -> None:
    voice.save(tmp_path / "a.voice")
    assert run("voice", "add", "a", tmp_path / "a.voice").exit_code == 0
    before = (store.folder / "a.voice").read_bytes()
    Voice(codes=voice.codes, transcript="new", sample_rate=44100, codebook_size=128).save(tmp_path / "a.voice")
    refused = run("voice", "add", "a", tmp_path / "a.voice")
    assert refused.exit_code == 2 and "--force" in refused.stderr
    assert (store.folder / "a.voice").read_bytes() == before
    assert run("voice", "add", "a", tmp_path / "a.voice", "--force").exit_code == 0
    assert store.get("a").transcript == "new"


def test_a_damaged_voice_is_an_error_in_every_verb(
    store: VoiceStore, voice: Voice, toy_model: Path, tmp_path: Path
) -> None:
    store.add("good", voice)
    path = store.add("bad", voice)
    data = bytearray(path.read_bytes())
    data[-50] ^= 4
    path.write_bytes(data)
    listed = run("voice", "list")
    assert listed.exit_code == 1 and listed.stdout.startswith("good ") and "bad: [voice]" in listed.stderr
    say = ["say", "hello", "-m", toy_model, "-o", tmp_path / "a.wav", "--voice"]
    for command in (["voice", "show", "bad"], ["voice", "show", path], ["voice", "add", "c", path], [*say, "bad"],
                    [*say, path]):  # fmt: skip
        result = run(*command)
        assert result.exit_code == 2 and "damaged" in result.stderr, result.output
        assert "Traceback" not in result.output
    assert not (tmp_path / "a.wav").exists() and store.names() == ["bad", "good"]
    assert run("voice", "remove", "bad").exit_code == 0


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "C:x", "con", "", "a\x00b"])
def test_a_bad_name_is_refused_in_every_verb(
    name: str, store: VoiceStore, voice: Voice, toy_model: Path, tmp_path: Path
) -> None:
    voice.save(tmp_path / "x.voice")
    for command in (["voice", "add", name, tmp_path / "x.voice"], ["voice", "remove", name]):
        result = run(*command)
        assert result.exit_code == 2 and "expected a name of 1 to 64" in result.stderr, result.output
    for command in (["voice", "show", name], ["say", "x", "-m", toy_model, "-o", tmp_path / "a.wav", "--voice", name]):
        result = run(*command)  # with a separator it is a path, and there is nothing
        assert result.exit_code == 2 and "Traceback" not in result.output and result.stderr
    assert not store.folder.exists() and (tmp_path / "x.voice").exists()


def test_options_that_would_do_nothing_are_refused(
    recording: Path, voice: Voice, toy_model: Path, tmp_path: Path, store: VoiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.voice"
    voice.save(file)
    cases: tuple[tuple[list[str | Path], str], ...] = (
        ([recording, "-m", toy_model], "--transcript"),
        ([recording, "-m", toy_model, "--transcript", "a", "--transcript-file", recording], "once"),
        ([recording, "-m", toy_model, "--transcript", " "], "only blanks"),
        ([recording, "-m", toy_model, "--transcript-file", recording], "UTF-8"),
        ([recording, "--transcript", "a"], "--model"),
        ([file, "--transcript", "a"], "has its transcript"),
        ([file, "--threads", "2"], "--threads"),
        ([file, "--device", "cpu"], "--device"),
        ([tmp_path / "none.wav", "--transcript", "a"], "no file"),
        ([toy_model, "--transcript", "a", "-m", toy_model], "WAV, FLAC"),
    )
    for arguments, words in cases:
        result = run("voice", "add", "a", *arguments)
        assert result.exit_code == 2 and words in result.stderr, (arguments, result.output)
        assert "Traceback" not in result.output
    assert store.names() == []
    monkeypatch.setenv("DUALAR_MODEL", str(tmp_path / "none.gguf"))  # a default, which a voice file does not need
    assert run("voice", "add", "a", file).exit_code == 0


def test_a_voice_file_is_checked_against_a_model_that_is_named(
    recording: Path, toy_model: Path, tmp_path: Path, store: VoiceStore
) -> None:
    other = tmp_path / "other.gguf"
    write_toy_model(other, seed=1)
    add: list[str | Path] = [
        "voice",
        "add",
        "anna",
        recording,
        "--transcript-file",
        tmp_path / "t.txt",
        "-m",
        other,
        "--threads",
        "1",
    ]
    (tmp_path / "t.txt").write_text("hello\n", encoding="utf-8-sig")
    assert run(*add).exit_code == 0
    assert store.get("anna").transcript == "hello"
    file = store.folder / "anna.voice"
    assert run("voice", "add", "b", file, "-m", other).exit_code == 0
    refused = run("voice", "add", "c", file, "-m", toy_model)
    assert refused.exit_code == 2 and "toy.gguf" in refused.stderr and "'anna' for another" in refused.stderr
    refused = run("say", "hello", "--voice", "anna", "-m", toy_model, "-o", tmp_path / "a.wav", *SHORT)
    assert refused.exit_code == 2 and "'anna' for another" in refused.stderr
    assert not (tmp_path / "a.wav").exists()
