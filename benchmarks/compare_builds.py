"""Two builds of dualar on the same model files, in turns in one run: what a change costs or wins.

    python benchmarks/compare_builds.py OLD NEW MODEL [MODEL ...] [--threads N] [--what frame decode batch load]

OLD and NEW are folders that hold the package `dualar`, as `python/` of two checkouts with a build each. Each has a
process of its own, which waits while the other works. Owns that comparison; leaves timing and printing to `report.py`.
What is printed last is the ratio new / old, turn by turn: machines drift, a ratio within a turn does not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import report

# Runs in either build: nothing but names that all versions have.
WORKER = r"""
import json, sys, time
import numpy as np
import dualar
from dualar.config import GenerationConfig
from dualar.generate import FrameLoop

path, threads = sys.argv[1], int(sys.argv[2]) or None
options = {} if "qwen3" in path else {"im_end_id": int(sys.argv[3])} if int(sys.argv[3]) >= 0 else {}
began = time.perf_counter()
engine = dualar.load(path, threads=threads, **options)
loaded = time.perf_counter() - began
model = engine.model
rows = 1 + model.num_codebooks
columns = np.zeros((rows, 128), np.int32)
prompt = columns
if hasattr(model, "text_vocab_size"):
    columns[2:] = -1
    prompt = dualar.TalkerPrompt(columns, np.zeros(0, np.int32))
codes = np.zeros((model.num_codebooks, 64), np.int32)


def frame(count):
    config = GenerationConfig(max_new_tokens=count + 4, min_tokens_before_end=count + 4, stall_guard=None)
    loop = FrameLoop(model, prompt, config, seed=1, kv_type="auto")
    for _ in range(4):
        next(loop)
    began = time.perf_counter()
    for _ in range(count):
        next(loop)
    return (time.perf_counter() - began) / count


def decode(count):
    began = time.perf_counter()
    for _ in range(max(1, count // 64)):
        engine.codec.decode(codes)
    return (time.perf_counter() - began) / (64 * max(1, count // 64))


def batch(count):
    batch = engine.batch(max_rows=8)
    for seed in range(8):
        batch.join(dualar.GenerationRequest(
            prompt=prompt, max_new_tokens=count + 40, min_tokens_before_end=count + 40, seed=seed, stall_guard=None))
    for _ in range(24):
        batch.step()
    began = time.perf_counter()
    for _ in range(count):
        batch.step()
    took = (time.perf_counter() - began) / count
    batch.close()
    return took


print(json.dumps(loaded), flush=True)
for line in sys.stdin:
    what, count = json.loads(line)
    print(json.dumps(globals()[what](count)), flush=True)
"""


class Build:
    """One build's process."""

    def __init__(self, package: Path, model: str, threads: int, im_end_id: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, model, str(threads), str(im_end_id)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(package)},
        )  # fmt: skip
        self.load_s = float(self._answer())

    def run(self, what: str, count: int) -> float:
        """Seconds a unit of `what`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, count]) + "\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a build's process ended early; what it said is above")
        return float(json.loads(line))


def compare(options: argparse.Namespace, model: str) -> None:
    """Print, for each thing that is measured, milliseconds of both builds and their ratio."""
    builds = [Build(p, model, options.threads, options.im_end_id) for p in (options.old, options.new)]
    print(f"{Path(model).name}: load {builds[0].load_s * 1e3:.0f} and {builds[1].load_s * 1e3:.0f} ms (once each)")
    for what in options.what:
        for build in builds:
            build.run(what, max(1, options.count // 4))  # warm-up
        turns = [
            [b.run(what, options.count) for b in (builds, builds[::-1])[turn % 2]] for turn in range(options.turns)
        ]
        pairs = np.array([pair if turn % 2 == 0 else pair[::-1] for turn, pair in enumerate(turns)]) * 1e3
        ratios = pairs[:, 1] / pairs[:, 0]
        print(
            f"  {what:7} old {np.median(pairs[:, 0]):8.3f} ms, new {np.median(pairs[:, 1]):8.3f} ms, "
            f"new / old {np.median(ratios):.3f} ({ratios.min():.3f}-{ratios.max():.3f}), {options.turns} turns of "
            f"{options.count}",
            flush=True,
        )
    for build in builds:
        build.close()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD", help="the folder that holds the older package")
    parser.add_argument("new", type=Path, metavar="NEW", help="the folder that holds the newer one")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="GGUF files")
    parser.add_argument("--what", nargs="+", default=["frame"], choices=["frame", "decode", "batch"])
    parser.add_argument("--threads", type=int, default=0, help="(default: what the machine allows)")
    parser.add_argument("--turns", type=int, default=7, help="turns of each (%(default)s)")
    parser.add_argument("--count", type=int, default=64, help="frames or steps a turn (%(default)s)")
    parser.add_argument("--im-end-id", type=int, default=-1, help="for S2 files without a tokenizer")
    options = parser.parse_args()
    print(report.describe(threads=options.threads, warmups=1))
    for model in options.models:
        compare(options, model)


if __name__ == "__main__":
    main()
