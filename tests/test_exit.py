"""How a program ends while something computes: by its own exit code, with nothing on stderr, whatever its threads do.

Each case is a small program that runs as a process of its own, several times, because what used to go wrong depended on
where a thread was when the interpreter went away.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fixtures.make_toy_model import write_toy_model
from fixtures.s2_geometry import TINY

TIMES = 20

# What every program begins with: `in_thread(work)` calls work() again and again in a daemon thread, and comes back when
# its first call has ended, or with wait=False at once.
BEGINNING = """
import os, sys, threading, time
import numpy as np
import dualar

def in_thread(work, *, wait=True):
    called = threading.Event()
    def run():
        while True:
            work()
            called.set()
    threading.Thread(target=run, daemon=True).start()
    if wait:
        called.wait()
"""


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", BEGINNING + program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def assert_ends(program: str, *arguments: object, code: int = 0, times: int = TIMES) -> None:
    """Every run ends with `code` and says nothing on stderr."""
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: run(program, *arguments), range(times)))
    found = [(done.returncode, done.stderr) for done in runs]
    assert found == [(code, "")] * times


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_toy_model(path, geometry=TINY)
    return path


# ------------------------------------------------------------------ daemon threads, with the package's voice
def test_a_thread_that_speaks() -> None:
    assert_ends("""
engine = dualar.load(threads=1)
in_thread(lambda: engine.synthesize("turn on the kitchen light", seed=1))
sys.exit(0)
""")


def test_a_thread_that_steps_a_batch() -> None:
    assert_ends("""
engine = dualar.load(threads=1)
texts = [dualar.SpeechRequest(text="turn on the kitchen light", seed=seed) for seed in range(3)]
in_thread(lambda: list(engine.synthesize_batch(texts)))
sys.exit(3)
""", code=3)  # fmt: skip


def test_a_thread_that_decodes() -> None:
    assert_ends("""
engine = dualar.load(threads=1)
codes = np.zeros((engine.codec.num_codebooks, 100_000), np.int32)
started = threading.Event()
threading.Thread(target=engine.codec.decode, args=[codes], daemon=True).start()
time.sleep(0.1)
sys.exit(0)
""")


# ------------------------------------------------------------------ every entry of the core
ENTRIES = """
s2, qwen3, wavenet_path = sys.argv[1:]
from dualar import _core
engine = dualar.load(s2, threads=1)
talker = dualar.load(qwen3, threads=1)
speaker = dualar.SpeakerEncoder.load(qwen3, threads=1)
wavenet = dualar.WaveNet.load(wavenet_path, threads=1)
short = {"max_new_tokens": 8, "min_tokens_before_end": 8}
rng = np.random.default_rng(0)
prompt = engine.build_prompt("hi " * 60)
column = prompt[:, 0].copy()
sound = rng.uniform(-0.1, 0.1, 8 * engine.codec.samples_per_frame).astype(np.float32)
voice = talker.clone(np.tile(sound, 4), sample_rate=24000)
weights = rng.standard_normal((512, 1024)).astype(np.float32)
classes = rng.integers(0, wavenet.quantization_levels, (1, 2000))
condition = rng.standard_normal((1, wavenet.condition_channels, 2000)).astype(np.float32)

def prefill():
    engine.model.session(max_positions=prompt.shape[1]).prefill(prompt)

def step():
    session = engine.model.session(max_positions=64)
    for _ in range(32):
        hidden = session.step(column).hidden
        for code in range(engine.model.num_codebooks - 1):
            session.fast_step(0) if code else session.fast_begin(hidden, 0)
        session.fast_decode(hidden, np.zeros(1, int))
    session.snapshot()

def batch():
    for result in engine.synthesize_batch([dualar.SpeechRequest(text="hi", **short)] * 3):
        result.get()

def push():
    stream = engine.codec._core.stream(max_frames=8)
    for _ in range(8):
        stream.push(np.zeros((engine.codec.num_codebooks, 8), np.int32))
    stream.restore(stream.snapshot())

def encode():
    engine.codec.encode(sound, sample_rate=engine.codec.sample_rate)

def speak_qwen3():
    talker.synthesize("hi", voice=voice, **short)

def embed():
    speaker.embed(sound, sample_rate=24000)

def forward():
    wavenet.forward(classes, condition)

