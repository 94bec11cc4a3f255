"""The bar that moves while a model is loaded, once that takes longer than a user waits without wondering.

Owns the bar. Leaves loading to `dualar.engine`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dualar.cli.common import amount

_AFTER_SECONDS = 1.0


@contextmanager
def shown_loading(model: Path, *, quiet: bool = False, after: float = _AFTER_SECONDS) -> Iterator[None]:
    """A bar on the standard error while the block runs, from `after` seconds on; none where no terminal is."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    size = amount(model.stat().st_size) if model.is_file() else ""
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    )
    lock, loaded = threading.Lock(), False

    def start() -> None:
        with lock:
            if not loaded:
                bar.add_task(f"loading {model.name}, {size}", total=None)
                bar.start()

    timer = threading.Timer(after, start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            loaded = True
            bar.stop()
