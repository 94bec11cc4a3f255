"""The S2 codec as plain torch modules, written for clarity: everything causal, [batch, channels, time].

Owns the architecture. A `Codec`'s state_dict has the published names (`encoder.block.…`, `quantizer.…`,
`decoder.model.…`), so that it converts like a published checkpoint, and with the engine's own arithmetic it is an
oracle for it. Leaves training to `train_codec.py`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.blocks import BlockConfig, RMSNorm, TransformerBlock


@dataclass(frozen=True)
class CodecConfig:
    """Geometry. One code frame is prod(encoder_rates) * prod(downsample_factors) samples."""

    sample_rate: int = 16000
    encoder_dim: int = 8
    encoder_rates: tuple[int, ...] = (4, 4, 4, 5)
    decoder_dim: int = 384
    decoder_rates: tuple[int, ...] = (4, 2, 4, 10)
    latent_dim: int = 128
    downsample_factors: tuple[int, ...] = (2,)
    codebook_dim: int = 34
    semantic_codebook_size: int = 512
    residual_codebooks: int = 5
    residual_codebook_size: int = 512
    layers: int = 1
    heads: int = 4
    head_dim: int = 32
    feed_forward: int = 384
    window: int = 32
    rope_base: float = 10000.0
    eps: float = 1e-5

    @property
    def hop_length(self) -> int:
        return math.prod(self.encoder_rates)

    @property
    def samples_per_frame(self) -> int:
        return self.hop_length * math.prod(self.downsample_factors)

    @property
    def codebook_sizes(self) -> list[int]:
        return [self.semantic_codebook_size] + [self.residual_codebook_size] * self.residual_codebooks

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


# ------------------------------------------------------------------ parts
class CausalConv(nn.Module):
    """Zeros on the left: effective kernel - stride of them."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, dilation: int = 1, groups: int = 1):
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, stride, dilation=dilation, groups=groups)
        self.pad = (kernel - 1) * dilation + 1 - stride

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (self.pad, 0)))


