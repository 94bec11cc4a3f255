"""From rows of logits, float32 [B, V], to tokens: three published samplers.

Owns the stages (pure numpy functions) and the samplers `fish`, `hf` and `cosyvoice`, which are chains of stages; leaves
option checking to `dualar.config`, when to draw to `dualar.generation`, and the noise to `noise.py`. No function here
has state, repeats a draw until it succeeds, or looks at other rows: a row's token is the same alone and in any batch.

A draw is Gumbel-max: argmax(logits / T + g), g = -log(-log u), u the row's counter-based noise for that id. A chain
therefore only says which ids survive and with what score; the same answer serves `probabilities` and the draw.

Defined for every input: temperature 0 is argmax; equal logits rank by lower id; top_k <= 0 or > V is V; +inf entries
share a row's whole mass; NaN, or a row that allows nothing, is a `LogitsError` that names the row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualar.config import CosyVoiceSampling, FishSampling, HFSampling, SamplingConfig
from dualar.sampling.noise import REDRAW_STREAM, Counts, Float64, noise, to_unit, uniform, words

__all__ = ["LogitsError", "SamplingConfig", "probabilities", "ras_sample", "sample", "uniform"]

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Ids = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.integer[Any]]
Reals = float | npt.NDArray[np.floating[Any]] | npt.NDArray[np.integer[Any]]

_HEAD = 256  # entries of a row that `head` sorts first: they nearly always hold the mass of top_p


class LogitsError(ValueError):
    """A row of logits holds NaN or allows no id. The text names the row."""


class Candidates(NamedTuple):
    """What a chain leaves of each row: `ids` [B, K], and `scores` float64 [B, K] = logits / T, -inf where dropped.

    Scores are relative to the row's highest logit. At least one of a row is finite.
    """

    ids: Ids
    scores: Float64


# --------------------------------------------------------------------------------------------------------- stages


def checked(logits: npt.ArrayLike, *, blocked: npt.ArrayLike | None = None) -> Float32:
    """Logits as float32 [B, V], `blocked` (bool [B, V]) as -inf, and a row with +inf as 0 there and -inf elsewhere.

    LogitsError for a row with NaN or with nothing allowed.
    """
    x = np.asarray(logits)
    if x.ndim != 2 or x.size == 0 or x.dtype.kind != "f":
        raise ValueError(f"[sampling] expected logits float32 [B >= 1, V >= 1], got {x.dtype} {list(x.shape)}")
    x = np.ascontiguousarray(x, np.float32)
    if blocked is not None:
        stop = np.asarray(blocked)
        if stop.shape != x.shape or stop.dtype != np.bool_:
            raise ValueError(f"[sampling] expected blocked bool {list(x.shape)}, got {stop.dtype} {list(stop.shape)}")
        x = np.where(stop & ~np.isnan(x), np.float32(-np.inf), x)  # NaN is a fault upstream: blocking must not hide it
    top = x.max(axis=1)
    if np.isfinite(top).all():
        return x
    if (bad := np.flatnonzero(np.isnan(top))).size:
        raise LogitsError(f"[sampling] expected logits without NaN, got NaN in row {bad[0]}")
    if (bad := np.flatnonzero(top == -np.inf)).size:
        raise LogitsError(f"[sampling] expected an id that is allowed, got none in row {bad[0]}")
    wins = np.where(x == np.inf, np.float32(0), np.float32(-np.inf))
    return np.where((top == np.inf)[:, None], wins, x)


def centred(x: Float32) -> Float64:
    """Each row minus its highest entry, float64: no scale of logits or temperature can overflow upwards."""
    y = x.astype(np.float64)
    y -= y.max(axis=1, keepdims=True)
    return y


def tempered(x: Float64, temperature: Reals) -> Float64:
    """Centred rows divided by the temperature (scalar or [B, 1]); at 0 the first highest entry is 0, others -inf."""
    if isinstance(temperature, float) and temperature == 1:
        return x
    zero = np.equal(temperature, 0)
    if not zero.any():
        return np.asarray(x / temperature)
    best = np.arange(x.shape[1]) == x.argmax(axis=1)[:, None]
    return np.where(zero, np.where(best, 0.0, -np.inf), x / np.where(zero, 1.0, temperature))


def survivors(x: Float32 | Float64, k: int) -> Ids:
    """Ids of each row's entries that are at least its k-th highest one, by ascending id: intp [B, K].

    Entries of -inf never survive. -1 fills up a row that has fewer than the K of the longest.
    """
    B, V = x.shape
    alive: Bools = x > -np.inf
    if k < V:
        kth: Any = np.partition(x, V - k, axis=1)[:, V - k, None]
        alive &= x >= kth
    flat = np.flatnonzero(alive)
    if B == 1:
        return flat[None]
    rows, ids = np.divmod(flat, V)
    counts = np.bincount(rows, minlength=B)
    out = np.full((B, int(counts.max())), -1, np.intp)
    out[rows, np.arange(len(ids)) - (np.cumsum(counts) - counts)[rows]] = ids
    return out


def ranked(x: Float32 | Float64, ids: Ids) -> Ids:
    """`survivors` in descending order of their entries, equal ones by lower id, -1 at the end."""
    return np.asarray(picked(ids, np.argsort(-picked(x, ids), axis=1, kind="stable")))


def head(x: Float32 | Float64, y: Float64, k: int, top_p: Reals) -> tuple[Ids, Float64, Float64]:
    """Ids, entries of `y` and mass over the whole row of `x`'s k highest, in descending order: [B, K] each.

    K covers all ties with the k-th one. Where the first `_HEAD` entries hold more mass than top_p, no filter keeps any
    other: those are left out, because sorting a whole row costs more than all the rest of a draw.
    """
    total = np.exp(y).sum(axis=1, keepdims=True)
    for count in (min(k, _HEAD), k):
        ids = ranked(x, survivors(x, count))
        kept = picked(y, ids)
        mass = np.exp(kept) / total
        if count == k or (mass.sum(axis=1, keepdims=True) > np.add(top_p, 1e-9)).all():
            break
    return ids, kept, mass


def picked(x: npt.NDArray[Any], ids: Ids) -> npt.NDArray[Any]:
    """x[row, id] for ids [B, K]; -inf where the id is -1."""
    if len(x) == 1:  # nothing to fill up, and half the time
        return np.asarray(x[0][ids])
    out = x.reshape(-1)[ids + np.arange(len(x))[:, None] * x.shape[1]]
    if x.dtype.kind == "f":
        out[ids < 0] = -np.inf
    return np.asarray(out)


def fish_keep(mass: Float64, top_p: Reals, top_k: Integers | int) -> Bools:
    """mass [B, K] in descending order -> ranks under top_k whose cumulative mass, own included, is at most top_p."""
    return _first_and(np.cumsum(mass, axis=1) <= top_p, top_p, top_k)


def nucleus_keep(mass: Float64, top_p: Reals, top_k: Integers | int) -> Bools:
    """mass [B, K] in descending order -> ranks under top_k with less than top_p of mass *before* them."""
    keep = np.empty(mass.shape, np.bool_)
    np.less(np.cumsum(mass[:, :-1], axis=1), top_p, out=keep[:, 1:])
    return _first_and(keep, top_p, top_k)


def _first_and(keep: Bools, top_p: Reals, top_k: Integers | int) -> Bools:
    keep |= top_p >= 1  # off, however the masses round
    keep &= np.arange(keep.shape[1]) < top_k
    keep[:, 0] = True
    return keep


def penalised(x: Float64, history: Integers, penalty: float) -> Float64:
    """Logits [B, V] of ids in `history` [B, W] (-1: none): divided by the penalty if > 0, else multiplied; once each.

    Keskar et al., "CTRL", 2019, section 4.1, in the signed form that the transformers library gave it.
    """
    flat = (history + np.arange(len(x))[:, None] * x.shape[1])[history >= 0]
    old = x.reshape(-1)[flat]
    y: Float64 = x.copy()
    y.reshape(-1)[flat] = np.where(old > 0, old / penalty, old * penalty)
    return y


# --------------------------------------------------------------------------------------------------------- chains


def fish_candidates(x: Float32, temperature: float, top_p: float, top_k: int) -> Candidates:
    """S2's chain on checked rows: both filters on the untempered softmax, then the temperature."""
    if temperature == 0:
        return greedy(x)
    k, y = _top_k(top_k, x.shape[1]), centred(x)
    if top_p >= 1 and k == x.shape[1]:
        ids = survivors(x, k)
        return Candidates(ids, picked(y, ids) / temperature)
    ids, kept, mass = head(x, y, k, top_p)
    return Candidates(ids, tempered(np.where(fish_keep(mass, top_p, k), kept, -np.inf), temperature))


