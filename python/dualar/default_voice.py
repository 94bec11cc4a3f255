"""The voice that ships with the package: where its model file is, and what to say where a build has none.

The file was made by `training/` in the source tree; what it can say and what it was made from is in its README.
"""

from __future__ import annotations

from pathlib import Path

FILE_NAME = "slt-commands.gguf"


def default_model() -> Path:
    """The shipped model file. FileNotFoundError, saying what to do, in a build that was stripped of it."""
    path = Path(__file__).parent / "resources" / FILE_NAME
    if not path.is_file():
        raise FileNotFoundError(
            f"[model] expected the voice that ships with dualar at {path}, found none: this build was stripped of it. "
            "Give a model file: -m FILE or DUALAR_MODEL on the command line, dualar.load(FILE) in Python"
        )
    return path
