"""The numpy reference agrees with the published code's goldens, and reads every weight type it may be asked for.

Tolerances are those of the goldens: logits and hidden 1e-4 + 1e-4 relative, audio 3e-5, latent 1e-4, codes equal.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from fixtures import s2_layout
from reference.gguf_weights import Weights
from reference.s2 import Codec, DualAR

GOLDEN = Path(__file__).parent / "fixtures" / "golden"
MODELS = ("s2-tiny", "s2-variant", "s2-edge")
AR_TOLERANCE: dict[str, Any] = {"atol": 1e-4, "rtol": 1e-4}


@pytest.fixture(params=[(m, d) for m in MODELS for d in ("float64", "float32")], ids=lambda p: f"{p[0]}-{p[1]}")
def model(request: pytest.FixtureRequest) -> tuple[Weights, Any]:
    name, dtype = request.param
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        return Weights(GOLDEN / f"{name}.gguf", dtype=dtype), dict(arrays)


def test_prefill(model: tuple[Weights, Any]) -> None:
    w, z = model
    logits, hidden = DualAR(w).session().feed(z["prompt"])
    assert logits.dtype == hidden.dtype == w.dtype
    np.testing.assert_allclose(logits, z["prefill_logits_all"], **AR_TOLERANCE)
    np.testing.assert_allclose(hidden, z["prefill_hidden_all"], **AR_TOLERANCE)


def test_forced_frames(model: tuple[Weights, Any]) -> None:
    w, z = model
    ar = DualAR(w)
    session = ar.session()
    _, hidden = session.feed(z["prompt"])
    for t, codes in enumerate(z["forced_codes"].T):
        fast = [ar.fast_decode(hidden[-1], codes[:k]) for k in range(1, ar.num_codebooks)]
        np.testing.assert_allclose(fast, z["forced_fast_logits"][t], **AR_TOLERANCE)
        logits, hidden = session.feed(np.concatenate([[ar.semantic_begin + codes[0]], codes])[:, None])
        np.testing.assert_allclose(logits[-1], z["forced_step_logits"][t], **AR_TOLERANCE)
        np.testing.assert_allclose(hidden[-1], z["forced_step_hidden"][t], **AR_TOLERANCE)
    assert session.position == z["prompt"].shape[1] + z["forced_codes"].shape[1]


def test_greedy_run(model: tuple[Weights, Any]) -> None:
    w, z = model
    codes, ended = DualAR(w).greedy(z["prompt"], max_frames=40, im_end=int(z["im_end_id"]))
    np.testing.assert_array_equal(codes, z["greedy_codes"])
    assert ended == z["greedy_ended"]


def test_prefill_in_parts_is_prefill_at_once(model: tuple[Weights, Any]) -> None:
    w, z = model
    ar = DualAR(w)
    whole = ar.session().feed(z["prompt"])
    session = ar.session()
    parts = [session.feed(part) for part in np.split(z["prompt"], [1, 7, 20], axis=1)]
    tolerance = AR_TOLERANCE if w.dtype == np.float32 else {"atol": 1e-11, "rtol": 1e-11}
    for i in range(2):
        np.testing.assert_allclose(np.concatenate([p[i] for p in parts]), whole[i], **tolerance)


def test_codec_decode(model: tuple[Weights, Any]) -> None:
    w, z = model
    audio = Codec(w).decode(z["codec_codes"])
    assert audio.dtype == w.dtype
    np.testing.assert_allclose(audio, z["codec_audio"], atol=3e-5, rtol=0)


def decided(margin: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.bool_]:
    """margin [N, T] -> the entries above each column's first choice with a margin under 1e-3."""
    return np.asarray(np.cumsum(margin < 1e-3, axis=0) == 0)


def test_codec_encode(model: tuple[Weights, Any]) -> None:
    w, z = model
    codec = Codec(w)
    latent = codec.latent(z["codec_wav"])
    np.testing.assert_allclose(latent, z["codec_encoder_latent"], atol=1e-4, rtol=0)
    codes, margin = codec.quantize(latent)
    sure = decided(z["codec_encoded_margin"])
    assert sure.mean() > 0.5  # else this test says little
    np.testing.assert_array_equal(codes[sure], z["codec_encoded"][sure])
    np.testing.assert_allclose(margin[sure], z["codec_encoded_margin"][sure], atol=1e-4)


# ------------------------------------------------------------------ weight types
_NARROW = replace(
    s2_layout.WIDE,
    slow=replace(s2_layout.WIDE.slow, width=64, heads=2, kv_heads=1, head_dim=32, feed_forward=96, layers=1),
    fast=None,
    codec=None,
    vocab_size=96,
    codebook_size=32,
    num_codebooks=2,
    semantic_begin_id=64,
)


# The largest rounding error of each type, relative to its tensor's largest value: half a unit in the last place; for
# Q8_0 half a step of max / 127 and the scale's own rounding to F16; for Q4_0 the far end of an uneven block, clipped
# by one whole step of max / 8.
_WORST = {"F32": 0.0, "F16": 2.0**-11, "BF16": 2.0**-8, "Q8_0": 0.5 / 127 + 2.0**-11, "Q4_0": 1 / 8}


@pytest.mark.parametrize("type_name", _WORST)
def test_weights_are_dequantized(type_name: str, tmp_path: Path) -> None:
    """What `Weights` gives is what the blocks mean, and the model runs on it: nothing read as bytes."""
    rng = np.random.default_rng(5)
    specs = s2_layout.tensor_specs(_NARROW, weight_type=type_name)
    values = {s.name: rng.standard_normal(s.shape, np.float32) / np.float32(8) for s in specs}
    path = tmp_path / "model.gguf"
    s2_layout.write_model(path, geometry=_NARROW, specs=specs, data=lambda s: values[s.name])
    w = Weights(path, dtype=np.float32)
    qtype = gguf.GGMLQuantizationType[type_name]
    for spec in specs:
        want = values[spec.name]
        if spec.type_name != "F32":
            want = gguf.quants.dequantize(gguf.quants.quantize(want, qtype), qtype)
            assert w.type_name(spec.name) == type_name
        np.testing.assert_array_equal(w[spec.name], want, err_msg=spec.name)
        allowed = _WORST[type_name] * np.abs(values[spec.name]).max()
        np.testing.assert_allclose(w[spec.name], values[spec.name], atol=allowed, rtol=0, err_msg=spec.name)
    prompt = np.array([[3, 70, 5], [0, 6, 0], [0, 31, 0]])
    logits, hidden = DualAR(w).session().feed(prompt)
    assert logits.shape == (3, 96) and hidden.shape == (3, 64)
    assert np.isfinite(logits).all()


def test_float64_changes_the_arithmetic_only() -> None:
    single, double = (Weights(GOLDEN / "s2-tiny.gguf", dtype=d) for d in (np.float32, np.float64))
    assert single.names() == double.names()
    for name in ("embeddings.weight", "c.decoder.model.1.block.0.alpha"):
        np.testing.assert_array_equal(single[name].astype(np.float64), double[name])
