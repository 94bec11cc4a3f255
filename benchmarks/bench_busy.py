"""A frame beside busy processes: how much longer it takes, as a ratio inside one run.

    python benchmarks/bench_busy.py [MODEL] [--threads N] [--frames N]

Owns the neighbours and the ratio; the model comes from models.py, the machine's header from report.py. A neighbour is
a Python process that counts without end: on one CPU (`pinned`), wherever the system puts it (`free`), and one for each
CPU (`all`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import models
import numpy as np
import report
from dualar import _core

HOG = [sys.executable, "-c", "while True: pass"]


@contextmanager
def neighbours(count: int, *, cpu: int | None) -> Iterator[None]:
    """`count` busy processes, pinned to `cpu` where one is given."""
    running = [subprocess.Popen(HOG) for _ in range(count)]
    try:
        if cpu is not None:
            for process in running:
                os.sched_setaffinity(process.pid, {cpu})
        time.sleep(0.3)  # they are on their cores
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


class Frames:
    """Whole frames, codes drawn in the core, on one session."""

    def __init__(self, model: _core.DualAR) -> None:
        self._model = model
        self._session = model.session(max_positions=2048)
        self._batch = _core.Batch(model)
        self._sampler = _core.Sampler("fish", temperature=0.8, top_p=0.8, top_k=30)
        prompt = np.zeros((1 + model.num_codebooks, 60), np.int32)
        prompt[0] = np.arange(60) + 100
        self._hidden = self._session.prefill(prompt).hidden[None]

    def seconds(self, count: int) -> list[float]:
        """Seconds of each of `count` frames."""
        taken = []
        for step in range(count):
            began = time.perf_counter()
            first, draws = np.array([5], np.int32), [(self._sampler, 1, step)]
            codes, _, _ = self._batch.fast_frames([self._session], self._hidden, first, draws)
            columns = np.concatenate([[[self._model.semantic_begin_id + 5]], codes], axis=1)
            _, self._hidden = self._batch.step([self._session], columns)
            taken.append(time.perf_counter() - began)
        return taken


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="mini", help="a preset of models.py or a GGUF file (%(default)s)")
    parser.add_argument("--threads", type=int, default=_core.default_threads(), help="of the model (%(default)s)")
    parser.add_argument("--frames", type=int, default=20, help="frames a turn (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each, quiet and busy (%(default)s)")
    models.add_folder_option(parser)
    options = parser.parse_args()
    path = models.resolve(options.model, folder=options.folder)
    runtime = _core.Runtime(threads=options.threads)
    model = _core.DualAR(_core.ModelFile(str(path)), runtime, im_end_id=models.IM_END_ID)
    frames = Frames(model)
    print(report.describe(threads=runtime.threads, warmups=5, extra={"model": path.name}))
    frames.seconds(5)
    cpus = sorted(os.sched_getaffinity(0))
    print(f"{'neighbours':12} {'quiet ms':>9} {'busy ms':>9} {'ratio':>6}   worst frame ms")
    for name, count, cpu in (("1 pinned", 1, cpus[0]), ("1 free", 1, None), (f"{len(cpus)} (all)", len(cpus), None)):
        for _ in range(options.rounds):
            quiet = np.array(frames.seconds(options.frames)) * 1e3
            with neighbours(count, cpu=cpu):
                busy = np.array(frames.seconds(options.frames)) * 1e3
            print(
                f"{name:12} {np.median(quiet):9.1f} {np.median(busy):9.1f} "
                f"{np.median(busy) / np.median(quiet):6.2f}   {busy.max():.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
