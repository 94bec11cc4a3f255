"""Speech through the system's audio: what `dualar say` does without --output.

Owns finding a player and leading samples into it. Leaves making them, chunk by chunk, to `streaming.py`.

A player is the `sounddevice` library (`pip install 'dualar[play]'`), or else a program that is there: paplay or aplay
(Linux), ffplay, or afplay (macOS), which takes files alone and so plays once all is spoken.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn, Protocol, cast

from dualar.cli import common

_HINT = (
    "Write a file with -o speech.wav, or lead -o - into a player; `pip install 'dualar[play]'` brings a library that "
    "plays on most systems."
)
_PROBE_SECONDS = 10.0


class Player(Protocol):
    """raw: whether it takes 16-bit samples alone, in the machine's order of bytes; else as a WAV stream."""

    @property
    def raw(self) -> bool: ...
    def open(self, rate: int, /) -> contextlib.AbstractContextManager[BinaryIO]:
        """A file whose samples are heard as they are written; leaving it waits for the last one, but on an error."""


@dataclass(frozen=True)
class _Program:
    """A program that plays what comes on standard input. command: for a rate; probe: ends well where it can play."""

    name: str
    arguments: tuple[str, ...]
    raw: bool = True
    can_probe: bool = True

    def command(self, rate: int) -> list[str]:
        return [self.name, *(argument.format(rate=rate) for argument in self.arguments)]

    def problem(self) -> str | None:
        """What it says where it cannot play, found by playing nothing."""
        if not self.can_probe:
            return None
        try:
            done = subprocess.run(
                self.command(44100), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                timeout=_PROBE_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"no answer within {_PROBE_SECONDS:.0f} s"
        except OSError as error:
            return error.strerror or str(error)
        return None if done.returncode == 0 else _last_line(done.stderr, done.returncode)

    @contextlib.contextmanager
    def open(self, rate: int) -> Iterator[BinaryIO]:
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                self.command(rate), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said
            )
            assert process.stdin is not None
            early = False
            try:
                yield cast(BinaryIO, process.stdin)
                process.stdin.close()
                process.wait()
            except BrokenPipeError:  # it ended by itself; what it said tells why
                early = True
            finally:
                if not early and process.returncode is None:  # an interruption: what was not heard yet is not heard
                    process.kill()
                with contextlib.suppress(OSError):
                    process.stdin.close()
                process.wait()
            said.seek(0)
            text = said.read()
            if early or process.returncode != 0 or b"audio open failed" in text:  # as ffplay says, and plays nothing
                _fail(f"{self.name} stopped: {_last_line(text, process.returncode)}.")


@dataclass(frozen=True)
class _AfplayProgram:
    """macOS's afplay, which plays files: the speech is kept in one until it is whole."""

    name: str = "afplay"
    raw: bool = False

    def problem(self) -> str | None:
        return None

    @contextlib.contextmanager
    def open(self, rate: int) -> Iterator[BinaryIO]:
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            yield cast(BinaryIO, file)
            file.flush()
            done = subprocess.run([self.name, file.name], stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            _fail(f"{self.name} stopped: {_last_line(done.stderr, done.returncode)}.")


class _Library:
    """The `sounddevice` library."""

    name, raw = "sounddevice", True

    def __init__(self, library: Any) -> None:
        self._library = library

    def problem(self) -> str | None:
        try:
            self._library.query_devices(kind="output")
        except (ValueError, self._library.PortAudioError) as error:  # ValueError: there is none
            return " ".join(str(error).split())
        return None

    @contextlib.contextmanager
    def open(self, rate: int) -> Iterator[BinaryIO]:
        try:
            with self._library.RawOutputStream(samplerate=rate, channels=1, dtype="int16") as stream:
                yield cast(BinaryIO, _DeviceFile(stream))
                stream.stop()  # waits for the last sample
        except self._library.PortAudioError as error:
            _fail(f"the sound device stopped: {' '.join(str(error).split())}.")


class _DeviceFile:
    """A device's stream as a file: all that is asked of one is `write` and `flush`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: bytes) -> int:
        self._stream.write(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""


_PROGRAMS: tuple[_Program | _AfplayProgram, ...] = (
    _Program("paplay", ("--raw", "--format=s16le", "--rate={rate}", "--channels=1")),
    _Program("aplay", ("-q", "-t", "raw", "-f", "S16_LE", "-r", "{rate}", "-c", "1", "-")),
    _AfplayProgram(),
    _Program(
        "ffplay", ("-nodisp", "-autoexit", "-loglevel", "error", "-f", "wav", "-i", "-"), raw=False, can_probe=False
    ),
)


def find_player() -> Player:
    """The first player that can play here; ends the command, and says what to do, where there is none."""
    found: list[_Library | _Program | _AfplayProgram] = []
    with contextlib.suppress(ImportError, OSError):  # OSError: PortAudio, which it needs, is not there
        import sounddevice

        found.append(_Library(sounddevice))
    found += [program for program in _PROGRAMS if shutil.which(program.name) is not None]
    problems = []
    for player in found:
        problem = player.problem()
        if problem is None:
            return player
        problems.append(f"{player.name}: {problem}")
    if problems:
        _fail(f"there is no sound device to play through ({'; '.join(problems)}).")
    names = ", ".join(program.name for program in _PROGRAMS)
    _fail(f"nothing is there to play sound with: neither sounddevice nor one of {names}.")


def _fail(text: str) -> NoReturn:
    common.fail(f"{text} {_HINT}", common.FAILED)


def _last_line(said: bytes, code: int) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else f"exit code {code}"
