"""The codec of an S2 checkpoint: its geometry, which is read off its tensors, and the plan of them.

Owns both. Published checkpoints have no config of the codec: rates are half the kernels of the strided convolutions,
widths, depths and codebooks are shapes, and the few numbers that no shape tells are in `CodecSettings`. Weight-norm, in
either of PyTorch's forms, is folded. Leaves checking and writing to `plan.py` and `model_file.py`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from dualar._native import _core
from dualar.convert.checkpoint import Checkpoint
from dualar.convert.gguf_writer import Value
from dualar.convert.plan import Planned, Source, Storage, same, vector, weight_normed
from dualar.gguf import names

_OF_FILE = "c."  # the beginning of the codec's names in the model file
_WEIGHT_NORMS = (("weight_g", "weight_v"), ("parametrizations.weight.original0", "parametrizations.weight.original1"))


@dataclass(frozen=True, kw_only=True)
class CodecSettings:
    """What no shape tells, as the published codec has it.

    window and head_dim are those of the transformers around the quantizer; rope_base and eps also the encoder's.
    """

    sample_rate: int = 44100
    head_dim: int = 64
    encoder_head_dim: int = 64
    window: int = 128
    rope_base: float = 10000.0
    eps: float = 1e-5


@dataclass(frozen=True)
class _Geometry:
    encoder_dim: int
    encoder_rates: list[int]
    encoder_layers: list[int]  # of the transformer at each rate
    decoder_dim: int
    decoder_rates: list[int]
    latent_dim: int
    factors: list[int]
    codebook_dim: int
    codebook_sizes: list[int]  # the semantic one first
    layers: int
    feed_forward: int


def codec_metadata(checkpoint: Checkpoint, settings: CodecSettings) -> dict[str, Value]:
    """The model file's keys of the codec. ModelError where the tensors show no geometry."""
    g = _geometry(checkpoint)
    hop = 1
    for rate in g.encoder_rates:
        hop *= rate
    rvq, encoder = names.RVQ_TRANSFORMER, names.ENCODER_TRANSFORMER
    shared: dict[str, Value] = {
        names.LOCAL_HEADS: -1,
        names.TRANSFORMER_ROPE_BASE: settings.rope_base,
        names.TRANSFORMER_EPSILON: settings.eps,
    }
    return {
        names.SAMPLE_RATE: settings.sample_rate,
        names.HOP_LENGTH: hop,
        names.ENCODER_DIM: g.encoder_dim,
        names.DECODER_DIM: g.decoder_dim,
        names.LATENT_DIM: g.latent_dim,
        names.ENCODER_RATES: g.encoder_rates,
        names.DECODER_RATES: g.decoder_rates,
        names.ENCODER_TRANSFORMER_LAYERS: g.encoder_layers,
        names.DOWNSAMPLE_FACTOR: g.factors,
        names.QUANTIZER_INPUT_DIM: g.latent_dim,
        names.CODEBOOK_DIM: g.codebook_dim,
        names.RESIDUAL_CODEBOOKS: len(g.codebook_sizes) - 1,
        names.RESIDUAL_CODEBOOK_SIZE: g.codebook_sizes[-1],
        names.SEMANTIC_CODEBOOK_SIZE: g.codebook_sizes[0],
        **{encoder + key: value for key, value in shared.items()},
        encoder + names.HEAD_DIM: settings.encoder_head_dim,
        **{rvq + key: value for key, value in shared.items()},
        rvq + names.HEAD_DIM: settings.head_dim,
        rvq + names.WINDOW_SIZE: settings.window,
        rvq + names.LAYERS: g.layers,
        rvq + names.HEADS: g.latent_dim // settings.head_dim,
        rvq + names.DIM: g.latent_dim,
        rvq + names.TRANSFORMER_FEED_FORWARD: g.feed_forward,
    }


def codec_plan(checkpoint: Checkpoint, settings: CodecSettings) -> list[Planned]:
    """Every tensor of the codec. ModelError as `codec_metadata`."""
    return _Planner(checkpoint, settings, _geometry(checkpoint)).plan()


# ------------------------------------------------------------------ the geometry
def _direction(checkpoint: Checkpoint, name: str) -> tuple[int, ...] | None:
    """The shape of a weight, whether it is weight-normed or not; None where there is none."""
    for part in ("weight", *(direction for _, direction in _WEIGHT_NORMS)):
        if f"{name}.{part}" in checkpoint.tensors:
            return checkpoint.tensors[f"{name}.{part}"].shape
    return None