class CausalTransposedConv(nn.Module):
    """The last kernel - stride samples are dropped."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int):
        super().__init__()
        self.conv = nn.ConvTranspose1d(inputs, outputs, kernel, stride)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)[..., : x.shape[-1] * self.stride]


class SnakeFunction(torch.autograd.Function):
    """x + sin²(alpha x) / (alpha + 1e-9). Its own backward: autograd's keeps five arrays and takes twice the time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: Tensor) -> Tensor:
        ctx.save_for_backward(x, alpha)
        return (x * alpha).sin_().square_().div_(alpha + 1e-9).add_(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, alpha = ctx.saved_tensors
        sine = (x * (2 * alpha)).sin_().mul_(grad)  # sin 2ax = 2 sin ax cos ax
        scale = alpha / (alpha + 1e-9)
        grad_x = grad + sine * scale
        squared = (x * alpha).sin_().square_().mul_(grad).sum((0, 2), keepdim=True)
        grad_alpha = (sine * x).sum((0, 2), keepdim=True) / (alpha + 1e-9) - squared / (alpha + 1e-9) ** 2
        return grad_x, grad_alpha


class Snake(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        return SnakeFunction.apply(x, self.alpha)


class ResidualUnit(nn.Module):
    def __init__(self, channels: int, dilation: int):
        super().__init__()
        self.block = nn.Sequential(
            Snake(channels),
            CausalConv(channels, channels, 7, dilation=dilation),
            Snake(channels),
            CausalConv(channels, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x)


class EncoderBlock(nn.Module):
    def __init__(self, channels: int, rate: int):
        super().__init__()
        self.block = nn.Sequential(
            ResidualUnit(channels, 1),
            ResidualUnit(channels, 3),
            ResidualUnit(channels, 9),
            Snake(channels),
            CausalConv(channels, 2 * channels, 2 * rate, stride=rate),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x)


class DecoderBlock(nn.Module):
    def __init__(self, channels: int, rate: int):
        super().__init__()
        half = channels // 2
        self.block = nn.Sequential(
            Snake(channels),
            CausalTransposedConv(channels, half, 2 * rate, rate),
            ResidualUnit(half, 1),
            ResidualUnit(half, 3),
            ResidualUnit(half, 9),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x)


class ConvNeXt(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.dwconv = CausalConv(channels, channels, 7, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1 = nn.Linear(channels, 4 * channels)
        self.pwconv2 = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.dwconv(x).transpose(1, 2))
        y = self.pwconv2(F.gelu(self.pwconv1(y))) * self.gamma
        return x + y.transpose(1, 2)


class WindowedTransformer(nn.Module):
    """Blocks with layer scale, each position seeing the last `window` ones, and a final norm."""

    def __init__(self, config: CodecConfig):
        super().__init__()
        block = BlockConfig(
            dim=config.latent_dim,
            heads=config.heads,
            kv_heads=config.heads,
            head_dim=config.head_dim,
            feed_forward=config.feed_forward,
            rope_base=config.rope_base,
            eps=config.eps,
            layer_scale=True,
            window=config.window,
        )
        self.layers = nn.ModuleList(TransformerBlock(block) for _ in range(config.layers))
        self.norm = RMSNorm(config.latent_dim, config.eps)

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x).transpose(1, 2)


class VectorQuantizer(nn.Module):
    """One codebook: in_proj, the row of the nearest angle, out_proj of that row as it is."""

    def __init__(self, dim: int, codebook_dim: int, size: int):
        super().__init__()
        self.in_proj = nn.Conv1d(dim, codebook_dim, 1)
        self.codebook = nn.Embedding(size, codebook_dim)
        self.out_proj = nn.Conv1d(codebook_dim, dim, 1)

    def encode(self, x: Tensor) -> Tensor:
        """[B, D, T] -> codes [B, T]."""
        angles = F.normalize(self.codebook.weight, dim=1) @ F.normalize(self.in_proj(x), dim=1)
        return angles.argmax(1)

    def decode(self, codes: Tensor) -> Tensor:
        """codes [B, T] -> [B, D, T]."""
        return self.out_proj(self.codebook(codes).transpose(1, 2))


class QuantizerList(nn.Module):
    """Only there to give its members their published name."""

    def __init__(self, members: list[VectorQuantizer]):
        super().__init__()
        self.quantizers = nn.ModuleList(members)


class Quantizer(nn.Module):
    """Downsampling, a transformer, residual quantization; and the way back."""

    def __init__(self, config: CodecConfig):
        super().__init__()
        dim = config.latent_dim
        make = lambda size: VectorQuantizer(dim, config.codebook_dim, size)  # noqa: E731
        self.semantic_quantizer = QuantizerList([make(config.semantic_codebook_size)])
        self.quantizer = QuantizerList([make(config.residual_codebook_size) for _ in range(config.residual_codebooks)])
        self.downsample = nn.ModuleList(
            nn.Sequential(CausalConv(dim, dim, f, stride=f), ConvNeXt(dim)) for f in config.downsample_factors
        )
        self.upsample = nn.ModuleList(
            nn.Sequential(CausalTransposedConv(dim, dim, f, f), ConvNeXt(dim)) for f in config.downsample_factors[::-1]
        )
        self.pre_module = WindowedTransformer(config)
        self.post_module = WindowedTransformer(config)

    def members(self) -> list[VectorQuantizer]:
        return [*self.semantic_quantizer.quantizers, *self.quantizer.quantizers]

    def latent(self, x: Tensor) -> Tensor:
        for stage in self.downsample:
            x = stage(x)
        return self.pre_module(x)

    def encode_latent(self, latent: Tensor) -> Tensor:
        """[B, D, T] -> codes [B, N, T]."""
        codes = []
        for member in self.members():
            codes.append(member.encode(latent))
            latent = latent - member.decode(codes[-1])
        return torch.stack(codes, 1)

    def embed(self, codes: Tensor) -> Tensor:
        """codes [B, N, T] -> the sum of the rows they stand for, [B, D, T]."""
        return sum(member.decode(codes[:, i]) for i, member in enumerate(self.members()))

    def decode(self, codes: Tensor) -> Tensor:
        x = self.post_module(self.embed(codes))
        for stage in self.upsample:
            x = stage(x)
        return x


class Encoder(nn.Module):
    def __init__(self, config: CodecConfig):
        super().__init__()
        width = config.encoder_dim
        layers: list[nn.Module] = [CausalConv(1, width, 7)]
        for rate in config.encoder_rates:
            layers.append(EncoderBlock(width, rate))
            width *= 2
        self.block = nn.Sequential(*layers, Snake(width), CausalConv(width, config.latent_dim, 3))

    def forward(self, samples: Tensor) -> Tensor:
        return self.block(samples)


class Decoder(nn.Module):
    def __init__(self, config: CodecConfig):
        super().__init__()
        width = config.decoder_dim
        layers: list[nn.Module] = [CausalConv(config.latent_dim, width, 7)]
        for rate in config.decoder_rates:
            layers.append(DecoderBlock(width, rate))
            width //= 2
        self.model = nn.Sequential(*layers, Snake(width), CausalConv(width, 1, 7), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


class Codec(nn.Module):
    """samples [B, n] <-> codes [B, N, T]; n is a whole number of frames."""

    def __init__(self, config: CodecConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.quantizer = Quantizer(config)
        self.decoder = Decoder(config)

    def latent(self, samples: Tensor) -> Tensor:
        return self.quantizer.latent(self.encoder(samples[:, None]))

    def encode(self, samples: Tensor) -> Tensor:
        return self.quantizer.encode_latent(self.latent(samples))

    def decode(self, codes: Tensor) -> Tensor:
        return self.decoder(self.quantizer.decode(codes))[:, 0]
