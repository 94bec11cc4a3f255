"""Speech written as it is made: to a file that grows, to standard output, or to the system's audio.

Owns opening the output, writing the chunks to it, and what happens when its reader goes away. Leaves the options to
`say_options.py`, players to `playing.py`, the bytes to `dualar.audio.wav.WavWriter`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import typer

from dualar.cli import common

if TYPE_CHECKING:
    from dualar.audio.wav import Subtype
    from dualar.cli.playing import Player
    from dualar.speech.stream import ChunkStream

STDOUT = Path("-")
PLAYER = Path("(system audio)")  # stands for it where no file was named
DEFAULT_CADENCE = "1,2,4"  # the first sound at once, then fewer and cheaper steps


def read_cadence(text: str) -> list[int]:
    """ "1,2,4" as numbers, or a usage error."""
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1 or max(sizes) >= 2**31:
        raise typer.BadParameter(f"--frames-per-chunk: expected whole numbers >= 1 with commas between, got {text!r}.")
    return sizes


def check_stdout() -> None:
    """A usage error where standard output is a terminal, or closed."""
    if sys.stdout is None or sys.stdout.isatty():
        raise typer.BadParameter("-o - writes sound: lead standard output into a player or a file.")


def write_chunks(
    stream: ChunkStream[Any],
    output: Path,
    *,
    subtype: Subtype,
    raw: bool,
    player: Player | None = None,
    on_frame: Callable[[object], object] | None = None,
    after: int = 0,
) -> None:
    """Write the chunks as they come; the output is not touched before the first. Fails where its reader goes away.

    player: the one that plays them, where the output is PLAYER.
    after: continue a file that was written like this, after this many samples.
    """
    from dualar.audio.wav import WavWriter

    written, where = 0.0, "standard output" if output == STDOUT else str(output)
    try:
        with contextlib.ExitStack() as opened:
            writer = None
            for chunk in stream:
                if writer is None:
                    opening = (
                        _open(output, "r+b" if after else "wb") if player is None else player.open(chunk.sample_rate)
                    )
                    file = opened.enter_context(opening)
                    in_place = output != STDOUT
                    writer = WavWriter(
                        file, chunk.sample_rate, subtype=subtype, raw=raw, in_place=in_place, written=after
                    )
                writer.write(chunk.samples)
                written += chunk.duration
                if on_frame is not None:
                    on_frame(SimpleNamespace(index=chunk.frame_index + chunk.codes.shape[1] - 1))
    except BrokenPipeError:
        common.fail(f"the reader of {where} went away after {written:.2f} s of speech.", common.FAILED)
    except OSError as error:
        common.fail(f"cannot write {where} after {written:.2f} s of speech: {error.strerror or error}", common.FAILED)


@contextlib.contextmanager
def _open(output: Path, mode: Literal["wb", "r+b"]) -> Iterator[BinaryIO]:
    if output != STDOUT:
        with open(output, mode) as file:
            yield file
        return
    try:
        yield sys.stdout.buffer
    except OSError:
        # Python flushes standard output once more when it ends, and would complain.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
