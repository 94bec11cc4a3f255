"""The voice in the package: it speaks, ends, and is understood by a free recogniser. `benchmarks/bench_voice.py` tells
how well, with an open recogniser; here some of its sentences are held against a bound that a broken voice misses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dualar
import numpy as np
import pytest
from dualar.cli.main import app
from dualar.default_voice import default_model
from recogniser import Recogniser, bigram_model, error_rate, spoken_words, word_errors
from typer.testing import CliRunner


def _shipped() -> bool:
    try:
        return default_model().is_file()
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not _shipped(), reason="this build has no voice of its own: see training/README.md")

SENTENCES = [
    "Help the woman get back to her feet.",
    "The beauty of the view stunned the young boy.",
    "Can you tell me where the nearest train station is?",
    "Please restart the server before you install the update.",
    "How many people live in Australia?",
    "We should probably leave before the traffic gets worse.",
    "The committee postponed the vote until next Thursday.",
    "Two thirds of the planet is covered by water.",
    "The village has one school, one church, and no traffic lights.",
    "Could I have the bill, please?",
    "Do you know anyone who can repair a piano?",
    "The old bridge was built by Roman soldiers.",
]
"""Of the benchmark's sentences, on which the voice was not trained; those of them that are in words alone."""


@pytest.fixture(scope="module")
def voice() -> Iterator[dualar.Engine]:
    with dualar.load(threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def recogniser(tmp_path_factory: pytest.TempPathFactory) -> Recogniser:
    """Bound to the words of the sentences, each of which may follow any other."""
    pytest.importorskip("pocketsphinx", reason="pip install dualar[test]")
    path = tmp_path_factory.mktemp("model") / "sentences.arpa"
    path.write_text(bigram_model([text.replace("?", ".") for text in SENTENCES]))
    return Recogniser(path)


def test_it_is_small_and_whole(voice: dualar.Engine) -> None:
    assert default_model().stat().st_size <= 12_000_000
    assert voice.tokenizer is not None
    assert voice.codec.sample_rate == 16000 and voice.codec.num_codebooks == voice.model.num_codebooks
    assert voice.sampling == dualar.SamplingConfig.fish(temperature=0.4, residual_temperature=0.2, ras_window=0)


def test_say_needs_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUALAR_MODEL", raising=False)
    out = tmp_path / "out.wav"
    words = ["say", "Whatever comes to mind.", "-o", str(out), "--seed", "1"]
    result = CliRunner().invoke(app, words, prog_name="dualar")
    assert result.exit_code == 0, result.output
    assert "guessed" not in result.stderr
    assert 0.8 < dualar.read_audio(out)[0].size / 16000 < 3


def test_guessed_words_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUALAR_MODEL", raising=False)
    words = ["say", "A blorptastic day.", "-o", str(tmp_path / "out.wav"), "--seed", "1"]
    result = CliRunner().invoke(app, words, prog_name="dualar")
    assert result.exit_code == 0 and "guessed from their letters: blorptastic;" in result.stderr
    result = CliRunner().invoke(app, [*words, "--force", "--quiet"], prog_name="dualar")
    assert result.exit_code == 0 and "guessed" not in result.stderr


def test_another_script_is_refused(voice: dualar.Engine) -> None:
    with pytest.raises(ValueError, match="expected English, got Cyrillic letters"):
        voice.synthesize("Добрый день.")


def test_it_has_one_voice_and_says_pieces_alone(voice: dualar.Engine) -> None:
    with pytest.raises(ValueError, match="speaks with one voice"):
        voice.synthesize("seven", voice=voice.clone(np.zeros(16000, np.float32), "seven"))
    narration = voice.narrate("Turn on the light. Seven three nine.", seed=2)
    assert not narration.failed and len(narration.pieces) == 2
    alone = voice.synthesize(narration.pieces[1].text, seed=narration.pieces[1].seed)
    np.testing.assert_array_equal(narration.pieces[1].codes, alone.codes)


def test_a_long_text_is_said_sentence_by_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recogniser: Recogniser
) -> None:
    monkeypatch.delenv("DUALAR_MODEL", raising=False)
    out, text = tmp_path / "out.wav", " ".join(SENTENCES[:4])
    result = CliRunner().invoke(app, ["say", text, "-o", str(out), "--seed", "1", "--rows", "4"], prog_name="dualar")
    assert result.exit_code == 0 and "4 pieces" in result.stderr
    heard = recogniser.words(dualar.read_audio(out)[0].reshape(-1))
    wanted = [word for sentence in SENTENCES[:4] for word in spoken_words(sentence.replace("?", ""))]
    assert word_errors(wanted, heard) <= 0.2 * len(wanted), heard


def test_it_is_understood(voice: dualar.Engine, recogniser: Recogniser) -> None:
    pairs = []
    for i, text in enumerate(SENTENCES):
        audio = voice.synthesize(text, seed=i)
        assert audio.finish_reason == "end", text
        assert np.isfinite(audio.samples).all() and np.abs(audio.samples).max() < 1
        pairs.append((text.replace("?", ""), recogniser.words(audio.samples)))
    assert error_rate(pairs) <= 0.2, pairs


def test_it_says_when_each_word_is_heard(voice: dualar.Engine) -> None:
    if not voice.model.alignment_heads:
        pytest.skip("this build's voice names no alignment heads")
    for seed, text in enumerate(SENTENCES[:5]):
        audio = voice.synthesize(text, seed=seed, word_times=True)
        assert audio.words is not None
        assert [word.text for word in audio.words] == [word.strip(",.?") for word in text.split()]
        starts, ends = ([getattr(word, name) for word in audio.words] for name in ("sample_start", "sample_end"))
        assert starts == sorted(starts) and ends == sorted(ends) and ends[-1] <= audio.samples.size
        loudness = np.abs(audio.samples).mean()
        for word in audio.words:  # each is half a frame long at least, and heard all along
            assert word.sample_end - word.sample_start >= voice.codec.samples_per_frame // 2
            assert np.abs(audio.samples[word.sample_start : word.sample_end]).mean() > 0.1 * loudness
        frame = voice.codec.samples_per_frame  # nothing is heard before the first word and behind the last
        for silence in (audio.samples[frame // 2 : starts[0]], audio.samples[ends[-1] + frame // 2 :]):
            assert silence.size == 0 or np.abs(silence).mean() < 0.1 * loudness
        assert audio.samples.size - ends[-1] >= frame


def test_the_pieces_of_a_paragraph_are_equally_loud(voice: dualar.Engine) -> None:
    text = (
        "The harbour was quiet that morning. Two boats came in with the tide, and a third one waited outside. Nobody "
        "on the pier said a word! Was it the cold, or the letter that Anna had read aloud the night before?"
    )
    told = voice.narrate(text, seed=1)
    assert len(told.pieces) == 4 and not told.failed
    levels = []
    for piece in told.pieces:
        sound = told.samples[piece.sample_start : piece.sample_start + piece.sample_count]
        power = np.square(sound[: sound.size // 160 * 160].reshape(-1, 160)).mean(1)  # of 10 ms
        levels.append(10 * np.log10(power[power > power.max() / 400].mean()))
    assert max(levels) - min(levels) < 3  # dB
