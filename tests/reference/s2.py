"""The S2 dual-AR model and its codec in plain numpy: the oracle that the core is tested against.

Owns the arithmetic of the published model, in one dtype and with no cache but the Slow-AR's growing keys and values:
slow, short, and meant to be read. Leaves sampling to `sampling.py` and files to `gguf_weights.py`.

Shapes are numpy's. Activations are [T, width] in the transformers and [channels, T] in the codec.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import erf, expit

from reference.gguf_weights import Array, Weights

Ints = npt.NDArray[np.integer[Any]]
Cache = dict[str, tuple[Array, Array, Ints]]  # block prefix -> keys, values [T, KV, hd], positions [T]

# The encoder's transformers attend to this many keys, self included; no key of the file says so.
ENCODER_WINDOW = 512


# ------------------------------------------------------------------ transformer block
@dataclass(frozen=True)
class BlockConfig:
    """What differs between the blocks of Slow-AR, Fast-AR and the codec."""

    heads: int
    kv_heads: int
    head_dim: int
    rope_base: float
    eps: float
    qk_norm: bool = False
    window: int | None = None  # keys seen, self included; None: all of the past
    layer_scale: bool = False


def softmax(x: Array) -> Array:
    """Over the last axis; -inf is probability 0."""
    e: Array = np.exp(x - x.max(-1, keepdims=True))
    total: Array = e.sum(-1, keepdims=True)
    return e / total


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis."""
    scale: Array = np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(eps))
    return x / scale * weight


def rope(x: Array, pos: Ints, base: float) -> Array:
    """Rotary embedding on interleaved pairs (2i, 2i + 1), ggml's "normal" kind. x [T, heads, hd], pos [T]."""
    hd = x.shape[-1]
    angle = pos.astype(np.float64)[:, None] * base ** (-np.arange(0, hd, 2) / hd)
    cos, sin = (f(angle)[:, None].astype(x.dtype) for f in (np.cos, np.sin))
    a, b = x[..., 0::2], x[..., 1::2]
    return np.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


