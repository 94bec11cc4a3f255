"""The Slow-AR and Fast-AR of the core against the published code's numbers, and the rules of a session."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dualar import _core
from dualar.config import GenerationConfig, SamplingConfig
from dualar.generation.generate import FrameLoop, generate

ATOL, RTOL = 1e-4, 1e-4  # float32 weights against the published code in float32
NAMES = ["s2-tiny", "s2-variant", "s2-edge"]


class Case:
    """One golden model in the core, and its arrays."""

    def __init__(self, golden: Any, name: str) -> None:
        pair = golden(name)
        self.arrays = np.load(pair.npz)
        self.model = _core.DualAR(
            _core.ModelFile(str(pair.gguf)), _core.Runtime(threads=1), im_end_id=int(self.arrays["im_end_id"])
        )

    def session(self, **options: Any) -> _core.Session:
        return self.model.session(max_positions=self.model.context_length, **options)

    def __getitem__(self, name: str) -> np.ndarray:
        array: np.ndarray = self.arrays[name]
        return array


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest, golden: Any) -> Case:
    return Case(golden, request.param)


@pytest.fixture(scope="module")
def tiny(golden: Any) -> Case:
    return Case(golden, "s2-tiny")


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, atol=ATOL, rtol=RTOL)


# ------------------------------------------------------------------ goldens
def test_prefill_matches_at_every_position(case: Case) -> None:
    out = case.session().prefill(case["prompt"], all_positions=True, full_vocab=True)
    close(out.logits, case["prefill_logits_all"])
    close(out.hidden, case["prefill_hidden_all"])


def test_sliced_head_is_those_rows_of_the_whole_one(case: Case) -> None:
    out = case.session().prefill(case["prompt"])
    assert out.logits.shape == (case.model.codebook_size + 1,)
    close(out.logits, case["prefill_logits_all"][-1, case.model.main_ids])
    all_positions = case.session().prefill(case["prompt"], all_positions=True)
    close(all_positions.logits, case["prefill_logits_all"][:, case.model.main_ids])


@pytest.mark.parametrize("path", ["cached", "recompute", "stateless"])
def test_forced_frames_match(case: Case, path: str) -> None:
    session, forced = case.session(), case["forced_codes"]
    out = session.prefill(case["prompt"])
    for t, codes in enumerate(forced.T):
        if path == "cached":
            fast = [session.fast_begin(out.hidden, int(codes[0]))]
            fast += [session.fast_step(int(code)) for code in codes[1:-1]]
        else:
            decode = session.fast_decode if path == "recompute" else case.model.fast_decode
            fast = [decode(out.hidden, codes[:k]) for k in range(1, len(codes))]
        close(fast, case["forced_fast_logits"][t])
        out = session.step(np.concatenate([[case.model.semantic_begin_id + codes[0]], codes]), full_vocab=True)
        close(out.logits, case["forced_step_logits"][t])
        close(out.hidden, case["forced_step_hidden"][t])


@pytest.mark.parametrize("fast_ar", ["cached", "recompute"])
@pytest.mark.parametrize("kv_type", ["auto", "f32"])
def test_greedy_codes_are_equal_in_full(case: Case, fast_ar: str, kv_type: str) -> None:
    run = generate(
        case.model,
        case["prompt"],
        max_new_tokens=40,
        sampling=SamplingConfig.fish(temperature=0),
        fast_ar=fast_ar,
        kv_type=kv_type,
        stall_guard=None,
    )
    np.testing.assert_array_equal(run.codes, case["greedy_codes"])
    assert (run.finish_reason == "end") == bool(case["greedy_ended"])


def test_prefill_in_pieces_is_prefill_at_once(case: Case) -> None:
    prompt, session = case["prompt"], case.session()
    for part in (prompt[:, :1], prompt[:, 1:4], prompt[:, 4:]):
        out = session.prefill(part, full_vocab=True)
    close(out.logits, case["prefill_logits_all"][-1])


# ------------------------------------------------------------------ the two Fast-AR paths
@pytest.mark.parametrize(
    "sampling", [SamplingConfig.fish(temperature=0), SamplingConfig.fish()], ids=["greedy", "drawn"]
)
def test_both_fast_paths_give_the_same_codes_on_200_frames(case: Case, sampling: SamplingConfig) -> None:
    frames = 200
    config = GenerationConfig(max_new_tokens=frames, min_tokens_before_end=frames, sampling=sampling, stall_guard=None)
    codes = {}
    for fast_ar in ("cached", "recompute"):
        loop = FrameLoop(case.model, case["prompt"], config, seed=7, fast_ar=fast_ar)
        codes[fast_ar] = np.stack([frame.codes for frame in loop])
    assert len(codes["cached"]) == frames
    np.testing.assert_array_equal(codes["cached"], codes["recompute"])


def test_largest_difference_of_the_two_fast_paths(case: Case, record_property: Any) -> None:
    rng, session, largest = np.random.default_rng(0), case.session(), 0.0
    for _ in range(200):
        hidden = rng.standard_normal(case.model.hidden_size).astype(np.float32)
        codes = rng.integers(0, case.model.codebook_size, case.model.num_codebooks - 1)
        cached = [session.fast_begin(hidden, int(codes[0]))] + [session.fast_step(int(c)) for c in codes[1:]]
        again = [session.fast_decode(hidden, codes[: k + 1]) for k in range(len(codes))]
        largest = max(largest, float(np.abs(np.array(cached) - np.array(again)).max()))
    record_property("largest_logit_difference", largest)
    print(f"largest logit difference of the two Fast-AR paths: {largest:.2e}")
    assert largest < ATOL


# ------------------------------------------------------------------ graphs
def test_graphs_are_built_once(tiny: Case) -> None:
    session = tiny.model.session(max_positions=256)
    out = session.prefill(tiny["prompt"])
    builds = []
    for _ in range(50):
        session.fast_begin(out.hidden, 1)
        for _ in range(tiny.model.num_codebooks - 2):
            session.fast_step(2)
        out = session.step(np.array([tiny.model.semantic_begin_id + 1] + [1] * tiny.model.num_codebooks))
        builds.append(session.graph_builds)
    assert builds[0] == 4  # prefill, step, Fast-AR begin, Fast-AR step
    assert builds[-1] == builds[0]


def test_one_more_graph_per_kv_bucket(toy_model: Path) -> None:
    model = _core.DualAR(_core.ModelFile(str(toy_model)), _core.Runtime(threads=1), im_end_id=0)
    session = model.session(max_positions=600)
    column = np.array([model.semantic_begin_id] + [0] * model.num_codebooks)
    counts = []
    for _ in range(600):
        session.step(column)
        counts.append(session.graph_builds)
    assert [counts[0], counts[255], counts[256], counts[511], counts[512], counts[599]] == [1, 1, 2, 2, 3, 3]


def test_a_long_prompt_equals_its_steps(toy_model: Path) -> None:
    """Past the prefill's piece size and two KV buckets."""
    model = _core.DualAR(_core.ModelFile(str(toy_model)), _core.Runtime(threads=2), im_end_id=0)
    rng, T = np.random.default_rng(1), 700
    prompt = np.zeros((1 + model.num_codebooks, T), np.int32)
    prompt[0] = rng.integers(0, model.semantic_begin_id, T)
    prompt[:, 300:500] = rng.integers(0, model.codebook_size, (1 + model.num_codebooks, 200))
    prompt[0, 300:500] += model.semantic_begin_id
    whole = model.session(max_positions=T).prefill(prompt, all_positions=True)
    stepped = model.session(max_positions=T)
    for t in range(T):
        out = stepped.step(prompt[:, t])
        close(out.logits, whole.logits[t])
        close(out.hidden, whole.hidden[t])


