"""The layout that the fixtures and benchmarks write is the layout of the golden files: names, shapes, keys, types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from fixtures import s2_layout
from fixtures.s2_layout import CodecGeometry, S2Geometry, TensorSpec, Transformer

GOLDEN = Path(__file__).parent / "fixtures" / "golden"

_TINY_RVQ = Transformer(width=64, layers=2, heads=4, kv_heads=4, head_dim=16, feed_forward=96, rope_base=1e4, eps=1e-5)
TINY = S2Geometry(
    slow=Transformer(width=64, layers=3, heads=4, kv_heads=2, head_dim=24, feed_forward=160, qk_norm=True),
    fast=Transformer(width=64, layers=2, heads=4, kv_heads=1, head_dim=16, feed_forward=96),
    codec=CodecGeometry(
        encoder_dim=4,
        decoder_dim=48,
        latent_dim=64,
        encoder_rates=(2, 2, 4, 4),
        decoder_rates=(4, 4, 2, 2),
        encoder_transformer_layers=(0, 0, 0, 2),
        decoder_transformer_layers=(2, 0, 0, 0),
        residual_codebook_size=64,
        semantic_codebook_size=96,
        rvq_window=6,
        rvq=_TINY_RVQ,
    ),
    vocab_size=640,
    codebook_size=96,
    num_codebooks=10,
    semantic_begin_id=512,
    context_length=256,
)
assert TINY.codec is not None
VARIANT = replace(
    TINY,
    slow=replace(TINY.slow, qkv_bias=True, o_bias=True),
    fast=Transformer(
        width=48, layers=2, heads=3, kv_heads=3, head_dim=16, feed_forward=96, qk_norm=True, qkv_bias=True, o_bias=True
    ),
    codec=replace(TINY.codec, residual_codebooks=7),
    num_codebooks=8,
    tie_word_embeddings=False,
    scale_codebook_embeddings=False,
    norm_fastlayer_input=False,
)
EDGE = replace(
    TINY,
    slow=replace(TINY.slow, qk_norm=False, rope_base=5e5, eps=1e-3),
    fast=Transformer(width=64, layers=2, heads=4, kv_heads=1, head_dim=16, feed_forward=96, rope_base=2e5, eps=5e-4),
    codec=replace(
        TINY.codec,
        encoder_dim=8,
        decoder_dim=64,
        latent_dim=128,
        encoder_transformer_layers=(0, 0, 1, 2),
        downsample_factors=(2, 3),
        residual_codebook_size=40,
        semantic_codebook_size=80,
        rope_base=5e3,
        eps=1e-3,
        rvq_window=5,
        rvq=Transformer(
            width=128, layers=2, heads=4, kv_heads=4, head_dim=32, feed_forward=192, rope_base=2e4, eps=3e-3
        ),
    ),
    tie_word_embeddings=False,
    write_key_length=False,
)
GEOMETRIES = {"s2-tiny": TINY, "s2-variant": VARIANT, "s2-edge": EDGE}


def read_fields(path: Path) -> dict[str, tuple[list[str], Any]]:
    """key -> (GGUF type names, value), the file's own counters left out."""
    fields = gguf.GGUFReader(path).fields
    return {key: ([t.name for t in f.types], f.contents()) for key, f in fields.items() if not key.startswith("GGUF.")}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_tensors_are_those_of_the_golden_file(name: str) -> None:
    golden = {
        t.name: (tuple(t.data.shape), t.tensor_type.name) for t in gguf.GGUFReader(GOLDEN / f"{name}.gguf").tensors
    }
    specs = s2_layout.tensor_specs(GEOMETRIES[name])
    assert len({s.name for s in specs}) == len(specs)
    assert {s.name: (s.shape, s.type_name) for s in specs} == golden


@pytest.mark.parametrize("name", GEOMETRIES)
def test_written_keys_are_those_of_the_golden_file(name: str, tmp_path: Path) -> None:
    """By a written file, so that the value types are compared as well."""
    path = tmp_path / "layout.gguf"
    s2_layout.write_model(
        path,
        geometry=GEOMETRIES[name],
        specs=s2_layout.tensor_specs(GEOMETRIES[name]),
        data=lambda spec: np.zeros(spec.shape, np.float32),
    )
    assert read_fields(path) == read_fields(GOLDEN / f"{name}.gguf")


