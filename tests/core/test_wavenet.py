"""WaveNet: the published numbers, and stepping that is equal to the whole convolution whatever the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar import _core
from dualar.sampling.noise import uniform
from dualar.wavenet import mu_law_decode, mu_law_encode
from fixtures.wavenet_file import Shape, write_wavenet
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.gguf_weights import Weights
from reference.wavenet import WaveNet as Reference
from reference.wavenet import causal_conv

TOLERANCE: dict[str, Any] = {"atol": 1e-4, "rtol": 1e-5}
EXACT: dict[str, Any] = {"atol": 1e-12, "rtol": 1e-12}


@pytest.fixture(scope="module")
def tiny(golden: Any) -> tuple[dualar.WaveNet, dict[str, Any]]:
    """The golden network and its arrays."""
    pair = golden("wavenet-tiny")
    return dualar.WaveNet.load(pair.gguf, threads=1), dict(np.load(pair.npz))


@pytest.fixture
def small(tmp_path: Path) -> dualar.WaveNet:
    return dualar.WaveNet.load(write_wavenet(tmp_path / "small.gguf", Shape()), threads=1)


def stepped(net: Any, classes: np.ndarray, condition: np.ndarray, state: Any) -> np.ndarray:
    """Logits [B, Q, T], a sample at a time."""
    columns = [net.step(classes[:, t], condition[:, :, t], state) for t in range(classes.shape[1])]
    return np.stack(columns, axis=-1)


def inputs(shape: Shape, B: int, T: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    condition = rng.standard_normal((B, shape.condition_channels, T)).astype(np.float32)
    return rng.integers(0, shape.levels, (B, T)), condition


# ------------------------------------------------------------------ goldens
def test_golden_logits(tiny: tuple[dualar.WaveNet, dict[str, Any]]) -> None:
    net, z = tiny
    logits = net.forward(z["classes"], z["condition"])
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, z["logits"], **TOLERANCE)
    np.testing.assert_allclose(logits[..., -40:], z["logits_f64"], **TOLERANCE)
    steps = stepped(net, z["classes"], z["condition"], net.initial_state(2))
    np.testing.assert_allclose(steps, z["logits"], **TOLERANCE)


def test_golden_greedy_run(tiny: tuple[dualar.WaveNet, dict[str, Any]]) -> None:
    net, z = tiny
    classes, condition = z["greedy_classes"], z["greedy_condition"]
    made = net.generate(len(classes) - 1, condition, first=classes[0], greedy=True)
    assert made.dtype == np.int32
    np.testing.assert_array_equal(made, classes[1:])
    np.testing.assert_array_equal(
        net.generate(len(classes) - 1, condition[None], first=classes[:1], temperature=0), classes[None, 1:]
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_reference_agrees_with_the_goldens(golden: Any, dtype: str) -> None:
    pair = golden("wavenet-tiny")
    reference, z = Reference(Weights(pair.gguf, dtype=dtype)), np.load(pair.npz)
    whole = reference.forward(z["classes"], z["condition"])
    np.testing.assert_allclose(whole, z["logits"], **TOLERANCE)
    steps = stepped(reference, z["classes"], z["condition"], reference.initial_state(2))
    np.testing.assert_allclose(steps, z["logits"], **TOLERANCE)
    np.testing.assert_array_equal(
        reference.greedy(int(z["greedy_classes"][0]), z["greedy_condition"]), z["greedy_classes"]
    )
    if dtype == "float64":
        np.testing.assert_allclose(whole[..., -40:], z["logits_f64"], **EXACT)
        np.testing.assert_allclose(steps, whole, **EXACT)


# ------------------------------------------------------------------ the convolution
WORKED: dict[str, Any] = {
    "x": np.array([[5], [6], [7]], np.float32),
    "bias": np.array([1], np.float32),
    "queue": np.array([[1], [2], [3], [4]], np.float32),
    "dilation": 4,
}


@pytest.mark.parametrize("by_step", [False, True])
def test_worked_example(by_step: bool) -> None:
    """One channel, d = 4, weights 2 (old) and 3 (now), bias 1."""
    out, queue = _core._causal_conv(weight=np.array([[[2, 3]]], np.float32), by_step=by_step, **WORKED)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(out[:, 0], [18, 23, 28])
    np.testing.assert_array_equal(queue[:, 0], [4, 5, 6, 7])
    swapped, _ = _core._causal_conv(weight=np.array([[[3, 2]]], np.float32), by_step=by_step, **WORKED)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(swapped[:, 0], [14, 19, 24])


def test_worked_example_of_the_reference() -> None:
    x, queue = np.array([[[5.0, 6, 7]]]), np.array([[[1.0, 2, 3, 4]]])
    out, after = causal_conv(x, np.array([[[2.0, 3.0]]]), np.array([1.0]), queue, 4)
    np.testing.assert_array_equal(out[0, 0], [18, 23, 28])
    np.testing.assert_array_equal(after[0, 0], [4, 5, 6, 7])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ring_and_queue_are_the_same_convolution(data: Any) -> None:
    taps, dilation = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    into, out, samples = (data.draw(st.integers(1, n)) for n in (5, 40, 30))
    rng = np.random.default_rng([taps, dilation, into, out, samples])

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    x, weight, bias, queue = (
        normal(samples, into),
        normal(out, into, taps),
        normal(out),
        normal((taps - 1) * dilation, into),
    )
    want, after = causal_conv(
        x.T[None].astype(float), weight.astype(float), bias.astype(float), queue.T[None], dilation
    )
    for by_step in (False, True):
        got, kept = _core._causal_conv(x, weight, bias, queue, dilation=dilation, by_step=by_step)  # type: ignore[attr-defined]
        np.testing.assert_allclose(got.T, want[0], atol=2e-5, rtol=0)
        np.testing.assert_array_equal(kept.T, after[0])


# ------------------------------------------------------------------ any network
def shapes() -> st.SearchStrategy[Shape]:
    return st.builds(
        Shape,
        channels=st.integers(1, 20),
        condition_channels=st.integers(1, 5),
        skip_channels=st.integers(1, 20),
        levels=st.integers(2, 40),
        kernel_size=st.integers(1, 4),
        dilations=st.lists(st.integers(1, 17), min_size=1, max_size=6).map(tuple),
    )


@settings(max_examples=60, deadline=None)
@given(shapes(), st.integers(1, 3), st.integers(1, 60), st.sampled_from([0.01, 1.0, 8.0]), st.data())
def test_stepping_equals_the_whole(
    tmp_path_factory: Any, shape: Shape, B: int, T: int, scale: float, data: Any
) -> None:
    path = write_wavenet(tmp_path_factory.mktemp("net") / "net.gguf", shape, seed=B * 100 + T, scale=scale)
    net = dualar.WaveNet.load(path, threads=1)
    classes, condition = inputs(shape, B, T)
    whole = net.forward(classes, condition)
    assert whole.shape == (B, shape.levels, T)
    state = net.initial_state(B)
    assert state.nbytes == 4 * B * shape.channels * sum((shape.kernel_size - 1) * d for d in shape.dilations)
    steps = stepped(net, classes, condition, state)
    np.testing.assert_allclose(steps, whole, **TOLERANCE)
    assert state.nbytes == 4 * B * shape.channels * sum((shape.kernel_size - 1) * d for d in shape.dilations)

    at = data.draw(st.integers(0, T))
    primed = net.prime(classes[:, :at], condition[:, :, :at])
    assert primed.position == at
    if at < T:
        rest = stepped(net, classes[:, at:], condition[:, :, at:], primed)
        np.testing.assert_allclose(rest, whole[..., at:], **TOLERANCE)

    if scale <= 1:  # beyond it a network's gain makes much of the last bit, in numpy's sums too
        exact = Reference(Weights(path))
        want = exact.forward(classes, condition)
        exact_steps = stepped(exact, classes, condition, exact.initial_state(B))
        np.testing.assert_allclose(exact_steps, want, **EXACT)
        np.testing.assert_allclose(whole, want, **TOLERANCE)


def test_long_clips_go_through_in_pieces(small: dualar.WaveNet) -> None:
    """Longer than one run of the graph, and priming that goes on from where stepping was."""
    classes, condition = inputs(Shape(), 2, 1300)
    whole = small.forward(classes, condition)
    state = small.prime(classes[:, :700], condition[:, :, :700])
    stepped(small, classes[:, 700:705], condition[:, :, 700:705], state)
    assert small.prime(classes[:, 705:1290], condition[:, :, 705:1290], state=state) is state
    rest = stepped(small, classes[:, 1290:], condition[:, :, 1290:], state)
    np.testing.assert_allclose(rest, whole[..., 1290:], **TOLERANCE)
    assert state.position == 1300


def test_many_threads_give_the_same(golden: Any) -> None:
    pair = golden("wavenet-tiny")
    z = np.load(pair.npz)
    net = dualar.WaveNet.load(pair.gguf, threads=3)
    np.testing.assert_allclose(net.forward(z["classes"], z["condition"]), z["logits"], **TOLERANCE)


def test_later_samples_change_nothing_before_them(small: dualar.WaveNet) -> None:
    classes, condition = inputs(Shape(), 1, 40)
    changed = classes.copy()
    changed[:, 20] = (changed[:, 20] + 1) % 16
    a, b = small.forward(classes, condition), small.forward(changed, condition)
    np.testing.assert_array_equal(a[..., :20], b[..., :20])
    differs = np.abs(a - b).max(axis=(0, 1)) > 0
    assert small.receptive_field == 8  # 1 + 2 + 4 back, and itself
    assert differs[20:28].all() and not differs[28:].any()


# ------------------------------------------------------------------ states
def test_state_of_the_example_has_12096_bytes(tiny: tuple[dualar.WaveNet, dict[str, Any]]) -> None:
    net, _ = tiny
    shape = Shape(channels=24, dilations=(1, 2, 4, 8, 16, 32) * 2)
    assert list(net.dilations) == list(shape.dilations) and net.channels == 24 and net.kernel_size == 2
    assert net.initial_state(1).nbytes == 12096
    assert net.initial_state(7).nbytes == 7 * 12096


def test_states_are_independent(small: dualar.WaveNet) -> None:
    classes, condition = inputs(Shape(), 2, 30)
    alone = [small.forward(classes[b : b + 1], condition[b : b + 1]) for b in range(2)]
    a, b, both = small.initial_state(1), small.initial_state(1), small.initial_state(2)
    for t in range(30):
        one = small.step(classes[:1, t], condition[:1, :, t], a)
        two = small.step(classes[1:, t], condition[1:, :, t], b)
        pair = small.step(classes[:, t], condition[:, :, t], both)
        np.testing.assert_allclose(one, alone[0][..., t], **TOLERANCE)
        np.testing.assert_allclose(two, alone[1][..., t], **TOLERANCE)
        np.testing.assert_allclose(pair, np.concatenate([one, two]), **TOLERANCE)


def test_a_new_clip_starts_from_zeros_and_reset_is_new(small: dualar.WaveNet) -> None:
    classes, condition = inputs(Shape(), 1, 30)
    state = small.initial_state(1)
    first = stepped(small, classes, condition, state)
    assert np.abs(small.step(classes[:, 0], condition[:, :, 0], state) - first[..., 0]).max() > 1e-3
    state.reset()
    assert state.position == 0
    np.testing.assert_array_equal(stepped(small, classes, condition, state), first)
    # A past of class 0 is another past than none.
    zeros = small.prime(np.zeros((1, 20), int), np.zeros((1, 3, 20)))
    assert np.abs(small.step(classes[:, 0], condition[:, :, 0], zeros) - first[..., 0]).max() > 1e-3


def test_a_copy_goes_on_by_itself(small: dualar.WaveNet) -> None:
    classes, condition = inputs(Shape(), 1, 30)
    state = small.prime(classes[:, :11], condition[:, :, :11])
    other = state.copy()
    want = stepped(small, classes[:, 11:], condition[:, :, 11:], state)
    assert other.position == 11
    np.testing.assert_array_equal(stepped(small, classes[:, 11:], condition[:, :, 11:], other), want)


def test_strange_states_are_refused(small: dualar.WaveNet, tmp_path: Path) -> None:
    twin = dualar.WaveNet.load(write_wavenet(tmp_path / "twin.gguf", Shape()), threads=1)
    classes, condition = inputs(Shape(), 2, 1)
    for state, says in (
        (twin.initial_state(2), "another model"),
        (small.initial_state(3), "2 sequence.*of 3"),
        (None, "WaveNetState"),
    ):
        with pytest.raises(ValueError, match=says):
            small.step(classes[:, 0], condition[:, :, 0], state)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=says):
            small.generate(1, condition, first=classes[:, 0], state=state or "none")  # type: ignore[arg-type]
        if state is not None:
            with pytest.raises(ValueError, match=says):
                small.prime(classes, condition, state=state)
            assert state.position == 0


def test_a_refused_step_leaves_the_state_alone(small: dualar.WaveNet) -> None:
    classes, condition = inputs(Shape(), 1, 20)
    want = stepped(small, classes, condition, small.initial_state(1))
    state = small.initial_state(1)
    got = []
    for t in range(20):
        for bad, c in ((16, condition[:, :, t]), (0, condition[:, :, t] * np.nan), (0, condition[:, :2, t])):
            with pytest.raises(ValueError):
                small.step([bad], c, state)
        got.append(small.step(classes[:, t], condition[:, :, t], state))
    np.testing.assert_array_equal(np.stack(got, -1), want)


# ------------------------------------------------------------------ generation
def inverse_cdf(logits: np.ndarray, temperature: float, u: float) -> tuple[int, float]:
    """The class, and how far `u` is from the edge where it would be another."""
    p = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    edges = np.cumsum(p) / p.sum()
    return int(np.searchsorted(edges, u, side="right")), float(np.abs(edges[:-1] - u).min())


@pytest.mark.parametrize("temperature", [None, 0.5, 3.0])
def test_draws_invert_the_distribution(tiny: tuple[dualar.WaveNet, dict[str, Any]], temperature: float | None) -> None:
    net, _ = tiny
    condition = np.random.default_rng(1).standard_normal((8, 300))
    classes = net.generate(300, condition, first=128, temperature=temperature, seed=9)
    state, previous, near = net.initial_state(1), 128, 0
    noise = uniform(9, 0, 0, 300)[0]
    for t in range(300):
        logits = net.step([previous], condition[None, :, t], state)[0]
        want, margin = inverse_cdf(logits, temperature or 1.0, noise[t])
        if margin < 1e-6:
            near += 1
        else:
            assert classes[t] == want, t
        previous = int(classes[t])
    assert near < 5
    assert len(np.unique(classes)) > 20


def test_one_seed_is_one_clip_however_it_is_made(small: dualar.WaveNet) -> None:
    condition = np.random.default_rng(2).standard_normal((3, 3, 9000))
    whole = small.generate(9000, condition, first=5, seed=40)  # past two blocks of noise
    assert whole.shape == (3, 9000)
    np.testing.assert_array_equal(small.generate(9000, condition, first=5, seed=40), whole)
    assert (small.generate(9000, condition, first=5, seed=41)[0] != whole[0]).any()
    np.testing.assert_array_equal(small.generate(9000, condition, first=5, seed=np.array([40, 41, 42])), whole)
    for b in range(3):
        np.testing.assert_array_equal(small.generate(9000, condition[b], first=5, seed=40 + b), whole[b])
    state, parts, first, at = small.initial_state(3), [], np.full(3, 5), 0
    for n in (1, 4000, 0, 97, 4902):
        parts.append(small.generate(n, condition[:, :, at : at + n], first=first, seed=40, state=state))
        at += n
        first = parts[-1][:, -1] if n else first
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
    assert state.position == 9000


@settings(max_examples=40, deadline=None)
@given(shapes(), st.integers(1, 3), st.integers(2, 40), st.sampled_from([1.0, 8.0]))
def test_many_samples_in_a_call_are_those_of_single_calls(
    tmp_path_factory: Any, shape: Shape, B: int, n: int, scale: float
) -> None:
    """A call computes what it knows of the next samples together: not one bit may differ for that."""
    path = write_wavenet(tmp_path_factory.mktemp("net") / "net.gguf", shape, seed=n, scale=scale)
    net = dualar.WaveNet.load(path, threads=1)
    _, condition = inputs(shape, B, n)
    whole, singly = net.initial_state(B), net.initial_state(B)
    together = net.generate(n, condition, first=0, seed=3, state=whole)
    last: Any = np.zeros(B, int)
    for t in range(n):
        last = net.generate(1, condition[:, :, t : t + 1], first=last, seed=3, state=singly)[:, 0]
        np.testing.assert_array_equal(last, together[:, t])
    np.testing.assert_array_equal(net.step(last, condition[:, :, 0], whole), net.step(last, condition[:, :, 0], singly))


@pytest.mark.parametrize("kernel_size", [2, 3])
@pytest.mark.parametrize("dilation", range(1, 11))
def test_what_is_computed_ahead_is_known(tmp_path: Path, dilation: int, kernel_size: int) -> None:
    """Eight samples are begun together: a dilation of seven is the first that cannot tell them all."""
    shape = Shape(kernel_size=kernel_size, dilations=[dilation] * 3, levels=40)
    net = dualar.WaveNet.load(write_wavenet(tmp_path / "net.gguf", shape, scale=3.0), threads=1)
    condition = inputs(shape, 1, 200)[1][0]
    together = net.generate(200, condition, first=0, seed=dilation)
    state, last = net.initial_state(1), 0
    for t in range(200):
        last = int(net.generate(1, condition[:, t : t + 1], first=last, seed=dilation, state=state)[0])
        assert last == together[t], t


def test_generation_goes_on_from_a_primed_prefix(small: dualar.WaveNet) -> None:
    condition = np.random.default_rng(3).standard_normal((1, 3, 60))
    made = small.generate(60, condition, first=[7], greedy=True)
    prefix = np.concatenate([[[7]], made[:, :24]], axis=1)
    state = small.prime(prefix[:, :-1], condition[:, :, :24])
    rest = small.generate(36, condition[:, :, 24:], first=prefix[:, -1], greedy=True, state=state)
    np.testing.assert_array_equal(rest, made[:, 24:])


def test_low_temperature_is_nearly_greedy(small: dualar.WaveNet) -> None:
    condition = np.random.default_rng(4).standard_normal((3, 50))
    greedy = small.generate(50, condition, first=0, greedy=True)
    for temperature in (1e-6, 1e-300):
        np.testing.assert_array_equal(small.generate(50, condition, first=0, temperature=temperature), greedy)


def test_draws_follow_the_distribution(tmp_path: Path) -> None:
    """A network that looks at nothing but its input: classes after one class are counted."""
    shape = Shape(kernel_size=1, dilations=(1,), levels=5)
    net = dualar.WaveNet.load(write_wavenet(tmp_path / "net.gguf", shape, scale=2.0), threads=1)
    classes = net.generate(40_000, np.zeros((3, 40_000)), first=0, seed=1)
    logits = net.forward(np.arange(5)[:, None], np.zeros((5, 3, 1)))[..., 0].astype(np.float64)
    expected = np.exp(logits - logits.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    counts = np.zeros((5, 5))
    np.add.at(counts, (classes[:-1], classes[1:]), 1)
    rows = counts.sum(1)
    error = np.sqrt(expected * (1 - expected) * rows[:, None])
    assert (np.abs(counts - expected * rows[:, None]) < 5 * error + 1).all()
    assert (rows > 500).sum() >= 2


# ------------------------------------------------------------------ mu-law
def test_mu_law() -> None:
    for levels in (2, 16, 255, 256, 65536):
        classes = np.arange(levels)
        samples = mu_law_decode(classes, levels)
        assert samples.dtype == np.float32
        assert samples[0] == -1 and samples[-1] == 1 and (np.diff(samples) > 0).all()
        np.testing.assert_array_equal(mu_law_encode(samples, levels), classes)
        np.testing.assert_allclose(samples, -samples[::-1], atol=1e-7)
    np.testing.assert_array_equal(mu_law_encode([0.0, 2.0, -2.0]), [128, 255, 0])
    # sign(y) ((1 + mu)^|y| - 1) / mu at y = 2 * 191 / 255 - 1
    assert mu_law_decode([[191]]) == pytest.approx((256 ** (127 / 255) - 1) / 255, rel=1e-6)
    with pytest.raises(ValueError, match="0 to 255"):
        mu_law_decode([256])
    with pytest.raises(ValueError, match="finite"):
        mu_law_encode([np.nan])
    with pytest.raises(ValueError, match="levels"):
        mu_law_encode([0.0], 1)


def test_samples_and_classes_of_a_model(small: dualar.WaveNet) -> None:
    np.testing.assert_array_equal(small.classes(small.samples(np.arange(16))), np.arange(16))
    with pytest.raises(ValueError, match="0 to 15"):
        small.samples([16])
