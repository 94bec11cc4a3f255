"""The codec in plain PyTorch float32: what the core is compared with. Not part of the package.

Owns the network, from the tensors of a GGUF file; leaves reading it to `tests/reference/gguf_weights.py`. Whole
clips only: `TorchCodec(path).decode(codes)`, `TorchEncoder(path).encode(samples)`. Layers are the library's own, called
the ordinary way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from reference.gguf_weights import Weights

Get = Callable[[str], Tensor]  # a tensor of the file by its name below some prefix


class CausalConv(nn.Module):
    """[1, C, T] -> [1, C', T / stride], T a multiple of the stride: zeros on the left alone."""

    def __init__(self, get: Get, name: str, *, dilation: int = 1, stride: int = 1, depthwise: bool = False) -> None:
        super().__init__()
        self.weight, self.bias, self.dilation, self.stride = (
            get(name + ".weight"),
            get(name + ".bias"),
            dilation,
            stride,
        )
        self.groups = self.weight.shape[0] if depthwise else 1
        self.padding = (self.weight.shape[2] - 1) * dilation + 1 - stride

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (self.padding, 0)) if self.padding else x
        return F.conv1d(x, self.weight, self.bias, self.stride, dilation=self.dilation, groups=self.groups)


class CausalTransposedConv(nn.Module):
    """[1, C, T] -> [1, C', stride * T]: the last kernel - stride samples are dropped."""

    def __init__(self, get: Get, name: str, *, stride: int) -> None:
        super().__init__()
        self.weight, self.bias, self.stride = get(name + ".weight"), get(name + ".bias"), stride

    def forward(self, x: Tensor) -> Tensor:
        y = F.conv_transpose1d(x, self.weight, self.bias, stride=self.stride)
        return y[..., : x.shape[-1] * self.stride]


class Snake(nn.Module):
    """x + sin^2(alpha x) / alpha, for each channel."""

    def __init__(self, get: Get, name: str) -> None:
        super().__init__()
        self.alpha = get(name + ".alpha")
        self.inverse = 1 / (self.alpha + 1e-9)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inverse * torch.sin(self.alpha * x).pow(2)


class ResidualUnit(nn.Module):
    """Snake, dilated convolution, snake, pointwise convolution, plus the input."""

    def __init__(self, get: Get, prefix: str, *, dilation: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            Snake(get, prefix + "block.0"),
            CausalConv(get, prefix + "block.1.conv", dilation=dilation),
            Snake(get, prefix + "block.2"),
            CausalConv(get, prefix + "block.3.conv"),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class ConvNeXt(nn.Module):
    """Depthwise convolution, layer norm, two linear layers with GELU between, a gain, plus the input."""

    def __init__(self, get: Get, prefix: str) -> None:
        super().__init__()
        self.depthwise = CausalConv(get, prefix + "dwconv.conv", depthwise=True)
        names = ("norm", "pwconv1", "pwconv2")
        self.norm, self.up, self.down = ((get(f"{prefix}{n}.weight"), get(f"{prefix}{n}.bias")) for n in names)
        self.gamma = get(prefix + "gamma")

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).transpose(1, 2)
        y = F.layer_norm(y, y.shape[-1:], *self.norm, eps=1e-6)
        y = F.linear(F.gelu(F.linear(y, *self.up)), *self.down)
        return x + (self.gamma * y).transpose(1, 2)


