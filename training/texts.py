"""The sentences that the teacher speaks: examples and definitions of WordNet, and templates for what it lacks.

Owns the corpus of texts: `sentences(count)` is the same list on every machine with the same WordNet (Debian's package
`wordnet-base`). Templates bring in names, places, numbers, times, dates, prices, questions, requests and small talk,
all of them as they are spoken, in words, because the model learns from phonemes. Leaves speech to `data.py`.
"""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

WORDNET = Path("/usr/share/wordnet")
FILES = ("noun", "verb", "adj", "adv")
LONGEST = 25  # words in a sentence
SHARES = {"example": 0.44, "definition": 0.18, "template": 0.26, "joined": 0.12}

ONES = [
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
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
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
    "twenty-first",
    "twenty-second",
    "twenty-third",
    "twenty-fourth",
    "twenty-fifth",
    "twenty-sixth",
    "twenty-seventh",
    "twenty-eighth",
    "twenty-ninth",
    "thirtieth",
    "thirty-first",
]


# ------------------------------------------------------------------ WordNet
@cache
def _glosses() -> list[str]:
    return [
        line.split("|", 1)[1].strip()
        for name in FILES
        for line in (WORDNET / f"data.{name}").read_text("latin-1").splitlines()
        if not line.startswith("  ") and "|" in line
    ]


