"""Turns S1-mini's tokenizer files (tokenizer.tiktoken, special_tokens.json) into the JSON that a model file holds.

Owns that translation. Leaves Qwen's files to `tokenizer_files.py`, using the result to `dualar.text.tokenizer`.

Each line of tokenizer.tiktoken is a token's bytes in base64 and its rank, which is its id; a line whose token is `=`
alone means nothing. Special ids follow the ranks, in the order of special_tokens.json, whose numbers must be those.
tiktoken joins, in a piece of text, the two neighbours whose joined bytes have the lowest rank, until no two make a
token; a piece that is itself a token is that token. The `tokenizers` library wants the pairs that may be joined, in
order: for each token the two parts that its own bytes come to when only lower ranks are joined.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from pathlib import Path
from typing import Any

from dualar._native import _core
from dualar.convert.published import read_json, read_text, shown
from dualar.convert.tokenizer_files import byte_level_bpe, check_tokenizer
from dualar.text.tokenizer_json import byte_symbols

TIKTOKEN = "tokenizer.tiktoken"
SPECIAL = "special_tokens.json"

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|\p{P}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(\?!\S)|\s+"
)
"""S1-mini's pre-tokenizer. In `\\s+(\\?!\\S)` the question mark is escaped, which makes it no look-ahead but a part
that finds blanks before "?!" and another character. The published code has it so, and the model was trained with it."""

_LONGEST_TOKEN = 1024


def tiktoken_json(folder: Path, *, vocab_size: int) -> str:
    """The content of a tokenizer.json for the files in `folder`; ModelError for files that do not fit together.

    vocab_size: rows of the model's embedding, which bound the ids.
    """
    ranks = _read_ranks(folder / TIKTOKEN)
    added = _read_special(folder / SPECIAL, len(ranks))
    highest = max([*ranks.values(), *(token["id"] for token in added)])
    if highest >= vocab_size:
        raise _core.ModelError(
            f"[tokenizer] {folder}: expected ids from 0 to {vocab_size - 1}, the model's vocabulary, got {highest}"
        )
    symbols = byte_symbols()

    def text(token: bytes) -> str:
        return "".join(symbols[byte] for byte in token)

    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1 and len(parts := _parts(token, ranks, rank)) == 2:
            merges.append([text(part) for part in parts])
    content = byte_level_bpe(
        {text(token): rank for token, rank in ranks.items()},
        merges,
        added,
        pattern=PATTERN,
        normalizer=None,
        ignore_merges=True,
    )
    check_tokenizer(content, added, source=str(folder))
    return content


def _parts(token: bytes, ranks: dict[bytes, int], limit: int) -> list[bytes]:
    """What a token's bytes come to when neighbours are joined whose joined rank is under `limit`, lowest first."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        joined = [ranks.get(left + right, limit) for left, right in itertools.pairwise(parts)]
        at = min(range(len(joined)), key=joined.__getitem__)
        if joined[at] >= limit:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _read_ranks(path: Path) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    taken: set[int] = set()
    for number, line in enumerate(read_text(path).splitlines(), 1):
        fields = line.split()
        if not fields or fields[0] == "=":
            continue
        try:
            encoded, rank = fields
            token, at = base64.b64decode(encoded, validate=True), int(rank)
        except (ValueError, binascii.Error) as error:
            raise _wrong(path, number, "a token in base64 and a rank", shown(line)) from error
        if not 1 <= len(token) <= _LONGEST_TOKEN or not 0 <= at < 2**31:
            raise _wrong(path, number, f"a token of 1 to {_LONGEST_TOKEN} bytes and a rank from 0 on", shown(line))
        if token in found or at in taken:
            raise _wrong(path, number, "each token and each rank once", shown(line))
        found[token] = at
        taken.add(at)
    if not found:
        raise _core.ModelError(f"[tokenizer] {path}: expected tokens with their ranks, got none")
    return found


def _read_special(path: Path, first: int) -> list[dict[str, Any]]:
    added = []
    for i, (token, given) in enumerate(read_json(path).items()):
        if type(given) is not int or given != first + i:
            raise _core.ModelError(
                f"[tokenizer] {path}: expected id {first + i} for {shown(token)!r}, the next after the {first} ranks' "
                f"and the special tokens' before it, got {shown(given)}"
            )
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        added.append({"id": given, "content": token, **flags, "special": True})
    return added


def _wrong(path: Path, line: int, expected: str, got: str) -> _core.ModelError:
    return _core.ModelError(f"[tokenizer] {path}, line {line}: expected {expected}, got {got!r}")
