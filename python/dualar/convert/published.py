"""The small files of a published folder, and the faults that any file of it may have.

Owns reading text and JSON, the refusal of a Git LFS pointer in the place of a file, and the shortening of names from a
file in messages. Leaves tensors to `checkpoint.py` and `torch_file.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dualar._native import _core
from dualar.files import POINTER_SIZE, pointer_problem

_LONGEST_NAME = 120
_LISTED = 8


def shown(name: object) -> str:
    """A name from a file, fit for a message: about 120 characters at most, nothing unprintable."""
    text = str(name)
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= _LONGEST_NAME else f"{text[:80]}...{text[-20:]} ({len(text)} characters)"


def listed(names: list[str]) -> str:
    """The first of some names for a message, and how many more there are."""
    rest = len(names) - _LISTED
    return ", ".join(map(shown, names[:_LISTED])) + (f" and {rest} more" if rest > 0 else "")


def refuse_pointer(path: Path, beginning: bytes) -> None:
    """ModelError where a file with this beginning is a Git LFS pointer."""
    if problem := pointer_problem(beginning[:POINTER_SIZE]):
        raise _core.ModelError(f"[checkpoint] {path}: {problem}")


def read_text(path: Path) -> str:
    """A file's text, without the byte-order mark that it may begin with. ModelError where it is no UTF-8."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _core.ModelError(f"[checkpoint] cannot read {path}: {error.strerror or error}") from error
    refuse_pointer(path, data)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise _core.ModelError(f"[checkpoint] {path}: expected UTF-8, got UTF-16 (by its byte-order mark)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _core.ModelError(f"[checkpoint] {path}: expected UTF-8, got {error.reason} at {error.start}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; ModelError where there is none."""
    text = read_text(path)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _core.ModelError(f"[checkpoint] expected JSON in {path}, got {error or type(error).__name__}") from error
    if not isinstance(found, dict):
        raise _core.ModelError(f"[checkpoint] expected a JSON object in {path}, got {type(found).__name__}")
    return found
