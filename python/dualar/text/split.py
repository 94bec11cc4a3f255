"""Cuts a long text into pieces that can be spoken one after the other. Pure functions, which know no model.

Owns where a text may be cut, and the choice among these places. Leaves the sizes of pieces, and speaking them, to
`dualar.narration`.

A piece ends where a sentence does, in many scripts. Only a sentence that is too long by itself is cut at a clause, or
else between words. No rule here sees meaning, so what may be an abbreviation is taken for one: a sentence end that is
missed costs a longer piece, a wrong one is heard. The pieces joined are the text, character for character.
"""

# ruff: noqa: RUF001 (letters and marks of many scripts are what this is about)

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from dualar.config import whole_number
from dualar.text.tokenizer import SPEAKER_TAG

PieceEnd = Literal["turn", "paragraph", "sentence", "clause", "word", "text"]

DEFAULT_MAX_SIZE = 300

# How good a place for a cut is. INNER: the end of a sentence within quotes, or an ellipsis after which it may go on.
_WORD, _CLAUSE, _INNER, _SENTENCE, _PARAGRAPH, _TURN = range(6)
_KINDS: tuple[PieceEnd, ...] = ("word", "clause", "sentence", "sentence", "paragraph", "turn")

_SPACE = r"[^\S\u00a0\u2007\u202f]"  # the three are spaces at which a text must not be broken
_SPACES = re.compile(rf"{_SPACE}+|\u200b+")
_BLANK_LINE = re.compile(rf"(?:\r\n|[\n\r\u2028\x85]){_SPACE}*[\n\r\u2028\x85]|\u2029")
_UNBROKEN = re.compile(r"<\|[^<>|\n]{1,100}\|>|\[[^\[\]\n]{1,200}\]|</?[A-Za-z][^<>\n]{0,200}>")

_SPACED_ENDS = ".!?…‽"  # end a sentence where a space follows
_FREE_ENDS = "。！？．｡⁇⁈⁉؟۔।॥։።፧။។៕།༎᠃꓿"  # and these wherever they stand
_ENDS = frozenset(_SPACED_ENDS + _FREE_ENDS + "⋯‥")
_ELLIPSIS = re.compile(r"[.．]{2,}|[…⋯‥]")
_FREE_MARK = re.compile(f"[{_FREE_ENDS}!?…⋯‥]+")
_SPACED_CLAUSES = frozenset(",;:—–")
_NEVER_FIRST = frozenset("!?;:,…")  # in a piece, though French has a space before some
_FREE_CLAUSES = re.compile("[，；：、､،؛፣፤፥၊᠂]")

# A name or a number follows these, or they stand within a sentence; casefolded, without the last dot.
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        """
    mr mrs ms mx dr prof st ste mt messrs hon rev fr gen col maj capt cmdr cpl lt sgt adm gov sen rep pres supt jr sr
    esq vs cf etc approx dept univ assn inc ltd co corp bros ave blvd rd hwy al ibid viz
    hr hrn frl dipl ing bzw usw ca evtl ggf inkl exkl vgl sog bspw zzgl geb gest mio mrd str tel
    mme mlle mlles mm mgr env av bd
    sra srta dra dña ud uds vd vds lic sta
    sig sigg dott avv ecc egr
    dhr mevr mw bijv enz drs
    np tzn tzw itd itp ul płk
    г гг тт др пр ул им см тыс млн млрд руб коп проф акад
    """,
    )
)
# And these where a number follows.
_BEFORE_NUMBERS = frozenset(
    re.findall(
        r"\S+",
        """
    no nos nr nrs num fig figs vol vols pp pg pag pág ch chap sec art eq ex op jan feb mar apr jun jul aug sep sept oct
    nov dec abb abs kap bd s núm стр рис табл гл п ст
    """,
    )
)

_PAIRS = {"“": "”", "„": "“”", "«": "»", "»": "«", "「": "」", "『": "』", "《": "》", "〈": "〉", "【": "】",
          "〔": "〕", "(": ")", "（": "）", "[": "]", '"': '"', "”": "”"}  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """A piece of a text: where it starts in it (in characters), and what ends with it; "text" is the whole text."""

    text: str
    start: int
    end: PieceEnd


