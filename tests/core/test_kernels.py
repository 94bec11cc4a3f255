"""The CPU kernels, every variant that this machine runs, against numpy in float64."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest
from core_testing import testing
from dualar import _core
from hypothesis import given, settings
from hypothesis import strategies as st

VARIANTS = testing.variants()
variants = pytest.mark.parametrize("variant", VARIANTS)


def windows(x: np.ndarray, *, taps: int, stride: int, dilation: int) -> np.ndarray:
    """[rows, taps * channels]: what each row of the product sees."""
    rows = (len(x) - (taps - 1) * dilation - 1) // stride + 1
    index = np.arange(rows)[:, None] * stride + np.arange(taps) * dilation
    seen: np.ndarray = x[index].reshape(rows, -1)
    return seen


def check(variant: str, *, columns: int, channels: int, n: int, half: bool, threads: int, **shape: int) -> None:
    rng = np.random.default_rng([columns, channels, n])
    shape = {"taps": 1, "stride": 1, "dilation": 1} | shape
    x = rng.standard_normal((columns, channels)).astype(np.float32)
    weights = rng.standard_normal((n, shape["taps"] * channels)).astype(np.float32)
    if half:
        weights = weights.astype(np.float16).astype(np.float32)  # as the file would have them: nothing is lost
    period = n // 2 if n % 2 == 0 else n
    bias = rng.standard_normal(period).astype(np.float32)
    seen = windows(x.astype(np.float64), **shape)
    want = seen @ weights.T.astype(np.float64) + np.tile(bias, n // period)
    options: dict[str, Any] = {"bias": bias, "half": half, "threads": threads, "variant": variant, **shape}
    got = testing.product(x, weights, **options)
    bound = 2e-6 * np.sqrt(weights.shape[1]) * (np.abs(seen).max() * np.abs(weights).max() + 1)
    np.testing.assert_allclose(got, want, atol=bound, rtol=0)
    residual = rng.standard_normal(want.shape).astype(np.float32)
    np.testing.assert_allclose(
        testing.product(x, weights, residual=residual, **options), want + residual, atol=bound, rtol=0
    )


@variants
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        {"columns": 1, "channels": 1, "n": 1},
        {"columns": 1, "channels": 80, "n": 96},  # one row, as a streamed frame has
        {"columns": 100, "channels": 96, "n": 1, "taps": 7},  # narrow: the last convolution
        {"columns": 61, "channels": 24, "n": 33, "taps": 7, "dilation": 9},  # a panel with one column, uneven rows
        {"columns": 64, "channels": 48, "n": 64, "taps": 8, "stride": 4},  # strided, as the encoder's
        {"columns": 300, "channels": 130, "n": 260, "taps": 7, "dilation": 3},  # more than the cached bytes
        {"columns": 13, "channels": 7, "n": 3},
    ],
)
def test_product(variant: str, half: bool, shape: dict[str, int]) -> None:
    for threads in (1, 2, 5):
        check(variant, half=half, threads=threads, **shape)


@variants
@settings(max_examples=60, deadline=None)
@given(
    columns=st.integers(1, 60),
    channels=st.integers(1, 40),
    n=st.integers(1, 80),
    taps=st.integers(1, 8),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 5),
    half=st.booleans(),
    threads=st.integers(1, 4),
)
def test_product_of_any_shape(
    variant: str, columns: int, channels: int, n: int, taps: int, stride: int, dilation: int, half: bool, threads: int
) -> None:
    columns += (taps - 1) * dilation
    check(
        variant, columns=columns, channels=channels, n=n, half=half, threads=threads,
        taps=taps, stride=stride, dilation=dilation,
    )  # fmt: skip


@variants
def test_large_activations_do_not_overflow(variant: str) -> None:
    """F16 weights never narrow the activations: 1e6 is far above F16's 65504."""
    x, weights = np.full((3, 8), 1e6, np.float32), np.full((40, 8), 2.0, np.float32)
    got = testing.product(x, weights, bias=np.zeros(40, np.float32), half=True, variant=variant)
    np.testing.assert_array_equal(got, np.full((3, 40), 1.6e7, np.float32))


