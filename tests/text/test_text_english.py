"""The English front end: what is meant by what is written, how it sounds, where it came from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from dualar.text.english import EnglishFrontend
from dualar.text.english.letters import sound
from dualar.text.english.numbers import cardinal, decimal, ordinal, roman, year
from dualar.text.english.words import PHONEMES, STRESS, VOWELS, is_known, listed, ways
from dualar.text.english.written import read
from dualar.text.frontend import FRONTENDS, read_lexicon

FRONTEND = EnglishFrontend()


def _read(text: str) -> str:
    return " ".join(part.text.rstrip(".") if len(part.text) == 2 else part.text for part in read(text))


@pytest.mark.parametrize(
    ("digits", "words"),
    [
        ("0", "zero"),
        ("13", "thirteen"),
        ("40", "forty"),
        ("1205", "one thousand two hundred five"),
        ("1000000", "one million"),
        ("999999", "nine hundred ninety-nine thousand nine hundred ninety-nine"),
        ("1" * 20, " ".join(["one"] * 20)),
    ],
)
def test_cardinals(digits: str, words: str) -> None:
    assert " ".join(cardinal(digits)) == words


def test_other_numbers() -> None:
    assert [" ".join(ordinal(n)) for n in ("1", "2", "12", "20", "22", "103", "40")] == [
        "first", "second", "twelfth", "twentieth", "twenty-second", "one hundred third", "fortieth",
    ]  # fmt: skip
    assert [" ".join(year(n)) for n in ("1905", "1900", "2000", "2005", "2010", "1066")] == [
        "nineteen oh five", "nineteen hundred", "two thousand", "two thousand five", "twenty ten", "ten sixty-six",
    ]  # fmt: skip
    assert " ".join(decimal("1,234.05")) == "one thousand two hundred thirty-four point zero five"
    assert [roman(n) for n in ("I", "IV", "VIII", "XIV", "XLII", "IIII", "VX", "")] == [
        1,
        4,
        8,
        14,
        42,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        # numbers
        (
            "We have 3 cats, 1,250 fish and 2.5 dogs.",
            "We have three cats , one thousand two hundred fifty fish and two point five dogs .",
        ),
        ("It was -5 at 007.", "It was minus five at zero zero seven ."),
        (
            "It happened in 1984; 1500 people came.",
            "It happened in nineteen eighty-four ; one thousand five hundred people came .",
        ),
        ("the 1990s and the '80s", "the nineteen nineties and the eighties"),
        ("the 1st, 22nd and 103rd", "the first , twenty-second and one hundred third"),
        ("1/2 of 3/4, 2 1/2 cups", "one half of three quarters , two and a half cups"),
        ("3-4 times, 1990–1995", "three to four times , nineteen ninety to nineteen ninety-five"),
        ("Version 2.13.0", "Version two point thirteen point zero"),
        # prices, percent, units
        (
            "$12.50, $1, $0.05, €3.20 and £5m",
            "twelve dollars and fifty cents , one dollar , five cents , three euros and twenty cents and "
            "five million pounds",
        ),
        ("$1.5 billion", "one point five billion dollars"),
        ("50% of 5kg at 20°C", "fifty percent of five kilograms at twenty degrees Celsius"),
        ("1 km, 90 mph, 12 MB", "one kilometer , ninety miles per hour , twelve megabytes"),
        ("I am 6'2\" tall", "I am six foot two tall"),
        # dates and times
        ("On March 3, 2024", "On March third twenty twenty-four"),
        ("the 3rd of March 2024", "the third of March twenty twenty-four"),
        ("10/12/2019 and 2024-03-05", "October twelfth twenty nineteen and March fifth twenty twenty-four"),
        ("Monday, Jan. 5th", "Monday , January fifth"),
        (
            "at 7:30 pm, 9:05am, 12:00 and 5 p.m. sharp",
            "at seven thirty P M , nine oh five A M , twelve o'clock and five P M sharp",
        ),
        ("It closes at 5 p.m. We left.", "It closes at five P M . We left ."),
        # phone numbers, addresses
        ("Call 555-0123 now", "Call five five five , zero one two three now"),
        ("+1 (415) 555-2671", "plus one , four one five , five five five , two six seven one"),
        ("https://www.example.com/test", "W W W dot example dot com slash test"),
        ("Mail john.doe@example.co.uk.", "Mail john dot doe at example dot co dot U K ."),
        # abbreviations, initials, acronyms
        (
            "Dr. Smith met Mrs. Jones vs. Prof. Lee, Jr.",
            "doctor Smith met missus Jones versus professor Lee , junior .",
        ),
        ("the St. James park in Baker St.", "the saint James park in Baker street"),
        ("e.g. this, i.e. that, etc.", "for example this , that is that , et cetera ."),
        ("J. K. Rowling's U.S. tour", "J K Rowling's U S tour"),
        ("No. 5, Room 101, B12, MP3s", "number five , Room one hundred one , B twelve , M P threes"),
        ("no. I said no. No way.", "no . I said no . No way ."),
        ("Q&A, C++ & C#", "Q and A , C plus plus and C sharp"),
        # Roman numerals
        ("Henry VIII and Elizabeth II", "Henry the eighth and Elizabeth the second"),
        ("Chapter IV of World War II, Elizabeth I", "Chapter four of World War two , Elizabeth the first"),
        ("Malcolm X, Vitamin C, when Anna I met", "Malcolm X , Vitamin C , when Anna I met"),
        # marks
        ("Wait... what—really (yes): no!", "Wait , what , really , yes , , no !"),
        ("One\nTwo\n\nThree", "One . Two . Three"),
        ("“Don’t,” she said; ‘well-known’.", "Don't , she said ; well-known ."),
        ("and/or foo_bar /tmp/", "and or foo bar slash tmp slash"),
    ],
)
def test_what_is_meant_by_what_is_written(written: str, spoken: str) -> None:
    assert _read(written) == spoken


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("Hello there, my friend.", "həlˈO ðˈɛɹ, mI fɹˈɛnd."),
        ("The apple and the pear", "ði ˈæpᵊl ænd ðə pˈɛɹ."),
        ("I want to eat a pear to go to a shop.", "ˌI wˈɑnt tʊ ˈit ɐ pˈɛɹ tə ɡˌO tə ɐ ʃˈɑp."),
        ("I have read it, and I read it now.", "ˌI hæv ɹˈɛd ɪt, ænd ˌI ɹˈid ɪt nˈW."),
        ("He lives; their lives.", "hˌi lˈɪvz; ðɛɹ lˈIvz."),
        ("They record a record.", "ðˌA ɹəkˈɔɹd ɐ ɹˈɛkəɹd."),
        ("THIS IS A WARNING!", "ðˌɪs ˌɪz ɐ wˈɔɹnɪŋ!"),
        ("NASA's and the FBI's PCs", "nˈæsəz ænd ði ˌɛfbˌiˈIz pˈisˈiz."),
        ("/nˈis/ is nice.", "nˈis ɪz nˈIs."),
    ],
)
def test_how_it_sounds(text: str, phonemes: str) -> None:
    assert FRONTEND.speak(text).phonemes == phonemes


def test_words_come_back_in_letters() -> None:
    text = "Pay $5 to Dr. Lee, twenty-two."
    spoken = FRONTEND.speak(text)
    assert [text[w.start : w.end] for w in spoken.words] == ["Pay", "$5", "$5", "to", "Dr.", "Lee", "twenty-two"]
    assert [w.phonemes for w in spoken.words][-1] == "twˈɛntitˌu"
    joined = " ".join(w.phonemes for w in spoken.words)
    assert joined == spoken.phonemes.replace(",", "").rstrip(".")


def test_every_entry_of_the_list_is_found_and_sound() -> None:
    path = Path(__file__).parents[2] / "python" / "dualar" / "resources" / "english.lexicon"
    lines = path.read_text(encoding="utf-8").splitlines()
    words = [line.split("\t")[0] for line in lines]
    assert len(words) > 200_000 and [w.encode() for w in words] == sorted({w.encode() for w in words})
    for line in (*lines[:: len(lines) // 3000], lines[0], lines[-1]):
        word, plain, *others = line.split("\t")
        found = listed(word)
        assert found is not None and found["DEFAULT"] == plain and len(found) == 1 + len(others), word
    for line in lines:
        for field in line.split("\t")[1:]:
            assert PHONEMES.issuperset(field.partition("=")[2] or field), line
    assert listed("zzzzz") is None and listed("") is None and listed("!") is None


@pytest.mark.parametrize(
    "word", ["blorptastic", "Xiaoqing", "qwrt", "Zbigniew", "snarfed", "snarfing", "o'blimey", "crème", "ß"]
)
def test_a_word_that_no_list_has_is_said_from_its_letters(word: str) -> None:
    said = ways(word)["DEFAULT"]
    assert said and PHONEMES.issuperset(said) and not set(said) & set(",.;!? ")
    assert said.count("ˈ") == 1 or not set(said) & set(VOWELS)


def test_letters_to_sound() -> None:
    assert sound("") == "" and sound("漢") == ""
    plain = {"bat": "bˈæt", "strip": "stɹˈɪp", "green": "ɡɹˈin", "cheese": "ʧˈiz", "nation": "nˈAʃən"}
    assert {word: sound(word) for word in plain} == plain
    for word in ("a", "bb", "supercalifragilisticexpialidocious"):
        assert sum(mark in STRESS for mark in sound(word)) >= (word != "bb")


def test_endings_are_added_to_listed_words() -> None:
    assert is_known("blogosphere's") and ways("James's")["DEFAULT"] == "ʤˈAmzᵻz"
    assert not is_known("blorptastic")


def test_a_users_lexicon(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("# names\nNguyen wˈɪn\nGIF\t/ʤˈɪf/ # so it is\n\n", encoding="utf-8")
    own = FRONTENDS["english"](read_lexicon(path))
    assert own.speak("Nguyen sent a gif.").phonemes == "wˈɪn sˈɛnt ɐ ʤˈɪf."
    assert own.unknown_words("Nguyen blorptastic, blorptastic.") == ["blorptastic"]
    path.write_text("word\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1: expected a word and its phonemes"):
        read_lexicon(path)
    with pytest.raises(ValueError, match=r"lexicon, 'x'.*expected phonemes"):
        EnglishFrontend({"x": "öö"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Привет", "expected English, got Cyrillic letters: 'Привет'"),
        ("Hello 漢字", "expected English, got Cjk letters"),
        ("Say γεια now", "got Greek letters"),
        ("...", "expected words to say, got none"),
        ("/həlˈö/", r"expected phonemes, of .* got ö"),
    ],
)
def test_what_it_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FRONTEND.speak(text)


def test_any_latin_text_gives_phonemes() -> None:
    for text in (
        "a",
        "I",
        "1",
        "$",
        "@home #1 100%!",
        "naïve café",
        "x" * 300,
        "A.B.C.",
        "1,2,3",
        "--- hm ---",
        "²",
        "O'",
        "3'",
    ):
        spoken = FRONTEND.speak(text)
        assert PHONEMES.issuperset(spoken.phonemes) and spoken.phonemes[-1] in ".!?", text
        assert all(0 <= word.start < word.end <= len(text) for word in spoken.words), text
