"""The command line `dualar`. Owns its entry point; `main.py` has the program, a module of its name each subcommand."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line on sys.argv and exit: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    try:
        from dualar.cli.main import app

        app(prog_name="dualar")
    except KeyboardInterrupt:  # before or after a command, while modules load
        print("interrupted", file=sys.stderr)
        sys.exit(130)
