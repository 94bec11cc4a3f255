"""Speed of the autoregression: Slow-AR, Fast-AR, sampling and whole frames, beside what the memory allows.

    python benchmarks/bench_ar.py [MODEL] [--threads N] [--context 128 1000 4000] [--prefill 60 512]

MODEL is a preset of `models.py` (made on first use; default mini) or a GGUF file. All runs are timed in turns, with
the machine's read rate and sgemm rate among them. Owns what is measured; leaves byte counts to `ar_cost.py`, timing
and printing to `report.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ar_cost
import limits
import models
import numpy as np
import numpy.typing as npt
import report
from dualar import SamplingConfig, _core
from dualar.config import GenerationConfig
from dualar.generation.generate import FrameLoop
from dualar.generation.steps import Draw, Frames, Steps, core_sampler
from report import number

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]

SLOW, FAST, RECOMPUTE = "Slow-AR step, alone", "Fast-AR frame, alone", "Fast-AR frame, recompute, alone"
SAMPLING, WHOLE = "sampling of a frame, alone", "whole frame"
GGML_SLOW, GGML_FAST = "ggml's mul_mat, Slow-AR's matrices", "ggml's mul_mat, Fast-AR's, once"
IN_FRAME = ("- its Slow-AR step", "- its Fast-AR", "- its sampling and Python")
PARTS = (SLOW, FAST, RECOMPUTE, SAMPLING, WHOLE, *IN_FRAME, f"{WHOLE}, recompute")
REPEATS = 3  # calls in a row that make up a turn: what a cache keeps from one frame to the next counts


class FrameParts:
    """The parts of one frame as functions of no argument, on one session at a fixed context."""

    def __init__(self, model: _core.DualAR, *, context: int, kv_type: str) -> None:
        rng = np.random.default_rng(0)
        self._model = model
        self._context = context
        self._samplers = [core_sampler(SamplingConfig.fish(), residual=residual) for residual in (False, True)]
        self._codes = rng.integers(model.codebook_size, size=model.num_codebooks).astype(np.int32)
        self._column = np.concatenate([[model.semantic_begin_id + self._codes[0]], self._codes]).astype(np.int32)
        self._history = rng.integers(model.codebook_size, size=context).astype(np.int32)
        self._session = model.session(max_positions=context + 1, kv_type=kv_type)
        out = self._session.prefill(text_prompt(model, context))
        self._hidden, self._main_logits = out.hidden, out.logits
        self._fast_logits: list[Float32] = []
        self._draws = 0
        for values in (out.hidden, out.logits):
            if not np.isfinite(values).all():
                raise ValueError("[bench] expected finite hidden and logits from the prefill, got NaN or inf")

    def slow(self) -> None:
        """One Slow-AR step behind `context` positions."""
        self._session.step(self._column)
        self._session.truncate(self._context)

    def fast_cached(self) -> None:
        """All residual codebooks of a frame through the Fast-AR's cache."""
        logits = [self._session.fast_begin(self._hidden, int(self._codes[0]))]
        logits += [self._session.fast_step(int(code)) for code in self._codes[1:-1]]
        self._fast_logits = logits

    def fast_recompute(self) -> None:
        """The same with the whole window computed for each codebook."""
        for book in range(1, len(self._codes)):
            self._session.fast_decode(self._hidden, self._codes[:book])

    def sampling(self) -> None:
        """The draws of one frame, from logits that the model gave."""
        if not self._fast_logits:
            self.fast_cached()
        self._draws += 1
        key = {"seed": 1, "step": self._draws}
        self._samplers[0].draw(self._main_logits, stream=0, history=self._history, **key)
        for book, logits in enumerate(self._fast_logits, 1):
            self._samplers[1].draw(logits, stream=book, history=self._codes[1:book], **key)


def text_prompt(model: _core.DualAR, length: int) -> Int32:
    """Random text tokens [1 + N, length]."""
    prompt = np.zeros((1 + model.num_codebooks, length), np.int32)
    prompt[0] = np.random.default_rng(length).integers(model.semantic_begin_id, size=length)
    return prompt


def prefill_run(model: _core.DualAR, length: int, kv_type: str) -> Callable[[], object]:
    """A prefill of an empty session, its prompt's last logits included."""
    session = model.session(max_positions=length, kv_type=kv_type)
    prompt = text_prompt(model, length)

    def run() -> None:
        session.reset()
        session.prefill(prompt)

    return run


class TimedSteps:
    """The computations of a loop, adding up the seconds spent in its Slow-AR and its Fast-AR."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.slow = self.fast = 0.0

    def step(self, sessions: Sequence[Any], columns: Int32, /) -> tuple[Float32, Float32]:
        began = time.perf_counter()
        out = self._steps.step(sessions, columns)
        self.slow += time.perf_counter() - began
        return out

    def fast_frames(self, sessions: Sequence[Any], hidden: Float32, codes: Int32, draws: Sequence[Draw], /) -> Frames:
        """The draws of the residual codes are inside, so they count as the Fast-AR's."""
        began = time.perf_counter()
        out = self._steps.fast_frames(sessions, hidden, codes, draws)
        self.fast += time.perf_counter() - began
        return out


