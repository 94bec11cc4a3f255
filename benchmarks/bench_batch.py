"""What a batch gains and what it costs: throughput by rows, beside its products' own; what a joining prompt holds up.

    python benchmarks/bench_batch.py [MODEL] [--threads N] [--rows 1 2 4 8 16] [--context 32] [--join 512]

MODEL is a preset of `models.py` (made on first use; default mini), `qwen3` for Qwen3-TTS at 0.6B geometry, or a GGUF
file of transformers of either family. Frames are drawn by the family's own rules. All runs of a table are timed in
turns. Owns what is measured; leaves timing and printing to `report.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import bench_qwen3
import models
import numpy as np
import numpy.typing as npt
import report
from bench_ar import text_prompt
from dualar import Batch, BatchRow, GenerationRequest, SamplingConfig, _core
from dualar.families.qwen3_prompt import TalkerPrompt
from report import number, ratio_text

Model = _core.DualAR | _core.Qwen3TTS
Prompt = TalkerPrompt | npt.NDArray[np.int32]


def open_model(file: _core.ModelFile, options: argparse.Namespace) -> Model:
    """The model of a file of either family."""
    runtime = _core.Runtime(threads=options.threads)
    if file.architecture == "qwen3-tts":
        return _core.Qwen3TTS(file, runtime)
    return _core.DualAR(file, runtime, im_end_id=options.im_end_id)


def prompt_of(model: Model, length: int) -> Prompt:
    """A random prompt of so many positions."""
    return bench_qwen3.prompt_of(length) if isinstance(model, _core.Qwen3TTS) else text_prompt(model, length)


class Rows:
    """A batch of so many rows that go on for as long as it is measured."""

    def __init__(self, model: Model, rows: int, context: int, steps: int) -> None:
        self.count = rows
        family = SamplingConfig.hf() if isinstance(model, _core.Qwen3TTS) else SamplingConfig.fish()
        self.batch = Batch(model, max_rows=rows + 1, sampling=family)
        self.rows = [self.join(prompt_of(model, context), steps, seed) for seed in range(rows)]
        while any(row.frames == 0 for row in self.rows):
            self.batch.step()

    def join(self, prompt: Prompt, steps: int, seed: int) -> BatchRow:
        return self.batch.join(
            GenerationRequest(
                prompt=prompt, max_new_tokens=steps, min_tokens_before_end=steps, seed=seed, stall_guard=None
            )
        )


class Products:
    """The products of a Slow-AR step alone, as its graph has them: `seconds` of them in each call."""

    def __init__(self, model: Model, rows: int) -> None:
        self._batch = _core.Batch(model)
        self._sessions = [model.session(max_positions=2) for _ in range(rows)]
        for session in self._sessions:
            session.prefill(prompt_of(model, 1))
        self._columns = np.zeros((rows, 1 + model.num_codebooks), np.int32)
        self.seconds: list[float] = []

    def __call__(self) -> None:
        self.seconds.append(self._batch._profile(self._sessions, self._columns)["linear"])


class Bench:
    """One model, opened."""

    def __init__(self, file: _core.ModelFile, options: argparse.Namespace) -> None:
        self.options = options
        self.model = open_model(file, options)
        self.model.load()

    def agreement(self, rows: int = 4, steps: int = 3) -> None:
        """The rows' logits beside those of sessions that step alone, fed with the same random codes."""
        rng, model = np.random.default_rng(0), self.model
        alone, together = ([model.session(max_positions=64) for _ in range(rows)] for _ in range(2))
        for r, pair in enumerate(zip(alone, together, strict=True)):
            for session in pair:
                session.prefill(prompt_of(model, 5 + 7 * r))
        batch, logits, largest = _core.Batch(model), [], 0.0
        for _ in range(steps):
            codes = rng.integers(model.codebook_size, size=(rows, model.num_codebooks)).astype(np.int32)
            columns = np.concatenate([model.semantic_begin_id + codes[:, :1], codes], axis=1)
            logits = [session.step(column).logits for session, column in zip(alone, columns, strict=True)]
            found = batch.step(together, columns)[0]
            largest = max(largest, float(np.abs(found - np.stack(logits)).max()))
        report.section("A row in a batch and alone")
        print(f"largest difference of {rows} rows' logits over {steps} steps: {largest:.3g}", end=" ")
        print(f"(logits up to {float(np.abs(np.stack(logits)).max()):.3g})")

    def throughput(self) -> None:
        o = self.options
        steps = 2 * (o.rounds + o.warmups) + max(o.rows) + 8
        batches = {n: Rows(self.model, n, o.context, steps) for n in o.rows}
        products = {n: Products(self.model, n) for n in o.rows}
        runs: dict[str, Callable[[], object]] = {f"{n} rows": batch.batch.step for n, batch in batches.items()}
        runs |= {f"products {n}": run for n, run in products.items()}
        largest = batches[max(o.rows)].rows
        before = [row.frames for row in largest]
        seconds = report.interleave(runs, rounds=o.rounds, warmups=o.warmups, rest=o.rest)
        table, one = [], o.rows[0]
        for n in o.rows:
            step, alone = seconds[f"{n} rows"], products[n].seconds[-o.rounds :]
            gain = report.ratio([t * n / one for t in seconds[f"{one} rows"]], step)
            own = report.ratio([t * n / one for t in products[one].seconds[-o.rounds :]], alone)
            ms = report.Summary.of(step).median * 1e3
            table.append(
                [str(n), number(ms), number(n / ms * 1e3), ratio_text(gain),
                 number(report.Summary.of(alone).median * 1e3), ratio_text(own)]
            )  # fmt: skip
        report.section(f"Throughput, whole frames behind {o.context} positions and more")
        header = ("rows", "ms a step", "frames/s", f"over {one} row", "Slow-AR's products, ms", f"over {one} row")
        print(report.table(header, table))
        frames = [row.frames - first for row, first in zip(largest, before, strict=True)]
        print(f"\nframes of each of {max(o.rows)} rows in that time: {min(frames)} to {max(frames)}")

    def join(self) -> None:
        o = self.options
        rows = min(8, max(o.rows))
        prompt = prompt_of(self.model, o.join)
        pieces = o.join // getattr(self.model, "prefill_piece", o.join)
        batch = Rows(self.model, rows, o.context, 4 * rows + 40 + pieces)
        before = [report.timed(batch.batch.step) for _ in range(8)]
        session = self.model.session(max_positions=o.join)
        alone = report.timed(lambda: session.prefill(prompt))
        newcomer, during, began = batch.join(prompt, 4, 99), [], time.perf_counter()
        while newcomer.frames == 0:
            during.append(report.timed(batch.batch.step))
        first = time.perf_counter() - began
        after = [report.timed(batch.batch.step) for _ in range(3)]
        report.section(f"A prompt of {o.join} positions joins {rows} rows")
        line = [("steps before", before), ("steps while it is taken in", during), ("steps after", after)]
        print(report.table(report.TIMING_HEADER, [report.timing_row(name, values) for name, values in line]))
        print(
            f"\nthat prompt alone: {number(alone * 1e3)} ms; to its first frame in the batch: {number(first * 1e3)} ms"
        )


