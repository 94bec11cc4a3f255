"""What every benchmark shares: how runs are timed, what the machine is, and how numbers are printed.

Owns timing in turns (`interleave`), summaries, text tables, the description of machine and build, and the setting of
thread counts; leaves what is run to the scripts, and the machine's limits to `limits.py`. numpy only. As a script:

    python benchmarks/report.py          prints the description alone
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dualar import _core

REPO = Path(__file__).resolve().parents[1]

# Read by the BLAS and OpenMP libraries when they are loaded, and never again.
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


# ------------------------------------------------------------------ timing
@dataclass(frozen=True)
class Summary:
    """Of a list of numbers: the median, the extremes, the quartiles, how many."""

    median: float
    low: float
    q1: float
    q3: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Summary:
        """ValueError for an empty list."""
        v = np.asarray(list(values), np.float64)
        if v.size == 0:
            raise ValueError("[report] expected at least one value, got none")
        q1, median, q3 = np.percentile(v, [25, 50, 75])
        return cls(float(median), float(v.min()), float(q1), float(q3), float(v.max()), int(v.size))


def timed(run: Callable[[], object], repeats: int = 1) -> float:
    """Seconds of one call, the mean of `repeats` in a row."""
    began = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - began) / repeats


def interleave(
    runs: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warmups: int = 2,
    rest: float = 0.0,
    repeats: int | Mapping[str, int] = 1,
) -> dict[str, list[float]]:
    """Time the runs in turns, ABCABC...: seconds per call, one number for each round.

    What disturbs the machine for a while then disturbs all of them, so their ratio (`ratio`) means more than two
    numbers taken apart. warmups: calls before each run's first turn, not counted. rest: seconds of sleep before each
    turn, in which the thread pool of the turn before stops spinning. repeats: calls that make up one turn, of which
    the mean counts, for all or by name.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        time.sleep(rest)
        for _ in range(warmups):
            run()
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, run in runs.items():
                time.sleep(rest)
                seconds[name].append(timed(run, repeats if isinstance(repeats, int) else repeats.get(name, 1)))
    finally:
        if collecting:
            gc.enable()
    return seconds


def ratio(a: Sequence[float], b: Sequence[float]) -> Summary:
    """a / b round by round: both lists from one `interleave`."""
    return Summary.of(x / y for x, y in zip(a, b, strict=True))


# ------------------------------------------------------------------ printing
def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns as a Markdown table: the first to the left, the others to the right."""
    lines = [list(header), *(list(r) for r in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    widths = [max(w, 3) for w in widths]

    def text(cells: Sequence[str]) -> str:
        padded = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([text(lines[0]), rule, *(text(line) for line in lines[1:])])


TIMING_HEADER = ("", "median ms", "min", "max", "quartiles", "n")


def timing_row(name: str, seconds: Sequence[float], *, scale: float = 1.0) -> list[str]:
    """A row for `TIMING_HEADER`; scale: what to multiply the seconds with (1 / frames, say)."""
    s = Summary.of(x * 1e3 * scale for x in seconds)
    return [name, number(s.median), number(s.low), number(s.high), f"{number(s.q1)}-{number(s.q3)}", str(s.count)]


def number(value: float) -> str:
    """Three significant digits, or all digits before the point."""
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - int(np.floor(np.log10(abs(value)))))
    return f"{value:.{min(digits, 6)}f}"


def ratio_text(s: Summary) -> str:
    """The median of a ratio and its quartiles."""
    return f"{s.median:.2f} ({s.q1:.2f}-{s.q3:.2f})"


def section(title: str) -> None:
    """A heading between tables."""
    print(f"\n{title}\n")


# ------------------------------------------------------------------ machine and build
def describe(*, threads: int, warmups: int | None = None, extra: Mapping[str, str] | None = None) -> str:
    """Machine, versions and settings, a line each: what numbers must be read with."""
    lines = {
        "CPU": f"{_cpu_model()}, {_cores()}",
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load": ", ".join(f"{x:.2f}" for x in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown",
        "python": f"{platform.python_version()}, numpy {np.__version__} ({_blas()})",
        "dualar": f"commit {_commit()}, ggml {_core.ggml_version}",
        "threads": str(threads),
    }
    if warmups is not None:
        lines["warm-up"] = f"{warmups} calls before each run's first turn"
    lines |= extra or {}
    width = max(map(len, lines))
    return "\n".join(f"{name:{width}}  {value}" for name, value in lines.items())


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith(("model name", "hardware", "cpu model")):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor() or "unknown"


def _cores() -> str:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{os.cpu_count()} logical cores, {usable} usable, {_core.default_threads()} threads by default"


def _memory() -> str:
    try:
        total, free = (os.sysconf("SC_PAGE_SIZE") * os.sysconf(n) for n in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        size = _output("sysctl", "-n", "hw.memsize")
        return f"{int(size) / 2**30:.1f} GiB" if size.isdigit() else "unknown"
    return f"{total / 2**30:.1f} GiB, {free / 2**30:.1f} GiB free"


def _blas() -> str:
    try:
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{blas['name']} {blas['version']}"
    except (KeyError, TypeError):
        return "BLAS unknown"


def _commit() -> str:
    commit = _output("git", "-C", str(REPO), "rev-parse", "--short=12", "HEAD")
    if not commit:
        return "unknown"
    return commit + (" with changes" if _output("git", "-C", str(REPO), "status", "--porcelain") else "")


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def peak_memory() -> int:
    """Bytes: the most that was resident at one time, mapped files included; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


# ------------------------------------------------------------------ threads
def add_timing_options(parser: argparse.ArgumentParser, *, rounds: int) -> None:
    """--threads, --rounds, --warmups, --rest: the same in every script."""
    parser.add_argument("--threads", type=int, default=_core.default_threads(), help="of everything (%(default)s)")
    parser.add_argument("--rounds", type=int, default=rounds, help="turns of each run (%(default)s)")
    parser.add_argument("--warmups", type=int, default=2, help="calls before the first turn (%(default)s)")
    parser.add_argument("--rest", type=float, default=0.1, help="seconds of sleep before each turn (%(default)s)")


def use_threads(threads: int) -> None:
    """Have numpy and PyTorch use so many threads: starts the script again where its environment says otherwise."""
    if threads < 1:
        raise ValueError(f"[report] expected at least 1 thread, got {threads}")
    wanted = {name: str(threads) for name in _THREAD_VARIABLES}
    if all(os.environ.get(name) == value for name, value in wanted.items()):
        return
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | wanted)


if __name__ == "__main__":
    print(describe(threads=_core.default_threads()))
