"""The sound of a word that no list has, from its letters: a small recurrent network, run in numpy.

Owns the network's arithmetic and what is done with its output; leaves its training to the source tree's
`training/train_letters.py`. Two bidirectional GRU layers (Cho et al., 2014) over the letters; each letter makes
two outputs, and the likeliest path without blanks and repetitions is the word's phonemes (CTC, Graves et al., 2006).
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]

LETTERS = "abcdefghijklmnopqrstuvwxyz'"


@cache
def _weights() -> tuple[dict[str, Float32], list[str]]:
    path = Path(__file__).resolve().parents[2] / "resources" / "english-letters.npz"
    with np.load(path) as content:
        sounds = [str(sound) for sound in content["sounds"]]
        return {name: content[name].astype(np.float32) for name in content.files if name != "sounds"}, sounds


@lru_cache(maxsize=4096)
def sound(word: str) -> str:
    """The phonemes of a lower-case word; other characters than a to z and the apostrophe are passed over."""
    ids = [LETTERS.index(c) + 1 for c in word if c in LETTERS]
    if not ids:
        return ""
    weights, sounds = _weights()
    x = weights["embedding.weight"][ids]
    for layer in (0, 1):
        forward = _gru(x, weights, f"l{layer}")
        backward = _gru(x[::-1], weights, f"l{layer}_reverse")[::-1]
        x = np.concatenate([forward, backward], 1)
    scores = x @ weights["output.weight"].T + weights["output.bias"]
    path = scores.reshape(2 * len(ids), -1).argmax(1).tolist()
    found = [sounds[i - 1] for i, before in zip(path, [0, *path[:-1]], strict=True) if i and i != before]
    return _one_stress(found)


def _gru(x: Float32, weights: dict[str, Float32], name: str) -> Float32:
    """x [T, D] -> [T, H], from the first letter to the last."""
    recurrent, bias = weights[f"gru.weight_hh_{name}"], weights[f"gru.bias_hh_{name}"]
    inputs = x @ weights[f"gru.weight_ih_{name}"].T + weights[f"gru.bias_ih_{name}"]
    width = recurrent.shape[1]
    h = np.zeros(width, np.float32)
    states = np.empty((len(x), width), np.float32)
    for t in range(len(x)):
        from_state = recurrent @ h + bias
        gates = 1 / (1 + np.exp(-(inputs[t, : 2 * width] + from_state[: 2 * width])))
        reset, keep = gates[:width], gates[width:]
        new = np.tanh(inputs[t, 2 * width :] + reset * from_state[2 * width :])
        h = (1 - keep) * new + keep * h
        states[t] = h
    return states


def _one_stress(sounds: list[str]) -> str:
    """With exactly one main stress: the first of several stays, and where there is none the first stressed vowel, or
    else the first full one, gets it."""
    main = [i for i, s in enumerate(sounds) if s[0] == "ˈ"]
    if not main:
        vowels = [i for i, s in enumerate(sounds) if s[-1] in "AIOWYæɑɛɜɪiuʊʌɔəɐᵻᵊ"]
        main = [i for i in vowels if sounds[i][0] == "ˌ"] or [i for i in vowels if sounds[i] not in "əᵻᵊɐ"] or vowels
    for i in main[1:]:
        sounds[i] = sounds[i].replace("ˈ", "ˌ")
    if main:
        sounds[main[0]] = "ˈ" + sounds[main[0]].lstrip("ˈˌ")
    return "".join(sounds)
