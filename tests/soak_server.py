"""Ten minutes of everything at once against one server: nothing may be left over, each answer must be the right one.

    python tests/soak_server.py [--seconds 600]

Callers that leave, bad bodies, uploads, cancels, formats and events, at random; in between, answers are held against
what the same request gave alone. At the end: no row, no waiting request, no more threads, files or memory than before.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import tempfile
import threading
import time
from pathlib import Path

from server_process import HTTP, WAIT, ServerProcess, server

TEXTS = ["It is seven.", "Turn off the light.", "Turn on the light in the kitchen. Play some music."]
BAD = [
    b"",
    b"[]",
    b"[" * 10_000,
    b"nonsense",
    b'{"input": ""}',
    b'{"input": "a", "speed": 9}',
    b'{"input": "a", "x": 1}',
]
SPEECH = "/v1/audio/speech"


class Soak:
    """The callers of one server."""

    def __init__(self, run: ServerProcess, seconds: float) -> None:
        self._run = run
        self._end = time.monotonic() + seconds
        self._wrong: list[str] = []
        self.done = dict.fromkeys(("same", "busy", "left", "bad", "upload"), 0)
        self._wanted = {(text, seed): self._asked(text, seed) for text in TEXTS for seed in range(3)}

    def _asked(self, text: str, seed: int) -> bytes:
        answer = HTTP.post(self._run.url + SPEECH, json={"input": text, "seed": seed, "response_format": "wav"})
        assert answer.status_code == 200, answer.text
        return answer.content

    def _same(self, pick: random.Random) -> None:
        text, seed = pick.choice(list(self._wanted))
        answer = HTTP.post(self._run.url + SPEECH, json={"input": text, "seed": seed, "response_format": "wav"})
        if answer.status_code == 429:
            self.done["busy"] += 1
        elif answer.content != self._wanted[text, seed]:
            self._wrong.append(f"{text!r} with seed {seed}: {answer.status_code}")

    def _left(self, pick: random.Random) -> None:
        body = {"input": TEXTS[1] * 50, "response_format": pick.choice(["mp3", "opus", "flac", "wav", "pcm"])}
        body |= {"stream": pick.random() < 0.7}  # type: ignore[dict-item]
        data = json.dumps(body).encode()
        host, port = self._run.host.split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT) as caller:
            head = f"POST {SPEECH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            caller.sendall((head + data)[: pick.choice([20, len(head) + 5, len(head) + len(data)])])
            time.sleep(pick.random() * 0.3)

    def _bad(self, pick: random.Random) -> None:
        answer = HTTP.post(self._run.url + SPEECH, content=pick.choice(BAD))
        if answer.status_code not in (400, 429):
            self._wrong.append(f"bad input: {answer.status_code} {answer.text[:100]}")

    def _upload(self, pick: random.Random) -> None:
        files = {"audio_sample": ("a.wav", pick.randbytes(pick.choice([0, 100, 100_000])))}
        answer = HTTP.post(self._run.url + "/v1/audio/voices", data={"name": "x", "transcript": "a"}, files=files)
        if answer.status_code not in (400, 403, 429):
            self._wrong.append(f"upload: {answer.status_code} {answer.text[:100]}")

    def _caller(self, number: int) -> None:
        pick = random.Random(number)
        while time.monotonic() < self._end:
            kind = pick.choice(["same", "same", "left", "left", "bad", "upload"])
            try:
                getattr(self, "_" + kind)(pick)
            except Exception as error:
                self._wrong.append(f"{kind}: {type(error).__name__}: {error}")
            self.done[kind] += 1

    def run(self, callers: int) -> None:
        threads = [threading.Thread(target=self._caller, args=(number,)) for number in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self._wrong, self._wrong[:10]


def usage(run: ServerProcess) -> tuple[int, int, float]:
    """Threads, files and MiB of the server."""
    process = Path(f"/proc/{run.process.pid}")
    return (
        len(os.listdir(process / "task")), len(os.listdir(process / "fd")), run.metric("dualar_resident_bytes") / 2**20
    )  # fmt: skip


def soak(seconds: float, *, callers: int = 8) -> None:
    """Ends with an AssertionError where something is wrong or left over."""
    with tempfile.TemporaryDirectory() as voices, server("--rows", "4", "--voices", voices) as run:
        Soak(run, 4.0).run(callers)  # warm: threads and buffers that stay
        run.wait_idle()
        threads, files, before = usage(run)
        work = Soak(run, seconds)
        work.run(callers)
        run.wait_idle()
        time.sleep(0.5)
        now = usage(run)
        print(work.done)
        print(f"threads {threads} -> {now[0]}, files {files} -> {now[1]}, MiB {before:.0f} -> {now[2]:.0f}")
        assert now[0] <= threads + 1 and now[1] <= files + 8, "threads or files were left over"
        assert now[2] < before + 64, "memory was left over"
        assert run.process.poll() is None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    soak(parser.parse_args().seconds)