class Block(nn.Module):
    """A pre-norm transformer block with rope on interleaved pairs, SwiGLU and a gain on each branch: [1, T, D]."""

    def __init__(self, get: Get, prefix: str, *, heads: int, kv_heads: int, head_dim: int, eps: float) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.eps = heads, kv_heads, head_dim, eps
        self.attention_norm, self.ffn_norm = get(prefix + "attention_norm.weight"), get(prefix + "ffn_norm.weight")
        self.wqkv, self.wo = get(prefix + "attention.wqkv.weight"), get(prefix + "attention.wo.weight")
        self.w1, self.w2, self.w3 = (get(f"{prefix}feed_forward.w{i}.weight") for i in (1, 2, 3))
        self.attention_gain = get(prefix + "attention_layer_scale.gamma")
        self.ffn_gain = get(prefix + "ffn_layer_scale.gamma")

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        T, H, K, hd = x.shape[1], self.heads, self.kv_heads, self.head_dim
        qkv = F.linear(F.rms_norm(x, x.shape[-1:], self.attention_norm, self.eps), self.wqkv)
        q, k, v = (y.view(1, T, -1, hd).transpose(1, 2) for y in qkv.split([H * hd, K * hd, K * hd], dim=-1))
        y = F.scaled_dot_product_attention(rope(q, cos, sin), rope(k, cos, sin), v, attn_mask=mask, enable_gqa=K != H)
        x = x + self.attention_gain * F.linear(y.transpose(1, 2).reshape(1, T, H * hd), self.wo)
        h = F.rms_norm(x, x.shape[-1:], self.ffn_norm, self.eps)
        return x + self.ffn_gain * F.linear(F.silu(F.linear(h, self.w1)) * F.linear(h, self.w3), self.w2)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the interleaved pairs of [1, H, T, hd] by the angles whose cos and sin [T, hd / 2] are given."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class Transformer(nn.Module):
    """Windowed causal blocks and a final norm: [1, D, T] -> [1, D, T]."""

    def __init__(self, get: Get, prefix: str, settings: Callable[[str], Any]) -> None:
        super().__init__()
        heads, local, self.head_dim = settings("n_head"), settings("n_local_heads"), settings("head_dim")
        self.eps, self.base = settings("layer_norm_rms_eps"), settings("rope_freq_base")
        self.window = settings("window_size")
        kv_heads = heads if local == -1 else local
        self.blocks = nn.ModuleList(
            Block(get, f"{prefix}layers.{i}.", heads=heads, kv_heads=kv_heads, head_dim=self.head_dim, eps=self.eps)
            for i in range(settings("n_layer"))
        )
        self.norm = get(prefix + "norm.weight")

    def forward(self, x: Tensor) -> Tensor:
        position = torch.arange(x.shape[-1])
        angles = position[:, None] * self.base ** (-torch.arange(0, self.head_dim, 2) / self.head_dim)
        distance = position[:, None] - position
        mask = (distance >= 0) & (distance < self.window)
        x, cos, sin = x.transpose(1, 2), angles.cos(), angles.sin()
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        return F.rms_norm(x, x.shape[-1:], self.norm, self.eps).transpose(1, 2)


def read(path: str | Path) -> tuple[Get, Callable[[str], Any]]:
    """The codec's tensors and settings in a file, by name."""
    weights = Weights(path, dtype=np.float32)

    def get(name: str) -> Tensor:
        return torch.from_numpy(np.array(weights["c." + name], np.float32))

    return get, lambda name: weights.kv("fish_speech.codec." + name)


def quantizer_names(setting: Callable[[str], Any]) -> list[str]:
    """Prefixes of the quantizers, the semantic one first."""
    residual = range(setting("quantizer_residual_codebooks"))
    return ["quantizer.semantic_quantizer.quantizers.0.", *(f"quantizer.quantizer.quantizers.{i}." for i in residual)]


