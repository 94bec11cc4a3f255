"""Each stage and chain of the samplers against the plain loops of `reference.sampling`, on what hypothesis finds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
from dualar.sampling import chains as sampling
from dualar.sampling.chains import SamplingConfig, probabilities, ras_sample, sample
from dualar.sampling.noise import uniform
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference import sampling as reference

TOLERANCE: dict[str, Any] = {"atol": 1e-6, "rtol": 1e-5}
NEG = float("-inf")

logit = st.one_of(
    st.floats(-30, 30, width=32), st.integers(-3, 3).map(float), st.just(NEG), st.sampled_from([7e4, -7e4])
)
logit_rows = st.lists(logit, min_size=1, max_size=40).filter(lambda row: max(row) > NEG)
temperatures = st.sampled_from([0.0, 1e-5, 0.3, 0.8, 1.0, 2.0, 10.0])
top_ps = st.one_of(st.sampled_from([0.0, 0.8, 1.0]), st.floats(0, 1))
top_ks = st.integers(-1, 45)


def assume_clear_of(top_p: float, masses: npt.NDArray[np.float64]) -> None:
    """Where a cumulative mass meets top_p within rounding, either side is right."""
    assume(top_p in (0.0, 1.0) or np.abs(np.cumsum(masses) - top_p).min() > 1e-12)


def sorted_mass(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.sort(reference.softmax(row))[::-1]


@settings(deadline=None, max_examples=300)
@given(logit_rows, temperatures, top_ps, top_ks, st.integers(0, 2**64 - 1), st.integers(0, 9), st.data())
def test_fish_equals_the_loop(
    values: list[float], temperature: float, top_p: float, top_k: int, seed: int, stream: int, data: st.DataObject
) -> None:
    row = np.array(values, np.float32)
    with np.errstate(all="ignore"):
        exact = row.astype(np.float64)
        assume_clear_of(top_p, sorted_mass(exact))
        want = reference.fish(exact, temperature, top_p, top_k)
    config = SamplingConfig.fish(temperature=temperature, top_p=top_p, top_k=top_k)
    np.testing.assert_allclose(probabilities(row[None], config)[0], want, **TOLERANCE)
    history = data.draw(st.lists(st.integers(-1, len(row) - 1), max_size=15))
    got = sample(row[None], config, seed=seed, step=3, history=np.array([history], int).reshape(1, -1))
    with np.errstate(all="ignore"):
        assume_clear_of(0.9, sorted_mass(exact))
        options = {**asdict(config), "temperature": temperature}
        del options["residual_temperature"]  # of other draws
        noise = uniform(seed, 3, 0, len(row))[0], uniform(seed, 3, 1000, len(row))[0]
        assert got[0] == reference.fish_token(exact, history, *noise, **options)


@settings(deadline=None, max_examples=300)
@given(logit_rows, temperatures, top_ps, top_ks, st.floats(0.5, 3), st.data())
def test_hf_equals_the_loop(
    values: list[float], temperature: float, top_p: float, top_k: int, penalty: float, data: st.DataObject
) -> None:
    row = np.array(values, np.float32)
    history = data.draw(st.lists(st.integers(-1, len(row) - 1), max_size=15))
    with np.errstate(all="ignore"):
        exact = row.astype(np.float64)
        if temperature > 0:
            left = reference.penalised(exact, history, penalty)
            tempered = (left - left.max()) / temperature
            assume_clear_of(top_p, sorted_mass(reference.only(tempered, reference.top_k_with_ties(left, top_k))))
        want = reference.hf(exact, temperature, top_p, top_k, penalty, history)
    config = SamplingConfig.hf(temperature=temperature, top_p=top_p, top_k=top_k, repetition_penalty=penalty)
    got = probabilities(row[None], config, np.array([history], int).reshape(1, -1))
    np.testing.assert_allclose(got[0], want, **TOLERANCE)


@settings(deadline=None, max_examples=300)
@given(
    logit_rows, temperatures, top_ps, top_ks, st.integers(0, 12), st.sampled_from([0, 0.5, 1, 2, 3]),
    st.integers(0, 2**63), st.data(),
)  # fmt: skip
def test_cosyvoice_equals_the_loop(
    values: list[float], temperature: float, top_p: float, top_k: int, window: int, threshold: float, seed: int,
    data: st.DataObject,
) -> None:  # fmt: skip
    row = np.array(values, np.float32)
    with np.errstate(all="ignore"):
        exact = row.astype(np.float64)
        if temperature > 0:
            assume_clear_of(top_p, sorted_mass((exact - exact.max()) / temperature))
        want = reference.cosyvoice(exact, temperature, top_p, top_k)
    config = SamplingConfig.cosyvoice(temperature=temperature, top_p=top_p, top_k=top_k)
    np.testing.assert_allclose(probabilities(row[None], config)[0], want, **TOLERANCE)
    history = data.draw(st.lists(st.integers(-1, len(row) - 1), max_size=15))
    options: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "window": window}
    got = ras_sample(
        row[None], seed=seed, step=3, history=np.array([history], int).reshape(1, -1), repeat_threshold=threshold,
        **options,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        noise = uniform(seed, 3, 0, len(row))[0], uniform(seed, 3, 1000, len(row))[0]
        want_token = reference.cosyvoice_token(exact, history, *noise, repeat_threshold=threshold, **options)
    assert got[0] == want_token


batches = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.lists(logit, min_size=n, max_size=n).filter(lambda r: max(r) > NEG), min_size=1, max_size=5)
)


@settings(deadline=None, max_examples=300)
@given(st.one_of(batches, logit_rows.map(lambda row: [row])), top_ks)
def test_survivors_and_ranking_equal_the_loops(values: list[list[float]], top_k: int) -> None:
    x = np.array(values, np.float32)
    k = reference.effective_top_k(top_k, x.shape[1])
    found = sampling.survivors(x, k)
    ids = sampling.ranked(x, found)
    for i, row in enumerate(x.astype(np.float64)):
        want = [j for j in reference.top_k_with_ties(row, k) if row[j] > NEG]
        assert [j for j in found[i] if j >= 0] == want
        assert [j for j in ids[i] if j >= 0] == [j for j in reference.ranking(row) if j in want]
        assert (ids[i, len(want) :] == -1).all()


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), top_ps, st.integers(1, 30))
def test_nucleus_stages_equal_the_loops(weights: list[int], top_p: float, top_k: int) -> None:
    assume(sum(weights) > 0)
    mass = np.sort(np.array(weights) / sum(weights))[::-1]
    assume_clear_of(top_p, mass)
    for stage, counted in ((sampling.fish_keep, 1), (sampling.nucleus_keep, 0)):
        want = []
        for rank in range(len(mass)):
            so_far = sum(mass[: rank + counted])
            within = top_p >= 1 or (so_far <= top_p if counted else so_far < top_p)
            want.append(rank == 0 or (rank < top_k and within))
        assert stage(mass[None], top_p, top_k)[0].tolist() == want


@settings(deadline=None, max_examples=200)
@given(logit_rows, st.floats(0.01, 100), st.data())
def test_penalty_stage_equals_the_loop(values: list[float], penalty: float, data: st.DataObject) -> None:
    row = np.array(values, np.float64)
    history = data.draw(st.lists(st.integers(-1, len(row) - 1), max_size=15))
    got = sampling.penalised(row[None], np.array([history], int).reshape(1, -1), penalty)
    np.testing.assert_array_equal(got[0], reference.penalised(row, history, penalty))


def test_whole_row_filters_equal_the_loop_where_the_head_does_not_suffice() -> None:
    """Rows longer than the head that is sorted first, flat enough to need more of it, or peaked enough not to."""
    for scale in (0.01, 1.0, 4.0):
        row = (np.random.default_rng(6).standard_normal(1500) * scale).astype(np.float32)
        row[700:900] = row[3]  # ties across the head's edge
        exact = row.astype(np.float64)
        for top_p in (0.05, 0.5, 0.97):
            with np.errstate(all="ignore"):
                wants = [
                    (SamplingConfig.fish(top_k=0, top_p=top_p), reference.fish(exact, 0.8, top_p, 0)),
                    (SamplingConfig.fish(top_k=700, top_p=top_p), reference.fish(exact, 0.8, top_p, 700)),
                    (SamplingConfig.hf(top_k=0, top_p=top_p), reference.hf(exact, 0.9, top_p, 0, 1.0, [])),
                    (SamplingConfig.hf(top_k=700, top_p=top_p), reference.hf(exact, 0.9, top_p, 700, 1.0, [])),
                    (SamplingConfig.cosyvoice(top_k=0, top_p=top_p), reference.cosyvoice(exact, 1.0, top_p, 0)),
                ]
            for config, want in wants:
                got = probabilities(row[None], config)[0]
                np.testing.assert_array_equal(got > 0, want > 0)
                np.testing.assert_allclose(got, want, **TOLERANCE)
