"""Speed of the codec's decoder: whole clips and streams, beside numpy's sgemm and, on request, PyTorch.

    python benchmarks/bench_codec.py [MODEL] [--threads N] [--push 1 2 4 8 16] [--torch]

MODEL is a preset of `models.py` (made on first use; default codec) or a GGUF file. All runs are timed in turns. --torch
adds the same network in PyTorch float32 (`torch_codec.py`; needs torch), once its samples have been found to agree.
Owns what is measured; leaves operation counts to `codec_cost.py`, timing and printing to `report.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import codec_cost
import limits
import models
import numpy as np
import numpy.typing as npt
import report
from dualar import _core
from dualar.codec.codec import Codec
from report import number

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]

WHOLE, TORCH = "whole decode", "PyTorch float32, whole"
TOLERANCE = 1e-3  # of PyTorch's samples to the core's, relative to the largest: weights in F16, sums in another order


def random_codes(codec: _core.Codec, frames: int) -> Int32:
    """Codes [N, frames], each in its codebook's range."""
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(size, size=frames) for size in codec.codebook_sizes]).astype(np.int32)


class Pushes:
    """A call streams at least `frames` frames, k a push, on a stream that goes on from call to call."""

    def __init__(self, codec: _core.Codec, *, k: int, frames: int) -> None:
        self.stream = codec.stream(max_frames=k)
        self.frames = -(-frames // k) * k
        self._parts = np.split(random_codes(codec, self.frames), self.frames // k, axis=1)
        self._parts = [np.ascontiguousarray(part) for part in self._parts]

    def __call__(self) -> None:
        for part in self._parts:
            self.stream.push(part)


def make_torch_codec(path: Path, threads: int) -> Any:
    """The PyTorch network, on so many threads."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise SystemExit("--torch needs PyTorch: pip install torch") from error
    from torch_codec import TorchCodec

    torch.set_num_threads(threads)
    return TorchCodec(path)


def disagreement(got: Float32, wanted: Float32) -> tuple[float, float]:
    """Largest difference relative to the largest sample; signal to difference in dB."""
    difference = np.abs(got.astype(np.float64) - wanted)
    power = float(np.mean(np.square(wanted, dtype=np.float64)))
    noise = float(np.mean(difference**2))
    decibels = float("inf") if noise == 0 else 10 * np.log10(power / noise)
    return float(difference.max() / np.abs(wanted).max()), decibels


def check_torch(torch_codec: Any, codec: Codec, codes: Int32) -> None:
    """Print how far the two are apart; exit where that is too far to compare their speed."""
    wanted = codec.decode(codes)
    worst, decibels = disagreement(torch_codec.decode(codes), wanted)
    rms = float(np.sqrt(np.mean(wanted**2)))
    print(
        f"PyTorch's samples: {worst:.1e} of the largest apart at most, {decibels:.0f} dB (RMS of the sound {rms:.2f})"
    )
    if not worst <= TOLERANCE:
        raise SystemExit(f"expected at most {TOLERANCE:.0e}: the two do not compute the same")


# ------------------------------------------------------------------ the report
def print_cost(parts: dict[str, codec_cost.Cost]) -> None:
    """What one frame costs, by kind of layer."""
    total = sum(parts.values(), codec_cost.Cost())
    rows = [
        [name, number(c.flop / 1e9), f"{c.flop / total.flop:.1%}", number(c.weights / 1e6), number(c.values / 1e6)]
        for name, c in (parts | {"all": total}).items()
    ]
    report.section("What one frame costs")
    print(report.table(("", "GFLOP", "share", "M weights", "M values written"), rows))


def print_speed(
    seconds: dict[str, list[float]], frames: dict[str, int], *, flop: int, frame_seconds: float, gemm: limits.GemmProbe
) -> None:
    """Milliseconds a frame, and what they mean: real-time factor, rate, share of sgemm."""
    rows = [report.timing_row(name, seconds[name], scale=1 / n) for name, n in frames.items()]
    report.section("Milliseconds a frame")
    print(report.table(report.TIMING_HEADER, rows))
    sgemm = gemm.rate(report.Summary.of(seconds[gemm.name]).median)
    rows = []
    for name, n in frames.items():
        each = report.Summary.of(seconds[name]).median / n
        share = report.ratio(seconds[gemm.name], seconds[name]).median * n * flop / gemm.flop
        rows.append([name, f"{each / frame_seconds:.3f}", number(flop / each / 1e9), f"{share:.0%}"])
    rows.append([gemm.name, "", number(sgemm / 1e9), "100%"])
    report.section("Rates (real-time factor: time over the sound's duration; GFLOP/s by the count above)")
    print(report.table(("", "real-time factor", "GFLOP/s", "of sgemm"), rows))


def print_ratios(seconds: dict[str, list[float]], frames: dict[str, int]) -> None:
    """Time a frame over the best's, and PyTorch's over the core's, turn by turn."""
    each = {name: [s / n for s in seconds[name]] for name, n in frames.items()}
    ours = [name for name in each if name != TORCH]
    best = min(ours, key=lambda name: report.Summary.of(each[name]).median)
    rows = [[f"{name} / {best}", report.ratio_text(report.ratio(each[name], each[best]))] for name in ours]
    if TORCH in each:
        rows += [[f"{TORCH} / {name}", report.ratio_text(report.ratio(each[TORCH], each[name]))] for name in ours]
    report.section("Ratios of time, round by round: median (quartiles)")
    print(report.table(("", "ratio"), rows))


# The cost's parts that the core's labels stand for; a ConvNeXt's dense layers count with the transformers' there.
LABELS = {
    "conv": ("conv, k > 1",),
    "conv 1x1": ("conv, k 1",),
    "transposed conv": ("transposed conv",),
    "linear": ("transformer", "ConvNeXt"),
    "snake": ("snake",),
}


def print_profile(core: _core.Codec, codes: Int32, parts: dict[str, codec_cost.Cost]) -> None:
    """Where the time of one push goes, node by node, with FLOP and values beside; the median of five."""
    stream, k = core.stream(max_frames=codes.shape[1]), codes.shape[1]
    stream.push(codes)
    runs = [stream._profile(codes) for _ in range(5)]
    taken = {kind: report.Summary.of(run.get(kind, 0.0) for run in runs).median / k for kind in runs[0]}
    rest = sum(seconds for kind, seconds in taken.items() if kind not in LABELS)
    total = sum(taken.values())
    rows = []
    for kind, names in LABELS.items():
        cost = sum((parts[name] for name in names), codec_cost.Cost())
        rate = number(cost.flop / taken[kind] / 1e9) if cost.flop else ""
        share = f"{taken[kind] / total:.1%}"
        rows.append(
            [kind, number(taken[kind] * 1e3), share, number(cost.flop / 1e9), rate, number(cost.values * 4 / 1e6)]
        )
    rows.append(["the rest", number(rest * 1e3), f"{rest / total:.1%}", "", "", ""])
    rows.append(["all", number(total * 1e3), "100%", "", "", ""])
    report.section(f"Where the time goes, {k} frames a push, each node waited for")
    print(report.table(("", "ms a frame", "share", "GFLOP", "GFLOP/s", "MB written"), rows))


def parser() -> argparse.ArgumentParser:
    """The options."""
    p = argparse.ArgumentParser(description="Measure the codec's decoder.")
    p.add_argument("model", nargs="?", default="codec", help="a preset of models.py or a GGUF file (%(default)s)")
    p.add_argument("--push", type=int, nargs="*", default=[1, 2, 4, 8, 16], help="frames a push (%(default)s)")
    p.add_argument("--frames", type=int, default=16, help="frames that make up a turn (%(default)s)")
    p.add_argument("--torch", action="store_true", help="compare with PyTorch float32 in the same run")
    p.add_argument("--device", default="cpu", help="where the core runs (%(default)s)")
    report.add_timing_options(p, rounds=7)
    models.add_folder_option(p)
    return p


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    o = parser().parse_args(arguments)
    report.use_threads(o.threads)
    path = models.resolve(o.model, folder=o.folder)
    file = _core.ModelFile(str(path))
    core = _core.Codec(file, _core.Runtime(device=o.device, threads=o.threads))
    codec, codes = Codec(core), random_codes(core, o.frames)
    extra = {"model": f"{Path(file.path).name}, {core.samples_per_frame} samples a frame at {core.sample_rate} Hz"}
    torch_codec = make_torch_codec(path, o.threads) if o.torch else None
    if o.torch:
        import torch

        extra["torch"] = f"{torch.__version__}, {torch.get_num_threads()} threads"
    print(report.describe(threads=o.threads, warmups=o.warmups, extra=extra), flush=True)
    parts = codec_cost.frame_cost(file)
    print_cost(parts)

    gemm = limits.GemmProbe()
    pushes = {f"stream, {k} a push": Pushes(core, k=k, frames=o.frames) for k in o.push}
    runs: dict[str, Callable[[], object]] = {WHOLE: lambda: codec.decode(codes), **pushes}
    frames = {WHOLE: o.frames} | {name: p.frames for name, p in pushes.items()}
    if torch_codec is not None:
        print()
        check_torch(torch_codec, codec, codes)
        runs[TORCH] = lambda: torch_codec.decode(codes)
        frames[TORCH] = o.frames
    seconds = report.interleave(
        runs | {gemm.name: gemm}, rounds=o.rounds, warmups=o.warmups, rest=o.rest, repeats={gemm.name: 3}
    )
    frame_seconds = core.samples_per_frame / core.sample_rate
    flop = sum(c.flop for c in parts.values())
    print_speed(seconds, frames, flop=flop, frame_seconds=frame_seconds, gemm=gemm)
    print_ratios(seconds, frames)
    print_profile(core, codes, parts)
    state = ", ".join(f"{k}: {p.stream.nbytes / 1e6:.1f}" for k, p in zip(o.push, pushes.values(), strict=True))
    print(f"\nMB of state by frames a push: {state}" if pushes else "", end="")
    print(f"\nresident at most, all runs of this process together: {report.peak_memory() / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
