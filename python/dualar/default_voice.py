"""The voice in the package: where its model file is, and what to say where a build has none.

The file is made by `training/` in the source tree, whose README tells what it can say and what it is made from.
"""

from __future__ import annotations

from pathlib import Path

FILE_NAME = "slt-commands.gguf"
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