def hf_candidates(
    x: Float32, temperature: float, top_p: float, top_k: int, penalty: float, history: Integers | None
) -> Candidates:
    """The transformers library's chain on checked rows: penalty, temperature, top-k with ties, top-p on the rest."""
    y = x.astype(np.float64)
    if history is not None and penalty != 1:
        y = penalised(y, history, penalty)
    if temperature == 0:
        return greedy(y)
    k, x64 = _top_k(top_k, x.shape[1]), y  # ranked before it is centred, which may round two entries to one
    y = (y - y.max(axis=1, keepdims=True)) / temperature
    if top_p >= 1:
        ids = survivors(x64, k)
        return Candidates(ids, picked(y, ids))
    if k == x.shape[1]:
        ids, scores, mass = head(x64, y, k, top_p)
    else:
        ids = ranked(x64, survivors(x64, k))
        scores = picked(y, ids)
        mass = np.exp(scores)
        mass /= np.cumsum(mass, axis=1)[:, -1:]  # in rank order, so that what fills up a shorter row adds nothing
    return Candidates(ids, np.where(nucleus_keep(mass, top_p, mass.shape[1]), scores, -np.inf))


def cosyvoice_candidates(x: Float32, temperature: Reals, top_p: Reals, top_k: Integers | int) -> Candidates:
    """CosyVoice's nucleus on checked rows, its first draw; each option a scalar or [B, 1]."""
    V = x.shape[1]
    limit = _top_k(top_k, V) if isinstance(top_k, int) else np.where((top_k <= 0) | (top_k > V), V, top_k)
    ids, kept, mass = head(x, tempered(centred(x), temperature), int(np.max(limit)), top_p)
    return Candidates(ids, np.where(nucleus_keep(mass, top_p, limit), kept, -np.inf))


