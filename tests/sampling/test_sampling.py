"""The three families as distributions and as draws: against goldens, by chi-square, alone and in batches.

The comparison of each stage with a plain loop is in `test_sampling_loops.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from dualar.sampling import noise
from dualar.sampling.chains import LogitsError, SamplingConfig, probabilities, ras_sample, sample
from dualar.sampling.noise import uniform
from reference import sampling as reference
from scipy import stats

DRAWS = 200_000
TOLERANCE: dict[str, Any] = {"atol": 1e-6, "rtol": 1e-5}
FAMILIES = [SamplingConfig.fish(), SamplingConfig.hf(), SamplingConfig.cosyvoice()]
IDS = ["fish", "hf", "cosyvoice"]
NEG = float("-inf")
POS = float("inf")

Float32 = npt.NDArray[np.float32]


@pytest.fixture(autouse=True)
def no_floating_point_fault() -> Iterator[None]:
    """Nothing here may warn, whatever a caller asked numpy to do about it."""
    with np.errstate(all="raise"):
        yield


@pytest.fixture(scope="module")
def golden() -> dict[str, npt.NDArray[Any]]:
    with np.load(Path(__file__).parents[1] / "fixtures" / "golden" / "sampling.npz") as arrays:
        return dict(arrays)


def rows(*values: list[float]) -> Float32:
    return np.array(values, np.float32)


def random_logits(*shape: int, seed: int = 0, scale: float = 3.0) -> Float32:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


# ---------------------------------------------------------------------------------------------------------- goldens


def test_fish_golden(golden: dict[str, npt.NDArray[Any]]) -> None:
    for i, (temperature, top_p, top_k) in enumerate(golden["fish_params"]):
        config = SamplingConfig.fish(temperature=temperature, top_p=top_p, top_k=int(top_k))
        got = probabilities(golden["logits"][i : i + 1], config)
        np.testing.assert_allclose(got[0], golden["fish_probs"][i], **TOLERANCE)


def test_hf_golden(golden: dict[str, npt.NDArray[Any]]) -> None:
    for i, (temperature, top_p, top_k, penalty) in enumerate(golden["hf_params"]):
        config = SamplingConfig.hf(
            temperature=temperature, top_p=top_p, top_k=int(top_k), repetition_penalty=float(penalty)
        )
        got = probabilities(golden["logits"][i : i + 1], config, golden["hf_history"][i : i + 1])
        np.testing.assert_allclose(got[0], golden["hf_probs"][i], **TOLERANCE)


def test_cosyvoice_golden_first_draw(golden: dict[str, npt.NDArray[Any]]) -> None:
    for i, (top_p, top_k) in enumerate(golden["cosy_params"]):
        config = SamplingConfig.cosyvoice(top_p=top_p, top_k=int(top_k))
        got = probabilities(golden["logits"][i : i + 1], config, golden["cosy_history"][i : i + 1])
        np.testing.assert_allclose(got[0], golden["cosy_nucleus_probs"][i], **TOLERANCE)


def test_cosyvoice_golden_redraw(golden: dict[str, npt.NDArray[Any]]) -> None:
    """Which rows redraw, and from what: rows that drew the repeated id keep it, or go on as the golden says."""
    redrawn_rows = 0
    for i, (top_p, top_k) in enumerate(golden["cosy_params"]):
        config = SamplingConfig.cosyvoice(
            top_p=top_p, top_k=int(top_k), window=int(golden["cosy_window"][i]), tau=float(golden["cosy_tau"][i])
        )
        n, repeated = 4000, int(golden["cosy_repeated_id"][i])
        logits = np.repeat(golden["logits"][i : i + 1], n, axis=0)
        history = np.repeat(golden["cosy_history"][i : i + 1], n, axis=0)
        first = sample(logits, config, seed=3, step=np.arange(n))
        final = sample(logits, config, seed=3, step=np.arange(n), history=history)
        drew_it = first == repeated
        assert drew_it.sum() >= 5
        if golden["cosy_redraws"][i]:
            redrawn_rows += 1
            assert (final[drew_it] != repeated).all()
            assert_distribution(final[drew_it], golden["cosy_redraw_probs"][i].astype(np.float64))
        else:
            assert (final[drew_it] == repeated).all()
    assert redrawn_rows == golden["cosy_redraws"].sum() >= 2


# ------------------------------------------------------------------------------------------------------- chi-square


def assert_distribution(tokens: npt.NDArray[Any], expected: npt.NDArray[np.float64]) -> None:
    """Chi-square of drawn tokens against probabilities, ids that expect under 5 draws pooled."""
    assert (expected[np.unique(tokens)] > 0).all(), "drew an id of probability 0"
    counts, want = np.bincount(tokens, minlength=len(expected)).astype(float), expected / expected.sum() * len(tokens)
    rare = want < 5
    got = np.append(counts[~rare], counts[rare].sum())
    want = np.append(want[~rare], want[rare].sum())
    if want[-1] < 5:
        got[-2], want[-2] = got[-2] + got[-1], want[-2] + want[-1]
        got, want = got[:-1], want[:-1]
    if len(want) > 1:
        assert stats.chisquare(got, want).pvalue > 1e-3


def many_draws(logits: Float32, config: SamplingConfig, seed: int, **options: Any) -> npt.NDArray[np.int32]:
    """DRAWS tokens of one row, each at a step of its own."""
    n = 10_000
    batch = np.repeat(logits[None], n, axis=0)
    options = {name: np.repeat(np.asarray(value)[None], n, axis=0) for name, value in options.items()}
    return np.concatenate(
        [sample(batch, config, seed=seed, step=np.arange(s, s + n), **options) for s in range(0, DRAWS, n)]
    )


@pytest.mark.parametrize("config", FAMILIES, ids=IDS)
def test_drawn_tokens_follow_the_distribution(config: SamplingConfig) -> None:
    logits = random_logits(48, seed=1, scale=1.5)
    assert_distribution(many_draws(logits, config, seed=11), probabilities(logits[None], config)[0])


def test_drawn_tokens_follow_the_distribution_over_seeds() -> None:
    logits, config, n = random_logits(48, seed=1, scale=1.5), SamplingConfig.fish(), 10_000
    tokens = np.concatenate(
        [
            sample(np.repeat(logits[None], n, axis=0), config, seed=np.arange(s, s + n), step=7, stream=3)
            for s in range(0, DRAWS, n)
        ]
    )
    assert_distribution(tokens, probabilities(logits[None], config)[0])


def test_chi_square_sees_a_wrong_temperature() -> None:
    logits = random_logits(48, seed=1, scale=1.5)
    tokens = many_draws(logits, SamplingConfig.fish(temperature=0.8), seed=11)
    with pytest.raises(AssertionError):
        assert_distribution(tokens, probabilities(logits[None], SamplingConfig.fish(temperature=0.83))[0])


def test_fish_redraw_distribution() -> None:
    """Repeats are drawn once more, from another distribution and independently of the first draw."""
    logits, config = random_logits(48, seed=1, scale=1.5), SamplingConfig.fish()
    first = probabilities(logits[None], config)[0]
    second = probabilities(logits[None], SamplingConfig.fish(temperature=1.0, top_p=0.9))[0]
    recent = np.argsort(-first)[[0, 2]]
    mass = first[recent].sum()
    expected = first.copy()
    expected[recent] = 0
    expected += mass * second
    history = np.full(20, 40)
    history[[12, 15]] = recent  # inside the window of 10 at the end
    assert_distribution(many_draws(logits, config, seed=5, history=history), expected)
    history[[12, 15]] = 40
    history[[2, 9]] = recent  # before it
    batch, steps = np.repeat(logits[None], 1000, axis=0), np.arange(1000)
    with_history = sample(batch, config, seed=5, step=steps, history=np.repeat(history[None], 1000, axis=0))
    np.testing.assert_array_equal(with_history, sample(batch, config, seed=5, step=steps))


def test_cosyvoice_redraw_distribution() -> None:
    logits, config = random_logits(48, seed=1, scale=1.5), SamplingConfig.cosyvoice()
    first = probabilities(logits[None], config)[0]
    repeated = int(first.argmax())
    expected = first.copy()
    expected[repeated] = 0
    expected += first[repeated] * reference.cosyvoice_redraw(logits.astype(np.float64), 1.0, repeated)
    history = np.array([-1, -1, 40, repeated, 41])
    assert_distribution(many_draws(logits, config, seed=5, history=history), expected)


# ------------------------------------------------------------------------------------------------------------ noise


def test_noise_is_philox_as_published() -> None:
    for seed, step, stream in ((0, 0, 0), (7, 3, 2), (2**63 - 1, 1000, 1000), (2**64 - 1, 2**40, 9)):
        got = uniform(seed, step, stream, 11)
        assert got.shape == (1, 11) and got.dtype == np.float64
        assert got[0].tolist() == [reference.uniform(seed, step, stream, i) for i in range(11)]


def test_noise_depends_on_seed_step_stream_and_id_only() -> None:
    seeds, steps = np.array([5, 6, 5, 2**62]), np.array([1, 1, 2, 0])
    batch = uniform(seeds, steps, 4, 300)
    for i in range(4):
        np.testing.assert_array_equal(batch[i], uniform(int(seeds[i]), int(steps[i]), 4, 300)[0])
        np.testing.assert_array_equal(batch[i, :17], uniform(int(seeds[i]), int(steps[i]), 4, 17)[0])
    np.testing.assert_array_equal(uniform(5, steps, 4, 9)[2], uniform(5, 2, 4, 9)[0])
    others = [uniform(5, 1, 4, 300), uniform(6, 1, 4, 300), uniform(5, 2, 4, 300), uniform(5, 1, 5, 300)]
    assert len(np.unique(np.concatenate(others))) == 1200


def test_noise_is_uniform_and_open() -> None:
    values = np.concatenate([uniform(1, 2, 3, 50_000)[0], uniform(1, np.arange(50_000), 0, 1)[:, 0]])
    assert values.min() > 0 and values.max() < 1
    assert stats.kstest(values[:50_000], "uniform").pvalue > 1e-3
    assert stats.kstest(values[50_000:], "uniform").pvalue > 1e-3
    ends = noise.to_unit(np.array([0, 2**64 - 1], np.uint64))
    assert ends[0] == 2.0**-53 and ends[1] == 1 - 2.0**-53


def test_a_draw_is_gumbel_max_over_that_noise() -> None:
    logits, config = random_logits(40, 90, seed=3), SamplingConfig.fish(temperature=0.7, top_p=0.95)
    for stream in (0, 5):
        g = -np.log(-np.log(uniform(9, np.arange(40), stream, 90)))
        kept = probabilities(logits, config) > 0
        want = np.where(kept, logits.astype(np.float64) / 0.7 + g, NEG).argmax(axis=1)
        np.testing.assert_array_equal(sample(logits, config, seed=9, step=np.arange(40), stream=stream), want)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [((-1, 0, 0, 4), "seed"), ((0, -1, 0, 4), "step"), ((2**64, 0, 0, 4), "seed"), ((1.5, 0, 0, 4), "seed"),
     ((0, 0, -1, 4), "stream"), ((0, 0, 0, -1), "n >= 0"), ((np.array([1, 2]), np.array([1, 2, 3]), 0, 4), "seed")],
)  # fmt: skip
def test_wrong_noise_arguments(arguments: tuple[Any, ...], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        uniform(*arguments)


# ------------------------------------------------------------------------------------------------- batch invariance


@pytest.mark.parametrize(
    "config",
    [
        SamplingConfig.fish(),
        SamplingConfig.fish(top_k=0, top_p=0.99),
        SamplingConfig.hf(repetition_penalty=2),
        SamplingConfig.hf(repetition_penalty=2, top_p=0.7),
        SamplingConfig.cosyvoice(),
    ],
)
@pytest.mark.parametrize("V", [7, 200, 4097])
def test_a_row_is_the_same_alone_in_any_batch_and_place(config: SamplingConfig, V: int) -> None:
    B, rng = 24, np.random.default_rng(V)
    logits = random_logits(B, V, seed=V) * rng.uniform(0.01, 1, (B, 1)).astype(np.float32)
    logits[3, 2:] = NEG  # few candidates, many ties, a winner: rows that need another number of survivors
    logits[4] = np.round(logits[4] / 40)
    logits[5, 1] = POS
    history = rng.integers(-1, V, (B, 30))
    history[:, -4:] = logits.argsort(axis=1)[:, -4:]  # so that redraws happen
    seeds, steps = rng.integers(0, 2**62, B), rng.integers(0, 1000, B)
    alone = [
        sample(logits[[i]], config, seed=int(seeds[i]), step=int(steps[i]), history=history[[i]]).item()
        for i in range(B)
    ]
    assert alone != sample(logits, config, seed=seeds, step=steps).tolist()  # the history matters
    for order in (np.arange(B), rng.permutation(B), np.arange(0, B, 3)):
        got = sample(logits[order], config, seed=seeds[order], step=steps[order], history=history[order])
        assert got.dtype == np.int32
        np.testing.assert_array_equal(got, np.array(alone)[order])


def test_ras_sample_options_are_per_row() -> None:
    B, V, rng = 64, 50, np.random.default_rng(0)
    options: dict[str, Any] = {
        "seed": rng.integers(0, 2**62, B),
        "step": rng.integers(0, 99, B),
        "temperature": rng.choice([0.0, 0.5, 1.0, 2.0], B),
        "top_p": rng.choice([0.0, 0.3, 0.8, 1.0], B),
        "top_k": rng.choice([-1, 0, 1, 5, 25, 1000], B),
        "window": rng.choice([0, 1, 5, 10], B),
        "repeat_threshold": rng.choice([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0], B),
        "blocked": rng.random((B, V)) < 0.3,
    }
    logits = random_logits(B, V, seed=1, scale=1.0)
    history = rng.integers(-1, 8, (B, 17))
    history[:, :3] = -1
    logits[:, :8] += 2
    got = ras_sample(logits, history=history, **options)
    assert got.dtype == np.int32 and got.shape == (B,)
    redrawn = 0
    for i in range(B):
        own = {name: value[[i]] for name, value in options.items()}
        assert ras_sample(logits[[i]], history=history[[i]], **own)[0] == got[i]
        row = np.where(options["blocked"][i], NEG, logits[i].astype(np.float64))
        seed, step = int(options["seed"][i]), int(options["step"][i])
        scalars = {name: own[name][0] for name in ("temperature", "top_p", "top_k", "window", "repeat_threshold")}
        noise = uniform(seed, step, 0, V)[0], uniform(seed, step, 1000, V)[0]
        want = reference.cosyvoice_token(row, history[i].tolist(), *noise, **scalars)
        assert got[i] == want
        scalars["repeat_threshold"] = 0
        redrawn += want != reference.cosyvoice_token(row, history[i].tolist(), *noise, **scalars)
    assert redrawn >= 5


def test_ras_sample_is_the_cosyvoice_family() -> None:
    B, V = 30, 60
    logits, history = random_logits(B, V, scale=1.0), np.random.default_rng(4).integers(0, V, (B, 25))
    options: dict[str, Any] = {"seed": 4, "step": np.arange(B), "history": history}
    got = ras_sample(logits, temperature=0.9, top_p=0.7, top_k=9, window=20, repeat_threshold=20 * 0.05, **options)
    config = SamplingConfig.cosyvoice(temperature=0.9, top_p=0.7, top_k=9, window=20, tau=0.05)
    np.testing.assert_array_equal(got, sample(logits, config, **options))


@pytest.mark.parametrize("W", [10, 11, 500])
def test_only_the_last_window_columns_count(W: int) -> None:
    logits = rows([5, 5, 0, 0])
    history = np.zeros((1, W), int)
    history[0, -10:] = -1
    options: dict[str, Any] = {"seed": 1, "step": 1, "top_p": 0.0, "top_k": 1}
    assert ras_sample(logits, history=history, window=10, **options) == [0]
    history[0, -10] = 0
    assert ras_sample(logits, history=history, window=10, **options) != [0]
    assert ras_sample(logits, history=history, window=9, **options) == [0]
    assert ras_sample(logits, history=history, window=10, repeat_threshold=1.5, **options) == [0]


# ------------------------------------------------------------------------------------------------------- edge cases


def one_row(config: SamplingConfig, *values: float) -> list[float]:
    found: list[float] = np.round(probabilities(rows(list(values)), config)[0], 6).tolist()
    return found


@pytest.mark.parametrize("make", [SamplingConfig.fish, SamplingConfig.hf, SamplingConfig.cosyvoice], ids=IDS)
class TestEveryFamily:
    def test_greedy_takes_the_lowest_id_of_ties(self, make: Any) -> None:
        assert one_row(make(temperature=0), 1, 3, 2, 3) == [0, 1, 0, 0]
        assert sample(rows([1, 3, 2, 3], [-0.0, 0.0, 0.0, NEG]), make(temperature=0), seed=1, step=1).tolist() == [1, 0]

    def test_top_p_0_keeps_one(self, make: Any) -> None:
        assert one_row(make(top_p=0), 1, 3, 2, 3) == [0, 1, 0, 0]

    def test_top_k_1_keeps_the_first(self, make: Any) -> None:
        expected = [0, 0.5, 0, 0.5] if make is SamplingConfig.hf else [0, 1, 0, 0]  # hf keeps ties with the k-th
        assert one_row(make(top_k=1, top_p=1), 1, 3, 2, 3) == expected

    @pytest.mark.parametrize("top_k", [0, -1, 5, 1000])
    def test_top_k_out_of_range_is_off(self, make: Any, top_k: int) -> None:
        row = [1.0, 3.0, 2.0, 2.0]
        want = reference.softmax(np.array(row) / 0.5)
        got = probabilities(rows(row), make(temperature=0.5, top_k=top_k, top_p=1))
        np.testing.assert_allclose(got[0], want, rtol=1e-12)

    def test_top_p_1_is_off_though_masses_round(self, make: Any) -> None:
        logits = random_logits(1, 3000, seed=2, scale=9)
        assert (probabilities(logits, make(top_k=0, top_p=1)) > 0).all()

    def test_one_finite_logit(self, make: Any) -> None:
        assert one_row(make(), NEG, NEG, -3, NEG) == [0, 0, 1, 0]
        history = np.array([[2, 2, 2, 2, 2, 2, 2, 2, 2, 2]])
        for blocked in (None, np.array([[False, True, False, True]])):
            got = sample(rows([NEG, NEG, -3, NEG]), make(), seed=1, step=0, history=history, blocked=blocked)
            assert got.tolist() == [2]  # a single candidate that is a recent repeat: nothing else to draw

    def test_plus_infinity_takes_all_mass(self, make: Any) -> None:
        assert one_row(make(top_p=1), 9, POS, NEG, POS) == [0, 0.5, 0, 0.5]
        assert one_row(make(temperature=0), 9, POS, NEG, POS) == [0, 1, 0, 0]
        history = np.array([[1, 1, 1]])
        assert sample(rows([9, POS, NEG, 2]), make(), seed=1, step=0, history=history).tolist() == [1]

    @pytest.mark.parametrize("temperature", [1e-5, 10.0, 5e-324, 100.0])
    @pytest.mark.parametrize("scale", [7e4, 3e38, 1e-30])
    def test_extreme_scales(self, make: Any, temperature: float, scale: float) -> None:
        row = (np.array([0.5, 1.0, -1.0, 0.25, NEG]) * scale).astype(np.float32)
        got = probabilities(row[None], make(temperature=temperature))[0]
        assert np.isfinite(got).all() and abs(got.sum() - 1) < 1e-12 and got[4] == 0
        if scale / temperature > 1e6 or (make is SamplingConfig.cosyvoice and scale > 1):
            assert got.tolist() == [0, 1, 0, 0, 0]
            assert sample(row[None], make(temperature=temperature), seed=0, step=0).tolist() == [1]

    @pytest.mark.parametrize("bad", [1, 2])
    def test_nan_names_the_row(self, make: Any, bad: int) -> None:
        logits = np.zeros((3, 4), np.float32)
        logits[bad, 3] = np.nan
        for call in (
            lambda: probabilities(logits, make()),
            lambda: sample(logits, make(), seed=0, step=0),
            lambda: sample(logits, make(), seed=0, step=0, blocked=logits != 0),  # not even where it is blocked
        ):
            with pytest.raises(LogitsError, match=f"NaN in row {bad}"):
                call()

    def test_nothing_allowed_names_the_row(self, make: Any) -> None:
        logits = np.zeros((3, 4), np.float32)
        with pytest.raises(LogitsError, match="none in row 2"):
            sample(logits, make(), seed=0, step=0, blocked=np.arange(3)[:, None].repeat(4, 1) == 2)
        logits[1] = NEG
        with pytest.raises(LogitsError, match="none in row 1"):
            probabilities(logits, make())

    def test_blocked_is_never_drawn(self, make: Any) -> None:
        n = 500
        logits = np.repeat(rows([9, 2, 1.5, POS, 0]), n, axis=0)
        blocked = np.repeat(np.array([[True, False, False, True, True]]), n, axis=0)
        options: dict[str, Any] = {"seed": 0, "step": np.arange(n), "blocked": blocked}
        assert set(sample(logits, make(top_p=1), **options).tolist()) == {1, 2}
        history = np.full((n, 10), 1)
        assert set(sample(logits, make(top_p=1), history=history, **options).tolist()) <= {1, 2}

    def test_float64_and_float16_are_taken_as_float32(self, make: Any) -> None:
        logits = random_logits(2, 40).astype(np.float16)
        want = probabilities(logits.astype(np.float32), make())
        for dtype in (np.float16, np.float64):
            np.testing.assert_array_equal(probabilities(logits.astype(dtype), make()), want)

    def test_inputs_are_left_alone(self, make: Any) -> None:
        logits, history = random_logits(2, 40), np.array([[1, 2, 3], [-1, 2, 2]])
        before = logits.copy(), history.copy()
        logits.flags.writeable = history.flags.writeable = False
        sample(logits, make(), seed=1, step=1, history=history, blocked=logits > 1)
        probabilities(logits, make(), history)
        np.testing.assert_array_equal(logits, before[0])
        np.testing.assert_array_equal(history, before[1])

    @pytest.mark.parametrize(
        ("logits", "options", "expected"),
        [
            (np.zeros(4, np.float32), {}, r"\[B >= 1, V >= 1\], got float32 \[4\]"),
            (np.zeros((0, 4), np.float32), {}, r"\[0, 4\]"),
            (np.zeros((1, 4), np.int32), {}, "int32"),
            (np.zeros((1, 0), np.float32), {}, r"\[1, 0\]"),
            (np.zeros((2, 4), np.float32), {"history": [[1, 2]]}, r"\[2, W\]"),
            (np.zeros((1, 4), np.float32), {"history": [[1.0]]}, "float64"),
            (np.zeros((1, 4), np.float32), {"history": [[1, 4]]}, "from 0 to 3, or -1 for none, got 4"),
            (np.zeros((1, 4), np.float32), {"history": [[-2]]}, "got -2"),
        ],
    )
    def test_wrong_arrays(self, make: Any, logits: Any, options: dict[str, Any], expected: str) -> None:
        with pytest.raises(ValueError, match=expected):
            probabilities(logits, make(), **options)
        with pytest.raises(ValueError, match=expected):
            sample(logits, make(), seed=0, step=0, **options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": np.nan}, "temperature"),
        ({"top_p": np.array([0.5, -0.1])}, "top_p"),
        ({"top_p": [[0.5, 0.5]]}, "top_p"),
        ({"window": -1}, "window"),
        ({"top_k": np.array([1, 2, 3])}, "top_k"),
        ({"repeat_threshold": np.inf}, "repeat_threshold"),
        ({"blocked": np.zeros((2, 3), bool)}, "blocked"),
        ({"blocked": np.zeros((2, 4))}, "blocked"),
        ({"seed": np.array([1, 2, 3])}, "seed"),
        ({"step": -1}, "step"),
    ],
)
def test_wrong_ras_options(options: dict[str, Any], expected: str) -> None:
    arguments: dict[str, Any] = {"seed": 0, "step": 0, "history": np.zeros((2, 0), int), **options}
    with pytest.raises(ValueError, match=expected):
        ras_sample(np.zeros((2, 4), np.float32), **arguments)


def test_a_config_is_expected() -> None:
    for call in (lambda: sample(rows([1, 2]), "fish", seed=0, step=0), lambda: probabilities(rows([1, 2]), None)):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="SamplingConfig"):
            call()


def test_a_penalty_is_applied_once_for_each_id() -> None:
    config = SamplingConfig.hf(temperature=1, top_k=0, repetition_penalty=2)
    for history in ([[0, 1]], [[0, 1, 0, 0, 1, -1]], np.array([[0, 1, 1]], np.uint64)):
        got = probabilities(rows([2, -1, 0.5]), config, history)
        np.testing.assert_allclose(got[0], reference.softmax(np.array([1, -2, 0.5])), rtol=1e-12)
    np.testing.assert_array_equal(
        probabilities(rows([2, -1]), config, np.zeros((1, 0))), probabilities(rows([2, -1]), config)
    )


def test_history_windows_of_hf_for_main_and_residual_codes() -> None:
    """Greedy over two near ties: the penalty decides, and so shows which part of the history counts."""
    logits, history = rows([2.0, 1.9, 0.0]), np.array([[0, 2, 2, 2]])

    def token(stream: int, **windows: int) -> int:
        config = SamplingConfig.hf(temperature=0, repetition_penalty=1.2, **windows)
        return int(sample(logits, config, seed=0, step=0, stream=stream, history=history)[0])

    assert token(0) == 1 and token(0, history_window=4) == 1
    assert token(0, history_window=3) == 0 and token(0, history_window=0) == 0
    assert token(1) == 0
    assert token(1, residual_history_window=4) == 1 and token(1, residual_history_window=-1) == 1
    assert token(1, residual_history_window=3) == 0


@pytest.mark.parametrize(
    "config",
    [SamplingConfig.fish(ras_window=0), SamplingConfig.cosyvoice(tau=0), SamplingConfig.cosyvoice(window=0)],
)
def test_the_redraw_can_be_off(config: SamplingConfig) -> None:
    logits = random_logits(50, 30)
    options: dict[str, Any] = {"seed": 1, "step": np.arange(50)}
    history = np.tile(np.arange(30), (50, 1))
    np.testing.assert_array_equal(sample(logits, config, history=history, **options), sample(logits, config, **options))


@pytest.mark.parametrize("config", [SamplingConfig.fish(), SamplingConfig.cosyvoice()], ids=["fish", "cosyvoice"])
def test_residual_codes_are_never_redrawn(config: SamplingConfig) -> None:
    logits = random_logits(50, 30)
    options: dict[str, Any] = {"seed": 1, "step": np.arange(50), "stream": 4}
    history = np.tile(np.arange(30), (50, 1))
    np.testing.assert_array_equal(sample(logits, config, history=history, **options), sample(logits, config, **options))