def attention(w: Weights, p: str, x: Array, pos: Ints, c: BlockConfig, cache: Cache | None) -> Array:
    """Causal, windowed, grouped-query attention of x [T, D] over itself and, with a cache, over the past."""
    T, H, KV, hd = len(x), c.heads, c.kv_heads, c.head_dim
    q, k, v = np.split(w.linear(p + "attention.wqkv", x), [H * hd, (H + KV) * hd], -1)
    q, k, v = q.reshape(T, H, hd), k.reshape(T, KV, hd), v.reshape(T, KV, hd)
    if c.qk_norm:  # per head, before rope, with the block's eps
        q = rms_norm(q, w[p + "attention.q_norm.weight"], c.eps)
        k = rms_norm(k, w[p + "attention.k_norm.weight"], c.eps)
    q, k, key_pos = rope(q, pos, c.rope_base), rope(k, pos, c.rope_base), pos
    if cache is not None:
        if p in cache:
            past_k, past_v, past_pos = cache[p]
            k, v = np.concatenate([past_k, k]), np.concatenate([past_v, v])
            key_pos = np.concatenate([past_pos, key_pos])
        cache[p] = (k, v, key_pos)
    k, v = np.repeat(k, H // KV, axis=1), np.repeat(v, H // KV, axis=1)  # query head h reads kv head h // (H / KV)
    scores = np.einsum("thd,shd->hts", q, k) * w.scalar(hd**-0.5)
    age = pos[:, None] - key_pos
    seen = (age >= 0) & (age < (np.inf if c.window is None else c.window))
    mixed = np.einsum("hts,shd->thd", softmax(np.where(seen, scores, w.scalar(-np.inf))), v)
    return w.linear(p + "attention.wo", mixed.reshape(T, -1))


def block(w: Weights, p: str, x: Array, pos: Ints, c: BlockConfig, cache: Cache | None = None) -> Array:
    """Pre-norm attention, then SwiGLU; a layer scale multiplies each branch before it is added."""

    def scaled(name: str, y: Array) -> Array:
        return y * w[f"{p}{name}_layer_scale.gamma"] if c.layer_scale else y

    h = rms_norm(x, w[p + "attention_norm.weight"], c.eps)
    x = x + scaled("attention", attention(w, p, h, pos, c, cache))
    h = rms_norm(x, w[p + "ffn_norm.weight"], c.eps)
    gate = w.linear(p + "feed_forward.w1", h)
    f = w.linear(p + "feed_forward.w2", gate * expit(gate) * w.linear(p + "feed_forward.w3", h))
    return x + scaled("ffn", f)


# ------------------------------------------------------------------ S2 dual-AR
class DualAR:
    """Slow-AR and Fast-AR of one file."""

    def __init__(self, w: Weights) -> None:
        self.w = w
        llm, fish, fast = "fish-speech.", "fish_speech.", "fish_speech.fast_"
        self.num_codebooks: int = w.kv(fish + "num_codebooks")
        self.codebook_size: int = w.kv(fish + "codebook_size")
        self.semantic_begin: int = w.kv(fish + "semantic_begin_id")
        self.semantic_end: int = w.kv(fish + "semantic_end_id")
        heads, q_norm = w.kv(llm + "attention.head_count"), "layers.0.attention.q_norm.weight"
        head_dim = w.kv(llm + "attention.key_length")
        if head_dim is None:
            head_dim = len(w[q_norm]) if q_norm in w else w["layers.0.attention.wo.weight"].shape[1] // heads
        self.slow = BlockConfig(
            heads=heads,
            kv_heads=w.kv(llm + "attention.head_count_kv"),
            head_dim=head_dim,
            rope_base=w.kv(llm + "rope.freq_base"),
            eps=w.kv(llm + "attention.layer_norm_rms_epsilon"),
            qk_norm=w.kv(fish + "attention_qk_norm", False),
        )
        self.slow_layers: int = w.kv(llm + "block_count")
        self.fast_layers: int = w.kv(fast + "block_count", 0)
        if self.fast_layers:
            self.fast = BlockConfig(
                heads=w.kv(fast + "head_count"),
                kv_heads=w.kv(fast + "head_count_kv"),
                head_dim=w.kv(fast + "head_dim"),
                rope_base=w.kv(fast + "rope_freq_base"),
                eps=w.kv(fast + "layer_norm_rms_eps"),
                qk_norm=w.kv(fast + "attention_qk_norm", False),
            )
        self.projected: bool = w.kv(fast + "project_in", False)
        self.scaled: bool = w.kv(fish + "scale_codebook_embeddings", False)
        self.normed: bool = w.kv(fish + "norm_fastlayer_input", True)
        self.head = w["embeddings.weight" if w.kv(fish + "tie_word_embeddings", True) else "output.weight"]

    def embed(self, X: Ints) -> Array:
        """Columns X [1 + N, T] -> [T, D]: the token's row, plus one row per codebook where it is semantic."""
        x: Array = self.w["embeddings.weight"][X[0]].copy()
        semantic = (X[0] >= self.semantic_begin) & (X[0] <= self.semantic_end)
        for i in range(self.num_codebooks):
            x[semantic] += self.w["codebook_embeddings.weight"][i * self.codebook_size + X[1 + i, semantic]]
        if self.scaled:
            x[semantic] /= self.w.scalar(np.sqrt(self.num_codebooks + 1))
        return x

    def session(self) -> Session:
        """A fresh cache at position 0."""
        return Session(self)

    def fast_decode(self, hidden: Array, prefix: npt.ArrayLike) -> Array:
        """hidden [D], prefix [k] of this frame's codes, the semantic one first -> logits [C] of codebook k."""
        w = self.w
        x = np.asarray(hidden, w.dtype)
        if self.projected:
            x = w.linear("fast_project_in", x)
        x = np.concatenate([x[None], w["fast_embeddings.weight"][np.asarray(prefix)]])
        for i in range(self.fast_layers):
            x = block(w, f"fast_layers.{i}.", x, np.arange(len(x)), self.fast)
        return w.linear("fast_output", rms_norm(x[-1], w["fast_norm.weight"], self.fast.eps))

    def greedy(self, prompt: Ints, *, max_frames: int, im_end: int) -> tuple[npt.NDArray[np.int32], bool]:
        """argmax over the semantic ids and im_end, no RAS -> codes [N, n], and whether im_end ended them."""
        session = self.session()
        frames: list[list[int]] = []
        ids = np.append(np.arange(self.semantic_begin, self.semantic_end + 1), im_end)
        logits, hidden = session.feed(prompt)
        while len(frames) < max_frames:
            token = int(ids[logits[-1, ids].argmax()])
            if token == im_end:
                break
            codes = [int(np.clip(token - self.semantic_begin, 0, self.codebook_size - 1))]
            while len(codes) < self.num_codebooks:
                codes.append(int(self.fast_decode(hidden[-1], codes).argmax()))
            frames.append(codes)
            logits, hidden = session.feed(np.array([[token, *codes]]).T)
        out = np.array(frames, np.int32).reshape(-1, self.num_codebooks).T
        return out, len(frames) < max_frames


class Session:
    """The Slow-AR's keys and values, and how many positions they hold."""

    def __init__(self, model: DualAR) -> None:
        self.model = model
        self.cache: Cache = {}
        self.position = 0

    def feed(self, X: Ints) -> tuple[Array, Array]:
        """Columns X [1 + N, T] -> logits [T, V], hidden [T, D] (what the Fast-AR is given, before projection)."""
        m, w = self.model, self.model.w
        pos = self.position + np.arange(X.shape[1])
        x = m.embed(X)
        for i in range(m.slow_layers):
            x = block(w, f"layers.{i}.", x, pos, m.slow, self.cache)
        self.position += X.shape[1]
        h = rms_norm(x, w["norm.weight"], m.slow.eps)
        return h @ m.head.T, h if m.normed else x


# ------------------------------------------------------------------ codec
def gelu(x: Array) -> Array:
    """The exact GELU, not its tanh form."""
    doubled: Array = 1 + erf(x / x.dtype.type(np.sqrt(2.0)))
    return x * 0.5 * doubled


class Codec:
    """Codes to samples and back. Conv weights are [out, in / groups, k], transposed ones [in, out, k]."""

    def __init__(self, w: Weights) -> None:
        self.w = w

        def key(name: str) -> Any:
            return w.kv("fish_speech.codec." + name)

        def config(name: str, heads: int, window: int) -> BlockConfig:
            local = key(name + ".n_local_heads")
            return BlockConfig(
                heads=heads,
                kv_heads=heads if local == -1 else local,
                head_dim=key(name + ".head_dim"),
                rope_base=key(name + ".rope_freq_base"),
                eps=key(name + ".layer_norm_rms_eps"),
                window=window,
                layer_scale=True,
            )

        self.encoder_rates: list[int] = key("encoder_rates")
        self.decoder_rates: list[int] = key("decoder_rates")
        self.encoder_layers: list[int] = key("encoder_transformer_layers")
        self.factors: list[int] = key("quantizer_downsample_factor")
        self.samples_per_frame: int = key("hop_length") * int(np.prod(self.factors))
        self.quantizers = ["c.quantizer.semantic_quantizer.quantizers.0."] + [
            f"c.quantizer.quantizer.quantizers.{i}." for i in range(key("quantizer_residual_codebooks"))
        ]
        self.rvq_layers: int = key("rvq_transformer.n_layer")
        self.rvq = config("rvq_transformer", key("rvq_transformer.n_head"), key("rvq_transformer.window_size"))
        self.encoder_blocks = {
            i: config("transformer", (key("encoder_dim") << i) // key("transformer.head_dim"), ENCODER_WINDOW)
            for i, layers in enumerate(self.encoder_layers, 1)
            if layers
        }

    def conv(self, p: str, x: Array, *, stride: int = 1, dilation: int = 1) -> Array:
        """Causal: zeros on the left (effective kernel - stride), and on the right only to fill the last stride."""
        W, b = self.w[p + ".weight"], self.w[p + ".bias"]
        k = W.shape[-1]
        depthwise = W.shape[1] == 1 and W.shape[0] == x.shape[0]
        n = -(-x.shape[1] // stride)
        x = np.pad(x, ((0, 0), ((k - 1) * dilation + 1 - stride, n * stride - x.shape[1])))
        y = np.repeat(b[:, None], n, axis=1)
        for j in range(k):
            tap = x[:, j * dilation : j * dilation + (n - 1) * stride + 1 : stride]
            y += W[:, 0, j, None] * tap if depthwise else W[:, :, j] @ tap
        return y

    def transposed_conv(self, p: str, x: Array, *, stride: int) -> Array:
        """Causal: the last (kernel - stride) samples are dropped."""
        W, T = self.w[p + ".weight"], x.shape[1]
        y = np.repeat(self.w[p + ".bias"][:, None], (T - 1) * stride + W.shape[-1], axis=1)
        for j in range(W.shape[-1]):
            y[:, j : j + (T - 1) * stride + 1 : stride] += W[:, :, j].T @ x
        return y[:, : T * stride]

    def pointwise(self, p: str, x: Array) -> Array:
        """A 1x1 convolution, weight [out, in, 1]."""
        return self.w[p + ".weight"][..., 0] @ x + self.w[p + ".bias"][:, None]

    def snake(self, p: str, x: Array) -> Array:
        """x + sin^2(alpha x) / (alpha + 1e-9), alpha [1, C, 1] of any sign."""
        a: Array = self.w[p + ".alpha"][0]
        return x + np.sin(a * x) ** 2 / (a + self.w.scalar(1e-9))

    def residual_unit(self, p: str, x: Array, *, dilation: int) -> Array:
        """snake, dilated conv k 7, snake, conv k 1, plus the input."""
        y = self.conv(p + ".block.1.conv", self.snake(p + ".block.0", x), dilation=dilation)
        return x + self.conv(p + ".block.3.conv", self.snake(p + ".block.2", y))

    def convnext(self, p: str, x: Array) -> Array:
        """Depthwise conv k 7, LayerNorm (eps 1e-6), two linears around a GELU, gamma, plus the input."""
        w, y = self.w, self.conv(p + ".dwconv.conv", x).T
        y = y - y.mean(-1, keepdims=True)
        y = y / np.sqrt((y * y).mean(-1, keepdims=True) + w.scalar(1e-6))
        y = y * w[p + ".norm.weight"] + w[p + ".norm.bias"]
        y = w.linear(p + ".pwconv2", gelu(w.linear(p + ".pwconv1", y)))
        return x + (y * w[p + ".gamma"]).T

    def transformer(self, p: str, x: Array, layers: int, c: BlockConfig) -> Array:
        """A stack of blocks and a final norm, positions from 0."""
        y = x.T
        for i in range(layers):
            y = block(self.w, f"{p}.layers.{i}.", y, np.arange(len(y)), c)
        return rms_norm(y, self.w[p + ".norm.weight"], c.eps).T

    def decode(self, codes: Ints) -> Array:
        """codes [N, T] -> samples [T * samples_per_frame]; a code past its codebook's end means the last entry."""
        z: Array | None = None
        for q, row in zip(self.quantizers, codes, strict=True):
            entries = self.w[q + "codebook.weight"]
            part = self.pointwise(q + "out_proj", entries[np.clip(row, 0, len(entries) - 1)].T)
            z = part if z is None else z + part
        assert z is not None
        x = self.transformer("c.quantizer.post_module", z, self.rvq_layers, self.rvq)
        for i, factor in enumerate(reversed(self.factors)):
            x = self.transposed_conv(f"c.quantizer.upsample.{i}.0.conv", x, stride=factor)
            x = self.convnext(f"c.quantizer.upsample.{i}.1", x)
        p, n = "c.decoder.model.", len(self.decoder_rates)
        x = self.conv(p + "0.conv", x)
        for i, rate in enumerate(self.decoder_rates, 1):
            x = self.transposed_conv(f"{p}{i}.block.1.conv", self.snake(f"{p}{i}.block.0", x), stride=rate)
            for j, dilation in enumerate((1, 3, 9)):
                x = self.residual_unit(f"{p}{i}.block.{2 + j}", x, dilation=dilation)
        samples: Array = np.tanh(self.conv(f"{p}{n + 2}.conv", self.snake(f"{p}{n + 1}", x)))[0]
        return samples

    def latent(self, samples: npt.ArrayLike) -> Array:
        """samples [n] -> [latent_dim, T], after pre_module; zeros at the end fill the last code frame."""
        x = np.asarray(samples, self.w.dtype)
        x = np.pad(x, (0, -len(x) % self.samples_per_frame))[None]
        p, n = "c.encoder.block.", len(self.encoder_rates)
        x = self.conv(p + "0.conv", x)
        for i, rate in enumerate(self.encoder_rates, 1):
            for j, dilation in enumerate((1, 3, 9)):
                x = self.residual_unit(f"{p}{i}.block.{j}", x, dilation=dilation)
            x = self.conv(f"{p}{i}.block.4.conv", self.snake(f"{p}{i}.block.3", x), stride=rate)
            if i in self.encoder_blocks:
                x = self.transformer(f"{p}{i}.block.5", x, self.encoder_layers[i - 1], self.encoder_blocks[i])
        x = self.conv(f"{p}{n + 2}.conv", self.snake(f"{p}{n + 1}", x))
        for i, factor in enumerate(self.factors):
            x = self.conv(f"c.quantizer.downsample.{i}.0.conv", x, stride=factor)
            x = self.convnext(f"c.quantizer.downsample.{i}.1", x)
        return self.transformer("c.quantizer.pre_module", x, self.rvq_layers, self.rvq)

    def quantize(self, latent: Array) -> tuple[npt.NDArray[np.int32], Array]:
        """latent [latent_dim, T] -> codes [N, T], and each choice's best minus second-best cosine [N, T].

        Each quantizer in turn takes the cosine-nearest row and leaves the rest to the next; what is subtracted is the
        row itself, not normalised.
        """
        rest, codes, margins = latent, [], []
        for q in self.quantizers:
            entries, z = self.w[q + "codebook.weight"], self.pointwise(q + "in_proj", rest)
            cosine = (entries / np.linalg.norm(entries, axis=1, keepdims=True)) @ (z / np.linalg.norm(z, axis=0))
            codes.append(cosine.argmax(0))
            margins.append(np.diff(np.sort(cosine, 0)[-2:], axis=0)[0])
            rest = rest - self.pointwise(q + "out_proj", entries[codes[-1]].T)
        return np.array(codes, np.int32), np.array(margins)

    def encode(self, samples: npt.ArrayLike) -> tuple[npt.NDArray[np.int32], Array]:
        """samples [n] -> codes [N, T] and margins [N, T], as `quantize`."""
        return self.quantize(self.latent(samples))