def speech_size(text: str) -> int:
    """About how long a text takes to speak: 1 for each character, 3 for a wide one (Han, kana, hangul), 0 for marks.

    A second of speech is about 14.
    """
    return sum(map(_size, text))


def split_text(
    text: str, *, max_size: int = DEFAULT_MAX_SIZE, first_size: int | None = None, one_sentence: bool = False
) -> list[Piece]:
    """Cut a text into pieces of at most max_size (by `speech_size`) where that can be; joined, they are the text.

    A piece ends at a paragraph's end where one lies in its second half, else at the last sentence end, else at a clause
    or between words. It is longer than max_size where no such place comes before: nothing is cut inside a word, a
    grapheme, a tag (`<|...|>`, `<...>`, `[...]`) or a speaker's turn. Each turn, from a speaker tag to the next, is a
    piece of its own. Blanks belong to the piece before them, and each piece has a letter or digit, if the text has.
    first_size: the most of the first piece, where a sentence ends within it, so that sound begins sooner. one_sentence:
    a piece ends with the first sentence that ends in it.

    Errors: TypeError unless text is a str, ValueError for a size below 1.
    """
    if not isinstance(text, str):
        raise TypeError(f"[split_text] expected a str, got {type(text).__name__}")
    max_size = whole_number("split_text.max_size", max_size, 1)
    first_size = max_size if first_size is None else whole_number("split_text.first_size", first_size, 1)
    if not text:
        return []
    cuts = _places(text)
    places = sorted(cuts)
    spoken = _spoken(text)
    sizes = [0, *accumulate(map(_size, text))]
    pieces, start = [], 0
    while True:
        cut = _next_cut(start, places, cuts, spoken, sizes, max_size, one_sentence=one_sentence)
        if start == 0 and first_size < max_size:
            early = _next_cut(start, places, cuts, spoken, sizes, first_size, one_sentence=one_sentence)
            if early is not None and cuts[early] >= _SENTENCE:
                cut = early
        if cut is None:
            pieces.append(Piece(text[start:], start, "text"))
            return pieces
        pieces.append(Piece(text[start:cut], start, _KINDS[cuts[cut]]))
        start = cut


# ------------------------------------------------------------------ the choice
def _next_cut(
    start: int, places: list[int], cuts: dict[int, int], spoken: list[int], sizes: list[int], max_size: int,
    *, one_sentence: bool = False,
) -> int | None:  # fmt: skip
    """Where the piece from `start` on ends; None for the end of the text."""
    first = bisect_left(spoken, start)
    if first == len(spoken):
        return None
    # Only places with something to speak on both sides.
    low, high = bisect_right(places, spoken[first]), bisect_right(places, spoken[-1])
    turn = None
    full = None  # the first place that is too far
    best: dict[int, int] = {}  # rank -> the last place of it that is near enough
    half: dict[int, int] = {}  # the same, in the second half
    for i in range(low, high):
        place = places[i]
        rank, size = cuts[place], sizes[place] - sizes[start]
        if rank == _TURN:
            turn = place
            break
        if size > max_size:
            full = place
            break
        if one_sentence and rank >= _SENTENCE:
            return place
        best[rank] = place
        if 2 * size >= max_size:
            half[rank] = place
    rest = (sizes[turn] if turn is not None else sizes[-1]) - sizes[start]
    if rest <= max_size:
        return turn
    if _PARAGRAPH in half:
        return half[_PARAGRAPH]
    whole = [best[rank] for rank in (_SENTENCE, _PARAGRAPH) if rank in best]
    if whole:
        return max(whole)
    for found in (half, best):
        for rank in (_INNER, _CLAUSE, _WORD):
            if rank in found:
                return found[rank]
    return turn if full is None else full


def _size(character: str) -> int:
    if unicodedata.category(character)[0] == "M":
        return 0
    return 3 if unicodedata.east_asian_width(character) in "WF" else 1


