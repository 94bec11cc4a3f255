"""The sentences of the voice's domain: what is trained on, and the phrases that are held out.

Owns the grammar (numbers to 9999, times, dates, months and weekdays, device commands, greetings) and its word list.
Leaves sound to `data.py`. Sentences are normalised text: words in lower case, and commas where the voice pauses; how a
user may write the same thing (capitals, a full stop) is `written_forms`.
"""

from __future__ import annotations

import functools
import random

ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ORDINALS = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
    "twentieth",
]
MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
ROOMS = (
    ["kitchen", "bedroom", "bathroom", "living room", "office", "hall", "garden", "garage", "basement", "dining room"]
)  # fmt: skip
SWITCHES = [
    "light",
    "lights",
    "lamp",
    "fan",
    "heater",
    "radio",
    "television",
    "music",
    "alarm",
    "camera",
    "printer",
    "oven",
]
OPENINGS = ["door", "window", "gate", "blinds", "curtains"]
GREETINGS = [
    "hello",
    "good morning",
    "good afternoon",
    "good evening",
    "good night",
    "goodbye",
    "thank you",
    "welcome home",
    "how are you",
    "see you tomorrow",
    "yes",
    "no",
    "please",
]


def number(n: int) -> str:
    """0 to 9999 in words."""
    if n >= 1000:
        rest = n % 1000
        return ONES[n // 1000] + " thousand" + (f" {number(rest)}" if rest else "")
    if n >= 100:
        rest = n % 100
        return ONES[n // 100] + " hundred" + (f" {number(rest)}" if rest else "")
    if n >= 20:
        return TENS[n // 10 - 2] + (f" {ONES[n % 10]}" if n % 10 else "")
    return TEENS[n - 10] if n >= 10 else ONES[n]


def ordinal(day: int) -> str:
    """The 1st to the 31st in words."""
    if day <= 20:
        return ORDINALS[day - 1]
    return "thirtieth" if day == 30 else f"{TENS[day // 10 - 2]} {ORDINALS[day % 10 - 1]}"


def _digits(rng: random.Random) -> str:
    return " ".join(rng.choice(ONES) for _ in range(rng.randint(1, 6)))


def _number(rng: random.Random) -> str:
    return number(rng.randrange(10 ** rng.randint(1, 4)))


def _time(rng: random.Random) -> str:
    hour, minute = number(rng.randint(1, 12)), rng.randrange(60)
    half = rng.choice(["", "", " in the morning", " in the afternoon", " in the evening", " at night"])
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(["noon", "midnight"])
    if kind == 1:
        return f"{rng.choice(['half past', 'a quarter past', 'a quarter to'])} {hour}{half}"
    if kind == 2 or minute == 0:
        return f"{hour} o'clock{half}"
    if minute < 10:
        return f"{hour} oh {number(minute)}{half}"
    return f"{hour} {number(minute)}{half}"


def _date(rng: random.Random) -> str:
    month, day = rng.choice(MONTHS), ordinal(rng.randint(1, 31))
    text = rng.choice([f"{month} {day}", f"the {day} of {month}", f"{rng.choice(WEEKDAYS)}, {month} {day}"])
    return text + (f", twenty {number(rng.randint(10, 40))}" if rng.random() < 0.2 else "")


def _day(rng: random.Random) -> str:
    return rng.choice([rng.choice(WEEKDAYS), "today", "tomorrow", f"next {rng.choice(WEEKDAYS)}", "tonight"])


def _command(rng: random.Random) -> str:
    room = f"{rng.choice(ROOMS)} " if rng.random() < 0.7 else ""
    switch, opening = f"the {room}{rng.choice(SWITCHES)}", f"the {room}{rng.choice(OPENINGS)}"
    few = number(rng.randint(1, 99))
    return rng.choice(
        [
            f"turn on {switch}",
            f"turn off {switch}",
            f"switch {rng.choice(['on', 'off'])} {switch}",
            f"{rng.choice(['open', 'close', 'lock', 'unlock'])} {opening}",
            f"{rng.choice(['start', 'stop'])} {switch}",
            f"set {switch} to {few} percent",
            f"set the temperature to {few} degrees",
            f"set a timer for {few} {rng.choice(['minutes', 'seconds', 'hours'])}",
            f"set an alarm for {_time(rng)}",
            f"{rng.choice(['raise', 'lower'])} the {rng.choice(['volume', 'temperature'])} by {few}",
            f"call me {rng.choice(['at ' + _time(rng), _day(rng)])}",
        ]
    )


def _statement(rng: random.Random) -> str:
    return rng.choice(
        [
            f"it is {_time(rng)}",
            f"today is {_date(rng)}",
            f"the number is {_number(rng)}",
            f"the code is {_digits(rng)}",
            f"the meeting is on {rng.choice(WEEKDAYS)} at {_time(rng)}",
            f"it is {number(rng.randint(1, 99))} degrees in the {rng.choice(ROOMS)}",
            f"the {rng.choice(SWITCHES[:3])} is {rng.choice(['on', 'off'])}",
            f"the {rng.choice(OPENINGS[:3])} is {rng.choice(['open', 'closed', 'locked'])}",
        ]
    )


def sentence(rng: random.Random, *, max_words: int = 14) -> str:
    """One sentence of the domain: one to three parts, joined by commas."""
    kinds = [_digits] * 2 + [_number] * 2 + [_time, _date, _day] + [_command] * 3 + [_statement] * 2
    while True:
        parts = [rng.choice(kinds)(rng) for _ in range(rng.choices([1, 2, 3], [5, 4, 1])[0])]
        if rng.random() < 0.2:
            parts.insert(0, rng.choice(GREETINGS))
        if rng.random() < 0.08:
            parts = [rng.choice(GREETINGS)]
        text = ", ".join(parts)
        if len(text.replace(",", "").split()) <= max_words:
            return text


def held_out(count: int = 60, *, seed: int = 20) -> list[str]:
    """The phrases that the word error rate is measured on; `training_sentences` never yields one of them."""
    rng = random.Random(seed)
    phrases: list[str] = []
    while len(phrases) < count:
        text = sentence(rng)
        if len(text.split()) >= 3 and text not in phrases:
            phrases.append(text)
    return phrases


def training_sentences(count: int, *, seed: int = 1) -> list[str]:
    """`count` different sentences, none of them held out; the first ones are single words and short pieces."""
    rng = random.Random(seed)
    excluded = set(held_out())
    seen = dict.fromkeys(words())  # every word alone, once
    seen.pop("o'clock", None)
    while len(seen) < count:
        text = sentence(rng, max_words=rng.choice([3, 6, 14]))
        if text not in excluded:
            seen[text] = None
    return list(seen)[:count]


@functools.cache
def words() -> list[str]:
    """Every word of the domain, sorted: drawn from the grammar itself, so that the two cannot differ."""
    rng = random.Random(0)
    found: set[str] = set()
    for _ in range(10000):
        found.update(sentence(rng).replace(",", "").split())
    return sorted(found)


def written_forms(text: str, rng: random.Random) -> str:
    """`text` as a user may write it: with a capital, capital names, a full stop; spoken the same."""
    if rng.random() < 0.3:
        text = " ".join(w.capitalize() if w.strip(",") in MONTHS + WEEKDAYS else w for w in text.split())
    if rng.random() < 0.4:
        text = text[0].upper() + text[1:]
    if rng.random() < 0.4:
        text += "."
    return text
