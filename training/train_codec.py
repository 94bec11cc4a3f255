"""Train the codec on the corpus of `data.py`, in three stages that each go on from their own checkpoint.

    python -m training.train_codec --data DIR --out RUN [--minutes 50]

or one stage of it, so that `train_lm.py`, which needs the first one only, may run beside the others:

    python -m training.train_codec quantizer --data DIR --out RUN
    python -m training.train_codec decoder   --data DIR --out RUN --minutes 50
    python -m training.train_codec encoder   --data DIR --out RUN --minutes 12.5

quantizer: codebooks by k-means on the analysis of `analysis.py` (minutes), RUN/quantizer.pt, and the codes of every
utterance, RUN/codes.pt, which `train_lm.py` learns. decoder: from those codes to sound, RUN/decoder.pt. encoder: from
sound to the analysis, RUN/encoder.pt. The stages after the first do not need each other. The learning rate falls with
the share of --minutes that has been trained, over all runs; of all stages at once, the encoder gets a quarter of them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from training.analysis import assign, features, k_means, principal_directions
from training.codec import Codec, CodecConfig, VectorQuantizer
from training.data import Corpus
from training.losses import SpectralLoss
from training.progress import Run

K = 32  # principal directions that are quantized
ENCODER_SHARE = 0.25  # of the decoder's minutes
CROP, LEAD = 20, 4  # frames in a training piece, and those at its start that no loss is taken on


def padded(samples: Tensor, multiple: int) -> Tensor:
    return torch.nn.functional.pad(samples, (0, -len(samples) % multiple))


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


def train_quantizer(corpus: Corpus, run: Path, *, utterances: int = 1500) -> None:
    config = CodecConfig()
    codec = Codec(config)
    started = time.monotonic()

    def analyse(i: int) -> Tensor:
        samples = padded(torch.from_numpy(corpus.audio(i)), config.samples_per_frame)
        return features(samples, config.sample_rate, config.samples_per_frame)

    order = torch.randperm(len(corpus), generator=torch.Generator().manual_seed(0))
    sample = torch.cat([analyse(int(i)) for i in order[:utterances]])
    mean, directions = principal_directions(sample, K)
    latent = (sample - mean) @ directions
    scale = latent.square().sum(1).mean().sqrt() / K**0.5  # so that a direction has a variance of 1 on average
    latent = latent / scale
    total = sample.var(0).sum()
    print(f"{len(latent)} frames, {time.monotonic() - started:.0f} s; the {K} directions hold "
          f"{float(latent.square().sum(1).mean() * scale**2 / total):.3f} of the variance")  # fmt: skip
    centres, residual = [], latent
    for i, size in enumerate(config.codebook_sizes):
        centres.append(k_means(residual[torch.randperm(len(residual))[:30000]], size, seed=i))
        residual = residual - centres[-1][assign(residual, centres[-1])[0]]
        left = float(residual.square().sum(1).mean() / latent.square().sum(1).mean())
        print(f"codebook {i}: {left:.4f} of the energy left, {time.monotonic() - started:.0f} s", flush=True)
    for member, table in zip(codec.quantizer.members(), centres, strict=True):
        set_codebook(member, table)
    codes = []
    with torch.no_grad():
        for i in range(len(corpus)):
            z = ((analyse(i) - mean) @ directions / scale).T
            z = torch.cat([z, z.new_zeros(config.latent_dim - K, z.shape[1])])
            codes.append(codec.quantizer.encode_latent(z[None])[0].to(torch.int16))
    analysis = {"mean": mean, "directions": directions, "scale": scale}
    torch.save({"quantizer": codec.quantizer.state_dict(), "config": config.as_dict(), "analysis": analysis},
               run / "quantizer.pt")  # fmt: skip
    torch.save(codes, run / "codes.pt")
    print(f"codes of {len(codes)} utterances, {time.monotonic() - started:.0f} s")


# ------------------------------------------------------------------ the other stages
class Pieces:
    """The corpus end to end, in frames: `draw` gives pieces of it with their codes."""

    def __init__(self, corpus: Corpus, codes: list[Tensor], samples_per_frame: int, seed: int) -> None:
        self.codes = torch.cat(codes, 1).long()
        clips = [padded(torch.from_numpy(corpus.audio(i)), samples_per_frame) for i in range(len(codes))]
        self.samples = torch.cat([(c * 32768).to(torch.int16) for c in clips])
        self.samples_per_frame = samples_per_frame
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, batch: int, frames: int) -> tuple[Tensor, Tensor]:
        """codes [B, N, frames], samples [B, frames * samples_per_frame]."""
        starts = torch.randint(0, self.codes.shape[1] - frames, (batch,), generator=self.generator).tolist()
        h = self.samples_per_frame
        codes = torch.stack([self.codes[:, s : s + frames] for s in starts])
        samples = torch.stack([self.samples[s * h : (s + frames) * h] for s in starts])
        return codes, samples.float() / 32768


def parameters(parts: dict[str, nn.Module]) -> list[nn.Parameter]:
    return [p for module in parts.values() for p in module.parameters()]


def load_codec(run: Path, *stages: str) -> tuple[Codec, dict[str, Tensor]]:
    """The codec with what its stages have learnt so far, and the analysis."""
    saved = torch.load(run / "quantizer.pt", weights_only=True)
    codec = Codec(CodecConfig(**saved["config"]))
    codec.quantizer.load_state_dict(saved["quantizer"])
    for stage in stages:
        codec.load_state_dict(torch.load(run / f"{stage}.pt", weights_only=True)["model"], strict=False)
    return codec, saved["analysis"]


def train_decoder(corpus: Corpus, run: Path, *, minutes: float, batch: int, rate: float) -> None:
    codec, _ = load_codec(run)
    parts = {"quantizer.post_module": codec.quantizer.post_module, "quantizer.upsample": codec.quantizer.upsample,
             "decoder": codec.decoder}  # fmt: skip
    optimizer = torch.optim.AdamW(parameters(parts), lr=rate, betas=(0.8, 0.99), weight_decay=0)
    state = Run(run / "decoder.pt", parts, minutes=minutes, optimizers=[optimizer])
    pieces = Pieces(corpus, torch.load(run / "codes.pt", weights_only=True), codec.config.samples_per_frame, state.step)
    loss_of, skip = SpectralLoss(codec.config.sample_rate), LEAD * codec.config.samples_per_frame
    while state.going_on():
        codes, target = pieces.draw(batch, CROP)
        loss, terms = loss_of(codec.decode(codes)[:, skip:], target[:, skip:])
        state.update(loss, terms)


def train_encoder(corpus: Corpus, run: Path, *, minutes: float, batch: int, rate: float) -> None:
    codec, analysis = load_codec(run)
    parts = {"quantizer.pre_module": codec.quantizer.pre_module, "quantizer.downsample": codec.quantizer.downsample,
             "encoder": codec.encoder}  # fmt: skip
    optimizer = torch.optim.AdamW(parameters(parts), lr=rate, betas=(0.9, 0.99), weight_decay=0)
    state = Run(run / "encoder.pt", parts, minutes=minutes, optimizers=[optimizer])
    pieces = Pieces(corpus, torch.load(run / "codes.pt", weights_only=True), codec.config.samples_per_frame, state.step)
    size = codec.config.samples_per_frame
    same: Tensor | None = None
    while state.going_on():
        codes, samples = pieces.draw(batch, CROP)
        wanted = torch.stack([features(s, codec.config.sample_rate, size) for s in samples]) - analysis["mean"]
        wanted = (wanted @ analysis["directions"] / analysis["scale"]).transpose(1, 2)
        found = codec.latent(samples)
        loss = (found[:, :K, LEAD:] - wanted[..., LEAD:]).square().mean()
        if same is None or state.step % 50 == 0:
            with torch.no_grad():
                same = (codec.quantizer.encode_latent(found)[:, 0, LEAD:] == codes[:, 0, LEAD:]).float().mean()
        state.update(loss, {"first code equal": float(same)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", nargs="?", choices=["quantizer", "decoder", "encoder"], help="default: all of them")
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
    corpus = Corpus(options.data)
    if options.stage == "quantizer" or not (options.out / "codes.pt").exists():
        train_quantizer(corpus, options.out)
    how = {"batch": options.batch, "rate": options.rate}
    if options.stage in (None, "decoder"):
        train_decoder(corpus, options.out, minutes=options.minutes, **how)
    if options.stage in (None, "encoder"):
        share = 1 if options.stage else ENCODER_SHARE
        train_encoder(corpus, options.out, minutes=share * options.minutes, **how)


if __name__ == "__main__":
    main()
