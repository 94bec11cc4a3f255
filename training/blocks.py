"""The transformer block that the dual-AR and the codec share. [batch, time, width].

RMSNorm, fused q/k/v, optional RMSNorm of each query and key head, rope on interleaved pairs, causal (perhaps windowed)
attention with grouped heads, SwiGLU, optional layer scale. Parameter names are the published ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class BlockConfig:
    dim: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    rope_base: float = 10000.0
    eps: float = 1e-5
    qk_norm: bool = False
    layer_scale: bool = False
    window: int | None = None  # keys seen, self included


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class LayerScale(nn.Module):
    def __init__(self, dim: int, value: float = 0.1):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), value))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


def rope_tables(length: int, head_dim: int, base: float) -> tuple[Tensor, Tensor]:
    """cos and sin [length, head_dim / 2]."""
    angles = torch.outer(torch.arange(length).float(), base ** (-torch.arange(0, head_dim, 2).float() / head_dim))
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, T, heads, hd], its interleaved pairs turned."""
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, config: BlockConfig):
        super().__init__()
        self.config = c = config
        self.wqkv = nn.Linear(c.dim, (c.heads + 2 * c.kv_heads) * c.head_dim, bias=False)
        self.wo = nn.Linear(c.heads * c.head_dim, c.dim, bias=False)
        if c.qk_norm:
            self.q_norm = RMSNorm(c.head_dim, c.eps)
            self.k_norm = RMSNorm(c.head_dim, c.eps)

    def _queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, T, D] -> each [B, heads, T, hd], rope applied."""
        c = self.config
        batch, time, _ = x.shape
        q, k, v = self.wqkv(x).split([c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim], -1)
        q, k, v = (t.view(batch, time, -1, c.head_dim) for t in (q, k, v))
        if c.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        cos, sin = rope_tables(time, c.head_dim, c.rope_base)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def weights(self, x: Tensor, head: int) -> Tensor:
        """What each position of [B, T, D] takes of which, in one head: [B, T, T]."""
        c, time = self.config, x.shape[1]
        q, k, _ = self._queries_keys_values(x)
        scores = q[:, head] @ k[:, head // (c.heads // c.kv_heads)].transpose(1, 2) * c.head_dim**-0.5
        return scores.masked_fill(torch.ones(time, time, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)

    def forward(self, x: Tensor) -> Tensor:
        c = self.config
        batch, time, _ = x.shape
        q, k, v = self._queries_keys_values(x)
        mask = None
        if c.window is not None:
            age = torch.arange(time)[:, None] - torch.arange(time)
            mask = (age >= 0) & (age < c.window)
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=c.kv_heads != c.heads
        )
        return self.wo(y.transpose(1, 2).reshape(batch, time, -1))


class FeedForward(nn.Module):
    def __init__(self, config: BlockConfig):
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.feed_forward, bias=False)
        self.w3 = nn.Linear(config.dim, config.feed_forward, bias=False)
        self.w2 = nn.Linear(config.feed_forward, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, config: BlockConfig):
        super().__init__()
        self.attention_norm = RMSNorm(config.dim, config.eps)
        self.attention = Attention(config)
        self.ffn_norm = RMSNorm(config.dim, config.eps)
        self.feed_forward = FeedForward(config)
        scale = LayerScale if config.layer_scale else lambda dim: nn.Identity()
        self.attention_layer_scale, self.ffn_layer_scale = scale(config.dim), scale(config.dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention_layer_scale(self.attention(self.attention_norm(x)))
        return x + self.ffn_layer_scale(self.feed_forward(self.ffn_norm(x)))
