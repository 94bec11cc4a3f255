"""The prompt matrix is the template's pieces in order, and wrong input is refused with a clear text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from dualar.families.base import Turn
from dualar.families.s2_prompt import build_prompt
from dualar.text.tokenizer import Tokenizer
from dualar.voices.voice import Reference
from fixtures import make_toy_model
from hypothesis import given
from hypothesis import strategies as st

N, C = 3, 128
TOY = Tokenizer.from_json(make_toy_model.train_tokenizer(C))
assert TOY.semantic_begin_id is not None
BEGIN: int = TOY.semantic_begin_id
CODES = np.array([[5, 127, 0], [1, 2, 3], [127, 0, 64]])

# The pieces of DESIGN's template, written out here once more.
SYSTEM = ["<|im_start|>system\n", "convert the provided text to speech", "<|im_end|>\n"]
USER = "<|im_start|>user\n"
END = "<|im_end|>\n"
ASSISTANT = "<|im_start|>assistant\n<|voice|>"


def prompt(text: str = "hello", **options: Any) -> npt.NDArray[np.int32]:
    given: dict[str, Any] = {"tokenizer": TOY, "num_codebooks": N, "codebook_size": C, "semantic_begin_id": BEGIN}
    return build_prompt(text, **(given | options))


class Recorder:
    """Each piece is one id, its number in `pieces`; what came as a user's text is marked."""

    def __init__(self) -> None:
        self.pieces: list[tuple[str, str]] = []

    def _add(self, kind: str, piece: str) -> list[int]:
        self.pieces.append((kind, piece))
        return [len(self.pieces) - 1]

    def encode_text(self, text: str) -> list[int]:
        return self._add("text", text)

    def encode_template(self, piece: str) -> list[int]:
        return self._add("template", piece)


def template(*pieces: str) -> list[tuple[str, str]]:
    return [("template", piece) for piece in pieces]


def spoken(codes: npt.ArrayLike) -> list[list[int]]:
    """Columns of the matrix for these codes."""
    return [[1000 + int(frame[0]), *map(int, frame)] for frame in np.asarray(codes).T]


def recorded(text: str = "hello", **options: Any) -> tuple[list[tuple[str, str]], list[list[int]]]:
    """The pieces in order, and the columns of the matrix."""
    recorder = Recorder()
    matrix = prompt(text, tokenizer=recorder, semantic_begin_id=1000, **options)
    assert matrix.dtype == np.int32 and matrix.flags.c_contiguous
    return recorder.pieces, matrix.T.tolist()


def test_plain_template() -> None:
    pieces, columns = recorded("some text")
    assert pieces == [*template(*SYSTEM, USER), ("text", "some text"), *template(END, ASSISTANT)]
    assert columns == [[i, 0, 0, 0] for i in range(len(pieces))]


def test_reference_template() -> None:
    pieces, columns = recorded("some text", reference=Reference(CODES, "what is said"))
    assert pieces == [
        *template(SYSTEM[0], "convert the provided text to speech reference to the following:\n\nText:\n"),
        ("text", "<|speaker:0|>what is said"),
        *template("\n\nSpeech:\n", END, USER),
        ("text", "some text"),
        *template(END, ASSISTANT),
    ]
    ids = [[i, 0, 0, 0] for i in range(len(pieces))]
    assert columns == [*ids[:4], *spoken(CODES), *ids[4:]]


@pytest.mark.parametrize("transcript", ["<|speaker:1|>hers", "his <|speaker:0|> and hers"])
def test_a_transcript_with_a_speaker_tag_gets_no_other(transcript: str) -> None:
    pieces, _ = recorded(reference=Reference(CODES, transcript))
    assert pieces[2] == ("text", transcript)


def test_history_template() -> None:
    other = CODES[:, :1]
    pieces, columns = recorded("now", history=[Turn("first", CODES), Turn("second", other)])
    assert pieces == [
        *template(*SYSTEM),
        *template(USER),
        ("text", "first"),
        *template(END, ASSISTANT, END, USER),
        ("text", "second"),
        *template(END, ASSISTANT, END, USER),
        ("text", "now"),
        *template(END, ASSISTANT),
    ]
    ids = [[i, 0, 0, 0] for i in range(len(pieces))]
    assert columns == [*ids[:7], *spoken(CODES), *ids[7:12], *spoken(other), *ids[12:]]


def test_reference_comes_before_history() -> None:
    pieces, columns = recorded("now", reference=Reference(CODES, "ref"), history=[Turn("then", CODES[:, ::-1])])
    texts = [piece for kind, piece in pieces if kind == "text"]
    assert texts == ["<|speaker:0|>ref", "then", "now"]
    assert [c for c in columns if c[0] >= 1000] == [*spoken(CODES), *spoken(CODES[:, ::-1])]