class WholeFrames:
    """One frame of `dualar.generate`'s loop a call; the first call has the prefill in it."""

    def __init__(self, model: _core.DualAR, *, context: int, frames: int, fast_ar: str, kv_type: str) -> None:
        config = GenerationConfig(max_new_tokens=frames, min_tokens_before_end=frames, stall_guard=None)
        self._loop = FrameLoop(model, text_prompt(model, context), config, seed=1, fast_ar=fast_ar, kv_type=kv_type)
        self._steps = TimedSteps(self._loop._batch._steps)
        self._loop._batch._steps = self._steps
        self._parts: list[tuple[float, float, float]] = []

    def __call__(self) -> None:
        self._steps.slow = self._steps.fast = 0.0
        began = time.perf_counter()
        next(self._loop)
        rest = time.perf_counter() - began - self._steps.slow - self._steps.fast
        self._parts.append((self._steps.slow, self._steps.fast, rest))

    def parts(self, rounds: int) -> dict[str, list[float]]:
        """Seconds a frame of Slow-AR, Fast-AR and the rest, one number for each of the last so many turns."""
        turns = np.array(self._parts[-rounds * REPEATS :]).reshape(rounds, REPEATS, 3).mean(axis=1)
        return {name: [float(x) for x in column] for name, column in zip(IN_FRAME, turns.T, strict=True)}


# ------------------------------------------------------------------ the report
class Bench:
    """One model file under measurement: each method measures one thing and prints it."""

    def __init__(self, file: _core.ModelFile, options: argparse.Namespace) -> None:
        began = time.perf_counter()
        runtime = _core.Runtime(device=options.device, threads=options.threads)
        self.file, self.runtime = file, runtime
        self.model = _core.DualAR(file, runtime, im_end_id=options.im_end_id)
        self.model.load()
        self.load_seconds = time.perf_counter() - began
        self.load_peak = report.peak_memory()
        self.options = options
        self.context = int(options.context[0])
        self.cost = ar_cost.FrameCost.of(file)
        # What ggml's own kernels reach alone on the same matrices, one column each.
        prefixes = {GGML_SLOW: ("layers.",), GGML_FAST: ("fast_layers.", "fast_output.")}
        wanted = {name: ar_cost.matrices(file, prefix) for name, prefix in prefixes.items()}
        self.ggml = {name: found for name, found in wanted.items() if found[0] and options.device == "cpu"}
        if not hasattr(_core, "testing"):  # a wheel does not carry it
            self.ggml = {}
        self.timing = {"warmups": options.warmups, "rest": options.rest}
        self.read = limits.ReadProbe(threads=options.threads)
        self.gemm = limits.GemmProbe()

    def _kv_bytes(self, context: int) -> int:
        """KV cache bytes that a Slow-AR step reads."""
        one, two = (self.model.kv_bytes(n, self.options.kv_type) for n in (256, 512))
        return (two - one) // 256 * context

    def frame(self) -> None:
        """The parts of a frame, whole frames, and the weights' rate against the memory's."""
        o = self.options
        parts = FrameParts(self.model, context=self.context, kv_type=o.kv_type)
        runs: dict[str, Callable[[], object]] = {SLOW: parts.slow}
        whole = None
        if self.model.has_fast_ar:
            whole = self._whole("cached")
            runs |= {FAST: parts.fast_cached, SAMPLING: parts.sampling, WHOLE: whole}
            if o.recompute:
                runs |= {RECOMPUTE: parts.fast_recompute, f"{WHOLE}, recompute": self._whole("recompute")}
        for name in self.ggml:
            names, _ = self.ggml[name]
            runs[name] = _core.testing.GgmlProducts(self.file, self.runtime, names).compute
        seconds = report.interleave(
            runs | {self.read.name: self.read}, rounds=o.rounds, repeats=dict.fromkeys(runs, REPEATS), **self.timing
        )
        if whole is not None:
            seconds |= whole.parts(o.rounds)
        report.section(f"One frame, behind {self.context} positions")
        order = [n for n in (*PARTS, *self.ggml, self.read.name) if n in seconds]
        print(report.table(report.TIMING_HEADER, [report.timing_row(n, seconds[n]) for n in order]))
        self._print_rates(seconds)

    def _whole(self, fast_ar: str) -> WholeFrames:
        o = self.options
        frames = o.warmups + REPEATS * o.rounds
        return WholeFrames(self.model, context=self.context, frames=frames, fast_ar=fast_ar, kv_type=o.kv_type)

    def _print_rates(self, seconds: dict[str, list[float]]) -> None:
        kv = self._kv_bytes(self.context)
        slow, fast = self.cost.slow_bytes + kv, self.cost.fast_bytes
        in_slow, in_fast, in_rest = IN_FRAME
        byte_counts = {SLOW: slow, FAST: fast, WHOLE: slow + fast, in_slow: slow, in_fast: fast}
        byte_counts |= {name: nbytes for name, (_, nbytes) in self.ggml.items()}
        byte_counts[self.read.name] = self.read.nbytes
        rows = []
        for name, nbytes in byte_counts.items():
            if name in seconds:
                rate = nbytes / report.Summary.of(seconds[name]).median
                share = report.ratio(seconds[self.read.name], seconds[name]).median * nbytes / self.read.nbytes
                rows.append([name, number(nbytes / 1e6), number(rate / 1e9), f"{share:.0%}"])
        report.section(f"Bytes that a frame must read ({number(kv / 1e6)} MB of them KV cache)")
        print(report.table(("", "MB", "GB/s", "of memory read"), rows))
        if WHOLE in seconds:
            rest = report.ratio(seconds[in_rest], seconds[WHOLE]).median
            print(f"\nof a whole frame, neither Slow-AR nor Fast-AR (sampling and Python): {rest:.1%}")

    def growth(self) -> None:
        """The Slow-AR's step behind each context asked for."""
        o = self.options
        runs = {f"{n} positions": FrameParts(self.model, context=n, kv_type=o.kv_type).slow for n in sorted(o.context)}
        seconds = report.interleave(runs, rounds=o.rounds, repeats=REPEATS, **self.timing)
        report.section("Slow-AR step as the context grows")
        print(report.table(report.TIMING_HEADER, [report.timing_row(n, v) for n, v in seconds.items()]))
        print("\n" + ", ".join(f"{n}: {self._kv_bytes(n) / 1e6:.0f} MB of KV cache read" for n in sorted(o.context)))

    def prefill(self) -> None:
        """Prompts of each length asked for, against sgemm."""
        o = self.options
        runs: dict[str, Callable[[], object]] = {
            f"prefill {n}": prefill_run(self.model, n, o.kv_type) for n in o.prefill
        }
        seconds = report.interleave(runs | {self.gemm.name: self.gemm}, rounds=o.prefill_rounds, **self.timing)
        report.section("Prefill")
        print(report.table(report.TIMING_HEADER, [report.timing_row(n, v) for n, v in seconds.items()]))
        sgemm = self.gemm.rate(report.Summary.of(seconds[self.gemm.name]).median)
        rows = []
        for n in o.prefill:
            flop = self.cost.prefill_flop(n)
            rate = flop / report.Summary.of(seconds[f"prefill {n}"]).median
            rows.append([f"prefill {n}", number(flop / 1e9), number(rate / 1e9), f"{rate / sgemm:.0%}"])
        rows.append([self.gemm.name, number(self.gemm.flop / 1e9), number(sgemm / 1e9), "100%"])
        print("\n" + report.table(("", "GFLOP", "GFLOP/s", "of sgemm"), rows))


