"""The voice in the package: it speaks, ends, and is understood by a free recogniser. `benchmarks/bench_voice.py` tells
how well; here ten of its phrases, which were not trained on, are held against a bound that a broken voice misses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import dualar
import numpy as np
import pytest
from dualar.cli.main import app
from dualar.default_voice import default_model, unknown_words
from typer.testing import CliRunner

from training.domain import held_out, training_sentences, written_forms
from training.recognise import Recogniser, bigram_model, error_rate, spoken_words, word_errors


def _shipped() -> bool:
    try:
        return default_model().is_file()
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not _shipped(), reason="this build has no voice of its own: see training/README.md")


@pytest.fixture(scope="module")
def voice() -> Iterator[dualar.Engine]:
    with dualar.load(threads=1) as engine:
        yield engine


def test_it_is_small_and_whole(voice: dualar.Engine) -> None:
    assert default_model().stat().st_size <= 12_000_000
    assert voice.tokenizer is not None
    assert voice.codec.sample_rate == 16000 and voice.codec.num_codebooks == voice.model.num_codebooks


def test_say_needs_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUALAR_MODEL", raising=False)
    out = tmp_path / "out.wav"
    result = CliRunner().invoke(app, ["say", "seven three nine", "-o", str(out), "--seed", "1"], prog_name="dualar")
    assert result.exit_code == 0, result.output
    assert 0.8 < dualar.read_audio(out)[0].size / 16000 < 3


def test_words_that_it_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUALAR_MODEL", raising=False)
    for text in (*held_out(), *(written_forms(text, random.Random(0)) for text in held_out())):
        assert unknown_words(text) == []
    assert unknown_words("One o\u2019clock: Hello there, 7 there!") == ["there", "7"]
    out = tmp_path / "out.wav"
    result = CliRunner().invoke(app, ["say", "Hello there.", "-o", str(out), "--seed", "1"], prog_name="dualar")
    assert result.exit_code == 0 and "does not know: there\n" in result.stderr
    result = CliRunner().invoke(app, ["say", "Hello.", "-o", str(out), "--seed", "1", "--force"], prog_name="dualar")
    assert result.exit_code == 0 and "does not know" not in result.stderr


def test_it_has_one_voice_and_says_pieces_alone(voice: dualar.Engine) -> None:
    with pytest.raises(ValueError, match="speaks with one voice"):
        voice.synthesize("seven", voice=voice.clone(np.zeros(16000, np.float32), "seven"))
    narration = voice.narrate("Turn on the light. Seven three nine.", seed=2)
    assert not narration.failed and len(narration.pieces) == 2
    alone = voice.synthesize(narration.pieces[1].text, seed=narration.pieces[1].seed)
    np.testing.assert_array_equal(narration.pieces[1].codes, alone.codes)


def test_a_long_text_is_said_sentence_by_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pocketsphinx", reason="pip install dualar[test]")
    monkeypatch.delenv("DUALAR_MODEL", raising=False)
    sentences = ["Good morning.", "The door is open.", "Turn on the kitchen light.", "It is noon.", "See you tomorrow."]
    out, text = tmp_path / "out.wav", " ".join(sentences)
    result = CliRunner().invoke(app, ["say", text, "-o", str(out), "--seed", "1", "--rows", "4"], prog_name="dualar")
    assert result.exit_code == 0 and f"{len(sentences)} pieces" in result.stderr
    (tmp_path / "domain.arpa").write_text(bigram_model(training_sentences(3000)))
    heard = Recogniser(tmp_path / "domain.arpa").words(dualar.read_audio(out)[0].reshape(-1))
    assert word_errors(spoken_words(text.replace(".", "").lower()), heard) <= 4, heard


def test_it_is_understood(voice: dualar.Engine, tmp_path: Path) -> None:
    pytest.importorskip("pocketsphinx", reason="pip install dualar[test]")
    (tmp_path / "domain.arpa").write_text(bigram_model(training_sentences(3000)))
    recogniser = Recogniser(tmp_path / "domain.arpa")
    pairs = []
    for i, text in enumerate(held_out()[:10]):
        audio = voice.synthesize(text, seed=i)
        assert audio.finish_reason == "end", text
        assert np.isfinite(audio.samples).all() and np.abs(audio.samples).max() < 1
        pairs.append((text, recogniser.words(audio.samples)))
    assert error_rate(pairs) <= 0.2, pairs


def test_it_says_when_each_word_is_heard(voice: dualar.Engine) -> None:
    if not voice.model.alignment_heads:
        pytest.skip("this build's voice names no alignment heads")
    for seed, text in enumerate(held_out()[:5]):
        audio = voice.synthesize(text, seed=seed, word_times=True)
        assert audio.words is not None
        assert [word.text for word in audio.words] == [word.strip(",.?") for word in text.split()]
        starts, ends = ([getattr(word, name) for word in audio.words] for name in ("sample_start", "sample_end"))
        assert starts == sorted(starts) and ends == sorted(ends) and ends[-1] <= audio.samples.size
        quiet = np.abs(audio.samples).mean()
        for word in audio.words:  # each is at least a frame long, and something is heard in it
            assert word.sample_end - word.sample_start >= voice.codec.samples_per_frame // 2
            assert np.abs(audio.samples[word.sample_start : word.sample_end]).mean() > quiet / 4
