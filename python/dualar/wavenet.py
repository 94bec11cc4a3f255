"""WaveNet: makes audio sample by sample, each drawn from a distribution that depends on the samples before it.

Owns `WaveNet`, the noise of its draws and the mu-law between classes and samples; leaves the arithmetic, the state and
the loop over samples to the compiled core.

A block's dilated convolution looks (K - 1) * dilation samples back, at its *own input*. So a state keeps just those
for every block, in a ring: a step reads the oldest value and then writes the new one in its place. One channel,
kernel 2, dilation 4, weights 2 (old) and 3 (now), bias 1, and a ring that holds 1 2 3 4:

    input 5:  2 * 1 + 3 * 5 + 1 = 18     the ring then holds 2 3 4 5
    input 6:  2 * 2 + 3 * 6 + 1 = 23                         3 4 5 6
    input 7:  2 * 3 + 3 * 7 + 1 = 28                         4 5 6 7

which is what the convolution gives for the whole clip, element by element, at a cost that no longer depends on how
far the network looks back (Le Paine et al., "Fast WaveNet generation algorithm", arXiv:1611.09482).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from dualar._native import WaveNetState, _core
from dualar.sampling.noise import Counts, uniform

__all__ = ["WaveNet", "WaveNetState", "mu_law_decode", "mu_law_encode"]

# Samples that one call of the core makes: Ctrl-C is heard between calls. One row of noise serves as many.
_BLOCK_SAMPLES = 4096


class WaveNet:
    """The weights of a WaveNet file (GGUF, architecture `wavenet`), with the published model's arithmetic in float32.

    Van den Oord et al., "WaveNet: a generative model for raw audio", arXiv:1609.03499. Made by `load`. B is the number
    of sequences, T of samples, Q of classes (`quantization_levels`), H of `condition_channels`: the condition (what to
    say, at the audio's own rate) has one column of H values for each sample. Classes and conditions may be of any
    integer and any real dtype. One model may serve several threads, a state one thread at a time.
    """

    def __init__(self, core: _core.WaveNet) -> None:
        """core: the compiled model."""
        self._core = core

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, threads: int | None = None) -> WaveNet:
        """Load a file, on the CPU. threads: for `forward` and `prime`; a step runs on the caller's thread.

        Errors: ModelError for a file that cannot be read, is of another architecture, or lacks a key or tensor (all of
        those are listed); ValueError for an impossible number of threads.
        """
        from dualar.runtime import open_file, open_runtime

        file = open_file(path)
        return cls(_core.WaveNet(file, open_runtime(device="cpu", threads=threads)))

    @property
    def channels(self) -> int:
        """Channels of the residual stream, C."""
        return self._core.channels

    @property
    def condition_channels(self) -> int:
        """Values of the condition for each sample, H."""
        return self._core.condition_channels

    @property
    def skip_channels(self) -> int:
        """Channels of the sum that the head reads, S."""
        return self._core.skip_channels

    @property
    def quantization_levels(self) -> int:
        """Classes that a sample is one of, Q."""
        return self._core.quantization_levels

    @property
    def kernel_size(self) -> int:
        """Taps of each dilated convolution, K."""
        return self._core.kernel_size

    @property
    def dilations(self) -> list[int]:
        """Samples between the taps, one for each block."""
        return list(self._core.dilations)

    @property
    def sample_rate(self) -> int:
        """Samples a second."""
        return self._core.sample_rate

    @property
    def receptive_field(self) -> int:
        """Samples that an output depends on: its own input and the sum of (K - 1) * dilation before it."""
        return self._core.receptive_field

    @property
    def unused_tensors(self) -> list[str]:
        """Names of the tensors in the file that nothing here reads."""
        return list(self._core.unused_tensors)

    def forward(self, classes: npt.ArrayLike, condition: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Whole clips at once: classes int [B, T], condition [B, H, T] -> logits float32 [B, Q, T].

        Column t has the logits of sample t + 1, given the samples 0 to t. ValueError for another shape or type, a class
        outside 0 to Q - 1, or a condition that is not finite.
        """
        return self._core.forward(_classes(classes, "classes", 2), _condition(condition, 3))

    def initial_state(self, batch_size: int) -> WaveNetState:
        """The state of `batch_size` clips before their first sample: zeros in every ring.

        ValueError unless 1 to 65536, and fewer where their rings would take more than 8 GiB.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)):
            raise ValueError(f"[batch] expected a number of sequences, got {batch_size!r}")
        if not 1 <= batch_size <= 65536:
            raise ValueError(f"[batch] expected 1 to 65536 sequences, got {batch_size}")
        return self._core.initial_state(int(batch_size))

    def step(self, classes: npt.ArrayLike, condition: npt.ArrayLike, state: WaveNetState) -> npt.NDArray[np.float32]:
        """One sample of each clip: classes int [B], condition [B, H] -> logits float32 [B, Q]; advances `state`.

        Equal to the column of `forward`. ValueError as there, and for a state of another model or another B.
        """
        return self._core.step(_classes(classes, "classes", 1), _condition(condition, 2), _state(state))

    def prime(
        self, classes: npt.ArrayLike, condition: npt.ArrayLike, *, state: WaveNetState | None = None
    ) -> WaveNetState:
        """Advance `state`, or a new one, by known samples, and return it: classes int [B, T], condition [B, H, T].

        It is as if `step` were called for each sample. To continue a clip, prime with all of its samples but the last,
        which is the `first` of `generate`. ValueError as for `step`.
        """
        known = _classes(classes, "classes", 2)
        if state is None:
            state = self.initial_state(len(known))
        self._core.prime(known, _condition(condition, 3), _state(state))
        return state

    def generate(
        self,
        n: int,
        condition: npt.ArrayLike,
        *,
        first: npt.ArrayLike,
        temperature: float | None = None,
        seed: Counts = 0,
        greedy: bool = False,
        state: WaveNetState | None = None,
    ) -> npt.NDArray[np.int32]:
        """Make `n` samples of each clip: the classes int32 [B, n] that follow `first`, or [n] for a condition [H, n].

        condition [B, H, n] (or [H, n] for one clip; columns past n are not read): column t goes with the step that
        gives class t. first: int or int [B], the sample before all of them. temperature: finite, >= 0, 1 where None;
        0 and greedy take the lowest class of the highest logit. seed: int or int [B], 0 to 2^64 - 1; one int
        gives clip b the seed + b. state: the one to continue from and to advance (see `prime`), by default a new one.

        Each draw inverts the distribution softmax(logits / temperature) at one uniform, which is a function of the
        seed and the sample's position in its clip alone: the same seed gives the same classes, made in one call or in
        several, alone or in a batch.

        Errors: ValueError for shapes, types or values that do not fit; ModelError where logits are not finite, after
        which the state is of no use.
        """
        count, columns = _whole("n", n), np.asarray(condition)
        single = columns.ndim == 2
        columns = _condition(columns[None] if single else columns, 3)
        if columns.shape[2] < count:
            raise ValueError(f"[condition] expected at least n = {count} columns, got {columns.shape[2]}")
        given = np.asarray(first)
        current = _classes(np.full(len(columns), given) if given.ndim == 0 else given, "first", 1)
        if greedy and temperature is not None and temperature != 0:
            raise ValueError(f"[generate] expected greedy or a temperature, got both (temperature {temperature!r})")
        heat = 0.0 if greedy else _temperature(temperature)
        seeds = _seeds(seed, len(columns))
        state = self.initial_state(len(columns)) if state is None else _state(state)

        out = np.zeros((len(columns), count), np.int32)
        start = 0
        while start < count:
            row, offset = divmod(state.position, _BLOCK_SAMPLES)
            end = min(count, start + _BLOCK_SAMPLES - offset)
            uniforms = None
            if heat > 0:
                noise = uniform(seeds, row, 0, offset + end - start)
                uniforms = np.ascontiguousarray(noise[:, offset:])
            out[:, start:end] = self._core.generate(
                current, columns[:, :, start:end], state, temperature=heat, uniforms=uniforms
            )
            current, start = np.ascontiguousarray(out[:, end - 1]), end
        return out[0] if single else out

    def samples(self, classes: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Classes of any shape -> samples in [-1, 1] of the same shape: `mu_law_decode` with Q levels."""
        return mu_law_decode(classes, self.quantization_levels)

    def classes(self, samples: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Samples in [-1, 1] of any shape -> the nearest classes: `mu_law_encode` with Q levels."""
        return mu_law_encode(samples, self.quantization_levels)


def mu_law_encode(samples: npt.ArrayLike, levels: int = 256) -> npt.NDArray[np.int32]:
    """Samples in [-1, 1] -> classes int32 in 0 to levels - 1, of the same shape; beyond [-1, 1] they are clipped.

    sign(x) ln(1 + mu |x|) / ln(1 + mu) with mu = levels - 1, spread over the classes and rounded (ITU-T G.711's
    companding without its table, as arXiv:1609.03499, section 2.2, has it). ValueError for samples not finite.
    """
    x, mu = np.asarray(samples), _levels(levels) - 1
    if x.dtype.kind not in "fiu" or not np.isfinite(x).all():
        raise ValueError(f"[mu-law] expected finite samples, got {x.dtype} {list(x.shape)}")
    x = np.clip(x.astype(np.float64), -1, 1)
    companded = np.sign(x) * np.log1p(mu * np.abs(x)) / np.log1p(mu)
    return np.asarray(np.floor((companded + 1) / 2 * mu + 0.5), np.int32)


def mu_law_decode(classes: npt.ArrayLike, levels: int = 256) -> npt.NDArray[np.float32]:
    """Classes 0 to levels - 1 -> samples float32 in [-1, 1], of the same shape: the inverse of `mu_law_encode`.

    ValueError for a class out of range.
    """
    c, mu = np.asarray(classes), _levels(levels) - 1
    if c.dtype.kind not in "iu" or (c.size and (c.min() < 0 or c.max() > mu)):
        what = f"{c.min()} to {c.max()}" if c.dtype.kind in "iu" else f"dtype {c.dtype}"
        raise ValueError(f"[mu-law] expected classes from 0 to {mu}, got {what}")
    companded = 2 * c.astype(np.float64) / mu - 1
    return np.asarray(np.sign(companded) * np.expm1(np.abs(companded) * np.log1p(mu)) / mu, np.float32)


# --------------------------------------------------------------------------------------------------------- checks


def _classes(value: npt.ArrayLike, where: str, dims: int) -> npt.NDArray[np.integer[Any]]:
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or array.ndim != dims:
        raise ValueError(f"[{where}] expected integers in {dims} dimension(s), got {array.dtype} {list(array.shape)}")
    return array


def _condition(value: npt.ArrayLike, dims: int) -> npt.NDArray[np.float32]:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or array.ndim != dims:
        raise ValueError(f"[condition] expected numbers in {dims} dimensions, got {array.dtype} {list(array.shape)}")
    with np.errstate(over="ignore"):  # values that overflow to inf are refused by the core
        return array.astype(np.float32)


def _state(value: object) -> WaveNetState:
    if not isinstance(value, WaveNetState):
        raise ValueError(f"[state] expected a WaveNetState, got {value!r}")
    return value


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ValueError(f"[{name}] expected a whole number >= 0, got {value!r}")
    return int(value)


def _levels(value: object) -> int:
    levels = _whole("levels", value)
    if not 2 <= levels <= 65536:
        raise ValueError(f"[levels] expected 2 to 65536, got {levels}")
    return levels


def _temperature(value: object) -> float:
    if value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise ValueError(f"[temperature] expected a number, got {value!r}")
    if not 0 <= value < float("inf"):
        raise ValueError(f"[temperature] expected a finite value >= 0, got {value!r}")
    return float(value)


def _seeds(value: Counts, B: int) -> npt.NDArray[np.uint64]:
    """uint64 [B]: one seed for each clip; an int is the first clip's, and the others count up from it."""
    array: npt.NDArray[Any] = np.asarray(value)
    if array.dtype.kind not in "iu" or array.ndim > 1 or (array.ndim == 1 and len(array) != B) or (array < 0).any():
        raise ValueError(f"[seed] expected an int or int [{B}] from 0 to 2^64 - 1, got {value!r}")
    if array.ndim == 1:
        return array.astype(np.uint64)
    return np.array([(int(value) + b) % 2**64 for b in range(B)], np.uint64)
