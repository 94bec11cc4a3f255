"""Train the dual-AR on the codes of `train_codec.py`: text -> codes, with teacher forcing.

    python -m training.train_lm --data DIR --out RUN --minutes 60

Reads RUN/codes.pt, writes RUN/lm.pt and goes on from it. Prompts are the engine's own (`dualar.families.s2_prompt`),
and so is the tokenizer's reader. Matrices are trained with Muon, the rest with AdamW.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import torch
from dualar import Tokenizer
from dualar.families import s2_prompt
from torch import Tensor
from torch.nn import functional as F

from training.data import Corpus
from training.domain import written_forms
from training.dual_ar import DualAR, DualARConfig
from training.muon import Muon
from training.progress import Run
from training.text import build_tokenizer, same_word

COLUMNS = 1600  # in a batch, about
RESIDUAL_WEIGHT = 0.4  # the main token decides what is said; beyond the second codebook it is much noise
GUIDED_LAYERS = (2, 3)  # of the Slow-AR; the first head of each is to look at the word that is spoken
GUIDE_WEIGHT = 0.3
FAST_SHARE = 0.25  # of the frames in a batch that the Fast-AR is trained on: it learns faster than the Slow-AR
NOISE = (
    0.08  # of the codes that go in are random ones: a bad draw later is nothing new, and learning by heart is harder
)
HELD_BACK = 100  # utterances at the end of the corpus that are not trained on, but looked at every CHECK_STEPS
CHECK_STEPS = 250


class Examples:
    """Batches of prompts with their codes, of like lengths, in an order fixed by the seed."""

    def __init__(
        self, texts: list[str], codes: list[Tensor], spoken: list[list[int]], config: DualARConfig, tokenizer_json: str,
        *, noise: float = NOISE,
    ) -> None:  # fmt: skip
        """spoken: the unit of the text at each frame, as `align.py` gives it. noise: see NOISE."""
        self.noise = noise
        self.texts, self.codes, self.spoken, self.config = texts, [c.long() for c in codes], spoken, config
        self.tokenizer = Tokenizer(tokenizer_json)
        self.table = torch.tensor(same_word(tokenizer_json))
        self.epoch = 0
        self.queue: list[list[int]] = []

    def prompt(self, text: str) -> Tensor:
        c = self.config
        columns = torch.from_numpy(s2_prompt.build_prompt(
            text, tokenizer=self.tokenizer, num_codebooks=c.num_codebooks, codebook_size=c.codebook_size,
            semantic_begin_id=c.semantic_begin_id,
        )).long()  # fmt: skip
        columns[0] = self.table[columns[0]]
        return columns

    def _unit_positions(self, text: str) -> list[list[int]]:
        """The prompt's positions of each word and comma, and last of what ends the text."""
        pieces = (s2_prompt.SYSTEM_OPEN, s2_prompt.SYSTEM_PLAIN, s2_prompt.CLOSE, s2_prompt.USER_OPEN)
        first = sum(len(self.tokenizer.encode_template(piece)) for piece in pieces)
        found: list[list[int]] = []
        for position, token in enumerate(self.tokenizer.encode_text(text), first):
            shown = self.tokenizer.decode([token])
            if not found or shown[0] in " ,.":
                found.append([])
            found[-1].append(position)
        end = max(map(max, found)) + 1
        return [*found[:-1], [*found[-1], end]] if text.endswith(".") else [*found, [end]]

    def _refill(self) -> None:
        self.rng = random.Random(self.epoch)
        self.torch_rng = torch.Generator().manual_seed(self.epoch)
        self.epoch += 1
        order = sorted(range(len(self.texts)), key=lambda i: self.codes[i].shape[1] + self.rng.uniform(0, 12))
        batch: list[int] = []
        for i in order:
            if batch and (len(batch) + 1) * (self.codes[i].shape[1] + 32) > COLUMNS:
                self.queue.append(batch)
                batch = []
            batch.append(i)
        self.queue.append(batch)
        self.rng.shuffle(self.queue)

    def draw(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """columns [B, 1 + N, T]; which [B, T] position's hidden makes a frame or the end; what it makes [B, N, T],
        where row 0 is the semantic code, or codebook_size for the end; the positions [B, T, T] of the text that it
        should look at."""
        if not self.queue:
            self._refill()
        c = self.config
        made = []
        for i in self.queue.pop():
            text, codes = written_forms(self.texts[i], self.rng), self.codes[i]
            head = self.prompt(text)
            noise = torch.rand(codes.shape, generator=self.torch_rng) < self.noise
            other = torch.randint(0, c.codebook_size, codes.shape, generator=self.torch_rng)
            seen = torch.where(noise, other, codes)
            columns = torch.cat([head, torch.cat([seen[:1] + c.semantic_begin_id, seen])], 1)
            made.append((columns, codes, head.shape[1] - 1, self._unit_positions(text), self.spoken[i]))
        length = max(columns.shape[1] for columns, *_ in made)
        batch = torch.zeros(len(made), 1 + c.num_codebooks, length, dtype=torch.long)
        active = torch.zeros(len(made), length, dtype=torch.bool)
        target = torch.zeros(len(made), c.num_codebooks, length, dtype=torch.long)
        guide = torch.zeros(len(made), length, length)
        for row, (columns, codes, first, positions, spoken) in enumerate(made):
            batch[row, :, : columns.shape[1]] = columns
            active[row, first : columns.shape[1]] = True
            target[row, :, first : columns.shape[1] - 1] = codes
            target[row, 0, columns.shape[1] - 1] = c.codebook_size
            for frame in range(codes.shape[1] + 1):
                unit = spoken[frame] if frame < len(spoken) else -1
                guide[row, first + frame, positions[unit]] = 1
        return batch, active, target, guide


def losses(
    model: DualAR, batch: Tensor, active: Tensor, target: Tensor, guide: Tensor, im_end: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Means in nepers: the cross-entropy of the main token, of a residual code, what the guided heads leave of their
    attention to other positions than `guide`'s; and the main token's accuracy."""
    c = model.config
    x, attended = model.embed(batch), []
    for i, layer in enumerate(model.layers):
        if i in GUIDED_LAYERS:
            weights = layer.attention.weights(layer.attention_norm(x), 0)
            attended.append(-(weights * guide).sum(-1)[active].clamp_min(1e-4).log().mean())
        x = layer(x)
    hidden = model.norm(x)[active]
    wanted = target.transpose(1, 2)[active]
    rows = torch.cat([model.embeddings.weight[c.semantic_begin_id : c.semantic_begin_id + c.codebook_size],
                      model.embeddings.weight[im_end : im_end + 1]])  # fmt: skip
    logits = hidden @ rows.T
    main = F.cross_entropy(logits, wanted[:, 0])
    frame = (wanted[:, 0] < c.codebook_size) & (torch.rand(len(wanted)) < FAST_SHARE)
    fast = model.fast_logits(hidden[frame], wanted[frame])
    residual = F.cross_entropy(fast.flatten(0, 1), wanted[frame][:, 1:].flatten())
    return main, residual, torch.stack(attended).mean(), (logits.argmax(1) == wanted[:, 0]).float().mean()


@torch.no_grad()
def held_back_loss(model: DualAR, examples: Examples, im_end: int) -> float:
    """The main token's mean cross-entropy on all examples, in nepers."""
    examples.epoch = 0
    examples._refill()
    total, count = 0.0, 0
    while examples.queue:
        batch = examples.draw()
        frames = int(batch[1].sum())
        total += float(losses(model, *batch, im_end)[0]) * frames
        count += frames
    return total / count


def optimizers(model: DualAR, rate: float) -> list[torch.optim.Optimizer]:
    tables = {id(p) for n, p in model.named_parameters() if "embeddings" in n or n == "fast_output.weight"}
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
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    corpus = Corpus(options.data)
    codes = torch.load(options.out / "codes.pt", weights_only=True)
    num_codebooks, codebook_size = codes[0].shape[0], 512
    tokenizer_json = build_tokenizer(codebook_size)
    (options.out / "tokenizer.json").write_text(tokenizer_json)
    tokenizer = Tokenizer(tokenizer_json)
    config = DualARConfig(vocab_size=-(-tokenizer.vocab_size // 32) * 32, semantic_begin_id=tokenizer.semantic_begin_id,
                          codebook_size=codebook_size, num_codebooks=num_codebooks)  # fmt: skip
    (options.out / "lm.json").write_text(json.dumps(config.as_dict()))
    model = DualAR(config)
    spoken = json.loads((options.data / "align.json").read_text())
    count = min(len(spoken), len(codes)) - HELD_BACK
    examples, held_back = (
        Examples(corpus.texts[part], codes[part], spoken[part], config, tokenizer_json, noise=noise)
        for part, noise in ((slice(0, count), NOISE), (slice(count, count + HELD_BACK), 0.0))
    )
    print(f"{sum(p.numel() for p in model.fast_layers.parameters())} parameters in the Fast-AR's layers, "
          f"{sum(p.numel() for p in model.layers.parameters())} in the Slow-AR's, {config}")  # fmt: skip
    state = Run(options.out / "lm.pt", {"": model}, minutes=options.minutes, optimizers=optimizers(model, options.rate))
    examples.epoch = state.step  # a run that goes on sees its examples in a new order
    while state.going_on():
        if state.step % CHECK_STEPS == 0 and state.step > 0:
            print(
                f"step {state.step}: held back {held_back_loss(model, held_back, tokenizer.im_end_id):.4f}", flush=True
            )
        main_loss, residual, guided, accuracy = losses(model, *examples.draw(), tokenizer.im_end_id)
        named = {"main": main_loss, "residual": residual, "guided": guided, "accuracy": accuracy}
        terms = {name: term.item() for name, term in named.items()}
        state.update(main_loss + RESIDUAL_WEIGHT * residual + GUIDE_WEIGHT * guided, terms)


if __name__ == "__main__":
    main()