def _spoken(text: str) -> list[int]:
    """Where letters and digits stand, those of tags left out."""
    hidden = {i for tag in _UNBROKEN.finditer(text) for i in range(*tag.span())}
    return [i for i, character in enumerate(text) if character.isalnum() and i not in hidden]


# ------------------------------------------------------------------ the places
def _places(text: str) -> dict[int, int]:
    """Where the text may be cut, each with its rank."""
    inside, closers = _inside_pairs(text)
    cuts: dict[int, int] = {}

    def put(place: int, rank: int) -> None:
        if 0 < place < len(text):
            cuts[place] = max(cuts.get(place, _WORD), _INNER if rank == _SENTENCE and inside[place] else rank)

    around = _Around(text)
    for spaces in _SPACES.finditer(text):
        put(spaces.end(), _after_spaces(around, spaces))
    for mark in _FREE_MARK.finditer(text):
        _put_free_end(text, mark, put)
    for mark in _FREE_CLAUSES.finditer(text):
        place = mark.end()
        if not _between_digits(text, mark.start()) and not _closes(text[place : place + 1]):
            put(place, _CLAUSE)
    for tag in _UNBROKEN.finditer(text):
        for place in range(tag.start() + 1, tag.end()):
            cuts.pop(place, None)
    turns = [tag.start() for tag in SPEAKER_TAG.finditer(text)]
    if turns:  # only the text before the first turn has places inside
        cuts = {place: rank for place, rank in cuts.items() if place < turns[0]} | {
            place: _TURN for place in turns if place
        }
    return {
        place: rank
        for place, rank in cuts.items()
        if rank == _TURN or not (place in closers or text[place] in _NEVER_FIRST or _joins(text, place))
    }


class _Around:
    """Looks up what stands before and after each place of a text. Each list is filled in one pass, so that a text of
    nothing but brackets or dots takes no longer for a letter than prose.

    letters[i]: the place of the first character from i on that is neither in a tag nor punctuation nor a space;
    len(text) where there is none. unclosed[i]: where the closing quotes and brackets that end at i begin. unended[i]:
    the same for the marks that end a sentence.
    """

    def __init__(self, text: str) -> None:
        size = len(text)
        self.text = text
        self.unclosed, self.unended, self.letters = list(range(size + 1)), list(range(size + 1)), [size] * (size + 1)
        self._ellipses: dict[int, bool] = {}
        for i, character in enumerate(text):
            if _closes(character, after_space=True):
                spaced = character == "»" and text[i - 1 : i].isspace()  # « comme cela. »
                self.unclosed[i + 1] = self.unclosed[i - 1 if spaced else i]
            if character in _ENDS:
                self.unended[i + 1] = self.unended[i]
        for i in range(size - 1, -1, -1):
            character = text[i]
            if character in "<[" and (tag := _UNBROKEN.match(text, i)):
                self.letters[i] = self.letters[tag.end()]
            elif unicodedata.category(character)[0] in "PZ" or character.isspace():
                self.letters[i] = self.letters[i + 1]
            else:
                self.letters[i] = i

    def is_ellipsis(self, end: int) -> bool:
        """Whether the sentence ends before `end` are an ellipsis alone, neither a question nor an exclamation."""
        found = self._ellipses.get(end)
        if found is None:
            mark = self.text[self.unended[end] : end]
            found = self._ellipses[end] = bool(_ELLIPSIS.search(mark)) and not set(mark) & set("!?！？؟")
        return found


def _after_spaces(around: _Around, spaces: re.Match[str]) -> int:
    if _BLANK_LINE.search(spaces.group()):
        return _PARAGRAPH
    text, stop = around.text, spaces.start()
    end = around.unclosed[stop]
    start = around.unended[end]
    if start == end:
        return _CLAUSE if stop and text[stop - 1] in _SPACED_CLAUSES else _WORD
    first = around.letters[spaces.end()]
    following = text[first : first + 1]
    if following.islower():
        return _WORD
    closed = end < stop
    if around.is_ellipsis(end):
        return _SENTENCE if closed else _INNER
    if end - start == 1 and text[start] == "." and not closed and _is_abbreviation(text, start, following):
        return _WORD
    return _SENTENCE