class TorchCodec(nn.Module):
    """Codes to samples. float32 on the CPU, whatever type the file has."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        get, setting = read(path)
        quantizers = quantizer_names(setting)
        self.codebooks = [get(q + "codebook.weight") for q in quantizers]
        self.projections = nn.ModuleList(CausalConv(get, q + "out_proj") for q in quantizers)
        self.post_module = Transformer(get, "quantizer.post_module.", lambda name: setting("rvq_transformer." + name))
        layers: list[nn.Module] = []
        for i, factor in enumerate(reversed(setting("quantizer_downsample_factor"))):
            p = f"quantizer.upsample.{i}."
            layers += [CausalTransposedConv(get, p + "0.conv", stride=factor), ConvNeXt(get, p + "1.")]
        p, rates = "decoder.model.", setting("decoder_rates")
        layers.append(CausalConv(get, p + "0.conv"))
        for i, rate in enumerate(rates, 1):
            q = f"{p}{i}.block."
            layers += [Snake(get, q + "0"), CausalTransposedConv(get, q + "1.conv", stride=rate)]
            layers += [ResidualUnit(get, f"{q}{j + 2}.", dilation=d) for j, d in enumerate((1, 3, 9))]
        layers += [Snake(get, f"{p}{len(rates) + 1}"), CausalConv(get, f"{p}{len(rates) + 2}.conv"), nn.Tanh()]
        self.decoder = nn.Sequential(*layers)

    def forward(self, codes: Tensor) -> Tensor:
        """Codes [N, T] -> samples [T * samples_per_frame]."""
        x = torch.zeros(())
        for row, codebook, projection in zip(codes, self.codebooks, self.projections, strict=True):
            x = x + projection(F.embedding(row.clamp(max=len(codebook) - 1), codebook).T[None])
        return self.decoder(self.post_module(x)).flatten()

    @torch.inference_mode()
    def decode(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """`forward` on numpy arrays."""
        return np.asarray(self(torch.from_numpy(codes.astype(np.int64))).numpy())


def _fixed(values: dict[str, int], setting: Callable[[str], Any]) -> Callable[[str], Any]:
    """A transformer's settings, with these values in place of the file's."""
    return lambda name: values.get(name) or setting("transformer." + name)


class Quantizer(nn.Module):
    """The nearest row of a codebook by cosine, and what is left: [1, D, T] -> codes [T], [1, D, T]."""

    def __init__(self, get: Get, prefix: str) -> None:
        super().__init__()
        self.codebook, self.unit = get(prefix + "codebook.weight"), F.normalize(get(prefix + "codebook.weight"))
        self.inward, self.outward = CausalConv(get, prefix + "in_proj"), CausalConv(get, prefix + "out_proj")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        codes = (F.normalize(self.inward(x)[0].T) @ self.unit.T).argmax(dim=1)
        return codes, x - self.outward(F.embedding(codes, self.codebook).T[None])


class TorchEncoder(nn.Module):
    """Samples, whole frames of them, to codes."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        get, setting = read(path)
        layers: list[nn.Module] = [CausalConv(get, "encoder.block.0.conv")]
        rates, width = setting("encoder_rates"), setting("encoder_dim")
        for i, rate in enumerate(rates, 1):
            p, width = f"encoder.block.{i}.block.", 2 * width
            layers += [ResidualUnit(get, f"{p}{j}.", dilation=d) for j, d in enumerate((1, 3, 9))]
            layers += [Snake(get, p + "3"), CausalConv(get, p + "4.conv", stride=rate)]
            if count := setting("encoder_transformer_layers")[i - 1]:
                fixed = {"n_head": width // setting("transformer.head_dim"), "n_layer": count, "window_size": 512}
                layers.append(Transformer(get, p + "5.", _fixed(fixed, setting)))
        p = "encoder.block."
        layers += [Snake(get, f"{p}{len(rates) + 1}"), CausalConv(get, f"{p}{len(rates) + 2}.conv")]
        for i, factor in enumerate(setting("quantizer_downsample_factor")):
            p = f"quantizer.downsample.{i}."
            layers += [CausalConv(get, p + "0.conv", stride=factor), ConvNeXt(get, p + "1.")]
        layers.append(Transformer(get, "quantizer.pre_module.", lambda name: setting("rvq_transformer." + name)))
        self.encoder = nn.Sequential(*layers)
        self.quantizers = nn.ModuleList(Quantizer(get, q) for q in quantizer_names(setting))

    def forward(self, samples: Tensor) -> Tensor:
        """Samples [n] -> codes [N, T]."""
        x, codes = self.encoder(samples[None, None]), []
        for quantizer in self.quantizers:
            chosen, x = quantizer(x)
            codes.append(chosen)
        return torch.stack(codes)

    @torch.inference_mode()
    def encode(self, samples: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
        """`forward` on numpy arrays."""
        return np.asarray(self(torch.from_numpy(samples)).numpy(), np.int32)
