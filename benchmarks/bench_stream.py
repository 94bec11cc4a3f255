"""What streaming costs: time to the first sound, the decoder a few frames at a time, and the encoder.

    python benchmarks/bench_stream.py [MODEL] [--threads N] [--prompt 60] [--push 1 2 4 8 16] [--overlap]

MODEL is a preset of `models.py` with transformers and codec (made on first use; default mini) or such a GGUF file. All
runs of a table are timed in turns. --overlap also generates and decodes a clip in one thread, as `Engine.stream` does,
and in two, the codec with a thread pool of its own. Owns what is measured; leaves timing and printing to `report.py`,
the streams' pushes to `bench_codec.py`.
"""

from __future__ import annotations

import argparse
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import models
import numpy as np
import numpy.typing as npt
import report
from bench_ar import text_prompt
from bench_codec import WHOLE, Pushes, print_ratios, random_codes
from dualar import _core
from dualar.codec.codec import Codec
from dualar.config import GenerationConfig
from dualar.generation.generate import FrameLoop
from report import number

Int32 = npt.NDArray[np.int32]

PREFILL, FRAME, DECODE = "prefill", "first frame", "decoding one frame"
FIRST = "to the first sound"


class FirstSound:
    """A request up to its first samples; a call is one, `seconds` has its parts."""

    def __init__(self, model: _core.DualAR, codec: Codec, prompt: Int32) -> None:
        self._model, self._codec, self._prompt = model, codec, prompt
        self.seconds: dict[str, list[float]] = {name: [] for name in (PREFILL, FRAME, DECODE)}

    def __call__(self) -> None:
        loop = new_loop(self._model, self._prompt, frames=2)
        stream = self._codec.stream()
        began = time.perf_counter()
        codes = next(loop).codes
        framed = time.perf_counter()
        stream.push(codes[:, None])
        decoded = time.perf_counter()
        prefill = loop.result().timings.prefill_ms / 1e3
        for name, value in ((PREFILL, prefill), (FRAME, framed - began - prefill), (DECODE, decoded - framed)):
            self.seconds[name].append(value)


def new_loop(model: _core.DualAR, prompt: Int32, *, frames: int) -> FrameLoop:
    """A loop of just so many frames."""
    config = GenerationConfig(max_new_tokens=frames, min_tokens_before_end=frames, stall_guard=None)
    return FrameLoop(model, prompt, config, seed=1)


# ------------------------------------------------------------------ generation and decoding together
def in_turn(model: _core.DualAR, codec: Codec, prompt: Int32, *, frames: int, push: int) -> None:
    """Generate and decode in one thread, `push` frames at a time."""
    stream, waiting = codec.stream(), []
    for frame in new_loop(model, prompt, frames=frames):
        waiting.append(frame.codes)
        if len(waiting) == push:
            stream.push(np.stack(waiting, axis=1))
            waiting = []


def side_by_side(model: _core.DualAR, codec: Codec, prompt: Int32, *, frames: int, push: int) -> None:
    """The same with a second thread that decodes."""
    stream = codec.stream()
    work: queue.Queue[Int32 | None] = queue.Queue(maxsize=4)

    def decode() -> None:
        while (codes := work.get()) is not None:
            stream.push(codes)

    thread = threading.Thread(target=decode)
    thread.start()
    waiting = []
    for frame in new_loop(model, prompt, frames=frames):
        waiting.append(frame.codes)
        if len(waiting) == push:
            work.put(np.stack(waiting, axis=1))
            waiting = []
    work.put(None)
    thread.join()


