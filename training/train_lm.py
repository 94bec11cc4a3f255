"""Train the dual-AR: phonemes -> codes, with teacher forcing.

    python -m training.train_lm --data DIR --out RUN --minutes 75

Reads the shards of `data.py` and RUN/quantizer.pt, writes RUN/lm.pt and goes on from it; shards that come while it
runs are taken into the next epoch. Prompts are the engine's own: the template of `s2_prompt.py`, the tokenizer of
`text.py`. Matrices are trained with Muon, the rest with AdamW.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path

import tokenizers
import torch
from dualar.families import s2_prompt as prompt
from torch import Tensor
from torch.nn import functional as F

from training.codec import CodecConfig
from training.dual_ar import GUIDED_LAYERS, DualAR, DualARConfig
from training.muon import Muon
from training.shards import Quantization, Spoken, read_spoken, shard_paths
from training.text import build_tokenizer
from training.workers import SharedRun, meet

COLUMNS = 4800  # in a batch of all workers together, about
RESIDUAL_WEIGHT = 0.4  # the main token decides what is said; beyond the second codebook it is much noise
GUIDE_WEIGHT = 0.3
FAST_SHARE = 0.25  # of the frames in a batch that the Fast-AR is trained on: it learns faster than the Slow-AR
NOISE = 0.08  # of the codes that go in are random ones: a bad draw later is nothing new, learning by heart is harder
HELD_BACK = 200  # utterances at the start of the first shard that are not trained on, but looked at
CHECK_STEPS = 250


class Prompts:
    """The engine's prompt around some phonemes, as token ids."""

    def __init__(self, tokenizer_json: str) -> None:
        self.tokenizer = tokenizers.Tokenizer.from_str(tokenizer_json)
        head = (prompt.SYSTEM_OPEN, prompt.SYSTEM_PLAIN, prompt.CLOSE, prompt.USER_OPEN)
        self.head, self.tail = (
            [i for piece in pieces for i in self.tokenizer.encode(piece).ids]
            for pieces in (head, (prompt.CLOSE, prompt.ASSISTANT_OPEN))
        )
        found = self.tokenizer.token_to_id("<|im_end|>"), self.tokenizer.token_to_id("<|semantic:0|>")
        self.im_end, self.semantic_begin = int(found[0]), int(found[1])
        self.vocab_size = self.tokenizer.get_vocab_size()

    def ids(self, phonemes: str) -> list[int]:
        return [*self.head, *self.tokenizer.encode(phonemes, add_special_tokens=False).ids, *self.tail]