def _geometry(checkpoint: Checkpoint) -> _Geometry:
    def shape(name: str, axes: int) -> tuple[int, ...]:
        found = _direction(checkpoint, name)
        if found is None or len(found) != axes or 0 in found:
            got = "no such tensor" if found is None else str(list(found))
            raise _core.ModelError(f"[{name}] expected a weight of {axes} axes in {checkpoint.source}, got {got}")
        return found

    def rates(pattern: str, first: int, divisor: int) -> list[int]:
        found: list[int] = []
        for i in itertools.count(first):
            if _direction(checkpoint, pattern.format(i)) is None:
                return found
            kernel = shape(pattern.format(i), 3)[2]
            if kernel % divisor:
                raise _core.ModelError(
                    f"[{pattern.format(i)}] expected a kernel of {divisor} times the rate, got {kernel}"
                )
            found.append(kernel // divisor)
        raise AssertionError("unreachable")

    def layers(prefix: str) -> int:
        return next(
            i for i in itertools.count() if f"{prefix}{names.LAYER}{i}.{names.ATTENTION_NORM}" not in checkpoint.tensors
        )

    encoder_rates = rates("encoder.block.{}.block.4.conv", 1, 2)
    quantizers = ["quantizer.semantic_quantizer.quantizers.0"]
    while _direction(checkpoint, f"quantizer.quantizer.quantizers.{len(quantizers) - 1}.codebook") is not None:
        quantizers.append(f"quantizer.quantizer.quantizers.{len(quantizers) - 1}")
    codebooks = [shape(f"{name}.codebook", 2) for name in quantizers]
    post = "quantizer.post_module."
    return _Geometry(
        encoder_dim=shape("encoder.block.0.conv", 3)[0],
        encoder_rates=encoder_rates,
        encoder_layers=[layers(f"encoder.block.{i}.block.5.") for i in range(1, len(encoder_rates) + 1)],
        decoder_dim=shape("decoder.model.0.conv", 3)[0],
        decoder_rates=rates("decoder.model.{}.block.1.conv", 1, 2),
        latent_dim=shape("decoder.model.0.conv", 3)[1],
        factors=rates("quantizer.downsample.{}.0.conv", 0, 1),
        codebook_dim=codebooks[0][1],
        codebook_sizes=[size for size, _ in codebooks],
        layers=layers(post),
        feed_forward=shape(f"{post}layers.0.{names.W1.removesuffix('.weight')}", 2)[0],
    )


# ------------------------------------------------------------------ the plan
class _Planner:
    def __init__(self, checkpoint: Checkpoint, settings: CodecSettings, geometry: _Geometry) -> None:
        self._tensors = checkpoint.tensors
        self._settings = settings
        self._g = geometry

    def plan(self) -> list[Planned]:
        return [*self._encoder(), *self._quantizer(), *self._decoder()]

    def _weight(self, name: str, shape: tuple[int, ...]) -> Planned:
        for gain, direction in _WEIGHT_NORMS:
            if f"{name}.{direction}" in self._tensors:
                return weight_normed(
                    f"{_OF_FILE}{name}.weight",
                    Source(f"{name}.{gain}", (shape[0], 1, 1)),
                    Source(f"{name}.{direction}", shape),
                    Storage.CODEC,
                )
        return same(f"{_OF_FILE}{name}.weight", f"{name}.weight", shape, Storage.CODEC)

    def _vector(self, name: str, size: int) -> Planned:
        return vector(_OF_FILE + name, name, size)

    def _conv(self, name: str, outputs: int, inputs: int, kernel: int) -> list[Planned]:
        return [self._weight(name, (outputs, inputs, kernel)), self._vector(f"{name}.bias", outputs)]

    def _transposed(self, name: str, inputs: int, outputs: int, kernel: int) -> list[Planned]:
        return [self._weight(name, (inputs, outputs, kernel)), self._vector(f"{name}.bias", outputs)]

    def _snake(self, name: str, channels: int) -> Planned:
        return same(f"{_OF_FILE}{name}.alpha", f"{name}.alpha", (1, channels, 1), Storage.VECTOR)

    def _residual_unit(self, name: str, channels: int) -> list[Planned]:
        return [
            self._snake(f"{name}.block.0", channels),
            *self._conv(f"{name}.block.1.conv", channels, channels, 7),
            self._snake(f"{name}.block.2", channels),
            *self._conv(f"{name}.block.3.conv", channels, channels, 1),
        ]

    def _convnext(self, name: str, width: int) -> list[Planned]:
        return [
            *self._conv(f"{name}.dwconv.conv", width, 1, 7),
            self._vector(f"{name}.norm.weight", width),
            self._vector(f"{name}.norm.bias", width),
            self._weight(f"{name}.pwconv1", (4 * width, width)),
            self._vector(f"{name}.pwconv1.bias", 4 * width),
            self._weight(f"{name}.pwconv2", (width, 4 * width)),
            self._vector(f"{name}.pwconv2.bias", width),
            self._vector(f"{name}.gamma", width),
        ]

    def _transformer(self, name: str, width: int, head_dim: int, layers: int, feed_forward: int) -> list[Planned]:
        heads = width // head_dim * head_dim
        plan = []
        for i in range(layers):
            at = f"{name}.{names.LAYER}{i}."
            plan += [
                self._vector(at + names.ATTENTION_NORM, width),
                self._weight(at + names.WQKV, (3 * heads, width)),
                self._weight(at + names.WO, (width, heads)),
                self._vector(at + names.FFN_NORM, width),
                self._weight((at + names.W1).removesuffix(".weight"), (feed_forward, width)),
                self._weight((at + names.W2).removesuffix(".weight"), (width, feed_forward)),
                self._weight((at + names.W3).removesuffix(".weight"), (feed_forward, width)),
                self._vector(at + names.ATTENTION_SCALE, width),
                self._vector(at + names.FFN_SCALE, width),
            ]
        return [*plan, self._vector(f"{name}.norm.weight", width)]

    def _encoder(self) -> list[Planned]:
        g, width = self._g, self._g.encoder_dim
        plan = self._conv("encoder.block.0.conv", width, 1, 7)
        for i, (rate, layers) in enumerate(zip(g.encoder_rates, g.encoder_layers, strict=True), 1):
            at = f"encoder.block.{i}.block"
            for j in range(3):
                plan += self._residual_unit(f"{at}.{j}", width)
            plan += [self._snake(f"{at}.3", width), *self._conv(f"{at}.4.conv", 2 * width, width, 2 * rate)]
            width *= 2
            if layers:
                plan += self._transformer(f"{at}.5", width, self._settings.encoder_head_dim, layers, 3 * width)
        n = len(g.encoder_rates)
        plan.append(self._snake(f"encoder.block.{n + 1}", width))
        return plan + self._conv(f"encoder.block.{n + 2}.conv", g.latent_dim, width, 3)

    def _quantizer(self) -> list[Planned]:
        g, dim, plan = self._g, self._g.latent_dim, []
        for module in ("pre_module", "post_module"):
            plan += self._transformer(f"quantizer.{module}", dim, self._settings.head_dim, g.layers, g.feed_forward)
        for i, factor in enumerate(g.factors):
            plan += self._conv(f"quantizer.downsample.{i}.0.conv", dim, dim, factor)
            plan += self._convnext(f"quantizer.downsample.{i}.1", dim)
        for i, factor in enumerate(reversed(g.factors)):
            plan += self._transposed(f"quantizer.upsample.{i}.0.conv", dim, dim, factor)
            plan += self._convnext(f"quantizer.upsample.{i}.1", dim)
        members = ["quantizer.semantic_quantizer.quantizers.0"]
        members += [f"quantizer.quantizer.quantizers.{i}" for i in range(len(g.codebook_sizes) - 1)]
        sizes = [g.codebook_sizes[0]] + [g.codebook_sizes[-1]] * (len(g.codebook_sizes) - 1)
        for member, size in zip(members, sizes, strict=True):
            plan += self._conv(f"{member}.in_proj", g.codebook_dim, dim, 1)
            plan.append(self._weight(f"{member}.codebook", (size, g.codebook_dim)))
            plan += self._conv(f"{member}.out_proj", dim, g.codebook_dim, 1)
        return plan

    def _decoder(self) -> list[Planned]:
        g, width = self._g, self._g.decoder_dim
        plan = self._conv("decoder.model.0.conv", width, g.latent_dim, 7)
        for i, rate in enumerate(g.decoder_rates, 1):
            at = f"decoder.model.{i}.block"
            plan += [self._snake(f"{at}.0", width), *self._transposed(f"{at}.1.conv", width, width // 2, 2 * rate)]
            width //= 2
            for j in range(2, 5):
                plan += self._residual_unit(f"{at}.{j}", width)
        n = len(g.decoder_rates)
        plan.append(self._snake(f"decoder.model.{n + 1}", width))
        return plan + self._conv(f"decoder.model.{n + 2}.conv", 1, width, 7)
