"""The voice in the package: where its model file is, and the error text of a build without it.

Leaves loading the file to `engine.py`. `training/` in the source tree makes the files; its README says how and of what.
"""

from __future__ import annotations

from pathlib import Path

FILE_NAME = "english-heart.gguf"
NONE_THERE = (
    "expected a model file, got none, and this build has no voice of its own: give -m FILE or DUALAR_MODEL on the "
    "command line, dualar.load(FILE) in Python"
)


def path() -> Path:
    """Where the package's own model file is, if it has one."""
    return Path(__file__).parent / "resources" / FILE_NAME


def default_model() -> Path:
    """The package's own model file. FileNotFoundError, saying what to do, in a build without one."""
    if not path().is_file():
        raise FileNotFoundError(f"[model] {NONE_THERE} ({path()})")
    return path()
