"""`Voice` and its files: both layouts byte for byte, round trips, and the refusal of whatever was changed in them."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dualar.voices.formats import MAX_BYTES, encode_voice
from dualar.voices.voice import Voice
from hypothesis import given, settings
from hypothesis import strategies as st

CODES = np.array([[5, 0, 99], [1, 2, 3]])
FIELDS: dict[str, Any] = {
    "codes": CODES,
    "transcript": "Grüß Gott, 早上好!",
    "sample_rate": 44100,
    "codebook_size": 100,
    "samples_per_frame": 2048,
    "fingerprint": "c1-0123",
    "name": "anna",
}


def made(**changes: Any) -> Voice:
    return Voice(**{**FIELDS, **changes})


def same(a: Voice, b: Voice, *, s2: bool = False) -> None:
    np.testing.assert_array_equal(a.codes, b.codes)
    assert a.codes.dtype == b.codes.dtype == np.int32
    assert (a.transcript, a.sample_rate, a.codebook_size) == (b.transcript, b.sample_rate, b.codebook_size)
    rest = (b.samples_per_frame, b.fingerprint, b.name)
    assert rest == ((None,) * 3 if s2 else (a.samples_per_frame, a.fingerprint, a.name))


def s2_file(
    *, codes: Any = CODES, text: bytes = b"hello\0", head: dict[int, int] | None = None, tail: bytes = b""
) -> bytes:
    """A .s2voice, written here from its description; `head` replaces header fields by their number."""
    matrix = np.asarray(codes, "<i4")
    fields = [1, *matrix.shape, 44100, 100, len(text), matrix.nbytes]
    for i, value in (head or {}).items():
        fields[i] = value
    return b"S2VOICE\0" + struct.pack("<IiiiiQQ", *fields) + text + matrix.tobytes() + tail


def own_file(description: Any, codes: Any = CODES, *, version: int = 1, head: tuple[int, int] | None = None) -> bytes:
    """A .voice with a right checksum, whatever else is wrong in it."""
    text = description if isinstance(description, bytes) else json.dumps(description).encode()
    data = np.asarray(codes, "<i4").tobytes()
    sizes = head or (len(text), len(data))
    body = b"DUALARV\0" + struct.pack("<IIQ", version, *sizes) + text + data
    return body + hashlib.sha256(body).digest()


DESCRIPTION = {"shape": [2, 3], "transcript": "hello", "sample_rate": 44100, "codebook_size": 100}


# ------------------------------------------------------------------ a voice
def test_a_voice_does_not_change() -> None:
    mine = CODES.astype(np.int32)
    voice = made(codes=mine)
    mine[0, 0] = 7
    assert voice.codes[0, 0] == 5
    with pytest.raises(ValueError, match="read-only"):
        voice.codes[0, 0] = 7
    assert voice.num_codebooks == 2 and voice.frames == 3
    assert voice.duration == pytest.approx(3 * 2048 / 44100)
    assert made(samples_per_frame=None).duration is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"codes": [[100], [0]]}, "got 100 at codebook 0, frame 0"),
        ({"codes": [[-1], [0]]}, "got -1"),
        ({"codes": [1, 2]}, r"shape .* got \[2\]"),
        ({"codes": np.zeros((2, 0), int)}, r"got \[2, 0\]"),
        ({"codes": np.zeros((0, 2), int)}, "codebooks, got 0"),
        ({"codes": [[0.5], [1.0]]}, "float64"),
        ({"transcript": ""}, "no text"),
        ({"transcript": " <|speaker:0|>"}, "only speaker tags"),
        ({"transcript": "a\0b"}, "NUL, got one at 1"),
        ({"transcript": "a\ud800"}, r"U\+D800 at 1"),
        ({"sample_rate": 0}, "sample_rate"),
        ({"codebook_size": 2**31}, "codebook_size"),
        ({"samples_per_frame": 0}, "samples_per_frame"),
        ({"fingerprint": "ä"}, "fingerprint"),
        ({"name": "../x"}, "name"),
    ],
)
def test_what_is_no_voice_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made(**changes)


# ------------------------------------------------------------------ the layouts
def test_s2voice_is_as_described(tmp_path: Path) -> None:
    path = tmp_path / "a.s2voice"
    made(transcript="hello").save(path)
    assert path.read_bytes() == s2_file()
    same(made(transcript="hello"), Voice.load(path), s2=True)


def test_own_format_is_as_described(tmp_path: Path) -> None:
    path = tmp_path / "a.voice"
    made().save(path)
    data = path.read_bytes()
    magic, version, text_bytes, code_bytes = struct.unpack_from("<8sIIQ", data)
    assert (magic, version, code_bytes) == (b"DUALARV\0", 1, 24)
    description = json.loads(data[24 : 24 + text_bytes])
    assert description.pop("shape") == [2, 3]
    assert description == {key: value for key, value in FIELDS.items() if key != "codes"}
    assert data[24 + text_bytes : -32] == CODES.astype("<i4").tobytes()
    assert data[-32:] == hashlib.sha256(data[:-32]).digest()


def test_content_decides_on_loading_and_the_name_on_saving(tmp_path: Path) -> None:
    path = tmp_path / "ä 早.S2VOICE"
    made().save(path)
    assert path.read_bytes()[:8] == b"S2VOICE\0"
    made().save(path, format="voice")
    same(made(), Voice.load(path))
    other = tmp_path / "voice.bin"
    with pytest.raises(ValueError, match=r"\.voice or \.s2voice, got .*voice\.bin"):
        made().save(other)
    with pytest.raises(ValueError, match="'voice' or 's2voice', got 'pickle'"):
        made().save(other, format="pickle")  # type: ignore[arg-type]
    assert not other.exists()
    made().save(other, format="s2voice")
    same(made(), Voice.load(other), s2=True)


def test_keys_of_later_writers_are_passed_over() -> None:
    voice = Voice.decode(own_file({**DESCRIPTION, "mood": "calm"}))
    assert voice.transcript == "hello" and voice.fingerprint is None


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_round_trips(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 2**31 - 1))
    shape = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 40)))
    codes = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, size, shape)
    text = data.draw(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30))
    voice = Voice(
        codes=codes.astype(np.int32),
        transcript=text + "a",
        sample_rate=data.draw(st.integers(1, 2**24)),
        codebook_size=size,
        samples_per_frame=data.draw(st.none() | st.integers(1, 2**31 - 1)),
        fingerprint=data.draw(st.none() | st.text("abc019-:", max_size=40)),
        name=data.draw(st.none() | st.sampled_from(["anna", "小红", "B.2_c"])),
    )
    same(voice, Voice.decode(encode_voice(voice)))
    same(voice, Voice.decode(encode_voice(voice, "s2voice")), s2=True)


# ------------------------------------------------------------------ damage
def test_every_truncation_and_every_flipped_bit_is_found() -> None:
    data = encode_voice(made())
    for end in range(len(data)):
        with pytest.raises(ValueError, match=r"^\[voice\] expected .* in x\.voice, got "):
            Voice.decode(data[:end], source="x.voice")
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"^\[voice\] expected .* in x\.voice, got "):
            Voice.decode(bytes(changed), source="x.voice")
    with pytest.raises(ValueError, match="longer than it says"):
        Voice.decode(data + b"\0")


def test_s2voice_cut_or_flipped_is_refused_or_consistent() -> None:
    data = s2_file()
    for end in range(len(data)):
        with pytest.raises(ValueError, match=r"^\[voice\]"):
            Voice.decode(data[:end])
    refused = 0
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            voice = Voice.decode(bytes(changed))
        except ValueError as error:
            assert str(error).startswith("[voice]")
            refused += 1
        else:  # nothing in the file contradicts the change
            assert encode_voice(voice, "s2voice") == changed
    assert refused > 4 * len(data)


@settings(deadline=None, max_examples=150)
@given(
    st.binary(max_size=120),
    st.sampled_from([b"", b"S2VOICE\0", b"S2VOICE\0\1\0\0\0", b"DUALARV\0", b"DUALARV\0\1\0\0\0"]),
)
def test_any_bytes_are_a_voice_or_a_value_error(rest: bytes, start: bytes) -> None:
    try:
        Voice.decode(start + rest)
    except ValueError as error:
        assert str(error).startswith("[voice]")


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.sampled_from([*DESCRIPTION, "name", "fingerprint", "samples_per_frame"]),
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)
    | st.dictionaries(st.text(max_size=2), st.integers(), max_size=1)))  # fmt: skip
def test_any_description_with_a_right_checksum_is_a_voice_or_a_value_error(changes: dict[str, Any]) -> None:
    try:
        Voice.decode(own_file({**DESCRIPTION, **changes}))
    except ValueError as error:
        assert str(error).startswith("[voice]")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (s2_file(head={0: 2}), "version 1 in voice, got version 2"),
        (s2_file(head={1: -2, 2: -3}), "at least one codebook and one frame in voice, got -2 and -3"),
        (s2_file(codes=np.zeros((2, 0))), "got 2 and 0"),
        (s2_file(head={1: 2**31 - 1, 2: 2**31 - 1}), "2147483647 x 2147483647 codes"),
        (s2_file(head={5: 2**63}), "9223372036854775"),
        (s2_file(head={6: 2**64 - 1}), "bytes by its header"),
        (s2_file(head={5: 0}), "final NUL"),
        (s2_file(text=b"hello!"), "one without"),
        (s2_file(text=b"he\0lo\0"), "a NUL within it"),
        (s2_file(text=b"\xff\0"), "UTF-8 in voice, got byte 0xff at 0"),
        (s2_file(text=b" \0"), "only blanks"),
        (s2_file(head={3: 0}), "sample_rate"),
        (s2_file(head={4: 99}), "got 99 at codebook 0"),
        (s2_file(head={4: -5}), "codebook_size"),
        (s2_file(tail=b"\0"), "longer than it says"),
        (own_file(DESCRIPTION, version=7), "version 1 in voice, got version 7"),
        (own_file(DESCRIPTION, head=(2**32 - 1, 2**64 - 1)), "bytes by its header"),
        (own_file(b"[" * 100_000), "JSON"),
        (own_file(b"\xff"), "JSON"),
        (own_file([1]), "object in voice, got list"),
        (own_file({"shape": [2, 3]}), "transcript, sample_rate, codebook_size"),
        (own_file({**DESCRIPTION, "shape": [2**40, 2**40]}), "codes of 4 bytes"),
        (own_file({**DESCRIPTION, "shape": [True, 6]}), "shape"),
        (own_file({**DESCRIPTION, "shape": [3, 2], "codebook_size": 50}), "got 99"),
        (own_file({**DESCRIPTION, "transcript": 5}), "str, got int"),
        (own_file({**DESCRIPTION, "name": ".."}), "name"),
        (b"", "0 bytes: it is cut short"),
        (b"RIFF....WAVE", "begins with b'RIFF"),
    ],
)
def test_contradictions_are_named(data: bytes, words: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=words):
            Voice.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000, "a size in the file was believed"
    finally:
        tracemalloc.stop()


def test_what_is_no_plain_file_is_refused_without_opening_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.voice"):
        Voice.load(tmp_path / "none.voice")
    with pytest.raises(ValueError, match="got a folder"):
        Voice.load(tmp_path)
    pipe = tmp_path / "pipe.voice"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="plain file"):
        Voice.load(pipe)
    huge = tmp_path / "huge.voice"
    with open(huge, "wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ValueError, match=f"at most {MAX_BYTES} bytes in .*huge.voice, got {MAX_BYTES + 1}"):
        Voice.load(huge)


def test_a_voice_too_long_for_a_file_is_refused_on_saving(tmp_path: Path) -> None:
    voice = made(codes=np.zeros((1, MAX_BYTES // 4), np.int32))
    with pytest.raises(ValueError, match="at most"):
        voice.save(tmp_path / "a.voice")
    assert list(tmp_path.iterdir()) == []
