"""Train the letter-to-sound model for words that the lexicon lacks: letters -> phonemes, learnt from the lexicon.

    python -m training.train_letters --lexicon python/dualar/resources/english.lexicon \
        --out python/dualar/resources/english-letters.npz --minutes 4

A bidirectional GRU over the letters, each of which makes two outputs, trained with CTC (Graves et al., 2006): no
alignment of letters and phonemes is needed. `dualar.text.english.letters` runs it in numpy. One word in 50 is
held back.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.text import CONSONANTS, STRESS, VOWELS

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
SOUNDS = [
    *CONSONANTS,
    *VOWELS,
    *(mark + vowel for mark in STRESS for vowel in VOWELS),
]  # 0 in the output is CTC's blank
BATCH = 192
WIDTH, HIDDEN, LAYERS = 32, 128, 2


def split(phonemes: str) -> list[str]:
    """Phonemes, each vowel with its stress."""
    return re.findall(rf"[{STRESS}]?.", phonemes)


class LettersModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS) + 1, WIDTH, padding_idx=0)
        self.gru = nn.GRU(WIDTH, HIDDEN, LAYERS, bidirectional=True, batch_first=True)
        self.output = nn.Linear(2 * HIDDEN, 2 * (len(SOUNDS) + 1))

    def forward(self, letters: Tensor, lengths: Tensor) -> Tensor:
        """letters [B, T] (0 is none) -> log-probabilities [B, 2 T, sounds + 1]."""
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(letters), lengths, batch_first=True, enforce_sorted=False
        )
        hidden, _ = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        return self.output(hidden).view(len(letters), -1, len(SOUNDS) + 1).log_softmax(-1)


def read_lexicon(path: Path) -> list[tuple[list[int], list[int]]]:
    """Letters and sounds of the words that the model may see, in an order fixed by a seed."""
    letter = {c: i + 1 for i, c in enumerate(LETTERS)}
    sound = {s: i + 1 for i, s in enumerate(SOUNDS)}
    found = []
    for line in path.read_text("utf-8").splitlines():
        word, phonemes = line.split("\t")[:2]
        word = word.lower()
        parts = split(phonemes)
        fits = len(parts) + sum(a == b for a, b in pairwise(parts)) <= 2 * len(word)
        if set(word) <= letter.keys() and fits and len(word) >= 2 and all(part in sound for part in parts):
            found.append(([letter[c] for c in word], [sound[part] for part in parts]))
    random.Random(0).shuffle(found)
    return found


def batch_of(words: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    lengths = torch.tensor([len(letters) for letters, _ in words])
    letters = torch.zeros(len(words), int(lengths.max()), dtype=torch.long)
    for row, (word, _) in enumerate(words):
        letters[row, : len(word)] = torch.tensor(word)
    return (
        letters,
        lengths,
        torch.tensor([s for _, sounds in words for s in sounds]),
        torch.tensor([len(s) for _, s in words]),
    )


def decode(scores: Tensor, length: int) -> list[int]:
    """The likeliest path without its blanks and repetitions."""
    path = scores[: 2 * length].argmax(-1).tolist()
    return [s for s, before in zip(path, [0, *path], strict=False) if s and s != before]


def distance(a: list[int], b: list[int]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


@torch.no_grad()
def errors(model: LettersModel, words: list[tuple[list[int], list[int]]]) -> tuple[float, float]:
    """Shares of phonemes and of words that are wrong."""
    wrong = total = missed = 0
    for start in range(0, len(words), BATCH):
        part = words[start : start + BATCH]
        letters, lengths, _, _ = batch_of(part)
        scores = model(letters, lengths)
        for row, (word, sounds) in enumerate(part):
            off = distance(sounds, decode(scores[row], len(word)))
            wrong, total, missed = wrong + off, total + len(sounds), missed + (off > 0)
    return wrong / total, missed / len(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lexicon", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    words = read_lexicon(options.lexicon)
    held_back, words = words[: len(words) // 50], words[len(words) // 50 :]
    model = LettersModel()
    print(f"{len(words)} words, {sum(p.numel() for p in model.parameters())} parameters")
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    started, step, rng = time.process_time(), 0, random.Random(1)
    while (share := (time.process_time() - started) / (60 * options.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1, (step + 1) / 100) * (1 - share)
        letters, lengths, sounds, counts = batch_of(rng.sample(words, BATCH))
        scores = model(letters, lengths).transpose(0, 1)
        loss = F.ctc_loss(scores, sounds, 2 * lengths, counts, zero_infinity=True)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 500 == 0:
            shares = errors(model, held_back[:1000])
            print(f"step {step}, {share * options.minutes:.1f} min: loss {float(loss):.3f}, wrong {shares}", flush=True)
    print("held back: wrong phonemes and words", errors(model, held_back))
    arrays = {name: value.numpy().astype(np.float16) for name, value in model.state_dict().items()}
    np.savez_compressed(options.out, sounds=np.array(SOUNDS), **arrays)


if __name__ == "__main__":
    main()