def prime_and_generate():
    state = wavenet.initial_state(1)
    wavenet.prime(classes[:, :600], condition[:, :, :600], state=state)
    wavenet.generate(2000, condition, first=classes[:, 600], state=state)

def load():
    for path in (s2, qwen3):
        with dualar.load(path, threads=1) as loaded:
            loaded.model.load()
    _core.ModelFile(s2)

def quantize():
    _core.quantize(weights, "q4_K")

def stream():
    with engine.stream("hi", **short) as chunks:
        list(chunks)

def narrate():
    engine.narrate("Hi there. " * 40, max_new_tokens=2, config=dualar.NarrationConfig(retries=0))
"""
NAMES = [
    line[4:].split("(")[0] for line in ENTRIES.splitlines() if line.startswith("def ")
]  # fmt: skip


@pytest.fixture(scope="module")
def models(toy_model: Path, qwen3_model: Callable[..., Path], golden: Callable[..., object]) -> list[object]:
    return [toy_model, qwen3_model("tiny"), golden("wavenet-tiny").gguf]  # type: ignore[attr-defined]


def test_each_entry_works(models: list[object]) -> None:
    """So that the next test tests what it says."""
    calls = "".join(f"{name}()\n" for name in NAMES)
    done = run(ENTRIES + calls, *models)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_thread_in_every_entry_of_the_core(models: list[object]) -> None:
    """All at once; 20 runs find each of them at work, or waiting for its turn, when the program ends."""
    threads = "".join(f"in_thread({name}, wait=False)\n" for name in NAMES)
    assert_ends(ENTRIES + threads + "time.sleep(0.1)\nsys.exit(5)\n", *models, code=5)


def test_every_function_of_the_core_is_counted() -> None:
    """Whatever a thread calls once the program ends raises SystemExit at once: its arguments are not looked at."""
    done = run("""
import atexit, types
from dualar import _core

def functions(scope, path):
    for name, value in vars(scope).items():
        where = f"{path}.{name}"
        if isinstance(value, types.ModuleType) or (isinstance(value, type) and value.__module__.startswith("dualar._")):
            yield from functions(value, where)
        elif isinstance(value, property):
            yield from ((where, accessor) for accessor in (value.fget, value.fset) if accessor)
        elif callable(value) and not isinstance(value, (type, types.WrapperDescriptorType)):
            yield where, value

def call_all():
    for where, function in functions(_core, "_core"):
        try:
            function()
            print(where, "returned")
        except SystemExit:
            counted.append(where)
        except BaseException as error:
            print(where, error)

counted = []
atexit._run_exitfuncs()
thread = threading.Thread(target=call_all)
thread.start()
thread.join()
assert {"_core.quantize", "_core.Session.prefill", "_core.Model.main_ids"} <= set(counted), counted
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ------------------------------------------------------------------ exit(), called by native code
NATIVE = """
import ctypes
libc = ctypes.CDLL(None)
from dualar import _core
if sys.argv[1] == "slowly":  # between what is destroyed of what computations make, and what was made at the start
    libc.__cxa_atexit(libc.usleep, ctypes.c_void_p(100_000), None)
engine = dualar.load(threads=1)
for _ in range(2):
    in_thread(lambda: engine.synthesize("turn on the kitchen light", seed=1), wait=False)
time.sleep(0.3)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="names of glibc")
@pytest.mark.parametrize("library", ["PyDLL", "CDLL"])
@pytest.mark.parametrize("pace", ["at once", "slowly"])
def test_native_code_ends_the_program(library: str, pace: str) -> None:
    """With the interpreter's lock (PyDLL) and without it; nothing that computations use is destroyed under them."""
    assert_ends(NATIVE + f"ctypes.{library}(None).exit(9)\n", pace, code=9, times=6)


@pytest.mark.skipif(sys.platform != "linux", reason="names of glibc")
def test_native_code_ends_the_program_while_a_thread_logs(tmp_path: Path) -> None:
    """The thread waits for the lock that the ending thread keeps, and so is not waited for."""
    assert_ends(
        NATIVE
        + """
from dualar import _core
_core.set_log_sink(lambda level, line: None)
def log():
    while True:
        try:
            _core.testing.log("a line")
        except SystemExit:
            time.sleep(1)
in_thread(log, wait=False)
ctypes.PyDLL(None).exit(9)
""",
        "at once",
        code=9,
        times=5,
    )


