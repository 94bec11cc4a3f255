"""The content of a tokenizer.json: taking tokens out of it, its patterns, and the symbols that stand for bytes.

Owns what is known of that format. Leaves reading and running it to the `tokenizers` library, by `tokenizer.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any


def patterns(content: Any) -> Iterator[str]:
    """The regular expressions in a part of a tokenizer.json, wherever they stand."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key == "Regex" and isinstance(value, str):
                yield value
            else:
                yield from patterns(value)
    elif isinstance(content, list):
        for value in content:
            yield from patterns(value)


def without_tokens(text: str, tokens: set[str]) -> str:
    """The JSON text without added tokens, without `tokens` in the vocabulary and without the merges that need one."""
    content: dict[str, Any] = json.loads(text)
    content["added_tokens"] = []
    content["post_processor"] = None
    model = content["model"]
    model["vocab"] = {token: i for token, i in model["vocab"].items() if token not in tokens}
    kept = []
    for merge in model["merges"]:
        left, right = _parts(merge)
        if tokens.isdisjoint((left, right, left + right)):
            kept.append(merge)
    model["merges"] = kept
    if model.get("unk_token") in tokens:
        model["unk_token"] = None  # nothing is unknown: the vocabulary has every byte
    return json.dumps(content, ensure_ascii=False)


def _parts(merge: str | Sequence[str]) -> tuple[str, str]:
    """A merge is a pair in new files, "left right" in old ones."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def byte_symbols() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's table).

    Printable Latin-1 bytes stand for themselves; the others, in order, for the characters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
