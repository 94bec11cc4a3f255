"""Reads the text of a command from an argument, a file or standard input, which must be UTF-8."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from dualar.cli import common


def read_text(text: str | None, file: Path | None) -> str:
    """The text, from the one place that was named; a usage error for none or two, or for bytes that are not UTF-8."""
    if (text is None) == (file is None):
        raise typer.BadParameter(
            "Give the text once: as TEXT, as - for standard input, or with --file."
            + (" TEXT and --file were both given." if text is not None else "")
        )
    if file is None and text != "-":
        assert text is not None
        return common.as_utf8(text)
    try:
        data = sys.stdin.buffer.read() if file is None else file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file or 'standard input'}: {error.strerror or error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(
            f"expected UTF-8 text in {file or 'standard input'}, got byte 0x{data[error.start]:02x} at {error.start}"
        ) from error
