"""The bar while a model is loaded: late, on terminals alone, gone at the end."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path

import pytest
from dualar.cli.loading_shown import shown_loading

WAIT = 30.0


class Terminal(io.StringIO):
    """A standard error that says it is a terminal, and when something is written."""

    def __init__(self, is_terminal: bool = True) -> None:
        super().__init__()
        self.written = threading.Event()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        if text:
            self.written.set()
        return super().write(text)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "a-model.gguf"
    path.write_bytes(bytes(1234567))
    return path


def show(terminal: Terminal, model: Path, monkeypatch: pytest.MonkeyPatch, *, quiet: bool, after: float) -> str:
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with shown_loading(model, quiet=quiet, after=after):
        terminal.written.wait(WAIT if after == 0 and not quiet and terminal.isatty() else 0.05)
    return terminal.getvalue()


def test_a_bar_names_the_file_and_its_size(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = show(Terminal(), model, monkeypatch, quiet=False, after=0)
    assert "loading a-model.gguf, 1.2 MB" in shown
    assert shown.endswith("\x1b[2K")  # the line is wiped


@pytest.mark.parametrize(
    ("quiet", "after", "is_terminal"), [(True, 0.0, True), (False, 60.0, True), (False, 0.0, False)]
)
def test_no_bar(model: Path, monkeypatch: pytest.MonkeyPatch, quiet: bool, after: float, is_terminal: bool) -> None:
    assert show(Terminal(is_terminal), model, monkeypatch, quiet=quiet, after=after) == ""
    before = threading.active_count()
    time.sleep(0.05)
    assert threading.active_count() <= before  # no timer is left


def test_an_error_goes_through(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    with pytest.raises(ValueError, match="no model"), shown_loading(model, after=0):
        raise ValueError("no model")
