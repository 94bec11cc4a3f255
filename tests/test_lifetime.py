"""What repeats must not grow: loads, sessions, failures. And what threads and forks may and may not do."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from core_testing import testing
from dualar import _core
from fixtures.make_toy_model import write_toy_model
from fixtures.s2_geometry import TINY
from s2_engine import s2_prompt

SPEECH: dict[str, Any] = {"max_new_tokens": 4, "min_tokens_before_end": 4}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_toy_model(path, geometry=TINY)
    return path


# ------------------------------------------------------------------ computations and threads that fail
def test_a_graph_can_be_computed_after_a_profile_that_failed() -> None:
    assert testing.compute_after_failed_profile(_core.Runtime(threads=2)) == 6.0


# A thread's stack is as large as the limit on the stack says (512 MB here), and then there is room for none.
THREADLESS = """if True:
    import os, resource
    import numpy as np
    from dualar import _core

    os.sched_setaffinity(0, range(os.cpu_count()))

    def no_more_threads():
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, -1))

"""
PACK = (
    THREADLESS
    + """
    def packed_product(threads):
        x, weights = np.arange(40.0).reshape(2, 20), np.arange(2000.0).reshape(100, 20)
        return _core.testing.product(x, weights, bias=np.zeros(100), threads=threads, variant="plain")

    want = packed_product(1)
    no_more_threads()
    assert np.array_equal(packed_product(4), want)
    print("packed")
"""
)
POOL = (
    THREADLESS
    + """
    _core.Runtime(threads=2)
    no_more_threads()
    _core.Runtime(threads=1)
    try:
        _core.Runtime(threads=2)
    except _core.BackendError as error:
        print(error)