@variants
def test_snake_is_the_formula(variant: str) -> None:
    """Small, usual and large arguments, alpha of both signs, tiny and zero."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(4000), rng.standard_normal(4000) * 300, [0.0, 1e-8, 1e5, -7e4]])
    alpha = np.concatenate([rng.standard_normal(7000), rng.standard_normal(1000) * 1e-4, [0.0, 0.0, 1.0, 2.0]])
    x, alpha = x.astype(np.float32), alpha.astype(np.float32)
    a, y = alpha.astype(np.float64), (alpha * x).astype(np.float64)  # the product is float32's in both
    inverse = 1 / (alpha + np.float32(1e-9)).astype(np.float64)
    want = x + np.sin(y) ** 2 * inverse
    scale = np.maximum(np.abs(want), np.minimum(np.abs(inverse), 1 / np.maximum(np.abs(a), 1e-9)))
    order = np.argsort(np.abs(y))  # in rows, so that only those with a large argument take the slow way
    for row in np.array_split(order, 20):
        got = testing.snake(x[row], alpha[row], variant)
        assert (np.abs(got - want[row]) <= 4e-7 * np.maximum(scale[row], 1)).all()


@variants
def test_snake_passes_on_what_is_not_a_number(variant: str) -> None:
    got = testing.snake(np.array([np.nan, np.inf, 1.0] * 20, np.float32), np.ones(60, np.float32), variant)
    assert np.isnan(got[0::3]).all() and np.isnan(got[1::3]).all() and np.isfinite(got[2::3]).all()


@variants
def test_elu(variant: str) -> None:
    rng = np.random.default_rng(7)
    x = np.concatenate([rng.standard_normal(1003) * scale for scale in (1e-6, 0.1, 3.0, 200.0)]).astype(np.float32)
    x = np.concatenate([x, np.array([0, -0.0, 88, -88, 1e38, -1e38, np.inf, -np.inf], np.float32)])
    want = np.where(x > 0, x, np.expm1(np.minimum(x, 0).astype(np.float64)))
    np.testing.assert_allclose(testing.elu(x, variant), want, atol=2e-7, rtol=0)
    assert np.isnan(testing.elu(np.full(20, np.nan, np.float32), variant)).all()


def test_a_variant_for_this_machine_and_a_plain_one() -> None:
    assert VARIANTS[-1] == "plain"
    assert set(VARIANTS) <= {"avx512", "avx2", "neon_dot", "neon", "plain"}
    if platform.machine() in ("aarch64", "arm64"):
        assert VARIANTS[-2:] == ["neon", "plain"]
    else:  # as numpy finds it, by the processor's own answers
        has = np._core._multiarray_umath.__cpu_features__  # type: ignore[attr-defined]
        wanted = {"avx2": ["AVX2", "FMA3", "F16C"], "avx512": ["AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL"]}
        wanted["avx512"] += ["AVX512VNNI", *wanted["avx2"]]
        assert set(VARIANTS) - {"plain"} == {name for name, needs in wanted.items() if all(has[key] for key in needs)}
    with pytest.raises(ValueError, match="variant"):
        testing.snake(np.zeros(1, np.float32), np.zeros(1, np.float32), "none")


QUANTIZED = ["Q8_0", "Q4_0", "Q4_K"]


def rounded(x: np.ndarray) -> np.ndarray:
    """Activations as the kernels round them: blocks of 32 to 8 bits, ties to even."""
    blocks = x.reshape(len(x), -1, 32)
    largest = np.abs(blocks).max(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(largest > 0, np.float32(127) / largest, np.float32(0))
    steps = np.round(blocks * inverse)
    found: np.ndarray = (steps.astype(np.float64) * (largest / np.float32(127))).reshape(x.shape)
    return found


@variants
@pytest.mark.parametrize("type_name", QUANTIZED)
@pytest.mark.parametrize(("n", "depth"), [(1, 256), (16, 256), (37, 512), (70, 1024)])
@pytest.mark.parametrize("columns", [1, 3, 4, 13])
def test_quantized_product(variant: str, type_name: str, n: int, depth: int, columns: int) -> None:
    rng = np.random.default_rng([n, depth, columns])
    rows = _core.quantize(rng.standard_normal((n, depth)).astype(np.float32), type_name)
    x = rng.standard_normal((columns, depth)).astype(np.float32) * 3
    x[0, :32] = 0  # a block without a scale
    want = rounded(x) @ testing.dequantize(rows, type_name, n, depth).T.astype(np.float64)
    for threads in (1, 3):
        got = testing.quantized_product(x, rows, type_name, threads=threads, variant=variant)
        np.testing.assert_allclose(got, want, atol=2e-6 * depth, rtol=2e-6)


@variants
@pytest.mark.parametrize("type_name", QUANTIZED)
def test_quantized_product_at_its_largest_values(variant: str, type_name: str) -> None:
    """Weights and activations at both ends of their range: no sum of 8-bit products may saturate."""
    signs = np.where(np.arange(256) % 2, 1.0, -1.0).astype(np.float32)
    weights = np.stack([signs, -signs, np.ones(256, np.float32), -np.ones(256, np.float32)] * 5)
    x = np.stack([signs, -signs, np.ones(256, np.float32)])
    rows = _core.quantize(weights, type_name)
    want = rounded(x) @ testing.dequantize(rows, type_name, len(weights), 256).T.astype(np.float64)
    got = testing.quantized_product(x, rows, type_name, variant=variant)
    np.testing.assert_allclose(got, want, atol=1e-3)


@variants
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_quantized_product_does_not_hide_what_is_not_a_number(variant: str, bad: float) -> None:
    rows = _core.quantize(np.ones((20, 256), np.float32), "Q8_0")
    x = np.ones((2, 256), np.float32)
    x[1, 77] = bad
    got = testing.quantized_product(x, rows, "Q8_0", variant=variant)
    assert np.isfinite(got[0]).all() and np.isnan(got[1]).all()


def test_every_variant_gives_the_same_quantized_product() -> None:
    rng = np.random.default_rng(0)
    rows = _core.quantize(rng.standard_normal((50, 512)).astype(np.float32), "Q4_K")
    x = rng.standard_normal((5, 512)).astype(np.float32)
    results = [testing.quantized_product(x, rows, "Q4_K", variant=variant) for variant in VARIANTS]
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-5, atol=1e-4)


@variants
def test_gate(variant: str) -> None:
    rng = np.random.default_rng(6)
    for scale in (0.01, 1.0, 20.0, 1e4):
        a, b = (
            (rng.standard_normal(1003) * scale).astype(np.float32),
            (rng.standard_normal(1003) * scale).astype(np.float32),
        )
        want = np.tanh(a.astype(np.float64)) / (1 + np.exp(np.clip(-b.astype(np.float64), None, 700)))
        np.testing.assert_allclose(testing.gate(a, b, variant), want, atol=4e-7, rtol=0)
    edges = np.array([0, -0.0, np.inf, -np.inf, 88, -88, 1e38, -1e38, 15.0, -15.0], np.float32)
    a, b = (x.ravel() for x in np.meshgrid(edges, edges))
    want = np.tanh(a.astype(np.float64)) / (1 + np.exp(np.clip(-b.astype(np.float64), None, 700)))
    np.testing.assert_allclose(testing.gate(a, b, variant), want, atol=4e-7, rtol=0)
    nan, one = np.full(20, np.nan, np.float32), np.ones(20, np.float32)
    assert np.isnan(testing.gate(nan, one, variant)).all() and np.isnan(testing.gate(one, nan, variant)).all()


@variants
def test_exponential(variant: str) -> None:
    x = -np.concatenate([np.linspace(0, 87, 20_011), np.logspace(-30, 1, 500), [0.0]]).astype(np.float32)
    np.testing.assert_allclose(testing.exponential(x, variant), np.exp(x.astype(np.float64)), rtol=5e-7)
    far = testing.exponential(np.array([-88, -1e30, -np.inf], np.float32), variant)
    assert (far >= 0).all() and (far < 1e-37).all()
    assert np.isnan(testing.exponential(np.array([np.nan], np.float32), variant)).all()


@variants
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 8, 13])
@pytest.mark.parametrize("n", [3, 16, 48, 65, 128, 250])
def test_a_product_in_two_parts_has_the_same_bits(variant: str, half: bool, rows: int, n: int) -> None:
    """However many rows are computed together, and whether a row's sums were begun in another call."""
    rng = np.random.default_rng([rows, n])
    x = rng.standard_normal((rows + 4, 24)).astype(np.float32)
    weights, bias = (rng.standard_normal(size).astype(np.float32) for size in ((n, 72), n))
    options: dict[str, Any] = {"taps": 3, "dilation": 2, "half": half, "variant": variant, "bias": bias}
    whole = testing.product(x, weights, **options)
    for split in (1, 2):
        np.testing.assert_array_equal(testing.product(x, weights, split=split, **options), whole)
    for row in range(rows):
        np.testing.assert_array_equal(testing.product(x[row : row + 5], weights, **options)[0], whole[row])