class Examples:
    """Batches of prompts with their codes, of like lengths, in an order fixed by the epoch."""

    def __init__(
        self, prompts: Prompts, *, codebook_size: int, noise: float, epoch: int = 0, columns: int = COLUMNS
    ) -> None:
        self.prompts, self.codebook_size, self.noise, self.epoch = prompts, codebook_size, noise, epoch
        self.columns = columns
        self.spoken: list[Spoken] = []
        self.ids: list[list[int]] = []
        self.queue: list[list[int]] = []

    def add(self, spoken: Sequence[Spoken]) -> None:
        self.spoken += spoken
        self.ids += [self.prompts.ids(one.phonemes) for one in spoken]

    def refill(self) -> None:
        rng = random.Random(self.epoch)
        self.generator = torch.Generator().manual_seed(self.epoch)
        self.epoch += 1
        total = [len(ids) + one.codes.shape[1] for ids, one in zip(self.ids, self.spoken, strict=True)]
        batch: list[int] = []
        longest = 0
        for i in sorted(range(len(total)), key=lambda i: total[i] + rng.uniform(0, 10)):
            if batch and (len(batch) + 1) * max(longest, total[i]) > self.columns:
                self.queue.append(batch)
                batch, longest = [], 0
            batch.append(i)
            longest = max(longest, total[i])
        self.queue.append(batch)
        rng.shuffle(self.queue)

    def draw(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """columns [B, 1 + N, T]; which [B, T] position's hidden makes a frame or the end; what it makes [B, N, T],
        where row 0 is the semantic code, or codebook_size for the end; the position [B, T] that it should look at."""
        if not self.queue:
            self.refill()
        chosen = self.queue.pop()
        books = self.spoken[chosen[0]].codes.shape[0]
        length = -(-max(len(self.ids[i]) + self.spoken[i].codes.shape[1] for i in chosen) // 8) * 8
        batch = torch.zeros(len(chosen), 1 + books, length, dtype=torch.long)
        active = torch.zeros(len(chosen), length, dtype=torch.bool)
        target = torch.zeros(len(chosen), books, length, dtype=torch.long)
        guide = torch.zeros(len(chosen), length, dtype=torch.long)
        before = len(self.prompts.head)
        for row, i in enumerate(chosen):
            ids, codes = self.ids[i], self.spoken[i].codes.long()
            start, frames = len(ids), codes.shape[1]
            noise = torch.rand(codes.shape, generator=self.generator) < self.noise
            other = torch.randint(0, self.codebook_size, codes.shape, generator=self.generator)
            seen = torch.where(noise, other, codes)
            batch[row, 0, :start] = torch.tensor(ids)
            batch[row, 0, start : start + frames] = seen[0] + self.prompts.semantic_begin
            batch[row, 1:, start : start + frames] = seen
            active[row, start - 1 : start + frames] = True
            target[row, :, start - 1 : start - 1 + frames] = codes
            target[row, 0, start - 1 + frames] = self.codebook_size
            guide[row, start - 1 : start - 1 + frames] = torch.tensor(self.spoken[i].tokens) + before
            guide[row, start - 1 + frames] = start - len(self.prompts.tail)  # what closes the text
        return batch, active, target, guide


def losses(
    model: DualAR, prompts: Prompts, drawn: tuple[Tensor, Tensor, Tensor, Tensor], *, fast_share: float
) -> dict[str, Tensor]:
    """Means in nepers: "main", the cross-entropy of the main token; "residual", of a residual code; "guided", of what
    the guided heads look at. And "accuracy" of the main token, "seen", the last guided head's share on its position."""
    batch, active, target, guide = drawn
    c = model.config
    x, attended = model.embed(batch), []
    for i, layer in enumerate(model.layers):
        layer.attention.keep = i in GUIDED_LAYERS
        x = layer(x)
        if i in GUIDED_LAYERS:
            attended.append(layer.attention.first_head.gather(2, guide[..., None])[..., 0][active])
    hidden = model.norm(x)[active]
    wanted = target.transpose(1, 2)[active]
    first, end = prompts.semantic_begin, prompts.im_end
    rows = torch.cat([model.embeddings.weight[first : first + c.codebook_size], model.embeddings.weight[end : end + 1]])
    logits = hidden @ rows.T
    frame = (wanted[:, 0] < c.codebook_size) & (torch.rand(len(wanted)) < fast_share)
    fast = model.fast_logits(hidden[frame], wanted[frame])
    return {
        "main": F.cross_entropy(logits, wanted[:, 0]),
        "residual": F.cross_entropy(fast.flatten(0, 1), wanted[frame][:, 1:].flatten()),
        "guided": torch.stack([-taken.clamp_min(1e-4).log().mean() for taken in attended]).mean(),
        "accuracy": (logits.argmax(1) == wanted[:, 0]).float().mean(),
        "seen": attended[-1].mean(),
    }


@torch.no_grad()
def held_back_losses(model: DualAR, examples: Examples) -> dict[str, float]:
    """Means over all examples."""
    examples.epoch = 0
    examples.refill()
    sums: dict[str, float] = {}
    count = 0
    while examples.queue:
        drawn = examples.draw()
        size = int(drawn[1].sum())
        for name, term in losses(model, examples.prompts, drawn, fast_share=1).items():
            sums[name] = sums.get(name, 0.0) + float(term) * size
        count += size
    return {name: round(total / count, 3) for name, total in sums.items()}


def optimizers(model: DualAR, rate: float) -> list[torch.optim.Optimizer]:
    tables = {id(p) for name, p in model.named_parameters() if "embeddings" in name or name == "fast_output.weight"}
    matrices = [p for p in model.parameters() if p.ndim == 2 and id(p) not in tables]
    rest = [p for p in model.parameters() if p.ndim != 2 or id(p) in tables]
    return [
        Muon(matrices, lr=rate, weight_decay=0.01),
        torch.optim.AdamW(rest, lr=rate / 5, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=75)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="processes that share each batch; --minutes is of one")
    parser.add_argument("--rank", type=int, default=0, help="which of them this is; 0 writes the checkpoints")
    parser.add_argument("--meet", type=Path, help="a file, not there yet, where the workers find each other")
    options = parser.parse_args()
    if options.workers > 1:
        meet(options.meet, options.rank, options.workers)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    quantization = Quantization.load(options.out / "quantizer.pt")
    sizes = CodecConfig().codebook_sizes
    tokenizer_json = build_tokenizer(sizes[0])
    (options.out / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    prompts = Prompts(tokenizer_json)
    config = DualARConfig(vocab_size=-(-prompts.vocab_size // 32) * 32, semantic_begin_id=prompts.semantic_begin,
                          codebook_size=sizes[0], num_codebooks=len(sizes))  # fmt: skip
    (options.out / "lm.json").write_text(json.dumps(config.as_dict()))
    model = DualAR(config)
    state = SharedRun(
        options.out / "lm.pt", {"": model}, minutes=options.minutes, optimizers=optimizers(model, options.rate)
    )
    held_back = Examples(prompts, codebook_size=sizes[0], noise=0)
    examples = Examples(prompts, codebook_size=sizes[0], noise=NOISE, epoch=state.step + 1000000 * options.rank,
                        columns=COLUMNS // options.workers)  # fmt: skip
    read: set[Path] = set()
    while state.going_on():
        if not examples.queue:
            for path in shard_paths(options.data):
                if path not in read:
                    spoken = read_spoken(path, quantization)
                    if not read:
                        held_back.add(spoken[:HELD_BACK])
                        spoken = spoken[HELD_BACK:]
                    examples.add(spoken)
                    read.add(path)
            print(f"epoch of {len(examples.spoken)} utterances, {len(read)} shards", flush=True)
        if state.step % CHECK_STEPS == 0 and state.step > 0 and state.leads:
            print(f"step {state.step}: held back {held_back_losses(model, held_back)}, {time.ctime()}", flush=True)
        terms = losses(model, prompts, examples.draw(), fast_share=FAST_SHARE)
        loss = terms["main"] + RESIDUAL_WEIGHT * terms["residual"] + GUIDE_WEIGHT * terms["guided"]
        state.update(loss, {name: term.item() for name, term in terms.items()})


if __name__ == "__main__":
    main()
