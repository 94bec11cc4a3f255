"""Samples per second of WaveNet, generated one by one, beside what one would do without queues and beside PyTorch.

Owns the networks (`NETWORKS`, random weights) and what stands beside them: the whole receptive field run again for
each sample, and with `--torch` PyTorch loops with queues (`TorchWaveNet`); leaves timing and printing to
`report.py`:

    python benchmarks/bench_wavenet.py [--rounds 9] [--torch]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import report

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from fixtures.wavenet_file import Shape, random_tensors, write

NETWORKS = {
    "C 24, 20 blocks": Shape(24, 8, 32, 256, 2, [2**i for i in range(10)] * 2),
    "C 24, 30 blocks": Shape(24, 8, 32, 256, 2, [2**i for i in range(10)] * 3),
    "C 64, 20 blocks": Shape(64, 16, 64, 256, 2, [2**i for i in range(10)] * 2),
    "C 64, 30 blocks": Shape(64, 16, 64, 256, 2, [2**i for i in range(10)] * 3),
}
STEPS = {"dualar": 4000, "dualar, step by step": 1000, "torch": 100, "torch, by hand": 100, "receptive field again": 2}


class TorchWaveNet:
    """The same network as a PyTorch step loop: a ring per block, no gradient, float32, on the CPU.

    Plain: each layer of the model is one `linear`, the convolution one over its two taps side by side. By hand: the
    condition is a third part of that product, and the residual and the skip are one, as dualar has it.
    """

    def __init__(self, shape: Shape, tensors: dict[str, Any], *, by_hand: bool) -> None:
        import torch

        self.torch, self.shape, self.by_hand = torch, shape, by_hand
        w = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in tensors.items()}
        w = {name: t[..., 0].contiguous() if t.ndim == 3 and t.shape[2] == 1 else t for name, t in w.items()}
        self.embedding = w["embedding.weight"]
        self.blocks = []
        for i, d in enumerate(shape.dilations):
            p = f"blocks.{i}."
            conv = w[p + "conv.weight"].permute(0, 2, 1).reshape(2 * shape.channels, -1)  # the old tap, then the new
            layers = [(conv, w[p + "conv.bias"]), (w[p + "cond.weight"], None)]
            layers += [(w[p + name + ".weight"], w[p + name + ".bias"]) for name in ("residual", "skip")]
            if by_hand:
                (conv, bias), (cond, _), (residual, r), (skip, s) = layers
                layers = [(torch.cat([conv, cond], 1), bias), (torch.cat([residual, skip]), torch.cat([r, s]))]
            self.blocks.append((d, layers))
        self.head = [(w[f"head.{i}.weight"], w[f"head.{i}.bias"]) for i in range(2)]
        self.reset()

    def reset(self) -> None:
        """Zeros in every ring."""
        self.rings = [self.torch.zeros(d, 1, self.shape.channels) for d in self.shape.dilations]
        self.position = 0

    def step(self, klass: int, condition: Any) -> Any:
        """A class and a condition [1, H] -> logits [1, Q]."""
        torch, C = self.torch, self.shape.channels
        linear = torch.nn.functional.linear
        x, skip = self.embedding[klass : klass + 1], 0
        for ring, (d, layers) in zip(self.rings, self.blocks, strict=True):
            old = ring[self.position % d]
            if self.by_hand:
                y = linear(torch.cat([old, x, condition], 1), *layers[0])
            else:
                y = linear(torch.cat([old, x], 1), *layers[0]) + linear(condition, *layers[1])
            old.copy_(x)
            z = torch.tanh(y[:, :C]) * torch.sigmoid(y[:, C:])
            if self.by_hand:
                both = linear(z, *layers[1])
                x, skip = x + both[:, :C], skip + both[:, C:]
            else:
                x, skip = x + linear(z, *layers[2]), skip + linear(z, *layers[3])
        self.position += 1
        for layer in self.head:
            skip = linear(torch.relu(skip), *layer)
        return skip

    def generate(self, condition: Any, uniforms: Any, first: int) -> list[int]:
        """condition [T, H], uniforms [T] -> T classes, drawn as dualar draws them."""
        torch, made, klass = self.torch, [], first
        with torch.inference_mode():
            for t in range(len(condition)):
                edges = torch.cumsum(torch.softmax(self.step(klass, condition[t : t + 1])[0], 0), 0)
                klass = min(int(torch.searchsorted(edges, uniforms[t], right=True)), self.shape.levels - 1)
                made.append(klass)
        return made


def runs_of(shape: Shape, folder: Path, threads: int, with_torch: bool) -> dict[str, Callable[[], object]]:
    """What is compared on one network: each call makes the `STEPS` of its name."""
    tensors = random_tensors(shape)
    net = dualar.WaveNet.load(write(folder / "net.gguf", shape.metadata(), tensors), threads=threads)
    rng = np.random.default_rng(0)
    condition = rng.standard_normal((shape.condition_channels, max(STEPS.values()))).astype(np.float32)
    single, field = net.initial_state(1), net.receptive_field
    window = rng.integers(0, shape.levels, (1, field))
    around = rng.standard_normal((1, shape.condition_channels, field)).astype(np.float32)

    def one_by_one() -> None:
        for t in range(STEPS["dualar, step by step"]):
            net.step([0], condition[None, :, t], single)

    def again() -> None:
        for _ in range(STEPS["receptive field again"]):
            net.forward(window, around)

    runs: dict[str, Callable[[], object]] = {
        "dualar": lambda: net.generate(STEPS["dualar"], condition, first=128),
        "dualar, step by step": one_by_one,
        "receptive field again": again,
    }
    if with_torch:
        import torch

        for name in ("torch", "torch, by hand"):
            other = TorchWaveNet(shape, tensors, by_hand=name != "torch")
            columns = torch.from_numpy(np.ascontiguousarray(condition.T))[: STEPS[name]]
            noise = torch.from_numpy(rng.random(STEPS[name], np.float32))
            check(net, other, columns)
            runs[name] = partial(other.generate, columns, noise, 128)
    return runs


def check(net: dualar.WaveNet, other: TorchWaveNet, columns: Any) -> None:
    """Both are the same network: RuntimeError where their logits differ."""
    state = net.initial_state(1)
    for t in range(40):
        with other.torch.inference_mode():
            theirs = other.step(t % 256, columns[t : t + 1]).numpy()
        ours = net.step([t % 256], columns[t : t + 1].numpy(), state)
        if not np.allclose(ours, theirs, atol=1e-3, rtol=1e-3):
            raise RuntimeError(f"step {t}: logits differ by {np.abs(ours - theirs).max()}")
    other.reset()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    report.add_timing_options(parser, rounds=9)
    parser.add_argument("--torch", action="store_true", help="time PyTorch too (it must be installed)")
    parser.set_defaults(threads=1)
    args = parser.parse_args()
    report.use_threads(args.threads)
    extra = {}
    if args.torch:
        import torch

        torch.set_num_threads(args.threads)
        extra["torch"] = torch.__version__
    print(report.describe(threads=args.threads, warmups=args.warmups, extra=extra))

    with tempfile.TemporaryDirectory() as folder:
        for title, shape in NETWORKS.items():
            runs = runs_of(shape, Path(folder), args.threads, args.torch)
            seconds = report.interleave(runs, rounds=args.rounds, warmups=args.warmups, rest=args.rest)
            each = {name: [s / STEPS[name] for s in values] for name, values in seconds.items()}
            report.section(f"{title}, S {shape.skip_channels}, H {shape.condition_channels}, one clip")
            rows = []
            for name, values in each.items():
                rate = report.Summary.of(1 / v for v in values)
                times = "" if name == "dualar" else report.ratio_text(report.ratio(values, each["dualar"]))
                rows.append([name, *map(report.number, (rate.median, rate.low, rate.high)), times])
            print(report.table(("", "samples/s", "min", "max", "times dualar's"), rows))


if __name__ == "__main__":
    main()
