"""What the subcommands share: their common options, exit codes and error texts, output files, and the progress bar.

Leaves each command's own options and work to its module. Heavy imports stay inside functions: help must be quick.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from dualar import default_voice

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.progress import Progress, TaskID

    from dualar.voices.voice import Voice

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


def check_model_path(path: Path) -> Path:
    """The path of an existing file, or a usage error."""
    try:
        path.stat()
    except FileNotFoundError:
        if path == default_voice.path():
            raise typer.BadParameter(default_voice.NONE_THERE) from None
        raise typer.BadParameter(f"{path} does not exist. Give a GGUF file.") from None
    except OSError as error:  # a name too long, a folder that may not be entered
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror or error}.") from error
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder, not a GGUF file.")
    return path


def check_tokenizer_path(path: Path | None) -> Path | None:
    """The path of an existing file or folder, or a usage error."""
    try:
        if path is not None:
            path.stat()
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror or error}.") from error
    return path


_MODEL: dict[str, Any] = {
    "envvar": "DUALAR_MODEL",
    "callback": check_model_path,
    "help": "The model's GGUF file.",
    "default_factory": default_voice.path,
    "show_default": "the voice in the package",
}
ModelOption = Annotated[Path, typer.Option("--model", "-m", metavar="FILE", **_MODEL)]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", **_MODEL)]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="NAME", help="Where to compute: a name that `dualar devices` lists.")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        "-t",
        min=1,
        max=512,
        metavar="N",
        show_default="what the machine allows",
        help="CPU threads to compute with; no more than the CPUs at hand are started.",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", "-f", help="Replace existing output files without asking.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
VerboseOption = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        metavar="",
        show_default=False,
        help="Print more: -v the log, -vv also where errors arose.",
    ),
]
OutOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="The WAV file to write, mono; ends in .wav.")
]
SubtypeOption = Annotated[
    Literal["PCM_16", "PCM_24", "FLOAT"],
    typer.Option("--subtype", case_sensitive=False, help="How samples are stored: 16 or 24 bits, or 32-bit float."),
]


def note(text: str) -> None:
    """One line on stderr: stdout is left for what a command is asked to print."""
    typer.echo(text, err=True)


def fail(text: str, code: int) -> NoReturn:
    """An error text on stderr, then the exit code."""
    typer.echo(typer.style("Error: ", fg=typer.colors.RED, bold=True) + text, err=True)
    raise typer.Exit(code)


@contextlib.contextmanager
def reporting(*, quiet: bool, verbose: int) -> Iterator[None]:
    """Run a command's work: its log as asked for, its exceptions as error texts and exit codes."""
    levels = {0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG}
    logging.basicConfig(
        stream=sys.stderr,
        format="%(name)s: %(message)s",
        level=logging.ERROR if quiet else levels[min(verbose, 2)],
        force=True,  # each command of one process, as tests run them, has its own stderr
    )
    try:
        yield
    except KeyboardInterrupt:
        note("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except ValueError as error:
        _fail_with(error, BAD_INPUT, verbose)
    except OSError as error:
        _fail_with(error, FAILED, verbose)
    except MemoryError as error:
        _fail_with(error, FAILED, verbose, text="out of memory")
    except ImportError as error:
        _fail_with(error, FAILED, verbose)
    except typer.Abort as error:  # from a question: either no answer could be read, or Ctrl-C
        if isinstance(error.__context__, KeyboardInterrupt):
            note("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        raise
    except typer.Exit:  # a RuntimeError too
        raise
    except RuntimeError as error:
        from dualar import BackendError, ModelError

        if isinstance(error, (ModelError, BackendError)):
            _fail_with(error, FAILED, verbose)
        raise  # a fault of ours: with its traceback


def _fail_with(error: Exception, code: int, verbose: int, *, text: str | None = None) -> NoReturn:
    if verbose >= 2:
        import traceback

        note("".join(traceback.format_exception(error)).rstrip())
    if text is None:
        text = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if isinstance(error, OSError) and error.filename is not None and str(error.filename) not in text:
            text = f"{error.filename}: {text}"
    fail(text, code)


def read_array(path: Path) -> npt.NDArray[Any]:
    """The array of a .npy file, or a usage error."""
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError as error:  # a header may promise anything
        raise typer.BadParameter(f"expected a .npy array that fits into memory in {path}: {error}") from error
    except (ValueError, EOFError) as error:  # not .npy, cut short, or holding pickled objects
        raise typer.BadParameter(f"expected a .npy array in {path}: {error}") from error
    if not isinstance(loaded, np.ndarray):  # an .npz archive
        loaded.close()
        raise typer.BadParameter(f"expected one .npy array in {path}, got an archive of several")
    return loaded


def check_output(path: Path, *, force: bool) -> None:
    """Refuse, before any work, an output that cannot be written or that exists and may not be replaced."""
    from dualar.files import check_writable

    try:
        check_writable(path)
    except OSError as error:
        fail(str(error), BAD_INPUT)
    if force or not path.is_file():
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        if not typer.confirm(f"{path} exists. Replace it?", err=True):
            fail(f"{path} was left as it is.", BAD_INPUT)
        return
    fail(f"{path} exists; pass --force to replace it.", BAD_INPUT)


def check_codes_output(path: Path, *, force: bool) -> None:
    """`check_output` for a file of codes, which is a .npy."""
    if path.suffix.lower() != ".npy":
        raise ValueError(f"[codes] expected a file name ending in .npy, got {str(path)!r}")
    check_output(path, force=force)


def write_codes(path: Path, codes: npt.NDArray[np.int32]) -> None:
    """Write a matrix of codes as .npy, whole or not at all."""
    import io

    import numpy as np

    from dualar.files import write_file

    buffer = io.BytesIO()
    np.save(buffer, codes, allow_pickle=False)
    write_file(path, buffer.getvalue())


def as_utf8(argument: str) -> str:
    """An argument as UTF-8, where a locale made Python read it as something else; else as it is."""
    try:
        return argument if argument.isascii() else os.fsencode(argument).decode("utf-8")
    except UnicodeError:  # the tokenizer says what is wrong with it
        return argument


class Interruption:
    """While entered, a first Ctrl-C is noted in `happened`, for the work to end well; a second one ends it at once."""

    def __init__(self, *, noted: bool) -> None:
        """noted: False leaves Ctrl-C as it is."""
        self.happened = False
        self._noted = noted
        self._before: Any = None

    def __enter__(self) -> Interruption:
        if self._noted:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._noted:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, *_: object) -> None:
        if self.happened:
            raise KeyboardInterrupt
        self.happened = True
        note("interrupted: writing what was made so far; a second Ctrl-C ends at once")


def find_voice(name: str) -> Voice:
    """The voice of a name or file; a usage error for a file that is not there."""
    from dualar.voices import find

    try:
        return find.find_voice(name if find.is_path(name) else as_utf8(name))
    except FileNotFoundError as error:
        raise typer.BadParameter(f"{name} does not exist. Give a voice's name or a .voice or .s2voice file.") from error


class SpeechProgress:
    """A progress bar for a request: frames as they are made, then decoded. Shows nothing where no terminal is."""

    def __init__(self, *, quiet: bool, frames_per_second: float, expected_frames: int, max_frames: int) -> None:
        """expected_frames: a guess at how long the speech gets, corrected as it goes; max_frames: where it must end."""
        self._rate = frames_per_second
        self._expected = max(1, min(expected_frames, max_frames))
        self._max = max_frames
        self._shown = not quiet and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._started = 0.0

    def __enter__(self) -> SpeechProgress:
        self._started = time.perf_counter()
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed} frames"),
                TextColumn("{task.fields[speed]}"),
                TimeRemainingColumn(compact=True),
                TextColumn("left"),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task("speaking", total=self._expected, speed="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def on_frame(self, frame: object) -> None:
        """For `on_frame`: one more frame was made."""
        if self._progress is None or self._task is None:
            return
        made = int(getattr(frame, "index", 0)) + 1
        if made >= self._expected:  # longer than guessed: the bar stays short of full until the end is known
            self._expected = min(self._max, made + max(10, made // 10))
        self._update("speaking", made, self._expected)

    def on_decode(self, done: int, total: int) -> None:
        """For `on_decode`: `done` of `total` frames are samples."""
        self._on_block("decoding", done, total)

    def on_encode(self, done: int, total: int) -> None:
        """For `on_progress` of encoding: `done` of `total` frames are codes."""
        self._on_block("encoding", done, total)

    def _on_block(self, work: str, done: int, total: int) -> None:
        if self._progress is not None and self._task is not None:
            if done <= total and self._progress.tasks[0].description == "speaking":
                self._progress.reset(self._task, description=work, total=total)
                self._started = time.perf_counter()
            self._update(work, done, total)

    def _update(self, description: str, done: int, total: int) -> None:
        assert self._progress is not None and self._task is not None
        spent = time.perf_counter() - self._started
        speed = f"real-time factor {spent * self._rate / done:.2f}" if done else ""
        self._progress.update(self._task, description=description, completed=done, total=total, speed=speed)


def amount(nbytes: float) -> str:
    """Bytes for people: 3.4 MB, 1.2 GB (powers of 1000)."""
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} GB"


def count(number: float) -> str:
    """A number of parameters for people: 950, 12.3 k, 4.1 M, 4.3 B."""
    for unit in ("", " k", " M"):
        if number < 1000:
            return f"{number:.0f}" if unit == "" else f"{number:.1f}{unit}"
        number /= 1000
    return f"{number:.1f} B"