def _put_free_end(text: str, mark: re.Match[str], put: Callable[[int, int], None]) -> None:
    """A sentence end that no space follows."""
    place, run = mark.end(), mark.group()
    # Marks that need a space after them need none between wide characters.
    narrow = not any(character in _FREE_ENDS for character in run)
    beside = text[mark.start() - 1 : mark.start()] + text[place : place + 1]
    if narrow and not (beside and all(_size(character) == 3 for character in beside)):
        return
    if set(run) <= {"．"} and _between_digits(text, mark.start()):
        return
    while place < len(text) and unicodedata.category(text[place]) in ("Pe", "Pf"):
        place += 1
    following = text[place : place + 1]
    if not following or following.isspace() or following == '"' or following in _ENDS:
        return  # a space is cut at its own end; and nothing tells whether a straight quote opens or closes
    # 「よし。」と言った: after a quote the sentence may go on; not where the next quote opens.
    goes_on = place > mark.end() and unicodedata.category(following) not in ("Ps", "Pi")
    put(place, _INNER if goes_on or _ELLIPSIS.search(run) else _SENTENCE)


def _is_abbreviation(text: str, dot: int, following: str) -> bool:
    start = dot
    while start and (text[start - 1].isalnum() or unicodedata.category(text[start - 1])[0] == "M"):
        start -= 1
    word = text[start:dot].casefold()
    before = text[start - 1 : start]
    if word.isdigit():
        return len(word) <= 2 and before not in set(".,:'’-")  # "1. First", "am 3. Oktober"; not "at 12.30."
    letters = sum(unicodedata.category(character)[0] != "M" for character in word)
    if letters == 1 and word.isalpha():
        return before not in set("'’")  # an initial, or the end of "e.g.", "z. B.", "U.S."; not of "Mary's"
    return word in _ABBREVIATIONS or (word in _BEFORE_NUMBERS and following.isdigit())


def _closes(character: str, *, after_space: bool = False) -> bool:
    """A closing quote or bracket. Before a space any quote is one: „so“ and »so« close with what opens elsewhere."""
    kinds = ("Pe", "Pf", "Pi") if after_space else ("Pe", "Pf")
    return character != "" and (unicodedata.category(character) in kinds or (after_space and character in "\"'"))


def _between_digits(text: str, place: int) -> bool:
    return 0 < place < len(text) - 1 and text[place - 1].isdigit() and text[place + 1].isdigit()


def _joins(text: str, place: int) -> bool:
    """Whether what follows belongs to the character before it: a mark, a joiner, a skin tone."""
    before, after = text[place - 1], text[place]
    return (
        unicodedata.category(after)[0] == "M"
        or after in "\u200c\u200d\u2060\ufeff"
        or before in "\u200d\u2060\ufeff"
        or "\U0001f3fb" <= after <= "\U0001f3ff"
    )


def _inside_pairs(text: str) -> tuple[list[bool], set[int]]:
    """For each place, whether a cut there parts a quote or bracket that is closed in its paragraph; and which close."""
    closers = set()
    depth = [0] * (len(text) + 1)
    stack: list[tuple[str, int]] = []
    closed_by: dict[str, list[int]] = {}  # closing character -> which of the stack it closes, the innermost last
    breaks = {match.start() for match in _BLANK_LINE.finditer(text)}
    for i, character in enumerate(text):
        if i in breaks:
            stack.clear()
            closed_by.clear()
        if openers := closed_by.get(character):
            opener = openers[-1]
            depth[stack[opener][1] + 1] += 1
            depth[i + 1] -= 1
            closers.add(i)
            while len(stack) > opener:
                for closing in _PAIRS[stack.pop()[0]]:
                    closed_by[closing].pop()
        elif character in _PAIRS:
            after_word = i > 0 and not (text[i - 1].isspace() or unicodedata.category(text[i - 1])[0] == "P")
            if character not in '"”»' or not after_word:  # these close as well: 6", and a quote that opened elsewhere
                for closing in _PAIRS[character]:
                    closed_by.setdefault(closing, []).append(len(stack))
                stack.append((character, i))
    return [level > 0 for level in accumulate(depth)], closers
