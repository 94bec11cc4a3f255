"""The voice's tokenizer: byte-level BPE in which each phoneme, a vowel together with its stress, is one token.

Owns the inventory and the tokenizer made from it. The pieces of the prompt's template are one token each: they are the
same in every prompt, so what they say is not worth the model's time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from dualar.families import s2_prompt as prompt

VOWELS = "AIOWYᵊæɑɐəɛɜɪiuʊʌɔᵻ"
CONSONANTS = "bdfhjklmnpstvwzðŋɡɹɾTʃʒʤʧθʔ"
STRESS = "ˈˌ"
PAUSES = " ,.;:!?—…"
INVENTORY = frozenset(VOWELS + CONSONANTS + STRESS + PAUSES)
CONTROL = ["<|im_start|>", "<|im_end|>", "<|voice|>"]
TEMPLATE = [prompt.SYSTEM_OPEN, prompt.SYSTEM_PLAIN, prompt.CLOSE, prompt.USER_OPEN, prompt.ASSISTANT_OPEN]


def _byte_symbols() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's table)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def merges() -> list[tuple[str, str]]:
    """What makes each phoneme's bytes one token, and then a stress mark and a vowel."""
    symbols = _byte_symbols()
    spelled = {c: [symbols[byte] for byte in c.encode()] for c in VOWELS + CONSONANTS + STRESS + PAUSES}
    found: dict[tuple[str, str], None] = {}
    for parts in spelled.values():
        for i in range(1, len(parts)):
            found["".join(parts[:i]), parts[i]] = None
    for mark in STRESS:
        for vowel in VOWELS:
            found["".join(spelled[mark]), "".join(spelled[vowel])] = None
    return list(found)


def build_tokenizer(codebook_size: int) -> str:
    """The JSON of a tokenizer.json: the bytes, the phonemes, the template's pieces and `<|semantic:i|>`."""
    vocabulary: dict[str, int] = {}
    for token in (*_byte_symbols(), *(left + right for left, right in merges())):
        vocabulary.setdefault(token, len(vocabulary))
    control = [*CONTROL, *TEMPLATE, *(f"<|semantic:{i}|>" for i in range(codebook_size))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    content: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": len(vocabulary) + i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for i, token in enumerate(control)
        ],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocabulary, "merges": [list(pair) for pair in merges()]},
    }  # fmt: skip
    return json.dumps(content, ensure_ascii=False)


def token_starts(phonemes: str) -> list[int]:
    """The token that each character of a phoneme string belongs to."""
    found, token = [], -1
    for i, c in enumerate(phonemes):
        if not (i and phonemes[i - 1] in STRESS and c in VOWELS):
            token += 1
        found.append(token)
    return found


def spoken_tokens(
    phonemes: str, durations: Iterable[int], skipped: float, frames: int, *, unit: float, frame: float
) -> list[int]:
    """The token that each frame speaks, by the middle of the frame; -1 before the first one's start is taken as 0, and
    the silence after the last one counts as the number of tokens. durations: those of the silence before, of each
    character and of the silence after, in `unit` seconds; skipped: seconds cut at the start."""
    owners = token_starts(phonemes)
    before, *inner, _ = durations
    ends, owner, now = [], [], before * unit
    for token, duration in zip(owners, inner, strict=True):
        now += duration * unit
        ends.append(now)
        owner.append(token)
    found, at = [], 0
    for i in range(frames):
        middle = skipped + (i + 0.5) * frame
        while at < len(ends) and ends[at] <= middle:
            at += 1
        found.append(owner[at] if at < len(ends) else owners[-1] + 1)
    return found
