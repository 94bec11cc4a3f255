"""The S2 dual-AR as plain torch modules: Slow-AR over frames, Fast-AR over a frame's codebooks.

Owns the architecture; parameter names are the published ones (without the `text_model.model.` or `audio_decoder.`
prefix). Leaves training to `train_lm.py`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.blocks import BlockConfig, RMSNorm, TransformerBlock

GUIDED_LAYERS = (2, 3)  # of the Slow-AR; the first head of each is to look at the phoneme that is spoken


@dataclass(frozen=True)
class DualARConfig:
    vocab_size: int
    semantic_begin_id: int
    codebook_size: int = 512
    num_codebooks: int = 6
    context_length: int = 1024
    dim: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    feed_forward: int = 320
    rope_base: float = 10000.0
    eps: float = 1e-5
    qk_norm: bool = True
    fast_dim: int = 128
    fast_layers: int = 2
    fast_heads: int = 4
    fast_kv_heads: int = 4
    fast_head_dim: int = 32
    fast_feed_forward: int = 320

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class DualAR(nn.Module):
    """Embeddings are tied with the Slow-AR's head and scaled by 1 / sqrt(N + 1) where a frame stands; the Fast-AR is
    given the normed hidden."""

    def __init__(self, config: DualARConfig):
        super().__init__()
        self.config = c = config
        slow = BlockConfig(c.dim, c.heads, c.kv_heads, c.head_dim, c.feed_forward, c.rope_base, c.eps, c.qk_norm)
        fast = BlockConfig(c.fast_dim, c.fast_heads, c.fast_kv_heads, c.fast_head_dim, c.fast_feed_forward, c.rope_base,
                           c.eps)  # fmt: skip
        self.embeddings = nn.Embedding(c.vocab_size, c.dim)
        self.codebook_embeddings = nn.Embedding(c.codebook_size * c.num_codebooks, c.dim)
        self.layers = nn.ModuleList(TransformerBlock(slow) for _ in range(c.layers))
        self.norm = RMSNorm(c.dim, c.eps)
        self.fast_project_in = nn.Linear(c.dim, c.fast_dim)
        self.fast_embeddings = nn.Embedding(c.codebook_size, c.fast_dim)
        self.fast_layers = nn.ModuleList(TransformerBlock(fast) for _ in range(c.fast_layers))
        self.fast_norm = RMSNorm(c.fast_dim, c.eps)
        self.fast_output = nn.Linear(c.fast_dim, c.codebook_size, bias=False)
        self.apply(self._initialise)
        for layers, count in ((self.layers, c.layers), (self.fast_layers, c.fast_layers)):
            for layer in layers:
                for last in (layer.attention.wo, layer.feed_forward.w2):
                    last.weight.data.div_((2 * count) ** 0.5)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.05)

    def embed(self, columns: Tensor) -> Tensor:
        """columns [B, 1 + N, T] (row 0 token ids, then codes) -> [B, T, D]."""
        c = self.config
        tokens, codes = columns[:, 0], columns[:, 1:]
        semantic = (tokens >= c.semantic_begin_id) & (tokens < c.semantic_begin_id + c.codebook_size)
        offsets = torch.arange(c.num_codebooks)[:, None] * c.codebook_size
        frames = F.embedding_bag(
            (codes + offsets).transpose(1, 2).flatten(0, 1), self.codebook_embeddings.weight, mode="sum"
        )
        x = self.embeddings(tokens)
        return torch.where(semantic[..., None], (x + frames.view_as(x)) / (c.num_codebooks + 1) ** 0.5, x)

    def hidden(self, columns: Tensor) -> Tensor:
        """columns [B, 1 + N, T] -> [B, T, D], after the last norm."""
        x = self.embed(columns)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., D] -> [..., vocab_size]."""
        return hidden @ self.embeddings.weight.T

    def fast_logits(self, hidden: Tensor, codes: Tensor) -> Tensor:
        """hidden [M, D] of frames, their codes [M, N] -> logits [M, N - 1, C] for codebooks 1 to N - 1."""
        x = torch.cat([self.fast_project_in(hidden)[:, None], self.fast_embeddings(codes[:, :-1])], 1)
        for layer in self.fast_layers:
            x = layer(x)
        return self.fast_output(self.fast_norm(x[:, 1:]))