def greedy(x: Float32 | Float64) -> Candidates:
    """The lowest id of each row's highest entry."""
    return Candidates(x.argmax(axis=1)[:, None], np.zeros((len(x), 1)))


def probabilities(logits: npt.ArrayLike, config: SamplingConfig, history: npt.ArrayLike | None = None) -> Float64:
    """The distribution of a sampler's first draw: logits float32 [B, V] -> float64 [B, V], each row summing to 1.

    history: int [B, W], -1 where a row has fewer; the hf sampler penalises all of it. It does not change the first
    draw of the other two. ValueError for arrays of another kind, LogitsError for NaN or a row without candidates.
    """
    _expect_config(config)
    with np.errstate(all="ignore"):
        x = checked(logits)
        past = None if history is None else _history(history, len(x), x.shape[1])
        ids, scores = _first_candidates(x, config, past)
        mass = np.exp(scores - scores.max(axis=1, keepdims=True))
        mass /= mass.sum(axis=1, keepdims=True)
        rows, ranks = np.nonzero(scores > -np.inf)
        out = np.zeros(x.shape)
        out[rows, ids[rows, ranks]] = mass[rows, ranks]
        return out


def sample(
    logits: npt.ArrayLike,
    config: SamplingConfig,
    *,
    seed: Counts,
    step: Counts,
    stream: int = 0,
    history: npt.ArrayLike | None = None,
    blocked: npt.ArrayLike | None = None,
) -> Int32:
    """One id for each row, with the sampler's own rule against repeats: logits float32 [B, V] -> int32 [B].

    seed, step: int or int [B]. stream: the codebook's number, 0 being the main one. history int [B, W], -1 where a
    row has fewer: earlier draws, the newest last (main tokens for stream 0, this frame's own residual codes for the
    others); the config says how many of the last ones count. blocked bool [B, V]: ids that no draw may give. ValueError
    for arrays of another kind, LogitsError for NaN or a row without candidates.
    """
    _expect_config(config)
    if stream > 0:
        config = config.residual
    with np.errstate(all="ignore"):
        x = checked(logits, blocked=blocked)
        seeds, steps = words("seed", seed, len(x)), words("step", step, len(x))
        past = None if history is None else _history(history, len(x), x.shape[1], config.history_windows[stream > 0])
        tokens = _draw(_first_candidates(x, config, past), x.shape[1], seeds, steps, stream)
        if past is None or config.temperature == 0 or isinstance(config, HFSampling):
            return tokens.astype(np.int32)
        repeats = (past == tokens[:, None]).sum(axis=1)
        again = np.flatnonzero(repeats >= (config.repeat_threshold if isinstance(config, CosyVoiceSampling) else 1))
        if again.size == 0:
            return tokens.astype(np.int32)
        if isinstance(config, FishSampling):
            second = fish_candidates(x[again], config.ras_temperature, config.ras_top_p, config.top_k)
            tokens[again] = _draw(second, x.shape[1], seeds[again], steps[again], REDRAW_STREAM)
        else:
            tokens[again] = _draw_other(x[again], tokens[again], config.temperature, seeds[again], steps[again])
        return tokens.astype(np.int32)


