"""Ctrl-C twice on the command line: 130, the job kept, nothing half-written, wherever the second one comes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dualar.narration.job import settled_samples

TEXT = "Turn on the kitchen light. Seven three nine. " * 200


@pytest.mark.parametrize("gap_ms", [5, 20, 50, 100])
def test_a_second_interruption_ends_at_once(tmp_path: Path, gap_ms: int) -> None:
    (tmp_path / "long.txt").write_text(TEXT, encoding="ascii")
    for run in range(5):
        output = tmp_path / f"{run}.wav"
        job = tmp_path / f"{run}.wav.job"
        command = [sys.executable, "-m", "dualar", "say", "--file", str(tmp_path / "long.txt"), "-o", str(output)]
        process = subprocess.Popen([*command, "--threads", "1"], stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        while not process.stderr.readline().startswith("piece 1 of"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        time.sleep(gap_ms / 1000)
        process.send_signal(signal.SIGINT)
        told = process.stderr.read()
        process.stderr.close()
        assert process.wait(30) == 130, told
        assert "Traceback" not in told and "terminate" not in told, told
        assert job.is_file() and settled_samples(job, retries=1)
        assert not output.exists() and not list(tmp_path.glob(".dualar-*"))
