"""Cost of drawing one token, for each family at its published defaults, and of the ten draws of one frame.

Owns that measurement: `dualar.sampling` alone, on random logits, the main codebook (4097 ids, a history of 500 tokens)
and a residual one (4096 ids, none); leaves timing and printing to `report.py`, whole frames to `bench_ar.py`:

    python benchmarks/bench_sampling.py [--rounds 31] [--frame-ms 60]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import count

import numpy as np
import report
from dualar.sampling.chains import SamplingConfig, sample
from dualar.sampling.noise import uniform

MAIN, RESIDUAL, CODEBOOKS, HISTORY = 4097, 4096, 10, 500
DRAWS = 200  # that make up one turn
FAMILIES = {
    "fish": SamplingConfig.fish(),
    "hf": SamplingConfig.hf(),
    "cosyvoice": SamplingConfig.cosyvoice(),
    "fish, greedy": SamplingConfig.fish(temperature=0),
    "fish, top_k off": SamplingConfig.fish(top_k=0),
    "hf, top_p 0.8": SamplingConfig.hf(top_p=0.8),
}


def draws(config: SamplingConfig, V: int, stream: int) -> Callable[[], object]:
    """A run that draws one token, of other logits and another step each time."""
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal((64, V)) * 3).astype(np.float32)
    history = rng.integers(0, V - 1, (1, HISTORY)).astype(np.int32) if stream == 0 else None
    steps = count()

    def run() -> object:
        step = next(steps)
        return sample(logits[step % 64, None], config, seed=1, step=step, stream=stream, history=history)

    return run


def noise() -> object:
    return uniform(1, 1, 0, MAIN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    report.add_timing_options(parser, rounds=31)
    parser.add_argument("--frame-ms", type=float, default=60.0, help="a frame to give the share of (%(default)s)")
    parser.set_defaults(threads=1, warmups=20, rest=0.0)
    args = parser.parse_args()
    report.use_threads(args.threads)

    print(report.describe(threads=args.threads, warmups=args.warmups))
    runs: dict[str, Callable[[], object]] = {"a row of noise alone": noise}
    for name, config in FAMILIES.items():
        runs[f"{name}: main"] = draws(config, MAIN, 0)
        runs[f"{name}: residual"] = draws(config, RESIDUAL, 1)
    seconds = report.interleave(runs, rounds=args.rounds, warmups=args.warmups, rest=args.rest, repeats=DRAWS)

    report.section(f"Microseconds a token, main of {MAIN} ids and residual of {RESIDUAL}; a turn is {DRAWS} draws")
    header = ("", "median us", *report.TIMING_HEADER[2:])
    print(report.table(header, [report.timing_row(name, values, scale=1e3) for name, values in seconds.items()]))

    report.section(f"The {CODEBOOKS} draws of a frame")
    rows = []
    for name in FAMILIES:
        main_s, residual_s = (report.Summary.of(seconds[f"{name}: {part}"]).median for part in ("main", "residual"))
        frame_ms = (main_s + (CODEBOOKS - 1) * residual_s) * 1e3
        rows.append([name, report.number(frame_ms), f"{frame_ms / args.frame_ms:.1%}"])
    print(report.table(("", "ms a frame", f"share of {args.frame_ms:g} ms"), rows))


if __name__ == "__main__":
    main()