def parser() -> argparse.ArgumentParser:
    """The options."""
    p = argparse.ArgumentParser(description="Measure Slow-AR, Fast-AR, sampling, whole frames and prefill.")
    p.add_argument("model", nargs="?", default="mini", help="a preset of models.py or a GGUF file (%(default)s)")
    p.add_argument("--context", type=int, nargs="+", default=[128], help="positions before a step (%(default)s)")
    p.add_argument("--prefill", type=int, nargs="*", default=[60, 512], help="prompt lengths (%(default)s)")
    p.add_argument("--prefill-rounds", type=int, default=5, help="turns of each prefill (%(default)s)")
    p.add_argument("--recompute", action="store_true", help="the Fast-AR's recompute path as well")
    p.add_argument("--kv-type", choices=("auto", "f32", "f16"), default="auto", help="(%(default)s)")
    p.add_argument("--device", default="cpu", help="where the model runs (%(default)s)")
    p.add_argument("--im-end-id", type=int, default=models.IM_END_ID, help="the token that ends speech (%(default)s)")
    report.add_timing_options(p, rounds=15)
    models.add_folder_option(p)
    return p


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    options = parser().parse_args(arguments)
    report.use_threads(options.threads)
    path = models.resolve(options.model, folder=options.folder)
    file = _core.ModelFile(str(path))
    bench = Bench(file, options)
    extra = {
        "model": f"{Path(file.path).name}, {file.nbytes / 1e9:.2f} GB, {bench.cost.describe()}",
        "device": f"{options.device}, KV cache {options.kv_type}",
        "loading": f"{bench.load_seconds:.2f} s, {bench.load_peak / 1e6:.0f} MB resident at most until then",
    }
    print(report.describe(threads=options.threads, warmups=options.warmups, extra=extra), flush=True)
    bench.frame()
    if len(options.context) > 1:
        bench.growth()
    if options.prefill:
        bench.prefill()
    peak = report.peak_memory() - bench.read.nbytes
    print(f"\nresident at most, mapped file included, the read probe's array not: {peak / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