def attention(q: np.ndarray, keys: np.ndarray, values: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The formula in float64: q [H, hd], keys and values [KV, T, hd], seen bool [T]."""
    share = len(q) // len(keys)
    k, v = (np.repeat(x.astype(np.float64), share, axis=0) for x in (keys, values))
    scores = np.einsum("hd,htd->ht", q.astype(np.float64), k) / np.sqrt(q.shape[1])
    scores[:, ~seen] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: np.ndarray = np.einsum("ht,htd->hd", weights / weights.sum(axis=1, keepdims=True), v)
    return found


@variants
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "rows"),
    [(4, 2, 24, 1), (16, 8, 128, 300), (32, 8, 128, 65), (6, 1, 20, 64), (3, 3, 16, 129), (10, 2, 5, 200)],
)
def test_attention(variant: str, half: bool, heads: int, kv_heads: int, dim: int, rows: int) -> None:
    rng = np.random.default_rng([heads, dim, rows])
    q = rng.standard_normal((heads, dim)).astype(np.float32) * 2
    keys, values = rng.standard_normal((2, kv_heads, rows, dim)).astype(np.float32)
    if half:
        keys, values = (x.astype(np.float16).astype(np.float32) for x in (keys, values))
    for seen in (np.ones(rows, bool), np.arange(rows) < (rows + 1) // 2, rng.random(rows) < 0.3):
        seen[0] = True
        results = [
            testing.attention(q, keys, values, list(seen), half=half, threads=threads, variant=variant)
            for threads in (1, 2, 7)
        ]
        np.testing.assert_allclose(results[0], attention(q, keys, values, seen), atol=5e-6, rtol=1e-5)
        np.testing.assert_array_equal(results[1], results[0])  # bit for bit
        np.testing.assert_array_equal(results[2], results[0])


@variants
def test_attention_far_apart_scores_and_hidden_rows(variant: str) -> None:
    """A score that dwarfs the others takes all; what hidden rows hold, NaN included, is never looked at."""
    rng = np.random.default_rng(0)
    keys, values = rng.standard_normal((2, 1, 200, 32)).astype(np.float32)
    q = rng.standard_normal((2, 32)).astype(np.float32)
    keys[0, 150] = 300 * q[0]
    seen = np.arange(200) < 180
    keys[0, 180:], values[0, 180:] = np.nan, np.inf
    got = testing.attention(q, keys, values, list(seen), variant=variant)
    np.testing.assert_allclose(got[0], values[0, 150], atol=1e-6)
    np.testing.assert_allclose(got, attention(q, keys[:, :180], values[:, :180], seen[:180]), atol=5e-6)


@variants
def test_attention_does_not_hide_what_is_not_a_number(variant: str) -> None:
    rng = np.random.default_rng(0)
    keys, values = rng.standard_normal((2, 2, 100, 16)).astype(np.float32)
    q = rng.standard_normal((4, 16)).astype(np.float32)
    keys[0, 70, 3] = np.nan
    got = testing.attention(q, keys, values, [True] * 100, variant=variant)
    assert np.isnan(got[:2]).all() and np.isfinite(got[2:]).all()
