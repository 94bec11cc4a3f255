"""Make the package's English lexicon, from the two lists of `misaki` that come with the teacher, and from CMUdict.

    python -m training.lexicon --cmudict cmudict.dict --out python/dualar/resources/english.lexicon

One line a word, sorted by its bytes: the word, a tab, its phonemes; for a word that is said in several ways, further
fields `TAG=phonemes`. The lists are under the Apache licence 2.0 (hexgrad/misaki 0.9.4: us_gold.json, us_silver.json).
Their flap (ɾ) and glottal stop (ʔ) become T and t, as the teacher's own front end has them. CMUdict (Carnegie Mellon
University, a BSD licence) adds the words that they lack, mostly names; cmudict.dict is in the package `cmudict`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path

from training.text import INVENTORY, VOWELS

TAGS = {tag: tag for tag in ("NOUN", "VERB", "ADJ", "ADV", "VBD", "VBN", "VBP", "DT")} | {"None": "END"}
"""The lists' tags, and ours: END is the way that a word is said at the end of a phrase."""

ARPABET = dict(
    zip(
        [
            "AA",
            "AE",
            "AH",
            "AO",
            "AW",
            "AY",
            "B",
            "CH",
            "D",
            "DH",
            "EH",
            "ER",
            "EY",
            "F",
            "G",
            "HH",
            "IH",
            "IY",
            "JH",
            "K",
            "L",
            "M",
            "N",
            "NG",
            "OW",
            "OY",
            "P",
            "R",
            "S",
            "SH",
            "T",
            "TH",
            "UH",
            "UW",
            "V",
            "W",
            "Y",
            "Z",
            "ZH",
        ],
        [
            "ɑ",
            "æ",
            "ʌ",
            "ɔ",
            "W",
            "I",
            "b",
            "ʧ",
            "d",
            "ð",
            "ɛ",
            "ɜɹ",
            "A",
            "f",
            "ɡ",
            "h",
            "ɪ",
            "i",
            "ʤ",
            "k",
            "l",
            "m",
            "n",
            "ŋ",
            "O",
            "Y",
            "p",
            "ɹ",
            "s",
            "ʃ",
            "t",
            "θ",
            "ʊ",
            "u",
            "v",
            "w",
            "j",
            "z",
            "ʒ",
        ],
        strict=True,
    )
)


def _phonemes(value: str) -> str:
    return value.replace("ɾ", "T").replace("ʔ", "t")


def entries(gold: dict[str, object], silver: dict[str, object]) -> dict[str, list[str]]:
    """The fields of each word. A word in capitals that is only one in some uses ("ADD") is left out."""
    found: dict[str, list[str]] = {}
    for word, value in (*silver.items(), *gold.items()):
        ways = {"DEFAULT": value} if isinstance(value, str) else dict(value)  # type: ignore[call-overload]
        if None in ways.values() or "\t" in word or not ways["DEFAULT"]:
            continue
        plain = _phonemes(ways["DEFAULT"])
        others = {own: _phonemes(ways[tag]) for tag, own in TAGS.items() if ways.get(tag)}
        fields = [plain, *(f"{tag}={way}" for tag, way in others.items() if way != plain)]
        if all(INVENTORY.issuperset(field.partition("=")[2] or field) for field in fields):
            found[word] = fields
    return found


def from_arpabet(sounds: list[str]) -> str:
    """CMUdict's sounds ("JH EH1 R IY0") as the lists of `misaki` would have them ("ʤˈɛɹi")."""
    said = ""
    for sound in sounds:
        name, stress = sound.rstrip("012"), sound[-1] if sound[-1] in "012" else ""
        plain = ARPABET[name]
        if stress == "0":
            plain = {"ʌ": "ə", "ɜɹ": "əɹ"}.get(plain, plain)
        said += {"1": "ˈ", "2": "ˌ"}.get(stress, "") + plain
    said = re.sub(rf"(?<=[{VOWELS}ɹ])t(?=[{VOWELS}])", "T", said)  # a flap, before a vowel without stress
    said = re.sub(r"(?<=[szʃʒʧʤ])[ɪə](?=z$)", "ᵻ", said)
    said = re.sub(r"(?<=[tdT])[ɪə](?=d$)", "ᵻ", said)
    said = re.sub(rf"(?<=[^{VOWELS}ɹjwln])əl(?=[^{VOWELS}]*$)", "ᵊl", said)
    return re.sub(r"(?<=[tdszʧʤTv])ən(?=[tdsz]*$)", "ᵊn", said)


def cmu_entries(text: str) -> dict[str, list[str]]:
    """The first way of each of CMUdict's words."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        word, *sounds = line.partition("#")[0].split()
        if re.fullmatch(r"[a-z][a-z']*", word) and not word.endswith("'s"):
            found.setdefault(word, [from_arpabet(sounds)])
    return found


def is_derived(word: str, listed: set[str]) -> bool:
    """Whether the word is a listed one with an ending, which the front end adds itself."""
    for ending, instead in (("s", ""), ("es", ""), ("ies", "y"), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e")):
        stem = word.removesuffix(ending) + instead
        if word.endswith(ending) and len(stem) > 2 and stem in listed:
            return True
    return False


def main() -> None:
    import hibari

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cmudict", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    assets = Path(hibari.__file__).parent / "assets"
    gold, silver = (
        json.loads(gzip.decompress((assets / f"lexicon_us_{name}.json.gz").read_bytes())) for name in ("gold", "silver")
    )
    found = entries(gold, silver)
    lower = {word.lower() for word in found}
    for word, fields in cmu_entries(options.cmudict.read_text("utf-8")).items():
        if word not in lower and not is_derived(word, lower):
            found[word] = fields
    lines = sorted(
        ("\t".join((word, *fields)).encode() for word, fields in found.items()), key=lambda line: line.split(b"\t")[0]
    )
    options.out.write_bytes(b"".join(line + b"\n" for line in lines))
    print(f"{options.out}: {len(found)} words, {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
