"""Finds the blocks of code in a page of Markdown.

Owns what a block is, and which lines of a shell block a test does not run. Leaves running them to `test_pages.py` and
the files they need to `stand_ins.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = ("python", "sh")

# Lines of a shell block that are not run, by how they begin: they install, they compile for half an hour, or they
# are what runs this test. A reader sees nothing of this; what else cannot be run in a test does not belong on a page.
NOT_RUN = ("pip install", "python3 -m venv", "CMAKE_ARGS=", "mkdocs build", "python -m pytest", "python tools/wheel")


@dataclass(frozen=True)
class Block:
    """A fenced block of code. before: the name of a preparation, which `<!-- test: NAME -->` above it asks for."""

    language: str
    code: str
    line: int  # of the page, where the code begins
    before: str | None


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page in their order. ValueError for a language that no test runs, or a fence left open."""
    found = []
    fence: tuple[str, int] | None = None
    before: str | None = None
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if fence is None and (opened := re.fullmatch(r"\s*```(\w*)\s*", line)):
            fence, lines = (opened.group(1), number + 1), []
            if fence[0] not in LANGUAGES:
                raise ValueError(f"[pages] line {number}: expected a block of {' or '.join(LANGUAGES)}, got {line!r}")
        elif fence is None:
            named = re.fullmatch(r"<!-- test: (\w+) -->", line)
            before = named.group(1) if named else before if not line.strip() else None
        elif line.strip() == "```":
            found.append(Block(fence[0], "\n".join(lines) + "\n", fence[1], before))
            fence = before = None
        else:
            lines.append(line)
    if fence is not None:
        raise ValueError(f"[pages] line {fence[1]}: expected the block to end, got the end of the page")
    return found


def commands(code: str) -> list[str]:
    """The commands of a shell block that are run: one each line, with the lines that a backslash joins to it."""
    lines = re.sub(r"\\\n\s*", "", code).splitlines()
    return [line for line in lines if line.strip() and not line.startswith(("#", *NOT_RUN))]