def ras_sample(
    logits: npt.ArrayLike,
    *,
    seed: Counts,
    step: Counts,
    history: npt.ArrayLike,
    temperature: Reals = 1.0,
    top_p: Reals = 0.8,
    top_k: Counts = 25,
    window: Counts = 10,
    repeat_threshold: Reals = 1.0,
    blocked: npt.ArrayLike | None = None,
) -> Int32:
    """CosyVoice's repetition-aware sampling with options for each row: logits float32 [B, V] -> int32 [B].

    seed, step, temperature, top_p, top_k, window, repeat_threshold: scalar or [B]. history int [B, W], -1 where a row
    has fewer, the newest last: its last `window` columns count. blocked bool [B, V] or None is applied first, then
    the temperature. The first draw is from the nucleus: ids in descending probability while the mass before them is
    under top_p and fewer than top_k are taken. A drawn id that occurs at least `repeat_threshold` times is masked and
    the row drawn again from its whole distribution; a row that has no other candidate keeps it. Temperature 0 is
    greedy and never redraws; repeat_threshold <= 0 turns the redraw off.
    ValueError for arrays of another kind, LogitsError for NaN or a row without candidates.
    """
    with np.errstate(all="ignore"):
        x = checked(logits, blocked=blocked)
        B, V = x.shape
        seeds, steps = words("seed", seed, B), words("step", step, B)
        t, p = _column("temperature", temperature, B, 0.0), _column("top_p", top_p, B, 0.0)
        k = _column("top_k", top_k, B, -np.inf)
        last, threshold = _column("window", window, B, 0.0), _column("repeat_threshold", repeat_threshold, B, -np.inf)
        past = _history(history, B, V)
        past = np.full((B, 1), -1) if past is None else past
        tokens = _draw(cosyvoice_candidates(x, t, p, k.astype(np.int64)), V, seeds, steps, 0)
        counted = np.arange(past.shape[1])[::-1] < last
        repeats = ((past == tokens[:, None]) & counted).sum(axis=1, keepdims=True)
        again = np.flatnonzero((repeats >= threshold) & (threshold > 0) & (t > 0))
        if again.size:
            temperatures = np.broadcast_to(t, (B, 1))[again]
            tokens[again] = _draw_other(x[again], tokens[again], temperatures, seeds[again], steps[again])
        return tokens.astype(np.int32)