def parser() -> argparse.ArgumentParser:
    """The options."""
    p = argparse.ArgumentParser(description="Measure batches: throughput, the products' own, and a prompt that joins.")
    p.add_argument(
        "model", nargs="?", default="mini", help="a preset of models.py, qwen3, or a GGUF file (%(default)s)"
    )
    p.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="rows of a batch (%(default)s)")
    p.add_argument("--context", type=int, default=32, help="positions before the first frame (%(default)s)")
    p.add_argument("--join", type=int, default=512, help="positions of the prompt that joins; 0 for none (%(default)s)")
    p.add_argument("--im-end-id", type=int, default=models.IM_END_ID, help="the token that ends speech (%(default)s)")
    report.add_timing_options(p, rounds=12)
    models.add_folder_option(p)
    return p


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    options = parser().parse_args(arguments)
    report.use_threads(options.threads)
    if options.model == "qwen3":
        path = bench_qwen3.ensure("q8_0", folder=options.folder)
    else:
        path = models.resolve(options.model, folder=options.folder)
    file = _core.ModelFile(str(path))
    bench = Bench(file, options)
    extra = {"model": f"{Path(file.path).name}, {file.nbytes / 1e9:.2f} GB"}
    print(report.describe(threads=options.threads, warmups=options.warmups, extra=extra), flush=True)
    bench.agreement()
    bench.throughput()
    if options.join:
        bench.join()


if __name__ == "__main__":
    main()
