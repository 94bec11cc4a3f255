"""Which names a voice may have: those that can be a file's name on every system.

Owns `check_voice_name`.
"""

from __future__ import annotations

import unicodedata

_MAX_NAME = 64  # characters; and at most _MAX_NAME_BYTES of UTF-8, so that any file system can hold the file's name
_MAX_NAME_BYTES = 200
_RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{port}{i}" for port in ("COM", "LPT") for i in range(10))}


def check_voice_name(name: str) -> str:
    """The name, composed (NFC); ValueError where it cannot be a file's name on every system.

    1 to 64 letters, digits, `-`, `_`, `.` and spaces, of any script; no space at either end, no `.` or `-` first, no
    `.` last, no `..`, and none of the names that Windows keeps for devices.
    """
    if not isinstance(name, str):
        raise TypeError(f"[voice] expected a name that is a str, got {type(name).__name__}")
    composed = unicodedata.normalize("NFC", name)
    wrong = next((c for c in composed if not (c.isalnum() or unicodedata.category(c)[0] == "M" or c in "-_. ")), None)
    stem = unicodedata.normalize("NFKC", composed.split(".")[0]).strip().upper()  # COM¹ is COM1 to Windows
    if wrong is not None:
        problem = f"{wrong!r}"
    elif not 1 <= len(composed) <= _MAX_NAME or len(composed.encode()) > _MAX_NAME_BYTES:
        problem = f"{len(composed)} characters"
    elif composed[0] in ".- " or composed[-1] in ". " or ".." in composed:
        problem = "a dot, dash or space where none may be"
    elif unicodedata.category(composed[0])[0] == "M":
        problem = "a mark without its letter"
    elif stem in _RESERVED:
        problem = "a name that Windows keeps for a device"
    else:
        return composed
    raise ValueError(
        f"[voice] expected a name of 1 to {_MAX_NAME} letters, digits, '-', '_', '.' and spaces, got {problem} in "
        f"{name[:80]!r}"
    )