def test_values_survive_writing(tmp_path: Path) -> None:
    """Each tensor's bytes stand where its name says, in every type, streamed one at a time."""
    path = tmp_path / "values.gguf"
    specs = s2_layout.tensor_specs(VARIANT, weight_type="BF16", codec_type="F16", codec_vector_type="F16")
    numbers = {spec.name: i + 1 for i, spec in enumerate(specs)}
    s2_layout.write_model(
        path,
        geometry=VARIANT,
        specs=specs,
        data=lambda spec: np.full(spec.shape, numbers[spec.name], np.float32),
    )
    types = {spec.name: spec.type_name for spec in specs}
    read = gguf.GGUFReader(path).tensors
    assert [t.name for t in read] == [spec.name for spec in specs]
    for tensor in read:
        assert tensor.tensor_type.name == types[tensor.name]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        bits = 8 if types[tensor.name] == "BF16" else 11  # of mantissa, the hidden one included
        np.testing.assert_allclose(values, numbers[tensor.name], rtol=2.0**-bits)


def test_norms_biases_and_codec_stay_unquantized() -> None:
    specs = s2_layout.tensor_specs(replace(s2_layout.WIDE, vocab_size=800), weight_type="Q4_K", codec_type="F16")
    quantized = {s.name for s in specs if s.type_name == "Q4_K"}
    assert {"embeddings.weight", "codebook_embeddings.weight", "fast_output.weight"} < quantized
    assert all(s.shape[-1] % 256 == 0 for s in specs if s.name in quantized)
    for spec in specs:
        if spec.name.startswith("c."):
            vector = len(spec.shape) == 1 or spec.name.endswith("alpha")
            assert spec.type_name == ("F32" if vector else "F16"), spec
        elif len(spec.shape) == 1:
            assert spec.type_name == "F32", spec


def test_a_file_without_fast_ar_or_codec() -> None:
    bare = replace(TINY, fast=None, codec=None)
    names = {s.name for s in s2_layout.tensor_specs(bare)}
    assert not any(n.startswith(("fast_", "c.")) for n in names)
    assert not any("fast" in k and k != "fish_speech.norm_fastlayer_input" for k in s2_layout.metadata(bare))
    assert not any("codec" in k for k in s2_layout.metadata(bare))


def test_presets_have_the_published_sizes() -> None:
    """S2-Pro is the 4 B class with a head of 155776 rows; mini's Slow-AR blocks hold 0.44 B weights."""
    pro = s2_layout.tensor_specs(s2_layout.S2_PRO, weight_type="Q4_K")
    shapes = {s.name: s.shape for s in pro}
    assert shapes["layers.35.attention.wqkv.weight"] == (6144, 2560)
    assert shapes["layers.35.attention.q_norm.weight"] == (128,)
    assert "fast_layers.0.attention.q_norm.weight" not in shapes
    assert shapes["c.decoder.model.1.block.1.conv.weight"] == (1536, 768, 16)
    assert shapes["c.encoder.block.4.block.5.layers.3.feed_forward.w1.weight"] == (3072, 1024)
    assert s2_layout.S2_PRO.codec is not None
    assert s2_layout.S2_PRO.codec.samples_per_frame == 2048
    assert 2e9 < sum(s.nbytes for s in pro if not s.name.startswith("c.")) < 3e9  # each row a whole number of blocks
    mini = s2_layout.tensor_specs(s2_layout.MINI, weight_type="Q8_0")
    blocks = [s for s in mini if s.name.startswith("layers.")]
    assert s2_layout.parameters(blocks) == pytest.approx(0.44e9, rel=0.01)


def test_wrong_geometries_and_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"rows are not a multiple of 256"):
        _ = TensorSpec("w", (4, 64), "Q4_K").nbytes
    with pytest.raises(ValueError, match="hop"):
        CodecGeometry(encoder_rates=(2, 2), encoder_transformer_layers=(0, 0))
    with pytest.raises(ValueError, match="latent_dim"):
        CodecGeometry(latent_dim=512)
    with pytest.raises(ValueError, match=r"expected values of shape \(64,\)"):
        s2_layout.pack(np.zeros(63, np.float32), TensorSpec("norm.weight", (64,)))
    with pytest.raises(ValueError, match="expected 4 bytes, got 3"):
        s2_layout.write_model(
            tmp_path / "x.gguf",
            geometry=TINY,
            specs=[TensorSpec("w", (1,))],
            data=lambda spec: np.zeros(3, np.uint8),
        )
