"""A `dualar serve` in a process of its own, for tests: started on a free port, ended by SIGTERM, every wait bounded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

WAIT = 30.0  # seconds that anything may take, on a busy machine
# One for all, because a new one reads the machine's certificates.
HTTP = httpx.Client(timeout=WAIT, limits=httpx.Limits(max_connections=None), trust_env=False)


@dataclass
class ServerProcess:
    process: subprocess.Popen[str]
    url: str = ""
    lines: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def metric(self, name: str) -> float:
        text = HTTP.get(self.url + "/metrics", headers=self.headers).text
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
        return float(found.group(1)) if found else 0.0

    headers: dict[str, str] = field(default_factory=dict)

    def wait_idle(self) -> None:
        """Until no request has a row or waits for one."""
        end = time.monotonic() + WAIT
        while self.metric("dualar_rows") or self.metric("dualar_queue"):
            assert time.monotonic() < end, "a row was left over"
            time.sleep(0.02)

    def read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())


@contextmanager
def server(*options: str, environment: dict[str, str] | None = None, key: str | None = None) -> Iterator[ServerProcess]:
    """A server with these options, by default with the package's voice and one thread."""
    command = [sys.executable, "-m", "dualar", "serve", "--port", "0", "--threads", "1", *options]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=env)
    run = ServerProcess(process, headers={} if key is None else {"Authorization": f"Bearer {key}"})
    reader = threading.Thread(target=run.read, daemon=True)
    reader.start()
    try:
        end = time.monotonic() + WAIT
        while not run.url:
            found = re.search(r"serving .* on (http://[^\s,]+)", "\n".join(run.lines))
            run.url = found.group(1) if found else ""
            assert process.poll() is None and time.monotonic() < end, "\n".join(run.lines)
            time.sleep(0.02)
        yield run
    finally:
        process.terminate()
        try:
            process.wait(WAIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(WAIT)
        assert process.stderr is not None
        process.stderr.close()