# ------------------------------------------------------------------ sessions
def test_sessions_do_not_mix(tiny: Case) -> None:
    prompt, alone = tiny["prompt"], tiny.session()
    want = [alone.prefill(prompt).logits, alone.step(prompt[:, 3]).logits]
    a, b = tiny.session(), tiny.session()
    got_a = [a.prefill(prompt).logits]
    b.prefill(prompt[:, ::-1].copy())
    got_a.append(a.step(prompt[:, 3]).logits)
    np.testing.assert_array_equal(got_a[0], want[0])
    np.testing.assert_array_equal(got_a[1], want[1])


def test_reset_and_truncate(tiny: Case) -> None:
    prompt, session = tiny["prompt"], tiny.session()
    first = session.prefill(prompt).logits
    after = session.step(prompt[:, 2]).logits
    session.truncate(prompt.shape[1])
    np.testing.assert_array_equal(session.step(prompt[:, 2]).logits, after)
    session.reset()
    assert session.position == 0
    np.testing.assert_array_equal(session.prefill(prompt).logits, first)
    with pytest.raises(ValueError, match="truncate"):
        session.truncate(session.position + 1)


def test_kv_memory_is_sized_by_the_request(tiny: Case) -> None:
    small, large = tiny.model.session(max_positions=10), tiny.model.session(max_positions=100)
    layers, kv_dim = 3, 2 * 24
    assert large.nbytes - small.nbytes == 2 * layers * kv_dim * 4 * 90
    half = tiny.model.session(max_positions=100, kv_type="f16")
    assert large.nbytes - half.nbytes == 2 * layers * kv_dim * 2 * 100
    assert tiny.model.kv_bytes(100, "f32") == large.nbytes


def test_f16_cache_is_close(case: Case) -> None:
    """Half-precision keys and values: eleven bits each, so logits agree to a few parts in a thousand of their scale."""
    session = case.session(kv_type="f16")
    out = session.prefill(case["prompt"], all_positions=True, full_vocab=True)
    want = case["prefill_logits_all"]
    assert np.abs(out.logits - want).max() < 5e-3 * np.abs(want).max()
    assert np.abs(out.logits - want).max() > 0  # it really was another cache


