"""Where a long text is cut, in several scripts, and where never; the pieces are the text."""

# ruff: noqa: RUF001 (letters and marks of many scripts are what this is about)
from __future__ import annotations

import re
import unicodedata

import pytest
from dualar.text.split import Piece, speech_size, split_text
from dualar.text.tokenizer import SPEAKER_TAG
from hypothesis import example, given, settings
from hypothesis import strategies as st


def pieces(text: str, max_size: int = 1) -> list[str]:
    """The texts of the pieces; with a size of 1, a cut wherever there is a sentence end, or else anything."""
    found = split_text(text, max_size=max_size)
    assert "".join(piece.text for piece in found) == text
    return [piece.text for piece in found]


# ------------------------------------------------------------------ sentence ends
@pytest.mark.parametrize(
    "text",
    [
        "It rains. |We stay in! |Do we? |Yes.",
        "First line.\n|Second line.",
        "He paid 3.14 euros at 12.30. |The site is example.com, v2.0.1. |Good.",
        "Das kostet 1.000,50 Euro. |Am 3. Oktober ist Feiertag.",
        "Dr. Smith met Mrs. Jones at St. Mary's. |They left.",
        "J. R. R. Tolkien wrote it. |We read it.",
        "See e.g. Figure 2, or i.e. No. 5, fig. 3, vol. 123. |He said no. |Then he left.",
        "In the U.S. Army. |At 5 p.m. today.",
        "Er kam z. B. aus Köln, bzw. Bonn, usw. und so fort. |Sie auch.",
        "На ул. Ленина, д. 5, жил г. Иванов. |Он ушёл.",
        "M. Dupont et Mme. Curie sont là. |Bien.",
        "He waited... and waited... Then he left. |Gone.",
        "Well… I see. |So be it.",
        "Really?! |No way!!! |Fine.",
        '"Stop!" he said. |"Why?" she asked. |They stopped.',
        '"Stop it. Now." |He stopped.',
        "He said (it was late. Very late.) and left. |Good.",
        "„Halt. Wer da?“ |Er blieb stehen. |»Ich. Nur ich.« |Gut.",
        "“Go. Now.” |She went. |‘Well.’ |Good.",
        "« Viens ! Vite. » |Il vint.",
        '"He said so.\n\n|One. |Two." |Three.',
        "A 6\" board. |Another one. |More.",
        "Τι κάνεις; Καλά. |Ωραία.",
        "今天下雨。|我们在家！|好吗？|好。",
        "他说：“你好。我走了。” |她笑了。",
        "“好。”他说。|她走了。",
        "「行こう。」と彼は言った。|「はい。」|「うん。」終わり。|そう。",
        "价格是３．１４元。|很便宜。",
        "他等了……然后走了。|她没走。",
        "你好!|我很好。|再见。",
        "안녕하세요. |반갑습니다. |네.",
        "كيف حالك؟ |أنا بخير. |شكرا۔|نعم.",
        "वह आया। |वह गया। |ठीक।",
        "Բարեւ։ |Լավ եմ։ |Այո։",
        "ሰላም። |ደህና ነኝ።",
        "မင်္ဂလာပါ။|ကောင်းပါတယ်။",
        "สวัสดี ครับ",
        "One sentence [He whispers. Softly] here. |Two <|tag. X|> here.",
    ],
)  # fmt: skip
def test_sentences(text: str) -> None:
    expected = text.split("|") if "<|" not in text else text.replace("<|", "\1").replace("|>", "\2").split("|")
    expected = [part.replace("\1", "<|").replace("\2", "|>") for part in expected]
    # A cut within quotes, or after an ellipsis, is there for sentences that are too long: not counted here.
    found = split_text("".join(expected), max_size=10_000)
    assert len(found) == 1
    assert ends_of("".join(expected)) == expected


def ends_of(text: str) -> list[str]:
    from dualar.text.split import _PARAGRAPH, _SENTENCE, _places, _spoken

    last = _spoken(text)[-1]
    cuts = [place for place, rank in sorted(_places(text).items()) if rank in (_SENTENCE, _PARAGRAPH) and place <= last]
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


# ------------------------------------------------------------------ the choice
def test_sentences_fill_a_piece_and_no_more() -> None:
    text = "One two three. " * 10
    assert [len(piece) for piece in pieces(text, 50)] == [45, 45, 45, 15]
    assert pieces(text, 150) == [text]
    assert pieces(text, 149) == [text[:135], text[135:]]


