"""The transformer block that the dual-AR and the codec share. [batch, time, width].

RMSNorm, fused q/k/v, optional RMSNorm of each query and key head, rope on interleaved pairs, causal (perhaps windowed)
attention with grouped heads, SwiGLU, optional layer scale. Parameter names are the published ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

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


@cache
def rope_tables(length: int, head_dim: int, base: float) -> tuple[Tensor, Tensor]:
    """cos and sin [length, 1, head_dim], each value twice."""
    angles = torch.outer(torch.arange(length).float(), base ** (-torch.arange(0, head_dim, 2).float() / head_dim))
    angles = angles.repeat_interleave(2, 1)[:, None]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, T, heads, hd], its interleaved pairs turned."""
    turned = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    return torch.addcmul(x * cos, turned, sin)


@cache
def causal_mask(length: int, window: int | None) -> Tensor:
    """[length, length]: 0 where a position (row) sees another one, -inf elsewhere."""
    age = torch.arange(length)[:, None] - torch.arange(length)
    seen = (age >= 0) if window is None else (age >= 0) & (age < window)
    return torch.zeros(length, length).masked_fill(~seen, float("-inf"))


class Attention(nn.Module):
    """Plain products: on a CPU they are no slower than the fused attention at these lengths, and the weights of the
    first head are there for `train_lm.py` to guide. keep: whether `forward` leaves them in `first_head` [B, T, T]."""

    keep = False
    first_head: Tensor

    def __init__(self, config: BlockConfig):
        super().__init__()
        self.config = c = config
        self.wqkv = nn.Linear(c.dim, (c.heads + 2 * c.kv_heads) * c.head_dim, bias=False)
        self.wo = nn.Linear(c.heads * c.head_dim, c.dim, bias=False)
        if c.qk_norm:
            self.q_norm = RMSNorm(c.head_dim, c.eps)
            self.k_norm = RMSNorm(c.head_dim, c.eps)

    def forward(self, x: Tensor) -> Tensor:
        c = self.config
        batch, time, _ = x.shape
        heads = c.heads + c.kv_heads
        qk, v = self.wqkv(x).split([heads * c.head_dim, c.kv_heads * c.head_dim], -1)
        qk, v = qk.view(batch, time, heads, c.head_dim), v.view(batch, time, c.kv_heads, c.head_dim)
        if c.qk_norm:
            weights = (norm.weight.expand(n, -1) for norm, n in ((self.q_norm, c.heads), (self.k_norm, c.kv_heads)))
            qk = qk * torch.rsqrt(qk.square().mean(-1, keepdim=True) + c.eps) * torch.cat(list(weights))
        qk = rotate(qk, *rope_tables(time, c.head_dim, c.rope_base))
        shared = c.heads // c.kv_heads  # query heads that share a key head: one product for all of them
        q = (qk[:, :, : c.heads] * c.head_dim**-0.5).transpose(1, 2)
        q = q.reshape(batch, c.kv_heads, shared * time, c.head_dim)
        scores = (q @ qk[:, :, c.heads :].permute(0, 2, 3, 1)).view(batch, c.heads, time, time)
        taken = (scores + causal_mask(time, c.window)).softmax(-1)
        if self.keep:
            self.first_head = taken[:, 0]
        y = taken.view(batch, c.kv_heads, shared * time, time) @ v.transpose(1, 2)
        return self.wo(y.view(batch, c.heads, time, c.head_dim).transpose(1, 2).reshape(batch, time, -1))


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
