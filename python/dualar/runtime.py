"""Opening files and devices, and the guard against use in a forked process.

Owns `open_file`, `open_runtime`, the checks of their options, and `ForkGuard`. Leaves what a file holds to
`loading.py`.
"""

from __future__ import annotations

import os

from dualar._native import _core
from dualar.config import whole_number
from dualar.files import POINTER_SIZE, pointer_problem


def open_file(path: str | os.PathLike[str] | _core.ModelFile) -> _core.ModelFile:
    """The GGUF file at `path`, or `path` itself where it is an open file. ValueError for an impossible path, ModelError
    for a file that is missing or no GGUF."""
    if isinstance(path, _core.ModelFile):
        return path
    name = os.fspath(path)
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError(f"[load] expected a path, got {name!r}")
    try:
        return _core.ModelFile(os.fsencode(name))
    except UnicodeEncodeError:
        raise ValueError(f"[load] expected a path that this system can name, got {name!r}") from None
    except _core.ModelError:
        if problem := _pointer_problem(name):
            raise _core.ModelError(f"[load] {name}: {problem}") from None
        raise


def _pointer_problem(name: str) -> str | None:
    try:
        if not os.path.isfile(name):  # reading a pipe would block
            return None
        with open(name, "rb") as file:
            return pointer_problem(file.read(POINTER_SIZE))
    except OSError:
        return None


def open_runtime(*, device: str, threads: int | None) -> _core.Runtime:
    """A device and its threads; ValueError for an impossible number of threads, BackendError for an unknown device."""
    if not isinstance(device, str) or not device.isascii():  # no device has such a name
        raise ValueError(f"[load] expected device a name that dualar.devices() lists, got {device!r}")
    return _core.Runtime(device=device, threads=number("threads", threads, 1))


def number(name: str, value: int | None, low: int) -> int | None:
    """The option `name` of `load` as a plain int, or None; ValueError where it is below `low` or no whole number."""
    return None if value is None else whole_number(f"load.{name}", value, low)


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """ValueError where the option `name` of `load` is none of the allowed words."""
    if value not in allowed:
        raise ValueError(f"[load] expected {name} one of {', '.join(map(repr, allowed))}, got {value!r}")


class ForkGuard:
    """Called before each use: BackendError in a forked child, which has none of the model's threads and would hang."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._pid = os.getpid()

    def __call__(self) -> None:
        if os.getpid() != self._pid:
            raise _core.BackendError(
                f"[engine] expected the process that loaded {self._path} (pid {self._pid}), got its fork (pid "
                f"{os.getpid()}): load the model in the child, or start it with the method 'spawn'"
            )
