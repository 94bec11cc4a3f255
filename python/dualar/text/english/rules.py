"""The rules of written English: patterns, and what is said for what they match.

Owns numbers, dates, times, prices, units, phone numbers, addresses, Roman numerals, abbreviations, initials. Each rule
is a pattern and a function from its match to words, or to None where it is something else after all; the first rule
that matches at a place wins. A single capital letter among the words is that letter's name, a comma a pause. Leaves how
the words sound to `words.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from dualar.text.english import numbers
from dualar.text.english.tables import (
    ABBREVIATIONS,
    BEFORE_NUMBERS,
    CARDINAL_HEADS,
    COUNTED,
    CURRENCIES,
    MAGNITUDES,
    MONARCHS,
    MONTH_NAMES,
    MONTHS,
    SYMBOLS,
    TLDS,
    UNITS,
)  # fmt: skip

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], list[str] | None]]

_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_BEFORE = r"(?<![\w.])"  # nothing that the number would be a part of
_MONTH = "(?:" + "|".join(sorted(MONTHS, key=len, reverse=True)) + r")\b\.?"
_HALF_DAY = r"(?:\s?([ap])\.?m\b\.?)"
# What follows a match. The text is long: these look at it in place.
_COUNTED_WORD, _A_NUMBER, _A_NAME = map(re.compile, (r"\s+([a-z]+)", r"\s*\d", r"\.?\s+[A-Z]"))
_LONGEST_NAME = 64  # letters of the word before "St.", and spaces, that are looked at


def _month(name: str) -> str:
    return MONTHS[name.rstrip(".")]


def _day_year(month: str, day: str, year: str | None) -> list[str]:
    return [month, *numbers.ordinal(day), *(_year(year) if year else [])]


def _year(digits: str) -> list[str]:
    return (
        numbers.year(digits)
        if len(digits) == 4
        else ["oh", *numbers.one_by_one(digits[1:])]
        if digits[0] == "0"
        else numbers.cardinal(digits)
    )


def _valid(day: str, month: str) -> bool:
    return 1 <= int(day) <= 31 and 1 <= int(month) <= 12


def _iso_date(m: re.Match[str]) -> list[str] | None:
    year, month, day = m.groups()
    return _day_year(MONTH_NAMES[int(month) - 1], day, year) if _valid(day, month) else None


def _slash_date(m: re.Match[str]) -> list[str] | None:
    month, day, year = m.groups()
    if not _valid(day, month):
        month, day = day, month
    return _day_year(MONTH_NAMES[int(month) - 1], day, year) if _valid(day, month) else None


def _month_day(m: re.Match[str]) -> list[str] | None:
    month, day, year = m.groups()
    return _day_year(_month(month), day, year) if 1 <= int(day) <= 31 else None


def _day_month(m: re.Match[str]) -> list[str] | None:
    day, month, year = m.groups()
    if not 1 <= int(day) <= 31:
        return None
    return ["the", *numbers.ordinal(day), "of", _month(month), *(_year(year) if year else [])]


def _clock(m: re.Match[str]) -> list[str] | None:
    hour, minute, half = m.groups()
    if int(hour) > 24 or int(minute) > 59:
        return None
    after = [half.upper(), "M"] if half else []
    if minute == "00":
        return [*numbers.cardinal(hour), *(after or (["hundred"] if int(hour) > 12 or hour == "00" else ["o'clock"]))]
    middle = ["oh", *numbers.cardinal(minute)] if minute[0] == "0" else numbers.cardinal(minute)
    return [*numbers.cardinal(hour), *middle, *after]


def _hour(m: re.Match[str]) -> list[str] | None:
    return [*numbers.cardinal(m.group(1)), m.group(2).upper(), "M"] if int(m.group(1)) <= 12 else None


def _price(m: re.Match[str]) -> list[str]:
    sign, amount, size = m.groups()
    one, many, cent, cents = CURRENCIES[sign]
    if size:
        return [*numbers.decimal(amount), MAGNITUDES[size.lower()], many]
    whole, _, fraction = amount.replace(",", "").partition(".")
    if len(fraction) not in (0, 2) or not cent:
        return [*numbers.decimal(amount), one if amount == "1" else many]
    units = whole.lstrip("0")  # not a whole number of Python's, which has a limit on its digits
    said = [] if not units and int(fraction or 0) else [*numbers.cardinal(whole), one if units == "1" else many]
    if int(fraction or 0):
        said += [*(["and"] if said else []), *numbers.cardinal(fraction), cent if int(fraction) == 1 else cents]
    return said


def _unit(m: re.Match[str]) -> list[str]:
    sign, amount, unit = m.groups()
    one, many = UNITS[unit]
    return [*(["minus"] if sign else []), *numbers.decimal(amount), *(one if amount == "1" else many).split()]


def _phone(m: re.Match[str]) -> list[str]:
    groups = re.findall(r"\d+", m.group())
    said = ["plus"] if m.group().startswith("+") else []
    for i, group in enumerate(groups):
        said += [*([","] if i else []), *numbers.one_by_one(group)]
    return said


def _decade(m: re.Match[str]) -> list[str]:
    digits = m.group(1)
    return numbers.plural(numbers.year(digits) if len(digits) == 4 else numbers.cardinal(digits))


def _fraction(m: re.Match[str]) -> list[str] | None:
    whole, above, below = m.groups()
    if int(below) < 2 or int(below) > 100 or int(above) == 0:
        return None
    many = int(above) > 1
    if below == "2":
        named = ["halves" if many else "half"]
    elif below == "4":
        named = ["quarters" if many else "quarter"]
    else:
        named = numbers.plural(numbers.ordinal(below)) if many else numbers.ordinal(below)
    said = [*numbers.cardinal(above), *named]
    if not whole:
        return said
    return [*numbers.cardinal(whole.strip()), "and", *(["a", *named] if above == "1" else said)]


def _range(m: re.Match[str]) -> list[str]:
    first, last = m.groups()
    is_year = len(first) == 4 and len(last) in (2, 4) and 1100 <= int(first) <= 2100
    say = (lambda d: _year(d)) if is_year else numbers.decimal
    return [*say(first), "to", *say(last)]


def _plain_number(m: re.Match[str]) -> list[str]:
    sign, digits = m.groups()
    said = ["minus"] if sign else []
    if "," in digits or "." in digits:
        return said + numbers.decimal(digits)
    if digits[0] == "0" and len(digits) > 1:
        return said + numbers.one_by_one(digits)
    follows = _COUNTED_WORD.match(m.string, m.end())
    counts = follows is not None and (
        (follows.group(1).endswith("s") and follows.group(1) not in ("is", "was", "has", "as"))
        or follows.group(1) in COUNTED
    )
    if len(digits) == 4 and 1100 <= int(digits) <= 2099 and not counts and not sign:
        return numbers.year(digits)
    return said + numbers.cardinal(digits)


def _dotted(m: re.Match[str]) -> list[str]:
    """Versions and the like: "2.13.0"."""
    said: list[str] = []
    for i, part in enumerate(m.group().split(".")):
        said += [*(["point"] if i else []), *(numbers.one_by_one(part) if part[0] == "0" else numbers.cardinal(part))]
    return said


def _address(text: str) -> list[str]:
    """The words of an address: runs of letters as words, or letter by letter where no vowel is among them."""
    said: list[str] = []
    for part in re.findall(r"[A-Za-z]+|\d+|[^A-Za-z\d]", text):
        if part.isdigit():
            said += numbers.cardinal(part) if len(part) < 4 else numbers.one_by_one(part)
        elif part.isalpha():
            lower = part.lower()
            spelled = lower in ("www", "uk", "us", "eu", "io", "ai", "tv") or not re.search("[aeiouy]", lower)
            said += list(lower.upper()) if spelled and lower not in ("gmail",) else [lower]
        else:
            said += SYMBOLS.get(part, "").split()
    return said


def _web(m: re.Match[str]) -> list[str]:
    return _address(re.sub(r"^https?://", "", m.group()).rstrip("/"))


def _mail(m: re.Match[str]) -> list[str]:
    return _address(m.group())


def _title_numeral(m: re.Match[str]) -> list[str] | None:
    """Roman numerals after a name, or after what is counted: "Henry VIII", "Chapter IV"."""
    head, numeral = m.groups()
    value = numbers.roman(numeral)
    if value is None:
        return None
    if head in CARDINAL_HEADS:
        return [head, *numbers.cardinal(str(value))]
    if len(numeral) == 1 and head not in MONARCHS:
        return None  # "Malcolm X", "Vitamin C", "when Anna I ..."
    return [head, "the", *numbers.ordinal(str(value))]


def _abbreviation(m: re.Match[str]) -> list[str] | None:
    counts = m.group(1) in BEFORE_NUMBERS
    return None if counts and not _A_NUMBER.match(m.string, m.end()) else ABBREVIATIONS[m.group(1)].split()


def _height(m: re.Match[str]) -> list[str]:
    return [*numbers.cardinal(m.group(1)), "foot", *numbers.cardinal(m.group(2))]


def _ordinal(m: re.Match[str]) -> list[str]:
    return numbers.ordinal(m.group(1).replace(",", ""))


def _saint_or_street(m: re.Match[str]) -> list[str]:
    before = m.string[max(0, m.start() - _LONGEST_NAME) : m.start()].rstrip()
    named = _A_NAME.match(m.string, m.end(1)) is not None
    return ["saint" if named and not re.search(r"[A-Z0-9][\w']*$", before) else "street"]


def _letters(m: re.Match[str]) -> list[str]:
    return [c for c in m.group() if c.isalpha()]


def _mixed(m: re.Match[str]) -> list[str]:
    """Letters and digits run together: "B12", "MP3", "4K", "COVID19"."""
    said: list[str] = []
    for part in re.findall(r"[A-Za-z]+|\d+", m.group()):
        if part == "s" and said and m.group().endswith("s"):
            said = numbers.plural(said)
        elif part.isdigit():
            plain = len(part) <= 2 or (len(part) == 3 and part.endswith("00"))
            said += numbers.cardinal(part) if plain and part[0] != "0" else numbers.one_by_one(part)
        else:
            said += list(part.upper()) if len(part) <= 2 or (part.isupper() and len(part) <= 3) else [part]
    return said


def _any_of(written: Iterable[str]) -> str:
    """A pattern for each of them, the longest first."""
    return "(?:" + "|".join(map(re.escape, sorted(written, key=len, reverse=True))) + ")"


_SITE = r"(?<![\w@.])(?:www\.)?(?:[\w-]+\.)+" + _any_of(TLDS) + r"\b(?:/[\w./?=&%#-]*[\w/])?(?!@)"
_AMERICAN_PHONE = r"(?<![\w.])(?:\+\d{1,3}[ .-]?)?(?:\(\d{3}\)\s?|\d{3}[ .-])\d{3}[ .-]\d{4}\b"
_SIGN = r"([-−](?=\d))?"
_SIGNS = "([" + "".join(map(re.escape, CURRENCIES)) + "])"
_SIZE = rf"(?:\s?({_any_of(MAGNITUDES)})\b)?"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"

RULES: list[Rule] = [
    (re.compile(rf"https?://[^\s<>\"]*[\w/]|{_SITE}", re.IGNORECASE), _web),
    (re.compile(r"(?<![\w.+-])[\w.+-]++@(?:[\w-]+\.)+[A-Za-z]{2,}"), _mail),
    (re.compile(rf"{_BEFORE}(\d{{4}})-(\d\d)-(\d\d)\b"), _iso_date),
    (re.compile(rf"{_BEFORE}(\d{{1,2}})/(\d{{1,2}})/(\d{{4}}|\d\d)\b"), _slash_date),
    (re.compile(rf"\b({_MONTH})\s+{_DAY}(?![\d:])(?:,?\s+(\d{{4}})\b)?"), _month_day),
    (re.compile(rf"{_BEFORE}(?:the\s+)?{_DAY}\s+(?:of\s+)?({_MONTH})(?:,?\s+(\d{{4}})\b)?"), _day_month),
    (re.compile(rf"{_AMERICAN_PHONE}|{_BEFORE}\d{{3}}-\d{{4}}\b|\+\d[\d -]{{6,}}\d"), _phone),
    (re.compile(rf"{_BEFORE}\d+(?:-\d+){{2,}}\b"), _phone),
    (re.compile(rf"{_BEFORE}(\d)['’′]\s?(\d{{1,2}})[\"”″]?(?!\w)"), _height),
    (re.compile(rf"{_BEFORE}(\d{{1,2}}):(\d\d){_HALF_DAY}?(?!\d)", re.IGNORECASE), _clock),
    (re.compile(rf"{_BEFORE}(\d{{1,2}}){_HALF_DAY}", re.IGNORECASE), _hour),
    (re.compile(rf"{_SIGNS}\s?({_NUMBER}){_SIZE}", re.IGNORECASE), _price),
    (re.compile(r"(?<![\w.)])(\d{1,4})\s?[-–]\s?(\d{1,4})(?![\d-])"), _range),
    (re.compile(rf"{_BEFORE}{_SIGN}({_NUMBER})\s?({_any_of(UNITS)})(?!\w)"), _unit),
    (re.compile(rf"{_BEFORE}['’]?(\d{{4}}|\d0)['’]?s\b"), _decade),
    (re.compile(rf"{_BEFORE}(\d+(?:,\d{{3}})*)(?:st|nd|rd|th)\b", re.IGNORECASE), _ordinal),
    (re.compile(rf"{_BEFORE}(\d+\s)?(\d{{1,3}})/(\d{{1,3}})(?![\d/])"), _fraction),
    (re.compile(rf"{_BEFORE}\d+(?:\.\d+){{2,}}\b"), _dotted),
    (re.compile(rf"{_BEFORE}{_SIGN}({_NUMBER})(?![A-Za-z\d])"), _plain_number),
    (re.compile(r"\b([A-Z][a-z]+)\s+([IVXL]+)\b(?!['’.]\w)"), _title_numeral),
    (re.compile(r"\b(St)\.?(?=\s|[,;:!?]|$)"), _saint_or_street),
    (re.compile(rf"(?<![\w.])({_any_of(ABBREVIATIONS)})(?!\w)"), _abbreviation),
    (re.compile(r"\b(?:[A-Za-z]\.){2,}(?:[A-Z]\b)?"), _letters),
    (re.compile(r"\b[A-Z]\.(?=\s+[A-Z])"), _letters),
    (re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])[A-Za-z\d]+\b"), _mixed),
]
