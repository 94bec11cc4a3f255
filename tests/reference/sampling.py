"""The three families of samplers as plain loops over one row: the oracle for `dualar.sampling`.

Owns nothing clever: each function is its definition, written out, in float64. Also the noise, from the published
description of Philox4x64-10 in Python integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.float64]
INF = math.inf


def softmax(row: Row) -> Row:
    e = np.exp(row - row.max())
    return np.asarray(e / e.sum())


def one_hot(i: int, n: int) -> Row:
    row = np.zeros(n)
    row[i] = 1.0
    return row


def ranking(row: Row) -> list[int]:
    """Ids in descending order; of equal ones the lower id first."""
    return sorted(range(len(row)), key=lambda i: (-row[i], i))


def only(row: Row, ids: Iterable[int]) -> Row:
    kept = np.full(len(row), -INF)
    for i in ids:
        kept[i] = row[i]
    return kept


def effective_top_k(top_k: int, n: int) -> int:
    return top_k if 0 < top_k <= n else n


# ------------------------------------------------------------------------------------------------ what may be drawn


def fish_kept(row: Row, top_p: float, top_k: int) -> list[int]:
    kept: list[int] = []
    mass, probability = 0.0, softmax(row)
    for rank, i in enumerate(ranking(row)):
        mass += probability[i]  # over the whole row, its own included
        if rank == 0 or (rank < effective_top_k(top_k, len(row)) and (mass <= top_p or top_p >= 1)):
            kept.append(i)
    return kept


def penalised(row: Row, history: Iterable[int], penalty: float) -> Row:
    out = row.copy()
    for i in {i for i in history if i >= 0}:
        out[i] = row[i] / penalty if row[i] > 0 else row[i] * penalty
    return out


def top_k_with_ties(row: Row, top_k: int) -> list[int]:
    kth = row[ranking(row)[effective_top_k(top_k, len(row)) - 1]]
    return [i for i in range(len(row)) if row[i] >= kth]


def nucleus(order: Sequence[int], probability: Row, top_p: float, top_k: int) -> list[int]:
    """Ids in the given descending order while the mass before them is under top_p and fewer than top_k are taken."""
    kept: list[int] = []
    before = 0.0
    for i in order:
        if not kept or ((before < top_p or top_p >= 1) and len(kept) < effective_top_k(top_k, len(order))):
            kept.append(i)
        before += probability[i]
    return kept


# --------------------------------------------------------------------------------------------------- distributions


def fish(row: Row, temperature: float, top_p: float, top_k: int) -> Row:
    if temperature == 0:
        return one_hot(ranking(row)[0], len(row))
    return softmax(only(row, fish_kept(row, top_p, top_k)) / temperature)


def hf(row: Row, temperature: float, top_p: float, top_k: int, penalty: float, history: Iterable[int]) -> Row:
    row = penalised(row, history, penalty)
    if temperature == 0:
        return one_hot(ranking(row)[0], len(row))
    tempered = only((row - row.max()) / temperature, top_k_with_ties(row, top_k))
    return softmax(only(tempered, nucleus(ranking(row), softmax(tempered), top_p, 0)))


def cosyvoice(row: Row, temperature: float, top_p: float, top_k: int) -> Row:
    if temperature == 0:
        return one_hot(ranking(row)[0], len(row))
    tempered = (row - row.max()) / temperature
    return softmax(only(tempered, nucleus(ranking(row), softmax(tempered), top_p, top_k)))


def cosyvoice_redraw(row: Row, temperature: float, drawn: int) -> Row:
    return softmax(only(row / temperature, [i for i in range(len(row)) if i != drawn]))


# ----------------------------------------------------------------------------------------------------------- draws


def draw(distribution: Row, noise: Row) -> int:
    """Gumbel-max."""
    best, winner = -INF, -1
    for i, (p, u) in enumerate(zip(distribution, noise, strict=True)):
        if p > 0 and math.log(p) - math.log(-math.log(u)) > best:
            best, winner = math.log(p) - math.log(-math.log(u)), i
    return winner


def last(history: Sequence[int], window: int) -> list[int]:
    return [i for i in history[max(len(history) - window, 0) :] if i >= 0]


def fish_token(
    row: Row,
    history: Sequence[int],
    noise: Row,
    redraw_noise: Row,
    *,
    temperature: float,
    top_p: float,
    top_k: int,
    ras_window: int,
    ras_temperature: float,
    ras_top_p: float,
) -> int:
    token = draw(fish(row, temperature, top_p, top_k), noise)
    if temperature > 0 and token in last(history, ras_window):
        token = draw(fish(row, ras_temperature, ras_top_p, top_k), redraw_noise)
    return token


def cosyvoice_token(
    row: Row,
    history: Sequence[int],
    noise: Row,
    redraw_noise: Row,
    *,
    temperature: float,
    top_p: float,
    top_k: int,
    window: int,
    repeat_threshold: float,
) -> int:
    token = draw(cosyvoice(row, temperature, top_p, top_k), noise)
    repeats = last(history, window).count(token)
    others = [i for i in range(len(row)) if i != token and row[i] > -INF]
    if temperature > 0 and repeat_threshold > 0 and repeats >= repeat_threshold and others:
        token = draw(cosyvoice_redraw(row, temperature, token), redraw_noise)
    return token


# ----------------------------------------------------------------------------------------------------------- noise

_WORD = 2**64


def philox(key: tuple[int, int], counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Philox4x64-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011, section 3.3."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * c0, _WORD)
        high1, low1 = divmod(0xCA5A826395121157 * c2, _WORD)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) % _WORD, (k1 + 0xBB67AE8584CAA73B) % _WORD
    return c0, c1, c2, c3


def uniform(seed: int, step: int, stream: int, i: int) -> float:
    word = philox((seed, 0), (1 + i // 4, step, stream, 0))[i % 4]
    return (word // 2**12 + 0.5) / 2**52