def test_a_paragraph_ends_a_piece_that_is_half_full() -> None:
    text = "Aaa bbb ccc. Ddd.\n\nEee fff ggg. Hhh."
    for size in (30, 33, 35):  # of which the last two hold a sentence more
        assert pieces(text, size) == ["Aaa bbb ccc. Ddd.\n\n", "Eee fff ggg. Hhh."]
    found = split_text("Aa.\r\n \r\nEee fff ggg. Hhh iii jjj.", max_size=25)
    assert [(piece.text, piece.end) for piece in found] == [
        ("Aa.\r\n \r\nEee fff ggg. ", "sentence"), ("Hhh iii jjj.", "text")]  # fmt: skip
    assert [p.end for p in split_text(text, max_size=30)] == ["paragraph", "text"]


def test_a_long_sentence_is_cut_at_clauses_then_at_words() -> None:
    text = "Aaaa bbbb, cccc dddd; eeee ffff gggg hhhh iiii. End."
    found = split_text(text, max_size=22)
    assert [(piece.text, piece.end) for piece in found] == [
        ("Aaaa bbbb, cccc dddd; ", "clause"),
        ("eeee ffff gggg hhhh ", "word"),
        ("iiii. End.", "text"),
    ]
    assert [piece.start for piece in found] == [0, 22, 42]
    assert pieces("他来了，她也来了，大家都来了，很好。", 20) == ["他来了，", "她也来了，", "大家都来了，", "很好。"]
    assert pieces("价格是1，000元", 3) == ["价格是1，000元"]


def test_a_long_quote_is_cut_at_its_sentences_and_not_before() -> None:
    text = "He said: “It is late, and cold. We must go, all of us. Come.” Then he left, and we all went. "
    found = split_text(text * 2, max_size=60)
    assert [piece.text for piece in found] == [
        "He said: “It is late, and cold. We must go, all of us. ",
        "Come.” Then he left, and we all went. ",
    ] * 2
    assert pieces("Yes. (No. No.) Yes. No.", 16) == ["Yes. (No. No.) ", "Yes. No."]
    assert pieces("Aa bb... Cc dd ee ff.", 16) == ["Aa bb... ", "Cc dd ee ff."]


def test_nothing_is_cut_where_there_is_no_place() -> None:
    for text in (
        "a" * 500,
        "漢" * 500,
        "100\u00a0km\u202fh",
        "x" * 40 + "-" + "y" * 40,
        "ไทย" * 50,
        "👨\u200d👩\u200d👧" * 20,
    ):
        assert pieces(text) == [text]
    for joined in ("a \u2060b", "a \u200db", "a \ufeffb", "a \u0301b", "漢。\u200d字", "a\r\n\u0301b"):
        assert pieces(joined) == [joined]
    assert pieces("Il dit « a b » et c !") == ["Il ", "dit ", "« a ", "b » ", "et ", "c !"]
    assert pieces("ab " + "c" * 50 + " de") == ["ab ", "c" * 50 + " ", "de"]


def test_turns_are_pieces_and_are_not_cut() -> None:
    text = "Intro. More.  <|speaker:0|>Hi. You there? Well. <|speaker:1|><|speaker:2|> Yes. No.\n<|speaker:1|>"
    assert pieces(text) == ["Intro. ", "More.  ", "<|speaker:0|>Hi. You there? Well. ",
                            "<|speaker:1|><|speaker:2|> Yes. No.\n<|speaker:1|>"]  # fmt: skip
    assert pieces(text, 1000) == ["Intro. More.  ", *pieces(text)[2:]]
    assert [piece.end for piece in split_text(text)] == ["turn", "turn", "text"]


def test_each_piece_has_something_to_speak() -> None:
    for text in ("... !!! Hello. --- ??? World. !!! ...", "  \n\n  a\n\n\n b \n\n ", "[x] [y] a [z] b [w]"):
        assert all(any(c.isalnum() for c in piece) for piece in pieces(text))
    for text in ("", "...", "\n\n", "<|speaker:0|>", "👍👍"):
        assert pieces(text) == ([text] if text else [])


def test_sizes() -> None:
    assert speech_size("abc d") == 5 and speech_size("漢字") == 6 and speech_size("e\u0301") == 1
    assert max(map(speech_size, pieces("这是一个句子。" * 100, 300))) <= 300
    with pytest.raises(ValueError, match="max_size"):
        split_text("a", max_size=0)
    with pytest.raises(TypeError, match="got bytes"):
        split_text(b"a")  # type: ignore[arg-type]