# ------------------------------------------------------------------ the report
class Bench:
    """One model file under measurement: each method measures one thing and prints it."""

    def __init__(self, file: _core.ModelFile, options: argparse.Namespace) -> None:
        runtime = _core.Runtime(device=options.device, threads=options.threads)
        self.file, self.options = file, options
        self.model = _core.DualAR(file, runtime, im_end_id=options.im_end_id)
        self.core = _core.Codec(file, runtime)
        self.codec = Codec(self.core)
        self.prompt = text_prompt(self.model, options.prompt)
        self.frame_seconds = self.codec.samples_per_frame / self.codec.sample_rate
        self.timing = {"rounds": options.rounds, "warmups": options.warmups, "rest": options.rest}

    def first_sound(self) -> None:
        """The time to the first sound, and what it is made of."""
        run = FirstSound(self.model, self.codec, self.prompt)
        seconds = report.interleave({FIRST: run}, **self.timing)
        parts = {name: values[-self.options.rounds :] for name, values in run.seconds.items()}
        report.section(f"Time to the first sound, behind {self.options.prompt} text tokens")
        rows = [report.timing_row(name, values) for name, values in (parts | seconds).items()]
        print(report.table(report.TIMING_HEADER, rows))
        rows = [[name, report.ratio_text(report.ratio(values, seconds[FIRST]))] for name, values in parts.items()]
        print("\n" + report.table(("", "share"), rows))

    def pushes(self) -> None:
        """Streaming against whole decoding."""
        o = self.options
        codes = random_codes(self.core, o.frames)
        pushes = {f"stream, {k} a push": Pushes(self.core, k=k, frames=o.frames) for k in o.push}
        runs: dict[str, Callable[[], object]] = {WHOLE: lambda: self.codec.decode(codes), **pushes}
        frames = {WHOLE: o.frames} | {name: p.frames for name, p in pushes.items()}
        seconds = report.interleave(runs, **self.timing)
        report.section("Decoding, milliseconds a frame")
        rows = [report.timing_row(name, seconds[name], scale=1 / n) for name, n in frames.items()]
        print(report.table(report.TIMING_HEADER, rows))
        print_ratios(seconds, frames)

    def long(self) -> None:
        """One stream for many frames, four a push: does a frame cost the same late as early?"""
        frames, push, parts = self.options.long, 4, 8
        stream, codes = self.core.stream(max_frames=push), random_codes(self.core, push)
        rows = []
        for part in range(parts):
            pushes = max(1, frames // parts // push)
            taken = []
            for _ in range(pushes):
                began = time.perf_counter()
                stream.push(codes)
                taken.append((time.perf_counter() - began) / push)
            rows.append(report.timing_row(f"frames {part * pushes * push} to {(part + 1) * pushes * push}", taken))
        report.section(f"One stream of {frames} frames, {push} a push, milliseconds a frame")
        print(report.table(report.TIMING_HEADER, rows))

    def encode(self) -> None:
        """The encoder, on noise."""
        if not self.codec.can_encode:
            print("\nno encoder in this file")
            return
        seconds_of_sound = self.options.encode
        noise = np.random.default_rng(0).standard_normal(round(seconds_of_sound * self.codec.sample_rate)) / 10
        clip = noise.astype(np.float32)
        frames = -(-clip.shape[0] // self.codec.samples_per_frame)
        taken = report.interleave({"encode": lambda: self.codec.encode(clip)}, **self.timing)["encode"]
        report.section(f"Encoding {seconds_of_sound:g} s of sound ({frames} frames)")
        rows = [
            report.timing_row("a second of sound", taken, scale=1 / seconds_of_sound),
            report.timing_row("a frame", taken, scale=1 / frames),
        ]
        print(report.table(report.TIMING_HEADER, rows))
        print(f"\nreal-time factor {number(report.Summary.of(taken).median / seconds_of_sound)}")

    def overlap(self) -> None:
        """Generation and decoding in one thread and in two."""
        o = self.options
        push = o.overlap_push
        half = max(1, o.threads // 2)
        runs: dict[str, Callable[[], object]] = {
            "in turn": lambda: in_turn(self.model, self.codec, self.prompt, frames=o.frames, push=push)
        }
        for threads in sorted({half, o.threads}):
            codec = Codec(_core.Codec(self.file, _core.Runtime(device=o.device, threads=threads)))
            name = f"side by side, {o.threads} + {threads} threads"
            runs[name] = lambda codec=codec: side_by_side(  # type: ignore[misc]
                self.model, codec, self.prompt, frames=o.frames, push=push
            )
        if half < o.threads:
            model = _core.DualAR(self.file, _core.Runtime(device=o.device, threads=half), im_end_id=o.im_end_id)
            codec = Codec(_core.Codec(self.file, _core.Runtime(device=o.device, threads=half)))
            runs[f"side by side, {half} + {half} threads"] = lambda: side_by_side(
                model, codec, self.prompt, frames=o.frames, push=push
            )
        seconds = report.interleave(runs, **self.timing)
        report.section(
            f"Generating and decoding {o.frames} frames, {push} a push: milliseconds a frame, prefill included"
        )
        rows = [report.timing_row(name, values, scale=1 / o.frames) for name, values in seconds.items()]
        print(report.table(report.TIMING_HEADER, rows))
        rows = [
            [f"{name} / in turn", report.ratio_text(report.ratio(values, seconds["in turn"]))]
            for name, values in seconds.items()
        ]
        print("\n" + report.table(("", "ratio"), rows[1:]))


def parser() -> argparse.ArgumentParser:
    """The options."""
    p = argparse.ArgumentParser(description="Measure time to the first sound, streaming decode and encode.")
    p.add_argument("model", nargs="?", default="mini", help="a preset of models.py or a GGUF file (%(default)s)")
    p.add_argument("--prompt", type=int, default=60, help="text tokens before the speech (%(default)s)")
    p.add_argument("--push", type=int, nargs="*", default=[1, 2, 4, 8, 16], help="frames a push (%(default)s)")
    p.add_argument("--frames", type=int, default=16, help="frames that make up a turn (%(default)s)")
    p.add_argument("--encode", type=float, default=4.0, help="seconds of sound to encode (%(default)s)")
    p.add_argument("--long", type=int, default=0, metavar="FRAMES", help="also one stream of so many frames (none)")
    p.add_argument("--overlap", action="store_true", help="also generate and decode side by side")
    p.add_argument("--overlap-push", type=int, default=1, help="frames a push there (%(default)s)")
    p.add_argument("--device", default="cpu", help="where the model runs (%(default)s)")
    p.add_argument("--im-end-id", type=int, default=models.IM_END_ID, help="the token that ends speech (%(default)s)")
    report.add_timing_options(p, rounds=7)
    models.add_folder_option(p)
    return p


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    options = parser().parse_args(arguments)
    report.use_threads(options.threads)
    path = models.resolve(options.model, folder=options.folder)
    file = _core.ModelFile(str(path))
    bench = Bench(file, options)
    extra = {"model": f"{Path(file.path).name}, {bench.frame_seconds * 1e3:.1f} ms of sound a frame"}
    print(report.describe(threads=options.threads, warmups=options.warmups, extra=extra), flush=True)
    bench.first_sound()
    bench.pushes()
    bench.encode()
    if options.long:
        bench.long()
    if options.overlap:
        bench.overlap()
    print(f"\nresident at most, all runs of this process together: {report.peak_memory() / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
