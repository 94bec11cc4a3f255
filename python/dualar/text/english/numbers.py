"""English number words: cardinals, ordinals, years, digits one by one, decimals. American: no "and" after a hundred."""

from __future__ import annotations

_ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["-", "-", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_GROUPS = ("", "thousand", "million", "billion", "trillion", "quadrillion")
_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
_LONGEST = 3 * len(_GROUPS)  # digits that have a name; longer numbers are read digit by digit


def cardinal(digits: str) -> list[str]:
    """The words of a whole number, written in digits alone: "1205" is one thousand two hundred five."""
    digits = digits.lstrip("0") or "0"
    if len(digits) > _LONGEST:
        return one_by_one(digits)
    if digits == "0":
        return ["zero"]
    words: list[str] = []
    rest = digits.zfill(-(-len(digits) // 3) * 3)
    groups = [int(rest[i : i + 3]) for i in range(0, len(rest), 3)]
    for place, value in zip(range(len(groups) - 1, -1, -1), groups, strict=True):
        if value:
            words += _below_thousand(value) + ([_GROUPS[place]] if place else [])
    return words


def _below_thousand(value: int) -> list[str]:
    hundreds, rest = divmod(value, 100)
    words = [_ONES[hundreds], "hundred"] if hundreds else []
    if rest >= 20:
        words.append(TENS[rest // 10] + (f"-{_ONES[rest % 10]}" if rest % 10 else ""))
    elif rest:
        words.append(_ONES[rest])
    return words


def ordinal(digits: str) -> list[str]:
    """ "122" is one hundred twenty-second."""
    *words, last = cardinal(digits)
    tens, dash, ones = last.rpartition("-")
    ordered = _ORDINALS.get(ones, ones[:-1] + "ieth" if ones.endswith("y") else ones + "th")
    return [*words, tens + dash + ordered]


def year(digits: str) -> list[str]:
    """Of four digits: "1905" is nineteen oh five, "2005" two thousand five, "1900" nineteen hundred."""
    high, low = digits[:2], digits[2:]
    if high[1] == "0" and low[0] == "0":  # 2000 to 2009, 1000
        return cardinal(digits)
    if low == "00":
        return [*cardinal(high), "hundred"]
    return [*cardinal(high), *(["oh", _ONES[int(low[1])]] if low[0] == "0" else cardinal(low))]


def one_by_one(digits: str) -> list[str]:
    """Each digit's name."""
    return [_ONES[int(digit)] for digit in digits]


def decimal(number: str) -> list[str]:
    """ "1,234.05" is one thousand two hundred thirty four point zero five."""
    whole, _, fraction = number.replace(",", "").partition(".")
    return cardinal(whole or "0") + (["point", *one_by_one(fraction)] if fraction else [])


def plural(words: list[str]) -> list[str]:
    """The words with the last one in the plural: "nineteen nineties", "sixes"."""
    last = words[-1]
    ending = last[:-1] + "ies" if last.endswith("y") else last + "es" if last.endswith(("x", "s")) else last + "s"
    return [*words[:-1], ending]


_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


def roman(numeral: str) -> int | None:
    """The value of a Roman numeral below 200 that is written as is usual, else None."""
    if not numeral or set(numeral) - set(_ROMAN):
        return None
    values = [_ROMAN[letter] for letter in numeral]
    total = sum(-v if any(v < later for later in values[i + 1 : i + 2]) else v for i, v in enumerate(values))
    return total if _as_roman(total) == numeral else None


def _as_roman(value: int) -> str:
    written = ""
    for size, letters in (
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ):
        while value >= size:
            written += letters
            value -= size
    return written
