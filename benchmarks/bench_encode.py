"""Encoding sound to codes: seconds per second of sound, beside the same network in PyTorch float32.

    python benchmarks/bench_encode.py [MODEL] [--seconds N] [--torch]

Owns the clip and the comparison; the network in PyTorch is torch_codec.py, the model comes from models.py.
"""

from __future__ import annotations

import argparse

import models
import numpy as np
import report
from dualar.codec.codec import Codec


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="codec", help="a preset of models.py or a GGUF file (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of sound (%(default)s)")
    parser.add_argument("--torch", action="store_true", help="PyTorch as well, in turns")
    models.add_folder_option(parser)
    report.add_timing_options(parser, rounds=5)
    options = parser.parse_args()
    report.use_threads(options.threads)
    path = models.resolve(options.model, folder=options.folder)
    codec = Codec.load(path, threads=options.threads)
    frames = max(1, round(options.seconds * codec.sample_rate / codec.samples_per_frame))
    seconds = frames * codec.samples_per_frame / codec.sample_rate
    rng = np.random.default_rng(0)
    clip = (rng.standard_normal(frames * codec.samples_per_frame) * 0.1).astype(np.float32)
    runs = {"dualar": lambda: codec.encode(clip)}
    extra = {"model": path.name, "sound": f"{seconds:.1f} s of noise"}
    print(report.describe(threads=options.threads, warmups=options.warmups, extra=extra))
    if options.torch:
        import torch
        from torch_codec import TorchEncoder

        torch.set_num_threads(options.threads)
        encoder = TorchEncoder(path)
        equal = float((encoder.encode(clip)[0] == codec.encode(clip)[0]).mean())
        print(f"first codebook equal in {equal:.1%} of the frames (noise has close decisions)")
        if equal < 0.95:
            raise SystemExit("the two networks differ: there is nothing to compare")
        runs["PyTorch float32"] = lambda: encoder.encode(clip)
    taken = report.interleave(runs, rounds=options.rounds, warmups=options.warmups, rest=options.rest)
    report.section("Milliseconds per second of sound")
    rows = [report.timing_row(name, times, scale=1 / seconds) for name, times in taken.items()]
    print(report.table(report.TIMING_HEADER, rows))
    if options.torch:
        print("PyTorch / dualar:", report.ratio_text(report.ratio(taken["PyTorch float32"], taken["dualar"])))


if __name__ == "__main__":
    main()