def test_with_the_real_tokenizer() -> None:
    """Ids of the pieces joined; every control token where the template has it and nowhere else."""
    text = "Hello <|im_end|> there"
    matrix = prompt(text, reference=Reference(CODES, "It says <|semantic:3|>."))
    pieces = [TOY.encode_template(SYSTEM[0])]
    pieces.append(TOY.encode_template("convert the provided text to speech reference to the following:\n\nText:\n"))
    pieces.append(TOY.encode_text("<|speaker:0|>It says <|semantic:3|>."))
    pieces.append(TOY.encode_template("\n\nSpeech:\n"))
    pieces.append([int(BEGIN + c) for c in CODES[0]])
    pieces += [TOY.encode_template(END), TOY.encode_template(USER), TOY.encode_text(text)]
    pieces += [TOY.encode_template(END), TOY.encode_template(ASSISTANT)]
    np.testing.assert_array_equal(matrix[0], np.concatenate(pieces))
    semantic = (matrix[0] >= BEGIN) & (matrix[0] < BEGIN + C)
    np.testing.assert_array_equal(matrix[1:, semantic], CODES)
    assert not matrix[1:, ~semantic].any()
    counts = {name: int((matrix[0] == i).sum()) for name, i in (("start", TOY.im_start_id), ("end", TOY.im_end_id))}
    assert counts == {"start": 3, "end": 2}
    assert (matrix[0] == TOY.voice_id).sum() == 1 and matrix[0, -1] == TOY.voice_id


@given(text=st.text(min_size=1), word=st.sampled_from(["<|im_end|>", "<|im_start|>", "<|voice|>", "<|semantic:9|>"]))
def test_no_text_changes_the_control_tokens(text: str, word: str) -> None:
    """The same columns around the text, whatever it holds, in each place where a text may stand."""

    def control(matrix: npt.NDArray[np.int32]) -> list[int]:
        return [i for i in matrix[0].tolist() if i in TOY.control_ids]

    text = "x" + text + word + text
    assert control(prompt(text)) == control(prompt("x"))
    reference = Reference(CODES, text)
    assert control(prompt("x", reference=reference)) == control(prompt("x", reference=Reference(CODES, "x")))
    assert control(prompt("x", history=[Turn(text, CODES)])) == control(prompt("x", history=[Turn("x", CODES)]))


# ------------------------------------------------------------------ what is refused
@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "no text: ''"),
        (" ", "only blanks: ' '"),
        ("\n\t \u3000\xa0", "only blanks: "),
        ("\u200b\ufeff\0", "only blanks: "),
        ("<|speaker:0|>", r"only speaker tags: '<\|speaker:0\|>'"),
        (" <|speaker:0|>\n<|speaker:1|> ", "only speaker tags: "),
        ("<|speaker:0|>\u200b", "only speaker tags: "),
    ],
)
def test_nothing_to_speak_is_refused(text: str, got: str) -> None:
    message = r"expected something to speak, got " + got
    with pytest.raises(ValueError, match=r"^\[text\] " + message):
        prompt(text)
    with pytest.raises(ValueError, match=r"^\[reference transcript\] " + message):
        prompt(reference=Reference(CODES, text))
    with pytest.raises(ValueError, match=r"^\[history 1 text\] " + message):
        prompt(history=[Turn("fine", CODES), Turn(text, CODES)])


@pytest.mark.parametrize("text", ["...", "?", "😀", "\u0301", "é", "5", "¿", "<|im_end|>", "<|speaker:0|>x"])
def test_little_to_speak_is_not_refused(text: str) -> None:
    assert prompt(text).shape[1] > 20


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(ValueError, match=r"lone surrogate U\+DC80 at character 0"):
        prompt("\udc80")


def test_a_text_is_a_str() -> None:
    with pytest.raises(TypeError, match=r"\[text\] expected a str, got NoneType"):
        prompt(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (np.zeros(3, int), r"expected shape \[3, T >= 1\], got \[3\]"),
        (np.zeros((4, 3), int), r"expected shape \[3, T >= 1\], got \[4, 3\]"),
        (np.zeros((3, 0), int), r"expected shape \[3, T >= 1\], got \[3, 0\]"),
        (np.zeros((1, 3, 2), int), r"got \[1, 3, 2\]"),
        (CODES.astype(np.float32), "expected integers, got dtype float32"),
        (CODES.astype(bool), "expected integers, got dtype bool"),
        (np.array([[5, 128, 0], [1, 2, 3], [0, 0, 0]]), r"in \[0, 128\), got 128 at codebook 0, frame 1"),
        (np.array([[5, 6, 0], [1, 2, 3], [0, 0, -1]], np.int8), r"in \[0, 128\), got -1 at codebook 2, frame 2"),
        (np.full((3, 1), 2**63, np.uint64), r"in \[0, 128\), got 9223372036854775808 at codebook 0, frame 0"),
    ],
)
def test_bad_codes_are_refused(codes: npt.NDArray[Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"^\[reference codes\] .*" + message):
        prompt(reference=Reference(codes, "fine"))
    with pytest.raises(ValueError, match=r"^\[history 0 codes\] .*" + message):
        prompt(history=[Turn("fine", codes)])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.uint64])
def test_any_integer_type_of_codes(dtype: npt.DTypeLike) -> None:
    want = prompt(reference=Reference(CODES, "fine"))
    got = prompt(reference=Reference(CODES.astype(dtype), "fine"))
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(prompt(reference=Reference(CODES.tolist(), "fine")), want)


def test_the_caller_s_codes_are_left_alone() -> None:
    codes = CODES.astype(np.int32)
    prompt(reference=Reference(codes, "fine"))
    np.testing.assert_array_equal(codes, CODES)
