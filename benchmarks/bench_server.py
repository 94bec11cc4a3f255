"""`dualar serve` under 1 to 16 callers at once, from another process: how soon each hears, and whether it ever waits.

Each caller streams texts of mixed lengths, one after the other, and reads as fast as they come. A stream starves where
a player that began with its first bytes, at 1x, would have had to wait for later ones. "one by one" asks for the same
texts with a single caller. RSS is the server's, before and after `--memory-requests` further requests.

    python benchmarks/bench_server.py [-m MODEL] [--threads N] [--callers 1,2,4,8,16] [--texts N] [--frames N]

MODEL is a file, or "mini", the preset of models.py; by default the package's voice.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import httpx
import models

RATE, BYTES = 24000, 2
OPTIONS: dict[str, int] = {}  # of every request
TEXTS = [
    "It is seven.",
    "Turn off the light in the kitchen at seven thirty.",
    "Set a timer for twenty five minutes and play some music in the kitchen.",
    "Turn on the light in the kitchen, then play some music at half past nine, and turn off the light at eleven.",
]


class Stream:
    """What one caller saw of one answer."""

    def __init__(self) -> None:
        self.first_s = 0.0
        self.audio_s = 0.0
        self.starved_s = 0.0


async def listen(http: httpx.AsyncClient, text: str, seed: int) -> Stream:
    seen, began, heard_from = Stream(), time.perf_counter(), 0.0
    body = {"input": text, "response_format": "pcm", "seed": seed, **OPTIONS}
    async with http.stream("POST", "/v1/audio/speech", json=body) as answer:
        answer.raise_for_status()
        async for data in answer.aiter_raw():
            now = time.perf_counter()
            if seen.audio_s == 0.0:
                seen.first_s, heard_from = now - began, now
            late = now - (heard_from + seen.audio_s)
            if late > 0 and seen.audio_s:
                seen.starved_s += late
                heard_from += late
            seen.audio_s += len(data) / BYTES / RATE
    return seen


async def measure(url: str, callers: int, texts: int, first_seed: int) -> tuple[list[Stream], float]:
    limits = httpx.Limits(max_connections=callers)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits, verify=False) as http:

        async def caller(number: int) -> list[Stream]:
            return [
                await listen(http, TEXTS[(number + i) % len(TEXTS)], first_seed + 1000 * number + i)
                for i in range(texts)
            ]

        began = time.perf_counter()
        seen = await asyncio.gather(*(caller(number) for number in range(callers)))
        return [stream for streams in seen for stream in streams], time.perf_counter() - began


def report(name: str, streams: list[Stream], seconds: float) -> None:
    firsts = sorted(stream.first_s * 1e3 for stream in streams)
    fed = sum(stream.starved_s < 0.02 for stream in streams) / len(streams)
    audio = sum(stream.audio_s for stream in streams)
    p95 = firsts[min(len(firsts) - 1, int(0.95 * len(firsts)))]
    print(
        f"{name:>12} | {len(streams):4} | {statistics.median(firsts):7.0f} | {p95:7.0f} | {fed:6.1%} | "
        f"{audio / seconds:8.2f}",
        flush=True,
    )


def metric(url: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", httpx.get(url + "/metrics").text, re.M)
    return float(found.group(1)) if found else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--callers", default="1,2,4,8,16")
    parser.add_argument("--texts", type=int, default=8, help="texts of each caller")
    parser.add_argument("--memory-requests", type=int, default=500)
    parser.add_argument("--frames", type=int, help="of each text: models with random weights do not end by themselves")
    models.add_folder_option(parser)
    options = parser.parse_args()
    if options.frames:
        OPTIONS.update(max_new_tokens=options.frames, min_tokens_before_end=options.frames)
    if options.model in models.PRESETS:
        options.model = str(models.resolve(options.model, folder=options.folder))
        models.tokenizer_beside(Path(options.model))
    counts = [int(count) for count in options.callers.split(",")]
    command = [sys.executable, "-m", "dualar", "serve", "--port", "0", "--rows", str(max(counts))]
    command += ["--threads", options.threads, *(["-m", options.model] if options.model else [])]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        line = next(line for line in server.stderr if "serving" in line)
        url = re.search(r"http://[^\s,]+", line).group(0)  # type: ignore[union-attr]
        asyncio.run(measure(url, 1, len(TEXTS), 1))  # warm
        print("     callers | said | p50 ms  | p95 ms  | fed    | audio s/s")
        for count in counts:
            steps, decode = metric(url, "dualar_step_seconds_total"), metric(url, "dualar_decode_seconds_total")
            streams, seconds = asyncio.run(measure(url, count, options.texts, 10 * count))
            report(str(count), streams, seconds)
            steps = metric(url, "dualar_step_seconds_total") - steps
            decode = metric(url, "dualar_decode_seconds_total") - decode
            print(f"{'':>12}   of the time: model {steps / seconds:.0%}, codec {decode / seconds:.0%}", flush=True)
        streams, seconds = asyncio.run(measure(url, 1, options.texts * max(counts), 7))
        report("one by one", streams, seconds)
        if options.memory_requests:
            before = metric(url, "dualar_resident_bytes")
            callers = max(counts)
            asyncio.run(measure(url, callers, -(-options.memory_requests // callers), 99))
            after = metric(url, "dualar_resident_bytes")
            print(f"RSS {before / 2**20:.0f} MiB, after {options.memory_requests} more {after / 2**20:.0f} MiB")
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    main()
