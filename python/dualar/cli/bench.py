"""`dualar bench`: how fast a model runs here, beside what the machine itself can do.

Owns what is measured and how it is printed. Parts and machine are timed in turns, so that what disturbs the machine
for a while disturbs all of them; the medians are printed.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualar.cli import common
from dualar.cli.loading_shown import shown_loading
from dualar.cli.speed import CODEC_FRAMES, frame_parts, least_bytes, picture

if TYPE_CHECKING:
    from dualar._native import ModelFile
    from dualar.engine import Engine

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_READ_BYTES = 256 << 20  # larger than any cache
_GEMM_SIZE = 1024
_MIN_ROUNDS = 3


@app.command()
def bench(
    model: common.ModelArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, in place of a table.")] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Draw each part's time as a bar, beside what the machine allows.")
    ] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="X", min=0.1, max=3600.0, help="Measure for about so long.")
    ] = 10.0,
    device: common.DeviceOption = "cpu",
    threads: common.ThreadsOption = None,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Measure a model's speed on this machine.

    Milliseconds a frame of each part, alone, and the real-time factor of all: under 1 is faster than speech. Beside
    them what the machine gives: the Slow-AR and Fast-AR wait for memory reads, the codec for matrix products.
    """
    with common.reporting(quiet=quiet, verbose=verbose):
        from dualar.engine import load
        from dualar.families.registry import kind_of
        from dualar.runtime import open_file

        file = open_file(model)
        kind = kind_of(file.architecture)
        end = None if kind is None else kind.some_end(file)
        with shown_loading(model, quiet=quiet):
            engine = load(model, device=device, threads=threads, im_end_id=end)
        with engine:
            if not quiet:
                common.note(f"measuring for about {seconds:g} s with {engine.threads} threads on {engine.device}")
            found = _report(engine, *_measure(engine, seconds))
            found |= _least(engine, file, found["memory_read_gb_per_s"])
        typer.echo(json.dumps(found, indent=2) if as_json else _table(found))
        if compare and not as_json:
            typer.echo("\n" + picture(found))


def _measure(engine: Engine, seconds: float) -> tuple[dict[str, float], int]:
    """Median seconds of each part and probe, and how often each was timed."""
    runs: dict[str, Callable[[], object]] = {
        "read": _read_probe(engine.threads),
        "gemm": _gemm_probe(),
        **frame_parts(engine),
    }
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()  # graphs are built, pages are read
    until, rounds = time.perf_counter() + seconds, 0
    while rounds < _MIN_ROUNDS or time.perf_counter() < until:
        for name, run in runs.items():
            run()  # not timed: it fills the caches, in which the other parts left their data
            began = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - began)
        rounds += 1
    return {name: statistics.median(values) for name, values in taken.items()}, rounds


def _read_probe(threads: int) -> Callable[[], object]:
    """Reads _READ_BYTES once, each thread a part: a reduction that does nothing but load."""
    import numpy as np

    parts = np.array_split(np.ones(_READ_BYTES, np.int8), threads)
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(np.maximum.reduce, parts))


def _gemm_probe() -> Callable[[], object]:
    """numpy's float32 matrix product, on the threads that its library takes."""
    import numpy as np

    a, b = np.random.default_rng(0).standard_normal((2, _GEMM_SIZE, _GEMM_SIZE), np.float32)
    return lambda: a @ b


def _report(engine: Engine, taken: dict[str, float], rounds: int) -> dict[str, Any]:
    """What is printed, by the names of the JSON object; None for what the file lacks."""
    from dualar._version import __version__

    ms: dict[str, float | None] = {name: None for name in ("slow_ar", "fast_ar", "codec")}
    for name in ms:
        if name in taken:
            ms[name] = taken[name] * 1e3 / (CODEC_FRAMES if name == "codec" else 1)
    known = [value for value in ms.values() if value is not None]
    frame = None
    if ms["codec"] is not None:
        frame = 1e3 * engine.codec.samples_per_frame / engine.codec.sample_rate
    whole = frame is not None and ms["slow_ar"] is not None
    return {
        "model": engine.path,
        "version": __version__,
        "device": engine.device,
        "threads": engine.threads,
        "rounds": rounds,
        "slow_ar_ms_per_frame": ms["slow_ar"],
        "fast_ar_ms_per_frame": ms["fast_ar"],
        "codec_ms_per_frame": ms["codec"],
        "ms_per_frame": sum(known),
        "frame_ms": frame,
        "real_time_factor": sum(known) / frame if whole and frame else None,
        "memory_read_gb_per_s": _READ_BYTES / taken["read"] / 1e9,
        "gemm_gflop_per_s": 2 * _GEMM_SIZE**3 / taken["gemm"] / 1e9,
    }


def _least(engine: Engine, file: ModelFile, gb_per_s: float) -> dict[str, float | None]:
    """Milliseconds a frame that the memory allows at least, for the parts that wait for it."""
    read = least_bytes(engine, file)
    return {
        f"{part}_least_ms": read[part] / gb_per_s / 1e6 if part in read else None for part in ("slow_ar", "fast_ar")
    }


def _table(found: dict[str, Any]) -> str:
    def line(title: str, value: float | None, unit: str) -> str:
        return f"{title:<18}" + (f"{value:>10.2f} {unit}" if value is not None else f"{'-':>10} not in this file")

    frame = found["frame_ms"]
    sounds = f"a frame, which sounds for {frame:.2f} ms" if frame else "a frame"
    lines = [
        line("Slow-AR", found["slow_ar_ms_per_frame"], "ms a frame"),
        line("Fast-AR", found["fast_ar_ms_per_frame"], "ms a frame"),
        line("Codec", found["codec_ms_per_frame"], "ms a frame, eight at once"),
        line("Together", found["ms_per_frame"], f"ms {sounds}"),
        line("Real-time factor", found["real_time_factor"], "(under 1 is faster than speech)"),
        line("Memory read", found["memory_read_gb_per_s"], "GB/s"),
        line("Matrix product", found["gemm_gflop_per_s"], "GFLOP/s (numpy, float32)"),
    ]
    return "\n".join(lines)