def test_a_book_takes_no_time() -> None:
    import time

    text = "It was the best of times, “it was.” The worst (of times); 3.5 Dr. Who… Yes!\n\n" * 5000
    started = time.perf_counter()
    found = split_text(text)
    assert time.perf_counter() - started < 20
    assert len(found) > 1000 and max(speech_size(piece.text) for piece in found) <= 300


# ------------------------------------------------------------------ any text
PARTS = [
    "a", "Bc", "é", "e\u0301", " ", "  ", "\n", "\r\n", "\n\n", ". ", "! ", "?", " ?", "... ", "…", ",", "; ", "。",
    "，", "“", "”", '"', "'", "(", ")", "「", "」", " »", "« ", "漢", "字。", "1.5", "Dr. ", "3. ", "\u00a0", "\u200b",
    "\u200d", "\u0301", "\ufeff", "\0", "👍🏽", "👨\u200d👩", "🇩🇪🇫🇷", "ไทย", "हि।",
    "<|speaker:0|>", "<|speaker:1|>", "<|voice|>",
    "[soft. Ly]", "<b x. Y>", "<|", "|>", "[", "]",
]  # fmt: skip
ANY = st.lists(st.sampled_from(PARTS), max_size=40).map("".join) | st.text(max_size=60)


@settings(deadline=None, max_examples=400)
@given(ANY, st.integers(1, 40))
@example("a \u0301b. C", 1)
@example("a.\r\nB", 1)
def test_the_pieces_are_the_text_and_cuts_are_where_they_may_be(text: str, max_size: int) -> None:
    found = split_text(text, max_size=max_size)
    assert "".join(piece.text for piece in found) == text
    assert split_text(text, max_size=max_size) == found
    turns = [match.start() for match in SPEAKER_TAG.finditer(text)]
    start = 0
    for i, piece in enumerate(found):
        assert piece == Piece(text[start : start + len(piece.text)], start, piece.end) and piece.text
        start += len(piece.text)
        assert (piece.end == "text") == (i == len(found) - 1)
        if len(found) > 1:
            assert any(c.isalnum() for c in piece.text)
        if piece.end == "text":
            continue
        before, after = text[start - 1], text[start]
        if piece.end == "turn":
            assert start in turns
            continue
        assert unicodedata.category(after)[0] != "M" and after not in "\u200d\u200c" and before != "\u200d"
        assert not ("\U0001f3fb" <= after <= "\U0001f3ff") and not (before == "\r" and after == "\n")
        assert before not in "\u00a0", "a space that keeps together"
        assert after not in "!?;:,…"
        assert not (before.isalnum() and after.isalnum()), "inside a word"
        for tag in re.finditer(r"<\|[^<>|\n]+\|>|\[[^][\n]+\]|<b[^<>\n]*>", text):
            assert not tag.start() < start < tag.end(), f"inside {tag.group()}"
    if turns:
        assert all(piece.start in turns for piece in found if piece.start > turns[0])


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(["word", "two", "3", "Dr.", "end.", "Stop!", "eh,", "漢。"]), min_size=1, max_size=60),
       st.integers(15, 60))  # fmt: skip
def test_pieces_keep_to_the_size_where_words_allow(words: list[str], max_size: int) -> None:
    assert all(speech_size(piece) <= max_size for piece in pieces(" ".join(words), max_size))


def test_one_sentence_a_piece() -> None:
    text = "It rains. We stay in, he said.\n\n\u201cWhy not?\u201d Yes. <|speaker:1|>So it is. And so on without an end"
    pieces = split_text(text, max_size=300, one_sentence=True)
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.text for piece in pieces][:2] == ["It rains. ", "We stay in, he said.\n\n"]
    assert [piece.text for piece in pieces][-2:] == [
        "Yes. ",
        "<|speaker:1|>So it is. And so on without an end",
    ]  # a turn is one
    long = "one two three four five, six seven eight nine ten eleven twelve. Thirteen."
    assert [piece.text for piece in split_text(long, max_size=30, one_sentence=True)] == [
        "one two three four five, ", "six seven eight nine ten ", "eleven twelve. ", "Thirteen.",
    ]  # fmt: skip
