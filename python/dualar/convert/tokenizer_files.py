"""Turns Qwen's tokenizer files (vocab.json, merges.txt, tokenizer_config.json) into the JSON that a model file holds.

Owns that translation for Qwen's byte-level BPE: NFC, Qwen2's splitting pattern, control tokens at the ids that the
config gives them; and the form of that JSON for any byte-level BPE. Leaves S1-mini's files to `tiktoken_files.py`,
using the result to `dualar.text.tokenizer`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dualar._native import _core
from dualar.convert.published import read_json, read_text, shown

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen2's pre-tokenizer."""


def qwen_tokenizer_json(folder: Path, *, vocab_size: int) -> str:
    """The content of a tokenizer.json for the files in `folder`; ModelError for files that do not fit together.

    vocab_size: rows of the model's text embedding, which bound the ids.
    """
    vocab = read_json(folder / "vocab.json")
    where = folder / "vocab.json"
    if not all(type(i) is int for i in vocab.values()):
        raise _core.ModelError(f"[tokenizer] {where}: expected an id for each token")
    merges = _read_merges(folder / "merges.txt")
    added = _added_tokens(folder / "tokenizer_config.json")
    beyond = sorted(
        (i, token)
        for token, i in [*vocab.items(), *((t["content"], t["id"]) for t in added)]
        if not 0 <= i < vocab_size
    )
    if beyond:
        raise _core.ModelError(
            f"[tokenizer] {where}: expected ids from 0 to {vocab_size - 1}, the model's text vocabulary, got "
            f"{len(beyond)} others: {', '.join(f'{i} ({shown(token)})' for i, token in beyond[:4])}"
        )
    text = byte_level_bpe(vocab, merges, added, pattern=PATTERN, normalizer={"type": "NFC"}, ignore_merges=False)
    check_tokenizer(text, added, source=str(folder))
    return text


def byte_level_bpe(
    vocab: dict[str, int],
    merges: list[list[str]],
    added: list[dict[str, Any]],
    *,
    pattern: str,
    normalizer: dict[str, str] | None,
    ignore_merges: bool,
) -> str:
    """The content of a tokenizer.json. pattern: cuts a text into the pieces that tokens never reach across.
    ignore_merges: a piece that is a token is that token, whatever the merges make of it."""
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": ignore_merges,
            "vocab": vocab,
            "merges": merges,
        },
    }
    return json.dumps(content, ensure_ascii=False)


def _read_merges(path: Path) -> list[list[str]]:
    merges = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        parts = line.split(" ")
        if len(parts) != 2:
            raise _core.ModelError(f"[tokenizer] {path}, line {number}: expected two tokens, got {line[:80]!r}")
        merges.append(parts)
    return merges


def _added_tokens(path: Path) -> list[dict[str, Any]]:
    listed = read_json(path).get("added_tokens_decoder")
    if not isinstance(listed, dict):
        raise _core.ModelError(f"[tokenizer] {path}: expected added_tokens_decoder, an object, got {listed!r:.80}")
    added = []
    for key, entry in listed.items():
        if not key.isdecimal() or not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
            raise _core.ModelError(f"[tokenizer] {path}: expected ids with tokens, got {key[:20]!r}: {entry!r:.80}")
        flags = {flag: entry.get(flag) is True for flag in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        added.append({"id": int(key), "content": entry["content"], **flags})
    return sorted(added, key=lambda token: token["id"])


def check_tokenizer(text: str, added: list[dict[str, Any]], *, source: str) -> None:
    """ModelError unless the library reads the JSON and gives every control token the id that it should have."""
    import tokenizers

    try:
        loaded = tokenizers.Tokenizer.from_str(text)
    except BaseException as error:  # the library raises bare Exception, and on some files panics in Rust
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise _core.ModelError(f"[tokenizer] {source}: expected a vocabulary with its merges, got {error}") from error
    for token in added:
        found = loaded.token_to_id(token["content"])
        if found != token["id"]:
            raise _core.ModelError(
                f"[tokenizer] {source}: expected id {found} for {shown(token['content'])!r}, the next after the "
                f"vocabulary's, got {token['id']}"
            )
