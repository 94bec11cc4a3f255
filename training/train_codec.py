"""Train the codec on the corpus of `data.py`, in three stages that each go on from their own checkpoint.

    python -m training.train_codec quantizer --data DIR --out RUN
    python -m training.train_codec decoder   --data DIR --out RUN --minutes 50
    python -m training.train_codec encoder   --data DIR --out RUN --minutes 25

quantizer: codebooks by k-means on the corpus' analysis (a minute), RUN/quantizer.pt. decoder: from codes to sound,
RUN/decoder.pt. encoder: from sound to the analysis, RUN/encoder.pt. The stages after the first do not need each other,
and `train_lm.py` needs the first one only. The learning rate falls with the share of --minutes (of processor time) that
has been trained, over all runs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from training.analysis import assign, k_means, principal_directions
from training.codec import Codec, CodecConfig, VectorQuantizer
from training.losses import SpectralLoss
from training.progress import Run
from training.shards import Pieces, Quantization, shard_paths

K = 32  # principal directions that are quantized
SAMPLE = 60000  # frames that the quantizer is made from
CROP, LEAD = 20, 4  # frames in a training piece, and those at its start that no loss is taken on


# ------------------------------------------------------------------ the quantizer
def set_codebook(member: VectorQuantizer, centres: Tensor) -> None:
    """Make nearest-angle search find the nearest centre.

    |z - c|² is least where z·2c - |c|² is greatest: the angle between (z, 1, 0) and (2c, -|c|², e), with e such that
    all rows have the same length. out_proj gives c back.
    """
    k = centres.shape[1]
    rows = torch.cat([2 * centres, -centres.square().sum(1, keepdim=True)], 1)
    squared = rows.square().sum(1)
    rest = (squared.max() * 1.0001 - squared).sqrt()
    with torch.no_grad():
        member.codebook.weight.copy_(torch.cat([rows, rest[:, None]], 1))
        for parameter in (*member.in_proj.parameters(), *member.out_proj.parameters()):
            parameter.zero_()
        member.in_proj.weight[:k, :k, 0] = torch.eye(k)
        member.in_proj.bias[k] = 1
        member.out_proj.weight[:k, :k, 0] = torch.eye(k) / 2


def train_quantizer(data: Path, run: Path, *, shards: int = 10) -> None:
    """From the first shards of the corpus, so that it is the same however many there are."""
    config, started = CodecConfig(), time.monotonic()
    parts = []
    for path in shard_paths(data)[:shards]:
        with np.load(path) as content:
            parts.append(torch.from_numpy(content["analysis"]).float())
    everything = torch.cat(parts)
    order = torch.randperm(len(everything), generator=torch.Generator().manual_seed(0))
    sample = everything[order[:SAMPLE]]
    mean, directions = principal_directions(sample, K)
    latent = (sample - mean) @ directions
    scale = latent.square().sum(1).mean().sqrt() / K**0.5  # so that a direction has a variance of 1 on average
    latent = latent / scale
    held = float(latent.square().sum(1).mean() * scale**2 / sample.var(0).sum())
    print(f"{len(everything)} frames; the {K} directions hold {held:.3f} of the variance")
    centres, residual = [], latent
    for i, size in enumerate(config.codebook_sizes):
        centres.append(k_means(residual, size, rounds=20, seed=i))
        residual = residual - centres[-1][assign(residual, centres[-1])[0]]
        left = float(residual.square().sum(1).mean() / latent.square().sum(1).mean())
        print(f"codebook {i}: {left:.4f} of the energy left, {time.monotonic() - started:.0f} s", flush=True)
    codec = Codec(config)
    for member, table in zip(codec.quantizer.members(), centres, strict=True):
        set_codebook(member, table)
    analysis = {"mean": mean, "directions": directions, "scale": scale}
    torch.save({"quantizer": codec.quantizer.state_dict(), "config": config.as_dict(), "analysis": analysis,
                "centres": centres}, run / "quantizer.pt")  # fmt: skip


# ------------------------------------------------------------------ the other stages
def parameters(parts: dict[str, nn.Module]) -> list[nn.Parameter]:
    return [p for module in parts.values() for p in module.parameters()]


def load_codec(run: Path, *stages: str) -> Codec:
    """The codec with what its stages have learnt so far."""
    saved = torch.load(run / "quantizer.pt", weights_only=True)
    codec = Codec(CodecConfig(**saved["config"]))
    codec.quantizer.load_state_dict(saved["quantizer"])
    for stage in stages:
        codec.load_state_dict(torch.load(run / f"{stage}.pt", weights_only=True)["model"], strict=False)
    return codec


def train_decoder(data: Path, run: Path, *, minutes: float, batch: int, rate: float) -> None:
    codec = load_codec(run)
    parts = {"quantizer.post_module": codec.quantizer.post_module, "quantizer.upsample": codec.quantizer.upsample,
             "decoder": codec.decoder}  # fmt: skip
    optimizer = torch.optim.AdamW(parameters(parts), lr=rate, betas=(0.8, 0.99), weight_decay=0)
    state = Run(run / "decoder.pt", parts, minutes=minutes, optimizers=[optimizer])
    pieces = Pieces(data, Quantization.load(run / "quantizer.pt"), seed=state.step)
    loss_of, skip = SpectralLoss(codec.config.sample_rate), LEAD * codec.config.samples_per_frame
    while state.going_on():
        codes, target, _ = pieces.draw(batch, CROP)
        loss, terms = loss_of(codec.decode(codes)[:, skip:], target[:, skip:])
        state.update(loss, terms)


def train_encoder(data: Path, run: Path, *, minutes: float, batch: int, rate: float) -> None:
    codec = load_codec(run)
    parts = {"quantizer.pre_module": codec.quantizer.pre_module, "quantizer.downsample": codec.quantizer.downsample,
             "encoder": codec.encoder}  # fmt: skip
    optimizer = torch.optim.AdamW(parameters(parts), lr=rate, betas=(0.9, 0.99), weight_decay=0)
    state = Run(run / "encoder.pt", parts, minutes=minutes, optimizers=[optimizer])
    pieces = Pieces(data, Quantization.load(run / "quantizer.pt"), seed=state.step)
    same = 0.0
    while state.going_on():
        codes, samples, wanted = pieces.draw(batch, CROP)
        found = codec.latent(samples)
        loss = (found[:, :K, LEAD:] - wanted[..., LEAD:]).square().mean()
        if state.step % 50 == 0:
            with torch.no_grad():
                first = codec.quantizer.encode_latent(found)[:, 0, LEAD:]
            same = float((first == codes[:, 0, LEAD:]).float().mean())
        state.update(loss, {"first code equal": same})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["quantizer", "decoder", "encoder"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=50)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.stage == "quantizer":
        train_quantizer(options.data, options.out)
        return
    train = train_decoder if options.stage == "decoder" else train_encoder
    train(options.data, options.out, minutes=options.minutes, batch=options.batch, rate=options.rate)


if __name__ == "__main__":
    main()