def _usable(text: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z' ,;\-]*[.!?]?", text)) and 2 <= len(text.split()) <= LONGEST


def _sentence(text: str) -> str:
    text = re.sub(r"\s+", " ", text.strip(" ,;-"))
    return text[0].upper() + text[1:] + ("" if text[-1] in ".?!" else ".")


@cache
def examples() -> list[str]:
    """Sentences that WordNet gives as examples of a word's use, sorted."""
    found = {part.strip() for gloss in _glosses() for part in re.findall(r'"([^"]+)"', gloss)}
    return sorted({_sentence(part) for part in found if _usable(part)})


@cache
def definitions() -> list[str]:
    """WordNet's definitions without their examples and brackets, sorted."""
    found = set()
    for gloss in _glosses():
        plain = re.sub(r"\([^)]*\)", "", re.sub(r'"[^"]*".*', "", gloss))
        found |= {part.strip(" ;,:") for part in plain.split(";")}
    return sorted({_sentence(part) for part in found if _usable(part) and len(part.split()) >= 3})


@cache
def names() -> tuple[list[str], list[str], list[str]]:
    """First names, family names and places, of WordNet's people and places."""
    first, last, places = set(), set(), set()
    for line in (WORDNET / "data.noun").read_text("latin-1").splitlines():
        if line.startswith("  ") or " @i " not in line:
            continue
        fields = line.split("|")[0].split()
        kind, count = fields[1], int(fields[3], 16)
        for word in fields[4 : 4 + 2 * count : 2]:
            parts = word.split("_")
            plain = all(re.fullmatch("[A-Z][a-z]+", part) for part in (parts[0], parts[-1]))
            if kind == "18" and len(parts) >= 2 and plain:
                first.add(parts[0])
                last.add(parts[-1])
            if kind == "15" and len(parts) <= 2 and plain:
                places.add(" ".join(parts))
    return sorted(first), sorted(last), sorted(places)


@cache
def words_of(file: str) -> list[str]:
    """Single lower-case words of one part of speech, the common ones (listed in many senses) first."""
    counts: dict[str, int] = {}
    for line in (WORDNET / f"data.{file}").read_text("latin-1").splitlines():
        if line.startswith("  "):
            continue
        fields = line.split("|")[0].split()
        for word in fields[4 : 4 + 2 * int(fields[3], 16) : 2]:
            word = re.sub(r"\(.*", "", word)
            if re.fullmatch("[a-z]{3,12}", word):
                counts[word] = counts.get(word, 0) + 1
    return sorted(counts, key=lambda word: (-counts[word], word))


# ------------------------------------------------------------------ numbers in words
def number(n: int) -> str:
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + (f"-{ONES[n % 10]}" if n % 10 else "")
    if n < 1000:
        return f"{ONES[n // 100]} hundred" + (f" {number(n % 100)}" if n % 100 else "")
    if n < 1000000:
        return f"{number(n // 1000)} thousand" + (f" {number(n % 1000)}" if n % 1000 else "")
    return f"{number(n // 1000000)} million" + (f" {number(n % 1000000)}" if n % 1000000 else "")


def year(n: int) -> str:
    if 2000 <= n < 2010:
        return number(n)
    low = n % 100
    return f"{number(n // 100)} {'hundred' if low == 0 else f'oh {ONES[low]}' if low < 10 else number(low)}"


def clock(rng: random.Random) -> str:
    hour, minute = rng.randint(1, 12), rng.choice([0, 5, 10, 15, 20, 30, 45, rng.randint(1, 59), rng.randint(1, 59)])
    spoken = ONES[hour] + (
        " o'clock" if minute == 0 else f" oh {ONES[minute]}" if minute < 10 else f" {number(minute)}"
    )
    return spoken + rng.choice(["", "", " A M", " P M", " in the morning", " in the evening"])


def digits(rng: random.Random, count: int) -> str:
    return " ".join(
        rng.choice(["oh", *ONES[:10]]) if rng.random() < 0.1 else rng.choice(ONES[:10]) for _ in range(count)
    )


# ------------------------------------------------------------------ templates
TEMPLATES = """
{f} {l} lives in {p}.|My name is {f}.|My name is {f} {l}.|Have you met {f} {l}?|The train to {p} leaves at {t}.
It is {t} now.|We need {n} more {N}s.|The answer is {n}.|How far is it to {p}?|{f} was born in {y}.
The meeting is on {m} {o}.|The {o} of {m}, {y}.|Please call {f} at {t}.|Where is {p}?|What did {f} say about {p}?
I paid {n} dollars for it.|About {n} people came.|Thank you, {f}.|Good morning, {f}!|Can you send this to {f} {l}?
Is {p} bigger than {p2}?|The temperature is {s} degrees.|Chapter {s}.|Why did {f} leave {p}?
In {y}, {f} {l} moved to {p}.|That makes {s} percent.|{f} and {f2} are going to {p}.
It costs {s} dollars and {s2} cents.|Do you have any {N}s?|I would like a {a} {N}, please.|Where did you put the {N}?
The {N} is on the {N2}.|Is the {N} {a} or {a2}?|Could you please {v} the {N}?|Don't {v} the {N}!
I don't want to {v} it.|She said that {f} would {v} it.|How do you {v} a {N}?|What is a {N}?
Who told you about the {N}?|When will the {N} be ready?|There is no {N} in the {N2}.|I have never seen such a {a} {N}.
Let's {v} this {a} {N} on {d}.|{D} morning at {t}, we will {v} the {N}.|The {a} {N} was very {a2}.
This {N} is much too {a}.|They {v} the {N} every {d}.|You can't {v} a {N} without a {N2}.
We should {v} more often, don't you think?|Would you rather {v} or {v2}?|If you {v} the {N}, I will {v2} the {N2}.
My {N} has been {a} since {y}.|{f} asked for {n} {N}s and {s} {N2}s.|Call me at {g3}, {g4}.|The code is {g4}.
Dial {g3}, {g3}, {g4}.|{S} {S2} {S3}.|The {S} {S2} {S3} report is {a}.|Doctor {l} will see you on {d}.
Mister {l}, your {N} is here.|Turn {lr} at the {N}, then walk for {s} minutes.
The flight to {p} has been delayed until {t}.|Gate {s}, seat {s2} {S}.|Hello, this is {f} from {p}.
Hi {f}, how are you today?|I'm fine, thank you.|What time is it?|See you on {d}.|Good night, {f}.
I think the {N} belongs to {f}.|The {N}, the {N2}, and the {N3} are {a}.|First {v}, then {v2}, and finally {v3}.
Not {a}, but {a2}.|{A}, {a2}, and {a3}.|Oh, what a {a} {N}!|No, I can't {v} today.|Yes, I would love to {v}.
Maybe we can {v} tomorrow.|The capital is {p}, not {p2}.|From {p} to {p2} it is {n} miles.
He weighs {s} kilos and is {s2} years old.|Version {s} point {s2}.|Open the {N}.|Close the {N} and {v}.
Play some {a} music.|Set a timer for {s} minutes.|Remind me to {v} at {t}.|{v}!|{N}.|{A} {N}.
You have {s} new messages from {f}.|Your {N} will arrive between {t} and {t2}.|The {o} {N} was {a}.|{f}'s {N} is {a}.
Send it to {f} dot {l} at {N} dot com.|Visit w w w dot {N} dot org.|One {N} is worth {n} {N2}s, isn't it?
I was going to {v}, but then {f} called me.|As far as I know, {f} {l} still lives near {p}.
Wait a minute, I forgot my {N}.|We've got {s} {N}s; that should be enough.|He'll {v} it when he's ready.
They're {a}, and we're {a2}.|I'd say that it's {a}.
"""


class Templates:
    """Fills the templates with words, drawn by `rng`; rare words come too, and the common ones more often."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.forms = [form for line in TEMPLATES.strip().splitlines() for form in line.split("|")]

    def _word(self, file: str) -> str:
        known = words_of(file)
        return known[int(len(known) * self.rng.random() ** 3)]

    def _fill(self, slot: str) -> str:
        rng = self.rng
        kind = slot.rstrip("0123456789") if slot[0] != "g" else slot
        first, last, places = names()
        if kind in ("f", "l", "p"):
            return rng.choice({"f": first, "l": last, "p": places}[kind])
        if kind in ("N", "v", "a", "A"):
            word = self._word({"N": "noun", "v": "verb", "a": "adj", "A": "adj"}[kind])
            return word.capitalize() if kind == "A" else word
        if kind == "n":
            ranges = (0, 20), (20, 999), (1000, 9999), (1, 100), (10000, 3000000)
            return number(rng.choice([rng.randint(*bounds) for bounds in ranges]))
        made = {
            "s": lambda: number(rng.randint(1, 99)),
            "y": lambda: year(rng.randint(1700, 2035)),
            "t": lambda: clock(rng),
            "m": lambda: rng.choice(MONTHS),
            "o": lambda: rng.choice(ORDINALS),
            "d": lambda: rng.choice(DAYS),
            "D": lambda: rng.choice(DAYS),
            "S": lambda: chr(65 + rng.randrange(26)),
            "lr": lambda: rng.choice(["left", "right"]),
            "g3": lambda: digits(rng, 3),
            "g4": lambda: digits(rng, 4),
        }
        return made[kind]()

    def draw(self) -> str:
        text = re.sub(r"\{(\w+)\}", lambda match: self._fill(match.group(1)), self.rng.choice(self.forms))
        return text[0].upper() + text[1:]


def _joined(rng: random.Random, plain: list[str]) -> str:
    """Two sentences made one, up to `LONGEST` words."""
    while True:
        one, two = rng.sample(plain, 2)
        if 12 <= len(one.split()) + len(two.split()) <= LONGEST - 1 and not re.search("[?!;]", one):
            break
    link = rng.choice([", and ", ", but ", "; ", ", because ", " while ", " when ", ", so ", " and ", ", "])
    head = one.rstrip(".")
    tail = (
        two if re.match(r"(I|I'm|I'd|I'll|I've)\b", two) or two.split()[0] in names()[0] else two[0].lower() + two[1:]
    )
    return head + link + tail


def sentences(count: int, seed: int = 0) -> list[str]:
    """`count` different sentences in an order fixed by the seed; a longer list begins with a shorter one."""
    rng = random.Random(seed)
    pools = {"example": list(examples()), "definition": list(definitions())}
    for pool in pools.values():
        rng.shuffle(pool)
    plain = [text for text in examples() if len(text.split()) <= 16]
    templates, seen, made = Templates(rng), set(), []
    kinds, weights = list(SHARES), list(SHARES.values())
    while len(made) < count:
        kind = rng.choices(kinds, weights)[0]
        if kind in pools and not pools[kind]:
            kind = "joined"
        text = pools[kind].pop() if kind in pools else templates.draw() if kind == "template" else _joined(rng, plain)
        if text not in seen:
            seen.add(text)
            made.append(text)
    return made
