"""Which word each frame of an utterance speaks, from the phones that `flite` says it has made.

For each utterance, at each 40 ms, the number of the unit that is spoken. Units are the words and commas of the text in
order; the silence after the last one has the number after it. `train_lm.py` shows this to two of the Slow-AR's
attention heads, which otherwise take very long to find out how text and sound run along each other. `data.py` writes it
beside the corpus.
"""

from __future__ import annotations

import subprocess

FRAME = 0.04  # s


def units(text: str) -> list[str]:
    """Words and commas."""
    return text.replace(",", " ,").split()


def phones(text: str) -> list[tuple[str, float, float]]:
    """(phone, start, end in seconds) of the text as `flite` speaks it; "pau" is silence."""
    run = subprocess.run(
        ["flite", "-voice", "slt", "-psdur", "-t", text, "-o", "none"], capture_output=True, check=True
    )
    found, start = [], 0.0
    for part in run.stdout.decode().split():
        phone, end = part.split(":")
        found.append((phone, start, float(end)))
        start = float(end)
    return found


def assign_words(spoken: list[str], expected: list[tuple[str, int]]) -> list[int]:
    """The word of each spoken phone, by the cheapest edit of the (phone, word) that were expected into them."""
    rows, columns = len(spoken) + 1, len(expected) + 1
    cost = [[i + j for j in range(columns)] for i in range(rows)]
    for i in range(1, rows):
        for j in range(1, columns):
            same = spoken[i - 1] == expected[j - 1][0]
            cost[i][j] = min(cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (not same))
    found, i, j = [0] * len(spoken), rows - 1, columns - 1
    while i > 0:
        if j > 0 and cost[i][j] == cost[i - 1][j - 1] + (spoken[i - 1] != expected[j - 1][0]):
            i, j = i - 1, j - 1
            found[i] = expected[j][1]
        elif j > 0 and cost[i][j] == cost[i][j - 1] + 1:
            j -= 1
        else:
            i -= 1
            found[i] = expected[max(j - 1, 0)][1]
    return found


def lexicon(words: list[str]) -> dict[str, list[str]]:
    """The phones of each word, spoken alone."""
    return {word: [phone for phone, _, _ in phones(word) if phone != "pau"] for word in words}


def align(text: str, seconds: float, lead: float, known: dict[str, list[str]]) -> list[int]:
    """The unit of each frame of an utterance, which begins `lead` seconds before its first phone. known: `lexicon`."""
    listed = units(text)
    expected = [(phone, i) for i, unit in enumerate(listed) if unit != "," for phone in known[unit]]
    made = phones(text)
    loud = [entry for entry in made if entry[0] != "pau"]
    spans = [
        (unit, *entry[1:]) for unit, entry in zip(assign_words([p for p, _, _ in loud], expected), loud, strict=True)
    ]
    begin = spans[0][1] - lead
    result, at = [], 0
    for frame in range(int(-(-seconds // FRAME))):
        middle = begin + (frame + 0.5) * FRAME
        while at < len(spans) and spans[at][2] <= middle:
            at += 1
        if at == len(spans):
            result.append(len(listed))
            continue
        unit, start, _ = spans[at]
        silent = middle < start and unit > 0 and listed[unit - 1] == ","
        result.append(unit - 1 if silent else unit)
    return result
