"""What a person sees: a clip in a notebook, a text that is too long, a file that is no sound."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import dualar
import numpy as np
import pytest
import soundfile
from dualar.audio.kinds import kind_of
from dualar.engine import Engine


@pytest.fixture(scope="module")
def clip(engine: Engine) -> dualar.Audio:
    return engine.synthesize("hello", seed=1, max_new_tokens=4, min_tokens_before_end=4)


def test_a_clip_is_an_array(clip: dualar.Audio) -> None:
    assert np.asarray(clip) is clip.samples or np.shares_memory(np.asarray(clip), clip.samples)
    assert np.asarray(clip, np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(clip), clip.samples)
    np.testing.assert_array_equal(np.asarray(clip), clip.samples)


def test_whether_an_array_of_a_clip_is_a_copy(clip: dualar.Audio) -> None:
    """As NumPy 2 asks for it; NumPy 1 passes no `copy`, and would read None as False."""
    samples = clip.samples.dtype
    for dtype in (None, samples):
        for copy in (None, False):
            assert np.shares_memory(clip.__array__(dtype, copy=copy), clip.samples)
        made = clip.__array__(dtype, copy=True)
        assert not np.shares_memory(made, clip.samples) and made.dtype == samples
    assert clip.__array__(np.float64, copy=True).dtype == np.float64
    assert clip.__array__(np.float64).dtype == clip.__array__(np.float64, copy=None).dtype == np.float64
    with pytest.raises(ValueError, match=r"\[array\] expected float32 where no copy may be made, got float64"):
        clip.__array__(np.float64, copy=False)


def test_a_notebook_shows_a_player_with_the_sound_in_it(clip: dualar.Audio) -> None:
    found = re.search(r'<audio controls src="data:audio/wav;base64,([^"]+)"', clip._repr_html_())
    assert found is not None
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(found.group(1))), dtype="float32")
    assert rate == clip.sample_rate
    np.testing.assert_allclose(samples, clip.samples, atol=1 / 32000)
    assert f"seed {clip.seed}" in clip._repr_html_()


def test_a_long_clip_shows_its_beginning_and_says_so(clip: dualar.Audio) -> None:
    import dataclasses

    long = dataclasses.replace(clip, samples=np.zeros(130 * clip.sample_rate, np.float32))
    shown = long._repr_html_()
    assert "the first 120 s" in shown and len(shown) < 1.4 * 2 * 121 * clip.sample_rate
    none = dataclasses.replace(clip, samples=np.zeros(0, np.float32))
    assert "no sound" in none._repr_html_() and "<audio" not in none._repr_html_()


def test_a_narration_is_the_same_kind_of_sound(engine: Engine) -> None:
    made = engine.narrate("hello. there.", seed=1, max_new_tokens=4)
    np.testing.assert_array_equal(np.asarray(made), made.samples)
    assert "<div>" in made._repr_html_()


def test_a_text_too_long_for_the_context_says_what_to_call(engine: Engine) -> None:
    text = "word " * engine.model.context_length
    for call in (engine.synthesize, lambda text: next(iter(engine.synthesize_batch([text])))):
        with pytest.raises(ValueError, match=r"\[text\] expected a text that leaves room .*Engine.narrate"):
            call(text)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"\0\0\0\x20ftypM4A \0\0\0\0", "M4A"),
        (b"\0\0\0\x20ftypisom\0\0\0\0", "MP4"),
        (b"\x1aE\xdf\xa3\x9fB\x86\x81", "WebM"),
        (b"#!AMR\n", "AMR"),
        (b"0&\xb2u\x8ef\xcf\x11\xa6\xd9", "WMA"),
        (b"\xff\xf1\x50\x80\x00\x1f\xfc", "AAC"),
        (b"%PDF-1.7\n", "PDF"),
        (b"PK\x03\x04\x14\0", "ZIP"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"Dear reader, this is no sound.", "text"),
        ("Grüße".encode()[:3], "text"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
    ],
)
def test_a_file_that_is_no_sound_is_called_what_it_seems_to_be(head: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "sound.wav"
    path.write_bytes(head + (b" more" if words in ("text", "HTML") else b"\0" * 200))
    kind = kind_of(head)
    assert kind is not None and words in kind
    with pytest.raises(ValueError, match=re.escape(str(path))) as error:
        dualar.read_audio(path)
    assert "<_io" not in str(error.value) and "WAV, FLAC, OGG or MP3" in str(error.value)


def test_nothing_is_made_up_where_nothing_tells() -> None:
    assert kind_of(bytes(range(128, 192))) is None and kind_of(b"") is None
    with pytest.raises(ValueError, match=r"got Format not recognised") as error:
        dualar.read_audio(bytes(range(128, 192)) * 4)
    assert "BytesIO" not in str(error.value)
