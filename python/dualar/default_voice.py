"""The voice in the package: where its model file is, which words it knows, and the error text of a build without it.

Leaves loading the file to `engine.py`. `training/` in the source tree makes the files; its README says how and of what.
"""

from __future__ import annotations

import re
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


def unknown_words(text: str) -> list[str]:
    """The words of the text that the package's own voice was not trained on, each once, as they are written.

    Numbers count as known only where they are written as words. FileNotFoundError in a build without the voice.
    """
    known = set(default_model().with_suffix(".words").read_text(encoding="utf-8").split())
    found = dict.fromkeys(re.findall(r"[^\s,.;:!?]+", text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")))
    return [word for word in found if word.lower() not in known]
