"""The command line `dualar`. Owns its entry point and what Ctrl-C does; `main.py` has the program, a module of its name
each subcommand.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import NoReturn


def main() -> None:
    """Run the command line on sys.argv and exit: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    interrupts = _Interrupts()
    try:
        from dualar.cli.main import app

        app(prog_name="dualar")
    except KeyboardInterrupt:  # before or after a command, while modules load
        print("interrupted", file=sys.stderr)
        interrupts.end(130)
    except SystemExit as error:
        if interrupts.count and isinstance(error.code, int):
            interrupts.end(error.code)
        raise
    finally:
        interrupts.ignore()


class _Interrupts:
    """A first Ctrl-C is a KeyboardInterrupt, as ever; a second one ends the process at once, wherever it is.

    An interrupted command ends without taking the interpreter apart, during which a further Ctrl-C would kill it.
    """

    def __init__(self) -> None:
        self.count = 0
        self._ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else ignored, or a program's own
        if self._ours:
            signal.signal(signal.SIGINT, self._on_interrupt)

    def ignore(self) -> None:
        """The command is done: what is left is only to go."""
        if self._ours:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end(self, code: int) -> NoReturn:
        """End the process now; nothing half-written stays."""
        from dualar.files import remove_unfinished

        remove_unfinished()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):  # closed, none, or in use
                stream.flush()
        os._exit(code)

    def _on_interrupt(self, *_: object) -> None:
        self.count += 1
        if self.count > 1:
            self.end(130)
        raise KeyboardInterrupt