# ------------------------------------------------------------------ a program that goes on for a while
def test_what_is_broken_off_gives_no_numbers_and_the_ending_thread_may_go_on(toy_model: Path) -> None:
    """Threads get SystemExit, also for what they begin later; a state that was broken off is refused until reset()."""
    done = run(
        """
import atexit
engine = dualar.load(sys.argv[1], threads=1)
codes = np.zeros((engine.codec.num_codebooks, 512), np.int32)
stream, encoder = engine.codec._core.stream(max_frames=512), engine.codec._core.encoder(max_frames=512)
expected = stream.push(codes)
stream.reset()
sound = np.zeros(512 * engine.codec.samples_per_frame, np.float32)
ended = []
def push():
    try:
        while True:
            stream.push(codes)
    except BaseException as error:
        ended.append(error)
    try:
        engine.codec.encode(sound)
    except BaseException as error:
        ended.append(error)
thread = threading.Thread(target=push, daemon=True)
thread.start()
time.sleep(0.05)
atexit._run_exitfuncs()
thread.join()
assert [type(error) for error in ended] == [SystemExit] * 2, ended
assert "the program ends" in str(ended[0])
for use in (lambda: stream.push(codes), stream.snapshot):
    try:
        use()
        raise AssertionError("a broken state was used")
    except ValueError as error:
        assert "expected reset() first" in str(error), error
stream.reset()
assert np.array_equal(stream.push(codes), expected)
print(engine.synthesize("hi", seed=0, max_new_tokens=2).samples.size > 0)
""",
        toy_model,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


# ------------------------------------------------------------------ other ways out
def test_a_thread_that_is_no_daemon_ends_its_work(toy_model: Path) -> None:
    """Python waits for such threads, and so nothing of theirs is broken off."""
    assert_ends(
        """
engine = dualar.load(sys.argv[1], threads=1)
def work():
    for seed in range(3):
        engine.synthesize("hi", seed=seed, max_new_tokens=32, min_tokens_before_end=32)
    os._exit(6)
threading.Thread(target=work).start()
sys.exit(0)
""",
        toy_model,
        code=6,
        times=5,
    )


def test_a_child_of_fork_ends_while_the_parent_computes(toy_model: Path) -> None:
    """The parent's computations are not the child's to wait for."""
    assert_ends(
        """
engine = dualar.load(sys.argv[1], threads=1)
in_thread(lambda: engine.synthesize("hi", seed=1, max_new_tokens=32, min_tokens_before_end=32))
for _ in range(4):
    child = os.fork()
    if child == 0:
        with dualar.load(sys.argv[1], threads=1) as own:
            own.synthesize("hi", seed=1, max_new_tokens=1)
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
sys.exit(8)
""",
        toy_model,
        code=8,
        times=5,
    )


def test_an_engine_closed_by_another_thread_while_it_computes(toy_model: Path) -> None:
    """What computes ends first, and what comes later is told."""
    assert_ends(
        """
for _ in range(10):
    engine, ended = dualar.load(sys.argv[1], threads=2), []
    def work():
        try:
            while True:
                engine.synthesize("hi", seed=1, max_new_tokens=4)
        except ValueError as error:
            ended.append("closed" in str(error))
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.01)
    engine.close()
    for thread in threads:
        thread.join()
    assert ended == [True] * 3, ended
""",
        toy_model,
        times=5,
    )


def test_a_subinterpreter_is_refused() -> None:
    """It would wait for the main interpreter's lock without end."""
    done = run("""
try:
    import _interpreters
    def refused(interpreter):
        return _interpreters.run_string(interpreter, source).msg
except ImportError:
    import _xxsubinterpreters as _interpreters
    def refused(interpreter):
        try:
            return _interpreters.run_string(interpreter, source)
        except _interpreters.RunFailedError as error:
            return str(error)
source = f"import sys; sys.path[:] = {sys.path}\\nfrom dualar import _core"
print(refused(_interpreters.create()))
dualar.devices()
print(refused(_interpreters.create()))
""")
    assert (done.returncode, done.stdout.count("expected Python's main interpreter, got a subinterpreter")) == (0, 2)
