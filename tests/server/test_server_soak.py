"""A short soak of the server; `soak_server.py` is the long one, as a command."""

from __future__ import annotations

from soak_server import soak


def test_nothing_is_left_over_after_everything_at_once() -> None:
    soak(4.0)