"""
)


@pytest.mark.skipif(not Path("/proc/self/statm").exists() or os.cpu_count() == 1, reason="needs Linux and two CPUs")
@pytest.mark.parametrize(
    ("program", "says"),
    [(PACK, "packed\n"), (POOL, "[backend] could not start 2 threads\n")],
    ids=["weights are packed by the caller", "a pool is an error"],
)
def test_where_no_thread_can_be_started(program: str, says: str) -> None:
    import resource

    def large_stacks() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (2**29, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, preexec_fn=large_stacks, text=True
    )
    assert (done.returncode, done.stdout) == (0, says), done.stderr


# ------------------------------------------------------------------ memory
def resident() -> int:
    """Bytes that the process holds in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def assert_flat(run: Callable[[], object], *, times: int, warm_up: int) -> None:
    """After some runs that may fill caches, the others leave nothing: less than a page for each."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc")
    for _ in range(warm_up):
        run()
    before = resident()
    for _ in range(times):
        run()
    grown = resident() - before
    assert grown < 2 << 20, f"{grown} bytes in {times} runs"


def test_a_thousand_loads(tiny: Path) -> None:
    tokenizer = dualar.Tokenizer.find(tiny, metadata_value=_core.ModelFile(str(tiny)).get("tokenizer.huggingface.json"))

    def run() -> None:
        with dualar.load(tiny, threads=1, tokenizer=tokenizer) as engine:
            engine.codec.decode(np.zeros((3, 1), np.int32))

    assert_flat(run, times=1000, warm_up=100)


def test_a_thousand_sessions_and_streams(tiny: Path) -> None:
    with dualar.load(tiny, threads=1) as engine:
        prompt = s2_prompt(engine, "hi")
        stream_of = engine.codec._core.stream

        def run() -> None:
            session = engine.model.session(max_positions=prompt.shape[1] + 1)
            out = session.prefill(prompt)
            session.fast_begin(out.hidden, 0)
            session.step(prompt[:, 0].copy())
            stream_of(max_frames=2).push(np.zeros((3, 2), np.int32))

        assert_flat(run, times=1000, warm_up=100)


def test_a_thousand_failures(tiny: Path, tmp_path: Path) -> None:
    data = tiny.read_bytes()
    (tmp_path / "cut.gguf").write_bytes(data[: len(data) // 2])
    (tmp_path / "wrong.gguf").write_bytes(data.replace(b"norm.weight", b"morn.weight"))
    with dualar.load(tiny, threads=1) as engine:
        session = engine.model.session(max_positions=8)

        def run() -> None:
            for name in ("cut", "wrong", "missing"):
                with pytest.raises(dualar.ModelError):
                    _core.DualAR(_core.ModelFile(str(tmp_path / f"{name}.gguf")), engine.parts.runtime, im_end_id=1)
            for bad in (np.zeros((2, 2), int), np.full((4, 2), -1), np.zeros((4, 9), int)):
                with pytest.raises(ValueError, match="prompt"):
                    session.prefill(bad)

        assert_flat(run, times=1000, warm_up=100)


def test_a_thousand_syntheses(tiny: Path) -> None:
    with dualar.load(tiny, threads=1) as engine:
        assert_flat(lambda: engine.synthesize("hi", seed=1, **SPEECH), times=1000, warm_up=100)


# ------------------------------------------------------------------ threads
def codes(engine: dualar.Engine, seed: int) -> bytes:
    return engine.synthesize("hi", seed=seed, **SPEECH).codes.tobytes()


@pytest.mark.parametrize("threads", [1, 2, 64])
def test_any_number_of_threads_repeats_itself(tiny: Path, threads: int) -> None:
    with dualar.load(tiny, threads=threads) as engine:
        assert 1 <= engine.threads <= threads  # no more are started than there are CPUs for
        assert codes(engine, 5) == codes(engine, 5)


def test_two_engines_at_once(tiny: Path) -> None:
    with dualar.load(tiny, threads=1) as one, dualar.load(tiny, threads=1) as two:
        alone = [codes(one, seed) for seed in range(6)]
        results: dict[str, list[bytes]] = {}

        def work(name: str, engine: dualar.Engine) -> None:
            results[name] = [codes(engine, seed) for seed in range(6)]

        threads = [threading.Thread(target=work, args=pair) for pair in (("one", one), ("two", two))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {"one": alone, "two": alone}


def test_an_engine_in_a_thread_pool(tiny: Path) -> None:
    with dualar.load(tiny, threads=2) as engine, ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda seed: codes(engine, seed), range(24)))
        assert together == [codes(engine, seed) for seed in range(24)]


def test_an_engine_made_in_one_thread_and_ended_in_another(tiny: Path) -> None:
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        engine = first.submit(dualar.load, tiny, threads=2).result()
        expected = first.submit(codes, engine, 1).result()
        assert second.submit(codes, engine, 1).result() == expected
        second.submit(engine.close).result()


def test_a_second_thread_on_one_stream_is_told(tiny: Path) -> None:
    with dualar.load(tiny, threads=1) as engine:
        stream = engine.codec._core.stream(max_frames=64)
        frames, told = np.zeros((3, 64), np.int32), []
        start = threading.Barrier(2)

        def work() -> None:
            start.wait()
            for _ in range(2000):
                try:
                    stream.push(frames)
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


# ------------------------------------------------------------------ forks
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_forked_child_is_refused_and_ends_cleanly(tiny: Path, threads: int) -> None:
    """Everything that could compute is a BackendError in the child; freeing the model there neither hangs nor dies."""
    program = """if True:
        import gc, os, sys
        import numpy as np
        import dualar
        engine = dualar.load(sys.argv[1], threads=int(sys.argv[2]))
        model, codec = engine.model, engine.codec
        prompt = engine.build_prompt("hi")
        session = model.session(max_positions=prompt.shape[1] + 4)
        hidden = session.prefill(prompt).hidden
        stream = codec._core.stream(max_frames=1)
        stream.push(np.zeros((3, 1), np.int32))
        child = os.fork()
        if child == 0:
            refused = 0
            uses = [
                lambda: engine.synthesize("x"),
                lambda: codec.decode(np.zeros((3, 1), int)),
                lambda: model.session(max_positions=4),
                lambda: session.step(prompt[:, 0].copy()),
                lambda: session.fast_begin(hidden, 0),
                lambda: model.fast_decode(hidden, np.zeros(1, int)),
                lambda: stream.push(np.zeros((3, 1), np.int32)),
            ]
            for i, use in enumerate(uses):
                try:
                    use()
                    print("not refused:", i, flush=True)
                except dualar.BackendError as error:
                    refused += "load" in str(error)
            with dualar.load(sys.argv[1], threads=2) as own:  # a model of its own works
                own.synthesize("x", seed=0, max_new_tokens=1)
            del session, stream, model, codec, uses, use
            engine.close()
            gc.collect()
            sys.exit(40 + refused)  # by the ordinary way out
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 47
        session.step(prompt[:, 0].copy())
    """
    command = [sys.executable, "-W", "ignore", "-c", program, str(tiny), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
