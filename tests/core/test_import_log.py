"""What ggml says while the core is imported reaches Python's logging, which is set up only afterwards."""

from __future__ import annotations

import subprocess
import sys

import core_testing  # noqa: F401  (skips the file where the build lacks its test bindings)

SCRIPT = """
import importlib
core = importlib.import_module("dualar._core")
core.testing.log_line(30, "during the import")
core.set_log_sink(None)
core.testing.log_line(20, "still before a sink")
got = []
core.set_log_sink(lambda level, line: got.append((level, line)))
core.testing.log_line(40, "later")
core.set_log_sink(None)
core.testing.log_line(40, "dropped")
core.set_log_sink(lambda level, line: got.append((level, line)))
print(got)
"""


def test_lines_before_the_first_sink_wait_for_it() -> None:
    command = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[(30, 'during the import'), (20, 'still before a sink'), (40, 'later')]"
