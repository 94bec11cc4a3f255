"""The wish for short turns beside busy processes, as the kernel reads it back."""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
import threading

import pytest
from core_testing import testing

SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}  # Linux's number of the call


def turn_of_this_thread() -> int:
    """Nanoseconds; 0 where the kernel does not tell, as before Linux 6.12."""
    number = SCHED_GETATTR.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return 0
    attributes = ctypes.create_string_buffer(48)  # struct sched_attr, SCHED_ATTR_SIZE_VER0
    if ctypes.CDLL(None).syscall(number, 0, attributes, 48, 0) != 0:
        return 0
    runtime: int = struct.unpack_from("=Q", attributes, 24)[0]
    return runtime


def test_turns_are_short_until_the_wish_is_taken_back() -> None:
    usual = turn_of_this_thread()
    if usual == 0:
        pytest.skip("this kernel takes no wish")
    seen = []

    def work() -> None:
        turns = testing.ShortTurns()
        for act in (turns.take_back, turns.ask, turns.ask, turns.take_back, turns.ask):
            act(0)
            seen.append(turn_of_this_thread())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [usual, 100_000, 100_000, usual, 100_000]
    assert turn_of_this_thread() == usual  # the wish is one thread's


def test_a_thread_that_is_gone_is_no_error() -> None:
    turns = testing.ShortTurns()
    turns.ask(2**22 + 1)  # beyond the largest number that Linux gives
    turns.take_back(2**22 + 1)