def _first_candidates(x: Float32, config: SamplingConfig, history: Integers | None) -> Candidates:
    if isinstance(config, FishSampling):
        return fish_candidates(x, config.temperature, config.top_p, config.top_k)
    if isinstance(config, HFSampling):
        return hf_candidates(x, config.temperature, config.top_p, config.top_k, config.repetition_penalty, history)
    assert isinstance(config, CosyVoiceSampling)
    return cosyvoice_candidates(x, config.temperature, config.top_p, config.top_k)


def _draw(
    candidates: Candidates, V: int, seeds: npt.NDArray[np.uint64], steps: npt.NDArray[np.uint64], stream: int
) -> Ids:
    """Gumbel-max over each row's candidates: intp [B]."""
    ids, scores = candidates
    if ids.shape[1] == 1:
        return ids[:, 0]
    raw = noise(seeds, steps, stream, V)
    gumbel = -np.log(-np.log(to_unit(picked(raw, ids))))
    tokens: Ids = ids[np.arange(len(ids)), (scores + gumbel).argmax(axis=1)]
    return tokens


def _draw_other(
    x: Float32, tokens: Ids, temperature: Reals, seeds: npt.NDArray[np.uint64], steps: npt.NDArray[np.uint64]
) -> Ids:
    """A draw from all ids of each row but `tokens` [B]; a row without another candidate gives that token."""
    y = x.copy()
    y[np.arange(len(x)), tokens] = -np.inf
    only = y.max(axis=1) == -np.inf
    y[only, tokens[only]] = 0
    ids = np.broadcast_to(np.arange(x.shape[1]), x.shape)
    return _draw(Candidates(ids, tempered(centred(y), temperature)), x.shape[1], seeds, steps, REDRAW_STREAM)


# --------------------------------------------------------------------------------------------------------- checks


def _expect_config(config: SamplingConfig) -> None:
    if not isinstance(config, SamplingConfig):
        raise ValueError(f"[sampling] expected a SamplingConfig, got {config!r}")


def _top_k(top_k: int, V: int) -> int:
    return top_k if 0 < top_k <= V else V


def _history(history: npt.ArrayLike, B: int, V: int, window: int = -1) -> Integers | None:
    """The last `window` columns of history (-1: all), checked; None where there are none."""
    h: npt.NDArray[Any] = np.asarray(history)
    if h.ndim != 2 or len(h) != B or (h.dtype.kind not in "iu" and h.size > 0):
        raise ValueError(f"[sampling] expected history int [{B}, W], got {h.dtype} {list(h.shape)}")
    if window == 0 or h.size == 0:
        return None
    h = h if window < 0 else h[:, -window:]
    if h.min() < -1 or h.max() >= V:
        bad = h[(h < -1) | (h >= V)][0]
        raise ValueError(f"[sampling] expected history ids from 0 to {V - 1}, or -1 for none, got {bad}")
    ids: Integers = h if h.dtype.kind == "i" else h.astype(np.int64)
    return ids


def _column(name: str, value: Reals, B: int, low: float) -> Float64:
    """A per-row option as float64 [1, 1] or [B, 1]; ValueError if it is below `low`, or not finite."""
    x = np.asarray(value)
    if x.ndim > 1 or x.size not in (1, B) or x.dtype.kind not in "iuf":
        raise ValueError(f"[sampling] expected {name} a number or [{B}], got {x.dtype} {list(x.shape)}")
    y: Float64 = x.reshape(-1, 1).astype(np.float64)
    if not (np.isfinite(y) & (y >= low)).all():
        raise ValueError(f"[sampling] expected {name} finite and >= {low:g}, got {value!r}")
    return y
