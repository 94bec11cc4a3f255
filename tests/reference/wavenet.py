"""WaveNet (arXiv:1609.03499) in plain numpy: the oracle that the core is tested against.

Owns the arithmetic and, as the plainest form of it, the queues: one array per block of that block's own last inputs.
Leaves files to `gguf_weights.py`. One channel, dilation 4, weights 2 (old) and 3 (now), bias 1, queue 1 2 3 4: the
inputs 5, 6, 7 give 2 * 1 + 3 * 5 + 1 = 18, then 23, then 28.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from reference.gguf_weights import Array, Weights

Queues = list[Array]  # for each block [B, C, (K - 1) * dilation], the oldest input first


def causal_conv(x: Array, weight: Array, bias: Array, queue: Array, dilation: int) -> tuple[Array, Array]:
    """x [B, in, T], weight [out, in, K] (the last tap is the newest), queue -> out [B, out, T], new queue."""
    T = x.shape[-1]
    full = np.concatenate([queue, x], -1)
    taps = (weight[..., j] @ full[..., j * dilation : j * dilation + T] for j in range(weight.shape[-1]))
    return np.asarray(sum(taps) + bias[:, None]), full[..., T:]


class WaveNet:
    """Computes in the dtype of its weights."""

    def __init__(self, w: Weights) -> None:
        self.w = w
        self.C, self.K = int(w.kv("wavenet.channels")), int(w.kv("wavenet.kernel_size"))
        self.dilations: list[int] = [int(d) for d in w.kv("wavenet.dilations")]

    def initial_state(self, B: int) -> Queues:
        """Zeros: what lies before a clip."""
        return [np.zeros((B, self.C, (self.K - 1) * d), self.w.dtype) for d in self.dilations]

    def forward(self, classes: npt.ArrayLike, condition: npt.ArrayLike, state: Queues | None = None) -> Array:
        """classes int [B, T], condition [B, H, T] -> logits [B, Q, T]; `state` moves on in place."""
        w, ids = self.w, np.asarray(classes)
        queues = self.initial_state(len(ids)) if state is None else state
        x = w["embedding.weight"][ids].transpose(0, 2, 1)
        c = np.asarray(condition).astype(w.dtype)
        skip: Array = np.zeros((), w.dtype)
        for i, dilation in enumerate(self.dilations):
            p = f"blocks.{i}."
            y, queues[i] = causal_conv(x, w[p + "conv.weight"], w[p + "conv.bias"], queues[i], dilation)
            y = y + self._pointwise(p + "cond", c)
            z = np.tanh(y[:, : self.C]) * expit(y[:, self.C :])
            skip, x = skip + self._pointwise(p + "skip", z), x + self._pointwise(p + "residual", z)
        hidden = np.maximum(self._pointwise("head.0", np.maximum(skip, 0)), 0)
        return self._pointwise("head.1", hidden)

    def step(self, classes: npt.ArrayLike, condition: npt.ArrayLike, state: Queues) -> Array:
        """classes int [B], condition [B, H] -> logits [B, Q]."""
        return self.forward(np.asarray(classes)[:, None], np.asarray(condition)[..., None], state)[..., 0]

    def greedy(self, first: int, condition: Array) -> npt.NDArray[np.int32]:
        """condition [H, T] -> classes [T]: the first is given, each other the argmax of the step before it."""
        state, out = self.initial_state(1), [first]
        for t in range(condition.shape[1] - 1):
            out.append(int(self.step([out[-1]], condition[None, :, t], state)[0].argmax()))
        return np.array(out, np.int32)

    def _pointwise(self, name: str, x: Array) -> Array:
        y = self.w[name + ".weight"][..., 0] @ x
        return y + self.w[name + ".bias"][:, None] if name + ".bias" in self.w else y
