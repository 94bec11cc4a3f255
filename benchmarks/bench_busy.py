"""Speech beside busy processes: how many times longer it takes than on the machine alone, in one run.

    python benchmarks/bench_busy.py [--work voice mini ...] [--neighbours 1 2 5 10] [--nice N] [--threads N]

A neighbour is a process that counts without end. A turn is some seconds of one kind of work, once alone and once with
each number of neighbours, round by round. The fair share is what a system that gives every busy thread the same time
would make of it: with T threads and N neighbours on C CPUs, (T + N) / C times as long.

Owns the neighbours and the ratios; the models come from `models.py`, `bench_qwen3.py` and `bench_qwen3_codec.py`, the
machine's header and the tables from `report.py`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import bench_batch
import bench_qwen3
import bench_qwen3_codec
import dualar
import models
import numpy as np
import report
from bench_codec import Pushes
from dualar import _core

Work = Callable[[], object]

SETTLE_SECONDS = 6.0  # the engine takes some seconds to find that its neighbours are gone
TEXT = "seven three nine turn on the kitchen light"


@contextmanager
def neighbours(count: int, *, nice: int = 0) -> Iterator[None]:
    """`count` busy processes, `nice` nicer than this one, wherever the system puts them."""
    busy = [sys.executable, "-c", f"import os\nos.nice({nice})\nwhile True: pass"]
    running = [subprocess.Popen(busy) for _ in range(count)]
    try:
        time.sleep(0.5 if running else 0.0)  # they are on their cores
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


class Frames:
    """One whole frame a call, codes drawn in the core, on one session."""

    def __init__(self, model: _core.DualAR) -> None:
        self._model = model
        self._session = model.session(max_positions=128)
        self._batch = _core.Batch(model)
        self._sampler = _core.Sampler("fish", temperature=0.8, top_p=0.8, top_k=30)
        prompt = np.zeros((1 + model.num_codebooks, 60), np.int32)
        prompt[0] = np.arange(60) + 100
        self._hidden = self._session.prefill(prompt).hidden[None]

    def __call__(self) -> None:
        first, draws = np.array([5], np.int32), [(self._sampler, 1, 0)]
        codes, _, _ = self._batch.fast_frames([self._session], self._hidden, first, draws)
        self._batch.step([self._session], np.concatenate([[[self._model.semantic_begin_id + 5]], codes], axis=1))
        self._session.truncate(60)


class Bench:
    """The kinds of work, each a function of nothing that does one unit of it."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder, self._threads = folder, threads

    def _runtime(self) -> _core.Runtime:
        return _core.Runtime(threads=self._threads)

    def _mini(self) -> _core.DualAR:
        file = _core.ModelFile(str(models.resolve("mini", folder=self._folder)))
        return _core.DualAR(file, self._runtime(), im_end_id=models.IM_END_ID)

    def voice(self) -> Work:
        """The package's voice says a sentence of two seconds."""
        engine = dualar.load(threads=self._threads)
        return lambda: engine.synthesize(TEXT, seed=1)

    def mini(self) -> Work:
        """A frame of the 0.6 B class model, Q8_0."""
        return Frames(self._mini())

    def batch(self) -> Work:
        """A frame of each of four rows of it."""
        return bench_batch.Rows(self._mini(), 4, 32, 1500).batch.step

    def qwen3(self) -> Work:
        """A frame of Qwen3-TTS at 0.6B geometry, Q8_0."""
        file = _core.ModelFile(str(bench_qwen3.ensure("q8_0", folder=self._folder)))
        parts = bench_qwen3.parts(_core.Qwen3TTS(file, self._runtime()), 128)
        return lambda: (parts[bench_qwen3.STEP](), parts[bench_qwen3.CACHED]())

    def codec(self) -> Work:
        """Four frames through a stream of S2-Pro's codec, F16."""
        file = _core.ModelFile(str(models.resolve("codec", folder=self._folder)))
        return Pushes(_core.Codec(file, self._runtime()), k=4, frames=4)

    def qwen3_codec(self) -> Work:
        """Four frames through a stream of Qwen3-TTS's codec, F16."""
        path = self._folder / "qwen3-codec-f16.gguf"
        if not path.exists():
            bench_qwen3_codec.make_model(path, "f16")
        return Pushes(_core.Codec(_core.ModelFile(str(path)), self._runtime()), k=4, frames=4)


WORKS = {
    "voice": Bench.voice, "mini": Bench.mini, "batch": Bench.batch, "qwen3": Bench.qwen3, "codec": Bench.codec,
    "qwen3-codec": Bench.qwen3_codec,
}  # fmt: skip


def mean_ms(work: Work, seconds: float) -> float:
    """Milliseconds of one unit, over as many as fit into `seconds`, at least two."""
    began, count = time.perf_counter(), 0
    while count < 2 or time.perf_counter() - began < seconds:
        work()
        count += 1
    return (time.perf_counter() - began) / count * 1e3


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", nargs="+", choices=WORKS, default=list(WORKS), help="what is timed (all)")
    parser.add_argument("--neighbours", nargs="+", type=int, default=[1, 2, 5, 10], help="busy processes (%(default)s)")
    parser.add_argument("--nice", type=int, default=0, help="how much nicer they are (%(default)s)")
    parser.add_argument("--threads", type=int, default=_core.default_threads(), help="of the models (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn (%(default)s)")
    models.add_folder_option(parser)
    options = parser.parse_args()
    print(report.describe(threads=options.threads, warmups=1, extra={"neighbours": f"nice {options.nice}"}))
    cpus = len(os.sched_getaffinity(0))
    shares = [f"{count}: {(options.threads + count) / max(options.threads, cpus):.1f}" for count in options.neighbours]
    print(f"fair share by neighbours {', '.join(shares)}")
    print(f"\n{'work':12} {'quiet ms':>9}   times as long, the median of the turns (their range), by neighbours")
    bench = Bench(options.folder, options.threads)
    for name in options.work:
        work = WORKS[name](bench)
        mean_ms(work, 0.5)
        quiet: list[float] = []
        ratios: dict[int, list[float]] = {count: [] for count in options.neighbours}
        for turn in range(options.rounds):
            if turn > 0:
                mean_ms(work, SETTLE_SECONDS)
            quiet.append(mean_ms(work, options.seconds))
            for count in options.neighbours:
                with neighbours(count, nice=options.nice):
                    ratios[count].append(mean_ms(work, options.seconds) / quiet[-1])
        cells = [f"{n}: {np.median(r):.2f} ({min(r):.2f}-{max(r):.2f})" for n, r in ratios.items()]
        print(f"{name:12} {np.median(quiet):9.1f}   {'   '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
