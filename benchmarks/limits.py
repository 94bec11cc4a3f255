"""What the machine allows: the rate at which it reads memory, and the rate of a large float32 matrix product.

Owns the two probes, which a benchmark times in turns with what it measures; leaves timing to `report.py`. As a script:

    python benchmarks/limits.py [--threads N]

Both are lower bounds of what the hardware can do: the best that numpy reaches with so many threads.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import report


class ReadProbe:
    """Reads `nbytes` of memory once a call: a bitwise-or reduction over int64, each thread a part of its own.

    That reduction does nothing but load (numpy vectorises it; a float sum costs more than the loads). The array must
    be much larger than the last cache.
    """

    name = "memory read"

    def __init__(self, *, threads: int, nbytes: int = 1 << 30) -> None:
        words = np.ones(nbytes // 8, np.int64)  # written, so that the pages are there
        self.nbytes = words.nbytes
        self._parts = np.array_split(words, threads)
        self._pool = ThreadPoolExecutor(threads)

    def __call__(self) -> None:
        list(self._pool.map(np.bitwise_or.reduce, self._parts))

    def rate(self, seconds: float) -> float:
        """Bytes a second."""
        return self.nbytes / seconds


class CopyProbe:
    """Copies half of `nbytes` to the other half: as many bytes read as written."""

    name = "memory copy"

    def __init__(self, *, threads: int, nbytes: int = 1 << 30) -> None:
        source, target = np.ones((2, nbytes // 16), np.int64)
        self.nbytes = source.nbytes + target.nbytes
        self._parts = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
        self._pool = ThreadPoolExecutor(threads)

    def __call__(self) -> None:
        list(self._pool.map(lambda pair: np.copyto(*pair), self._parts))

    def rate(self, seconds: float) -> float:
        """Bytes a second, read and written together."""
        return self.nbytes / seconds


class GemmProbe:
    """Multiplies two float32 matrices of n x n with numpy's BLAS, on the threads that its environment gives it."""

    name = "numpy sgemm"

    def __init__(self, *, n: int = 1536) -> None:
        rng = np.random.default_rng(0)
        self._a, self._b = rng.standard_normal((2, n, n), np.float32)
        self._out = np.empty((n, n), np.float32)
        self.flop = 2 * n**3

    def __call__(self) -> None:
        np.matmul(self._a, self._b, out=self._out)

    def rate(self, seconds: float) -> float:
        """FLOP a second."""
        return self.flop / seconds


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure memory rates and numpy's sgemm rate.")
    report.add_timing_options(parser, rounds=9)
    parser.add_argument("--mib", type=int, default=1024, help="memory that the read and copy touch (%(default)s)")
    parser.add_argument("--n", type=int, default=1536, help="rows and columns of the matrices (%(default)s)")
    options = parser.parse_args(arguments)
    report.use_threads(options.threads)
    read = ReadProbe(threads=options.threads, nbytes=options.mib << 20)
    copy = CopyProbe(threads=options.threads, nbytes=options.mib << 20)
    gemm = GemmProbe(n=options.n)
    print(report.describe(threads=options.threads, warmups=options.warmups))
    report.section("What the machine allows")
    seconds = report.interleave(
        {p.name: p for p in (read, copy, gemm)}, rounds=options.rounds, warmups=options.warmups, rest=options.rest
    )
    rows = []
    for probe, unit in ((read, "GB/s"), (copy, "GB/s"), (gemm, "GFLOP/s")):
        s = report.Summary.of(probe.rate(x) / 1e9 for x in seconds[probe.name])
        rows.append([f"{probe.name}, {unit}", *(report.number(x) for x in (s.median, s.low, s.high)), str(s.count)])
    print(report.table(("", "median", "min", "max", "n"), rows))


if __name__ == "__main__":
    main()