def test_a_second_thread_is_told(tiny: Case) -> None:
    session, told = tiny.session(), []
    prompt = np.repeat(tiny["prompt"][:, :1], 200, axis=1)
    start = threading.Barrier(2)

    def work() -> None:
        start.wait()
        for _ in range(200):
            try:
                session.reset()
                session.prefill(prompt)
            except ValueError as error:
                told.append(str(error))
            if told:
                return

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told and all("one thread at a time" in text for text in told)


# ------------------------------------------------------------------ bad calls
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda x: x[:-1], "11 rows"),
        (lambda x: x.astype(np.float32), "integers"),
        (lambda x: x[0], "2 dimension"),
        (lambda x: x[:, :0], "at least one column"),
        (lambda x: np.where(np.arange(11)[:, None] == 0, 640, x), "0 to 639"),
        (lambda x: np.where(np.arange(11)[:, None] == 0, -1, x), "got -1"),
        (lambda x: np.where(np.arange(11)[:, None] == 3, 96, x), "0 to 95"),
        (lambda x: x.astype(np.int64) + 2**40, "32-bit"),
        (lambda x: np.repeat(x, 100, axis=1), "at most 256"),
    ],
)
def test_bad_prompts(tiny: Case, change: Any, says: str) -> None:
    session = tiny.session()
    with pytest.raises(ValueError, match=says):
        session.prefill(change(tiny["prompt"]))
    assert session.position == 0


def test_fast_decode_checks_in_this_order(tiny: Case) -> None:
    D, N = tiny.model.hidden_size, tiny.model.num_codebooks
    hidden, decode = np.zeros(D, np.float32), tiny.model.fast_decode
    with pytest.raises(ValueError, match="hidden"):  # before the prefix is looked at
        decode(hidden[1:], np.zeros(N, np.int32))
    with pytest.raises(ValueError, match="finite"):
        decode(np.full(D, np.nan, np.float32), np.zeros(1, np.int32))
    for count in (0, N):
        with pytest.raises(ValueError, match=f"1 to {N - 1} codes"):
            decode(hidden, np.full(count, -1, np.int32))
    for code in (-1, tiny.model.codebook_size):
        with pytest.raises(ValueError, match="codes from 0"):
            decode(hidden, np.array([0, code]))


def test_cached_fast_ar_checks(tiny: Case) -> None:
    session, hidden = tiny.session(), np.zeros(tiny.model.hidden_size, np.float32)
    with pytest.raises(ValueError, match="fast_begin first"):
        session.fast_step(0)
    session.fast_begin(hidden, 0)
    for _ in range(tiny.model.num_codebooks - 2):
        session.fast_step(0)
    with pytest.raises(ValueError, match="complete"):
        session.fast_step(0)
    with pytest.raises(ValueError, match="0 to 95"):
        session.fast_begin(hidden, 96)


def test_bad_options(tiny: Case, golden: Any) -> None:
    with pytest.raises(ValueError, match="kv_type"):
        tiny.model.session(max_positions=8, kv_type="int8")
    for positions in (0, -1, 257):
        with pytest.raises(ValueError, match="max_positions"):
            tiny.model.session(max_positions=positions)
    file = _core.ModelFile(str(golden("s2-tiny").gguf))
    for im_end in (-1, 640, 512):
        with pytest.raises(ValueError, match="im_end_id"):
            _core.DualAR(file, _core.Runtime(threads=1), im_end_id=im_end)
    for threads in (0, -3, 513):
        with pytest.raises(ValueError, match="threads"):
            _core.Runtime(threads=threads)
    with pytest.raises(ValueError, match="expected one of cpu"):
        _core.Runtime(device="gpu9")


def test_a_device_this_build_lacks() -> None:
    names = [device.name for device in _core.devices()]
    assert names[0] == "cpu"
    if "cuda" in names:
        pytest.skip("this build has CUDA")
    with pytest.raises(_core.BackendError, match="DUALAR_CUDA=ON"):
        _core.Runtime(device="cuda")


@pytest.mark.parametrize("threads", [1, 2, 64])
def test_any_number_of_threads(golden: Any, threads: int) -> None:
    pair = golden("s2-tiny")
    arrays = np.load(pair.npz)
    runtime = _core.Runtime(threads=threads)
    assert runtime.threads == min(threads, _core.usable_cpus())
    model = _core.DualAR(_core.ModelFile(str(pair.gguf)), runtime, im_end_id=int(arrays["im_end_id"]))
    out = model.session(max_positions=64).prefill(arrays["prompt"], full_vocab=True)
    close(out.logits, arrays["prefill_logits_all"][-1])


def test_probes_name_every_block(tiny: Case) -> None:
    session = tiny.session()
    session._keep_probes(True)
    session.prefill(tiny["prompt"])
    probes = session._probes()
    assert {"decoder.0", "decoder.1", "decoder.2", "hidden"} <= probes.keys()
    assert probes["decoder.2"].size == tiny["prompt"].shape[1] * tiny.model.hidden_size
