"""Calls that are wrong, in Python and on the command line: each is an error that says so, or a right result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import dualar
import numpy as np
import pytest
import soundfile
from dualar.audio.wav import encode_wav, to_pcm
from dualar.cli.main import app
from dualar.engine import Engine
from fixtures.make_toy_model import write_toy_model
from fixtures.s2_geometry import TINY
from s2_engine import s2_prompt
from typer.testing import CliRunner, Result

NAN, INF = float("nan"), float("inf")
HUGE = 2**70


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_toy_model(path, geometry=TINY)
    return path


@pytest.fixture(scope="module")
def prompt(engine: Engine) -> np.ndarray:
    return s2_prompt(engine, "hello")


def run(*args: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin, prog_name="dualar")


@pytest.fixture(autouse=True)
def no_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUALAR_MODEL", raising=False)


# ------------------------------------------------------------------ texts
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no text"),
        (" \t\n\u3000", "only blanks"),
        ("\0\0", "only blanks"),
        ("\u200b\ufeff", "only blanks"),
        ("<|speaker:0|>", "only speaker tags"),
        (" <|speaker:0|> <|speaker:1|> ", "only speaker tags"),
        ("a\ud800b", r"surrogate U\+D800 at character 1"),
        ("\udfff", r"surrogate U\+DFFF"),
        ("word " * 200_000, "context of 2048"),
        ("a" * 1_000_000, "context of 2048"),
    ],
    ids=["empty", "blank", "NUL", "invisible", "tag", "tags", "surrogate", "low surrogate", "1 MB", "1 MB, no blank"],
)
def test_texts_that_cannot_be_said(engine: Engine, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        engine.synthesize(text, seed=0, max_new_tokens=2)


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f469\u200d\U0001f467\U0001f3f3\ufe0f\u200d\U0001f308",  # emoji, joined
        "Z\u0351\u036b\u0343A\u0334\u0335" + "\u0354" * 40,
        "שלום مرحبا",
        "a\0b",
        "<|im_end|><|im_start|>system",
        "\u0301",
        "\uffff\U0010ffff",
        "١٢٣",
        "\r\n.\r\n",
    ],
)
def test_texts_that_can(engine: Engine, text: str) -> None:
    audio = engine.synthesize(text, seed=0, max_new_tokens=2, min_tokens_before_end=2)
    assert audio.codes.shape[1] == 2 and np.isfinite(audio.samples).all()


# ------------------------------------------------------------------ numbers
OPTIONS: dict[str, list[Any]] = {
    "seed": [-1, 2**64, 1.5, "1", True, NAN, INF, HUGE],
    "max_new_tokens": [0, -1, 2**31, HUGE, 1.5, "2", NAN, INF, True],
    "min_tokens_before_end": [-1, 3, HUGE, 0.5, NAN, "1", True],
    "sampling": ["fish", 3, {}],
    "stall_guard": [1, "x", {}],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in OPTIONS.items() for v in values])
def test_options_of_a_request(engine: Engine, prompt: Any, name: str, value: Any) -> None:
    options: dict[str, Any] = {"seed": 0, "max_new_tokens": 2} | {name: value}
    with pytest.raises(ValueError, match=r"^\["):
        engine.synthesize("hello", **options)
    with pytest.raises(ValueError, match=r"^\["):
        engine.generate(prompt, **options)


@pytest.mark.parametrize("family", ["fish", "hf", "cosyvoice"])
@pytest.mark.parametrize(
    ("name", "values"),
    [("temperature", [-1, 101, NAN, INF, "x", None]), ("top_p", [-0.1, 1.1, NAN]), ("top_k", [HUGE, 1.5, NAN, -HUGE])],
)
def test_options_of_sampling(family: str, name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=name):
            getattr(dualar.SamplingConfig, family)(**{name: value})


@pytest.mark.parametrize(
    "options",
    [
        {"device": ""}, {"device": "é"}, {"device": "\ud800"}, {"device": 5}, {"device": None}, {"threads": 0},
        {"threads": -1}, {"threads": 513}, {"threads": HUGE}, {"threads": NAN}, {"fast_ar": None}, {"kv_type": "F32"},
        {"im_end_id": -1}, {"im_end_id": HUGE}, {"im_end_id": 10**6},
    ],
    ids=ascii,
)  # fmt: skip
def test_options_of_load(tiny_model: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^\["):
        dualar.load(tiny_model, **({"threads": 1} | options))


@pytest.mark.parametrize("path", ["", "a\0b", b"bytes", "\ud800.gguf"], ids=ascii)
def test_paths_that_are_none(path: Any) -> None:
    with pytest.raises(ValueError, match="expected a path"):
        dualar.load(path)


def test_numbers_of_a_session(engine: Engine, prompt: Any) -> None:
    model = engine.model
    for number in (0, -1, model.context_length + 1, 2**62, HUGE, -HUGE):
        for call in (lambda n: model.session(max_positions=n), model.kv_bytes):
            with pytest.raises(ValueError, match=r"\[max_positions\] expected 1 to"):
                call(number)
    session = model.session(max_positions=64)
    hidden = session.prefill(prompt).hidden
    for code in (-1, model.codebook_size, 2**40, HUGE, -HUGE):
        with pytest.raises(ValueError, match=r"\[code\] expected 0 to"):
            session.fast_begin(hidden, code)
    with pytest.raises(ValueError, match=r"\[code\]"):
        session.fast_step(HUGE)
    for positions in (-1, 65, HUGE):
        with pytest.raises(ValueError, match=r"\[truncate\]"):
            session.truncate(positions)
    for wrong in (1.5, "1", None):
        with pytest.raises(TypeError):
            session.fast_begin(hidden, wrong)  # type: ignore[arg-type]
    for value in (NAN, INF, -INF):
        with pytest.raises(ValueError, match=r"\[hidden\] expected finite"):
            session.fast_begin(np.where(np.arange(hidden.size) == 3, value, hidden).astype(np.float32), 0)
    assert session.position == prompt.shape[1]


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p[:-1],
        lambda p: p[0],
        lambda p: p[None],
        lambda p: p.astype(float),
        lambda p: p > 0,
        lambda p: p.astype(object),
        lambda p: p[:, :0],
        lambda p: p + 10**6,
        lambda p: p - 1,
        lambda p: p.astype(np.int64) + 2**40,
        lambda p: np.full_like(p, 2**64 - 1, dtype=np.uint64),
        lambda p: np.repeat(p, 100, axis=1),
        lambda p: None,
        lambda p: "prompt",
        lambda p: [[1], [2, 3]],
    ],
)
def test_prompts(engine: Engine, prompt: Any, change: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError):  # numpy refuses the ragged one, in words of its own
        engine.generate(change(prompt), seed=0, max_new_tokens=2)


@pytest.mark.parametrize(
    "change", [np.asfortranarray, lambda p: np.repeat(p, 2, 1)[:, ::2], lambda p: p.astype(">i8"), np.uint64, list]
)
def test_prompts_in_any_layout(engine: Engine, prompt: Any, change: Callable[[Any], Any]) -> None:
    expected = engine.generate(prompt, seed=0, max_new_tokens=2).codes
    np.testing.assert_array_equal(engine.generate(change(prompt), seed=0, max_new_tokens=2).codes, expected)


# ------------------------------------------------------------------ samples
def test_samples_are_clipped_and_never_wrapped() -> None:
    samples = np.array([0, 1, -1, 1.0001, -1.0001, 3e38, -3e38], np.float32)
    np.testing.assert_array_equal(to_pcm(samples, "PCM_16"), [0, 32767, -32767, 32767, -32767, 32767, -32767])
    np.testing.assert_array_equal(to_pcm(samples, "PCM_24") >> 8, np.array([0, 1, -1, 1, -1, 1, -1]) * (2**23 - 1))


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_not_finite_is_no_sample(value: float, tmp_path: Path) -> None:
    for subtype in ("PCM_16", "PCM_24", "FLOAT"):
        with pytest.raises(ValueError, match="finite"):
            encode_wav(np.array([0, value], np.float32), 44100, subtype=subtype)


@pytest.mark.parametrize("rate", [0, -1, 2**40, 1.5, None, True])
def test_sample_rates(rate: Any) -> None:
    with pytest.raises(ValueError, match="rate"):
        encode_wav(np.zeros(3, np.float32), rate)


# ------------------------------------------------------------------ the command line
SAY = ["--max-new-tokens", "2", "--threads", "1", "--force"]


@pytest.mark.parametrize(
    "options",
    [
        ["--seed", "x"], ["--seed", str(2**64)], ["--temperature", "nan"], ["--temperature", "inf"], ["--top-p", "nan"],
        ["--top-k", "-1"], ["--top-k", str(2**40)], ["--threads", "513"], ["--threads", str(HUGE)],
        ["--threads", "1.5"], ["--device", ""], ["--device", "é"], ["--tokenizer", "nowhere"],
        ["--tokenizer", "x" * 5000], ["--im-end-id", "-1"], ["--im-end-id", "530"], ["--min-tokens-before-end", "-1"],
        ["--max-new-tokens", "0"], ["--repetition-penalty", "nan"], ["--model", "x" * 5000], ["--model", "a\udcff"],
        ["--output", "x" * 300 + ".wav"], ["--output", "x" * 5000 + ".wav"], ["--output", "text.txt/a.wav"],
        ["--output", ""], ["--codes", "/dev/full"], ["--codes", "nowhere/a.npy"], ["--file", "x" * 5000],
        ["--sed", "1"], ["--nonsense"],
    ],
    ids=lambda options: ascii(" ".join(options))[:40],
)  # fmt: skip
def test_bad_options_exit_2(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("hello", encoding="utf-8")
    result = run("say", "hello", "-m", tiny_model, "-o", "a.wav", *SAY, *options)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stderr.strip() and "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_model_paths_exit_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("", "nowhere", ".", "x" * 5000, "a\udcff"):
        assert run("info", path).exit_code == 2
    for path in ("/dev/null", "/dev/zero"):
        assert run("info", path).exit_code == 1


def test_codes_that_promise_more_than_they_hold(tiny_model: Path, tmp_path: Path) -> None:
    for shape in ("(3, 1099511627776)", "(3, 100)", "(3, -1)", "(3,)", "()"):
        head = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
        (tmp_path / "codes.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(24))
        result = run("decode", tmp_path / "codes.npy", "-m", tiny_model, "-o", tmp_path / "a.wav")
        assert result.exit_code == 2 and "Traceback" not in result.stderr, result.output
    assert not (tmp_path / "a.wav").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_exits_1(tiny_model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "codes.npy", np.zeros((3, 2), int))
    for args in (["say", "hello", *SAY], ["decode", tmp_path / "codes.npy", "--force"]):
        result = run(*args, "-m", tiny_model, "-o", "/dev/full")
        assert result.exit_code == 1 and "No space left" in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
def test_a_disk_that_fills_up_leaves_nothing(tiny_model: Path, tmp_path: Path) -> None:
    """A limit on file sizes stands for the disk: the file ends in the middle of the writing."""
    program = """if True:
        import resource
        from dualar.cli import main
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
        main()
    """
    (tmp_path / "a.wav").write_bytes(b"old")
    command: list[str | Path] = [sys.executable, "-c", program, "say", "hi", "-m", tiny_model, "-o", "a.wav", *SAY]
    options = ["--max-new-tokens", "20", "--min-tokens-before-end", "20"]
    done = subprocess.run([*command, *options], capture_output=True, check=False, timeout=60, cwd=tmp_path)
    assert done.returncode == 1 and b"cannot write a.wav" in done.stderr, done.stderr
    assert b"Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.wav"] and (tmp_path / "a.wav").read_bytes() == b"old"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX file names")
def test_any_file_name_in_the_c_locale(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a b\tc ñ 音"
    folder.mkdir()
    model = folder / os.fsdecode(b"no\xffutf8.gguf")
    model.write_bytes(tiny_model.read_bytes())
    out = folder / os.fsdecode(b"\xfe out.wav")
    for locale in ({"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}):
        environment = {**os.environ, **locale}
        command: list[str | Path] = [sys.executable, "-m", "dualar", "say", "héllo", "-m", model, "-o", out, *SAY]
        done = subprocess.run(command, capture_output=True, check=False, timeout=120, env=environment)
        assert done.returncode == 0, done.stderr
        assert soundfile.info(os.fsencode(out)).frames > 0
        out.unlink()
        done = subprocess.run(
            [sys.executable, "-m", "dualar", "info", model],
            capture_output=True,
            check=False,
            timeout=120,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
    with dualar.load(model, threads=1) as engine:
        assert engine.path == str(model)


def test_random_options_never_crash(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of any kind in any combination: exit code 0, 1 or 2, and a file only with 0."""
    monkeypatch.chdir(tmp_path)
    values = [
        "",
        "0",
        "1",
        "-1",
        "2",
        "0.5",
        "1e9",
        "nan",
        "inf",
        "x",
        "é",
        "\udcff",
        "a.wav",
        "--",
        "18446744073709551616",
    ]
    names = [
        "--seed", "--sampler", "--temperature", "--top-p", "--top-k", "--repetition-penalty", "--min-tokens-before-end",
        "--threads", "--fast-ar", "--kv-type", "--im-end-id", "--file", "--codes", "--tokenizer", "--device",
        "--keep-partial", "-q", "-v", "--quiet", "--nonsense", "-x",
    ]  # fmt: skip
    good = {"--sampler": ["fish", "hf", "cosyvoice"], "--fast-ar": ["cached", "recompute"], "--kv-type": ["f32", "f16"]}
    rng, codes = Random(0), set()
    for _ in range(300):
        args = ["say", rng.choice(["hello", "", "é", "\udcff", "<|speaker:0|>", "-x", "hi there"])]
        for name in rng.sample(names, rng.randrange(0, 4)):
            args.append(name)
            if len(name) > 2 and name not in ("--keep-partial", "--quiet"):
                args.append(rng.choice(good.get(name, values) if rng.random() < 0.7 else values))
        args += ["-m", str(tiny_model), "-o", "out.wav", *SAY]
        result = run(*args, stdin=b"hello")
        assert result.exit_code in (0, 1, 2), (args, result.output, result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit), (args, result.exception)
        assert Path("out.wav").exists() == (result.exit_code == 0), (args, result.output)
        Path("out.wav").unlink(missing_ok=True)
        codes.add(result.exit_code)
    assert codes >= {0, 2}


def test_random_calls_never_crash(tiny_model: Path) -> None:
    """The same for the Python API: a result, or a ValueError."""
    numbers = [0, 1, 2, -1, 3, 2**31, 2**64, HUGE, 0.5, NAN, INF, None, True, "1", np.int64(2), np.float32(1)]
    rng, done = Random(1), 0
    with dualar.load(tiny_model, threads=1) as engine:
        for _ in range(500):
            family = rng.choice(["fish", "hf", "cosyvoice"])
            fields = {f: rng.choice(numbers) for f in rng.sample(["temperature", "top_p", "top_k"], rng.randrange(3))}
            options = {
                f: rng.choice(numbers)
                for f in rng.sample(["seed", "max_new_tokens", "min_tokens_before_end"], rng.randrange(3))
            }
            try:
                sampling = getattr(dualar.SamplingConfig, family)(**fields)
                audio = engine.synthesize("hi", **({"max_new_tokens": 2, "sampling": sampling} | options))
            except ValueError as error:
                assert str(error).startswith("[")
            else:
                assert np.isfinite(audio.samples).all()
                done += 1
    assert done > 50


# ------------------------------------------------------------------ interruption
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize(("frame", "frames"), [(0, 1), (3, 4)])
def test_keep_partial_writes_what_was_said(tiny_model: Path, tmp_path: Path, frame: int, frames: int) -> None:
    program = f"""if True:
        import os, signal
        from dualar.cli import common, main
        real = common.SpeechProgress.on_frame
        def on_frame(self, frame):
            real(self, frame)
            if frame.index == {frame}:
                os.kill(os.getpid(), signal.SIGINT)
        common.SpeechProgress.on_frame = on_frame
        main()
    """
    command: list[str | Path] = [sys.executable, "-c", program, "say", "hi", "-m", tiny_model, "-o", "a.wav"]
    command += ["--codes", "a.npy", "--keep-partial", "--seed", "3"]
    options = ["--max-new-tokens", "20", "--min-tokens-before-end", "20"]
    done = subprocess.run([*command, *options], capture_output=True, check=False, timeout=60, cwd=tmp_path)
    assert done.returncode == 130, done.stderr
    assert b"interrupted after" in done.stderr and b"Traceback" not in done.stderr
    codes = np.load(tmp_path / "a.npy")
    assert codes.shape == (3, frames)
    with dualar.load(tiny_model, threads=1) as engine:
        assert soundfile.info(tmp_path / "a.wav").frames == frames * engine.codec.samples_per_frame
        whole = engine.synthesize("hi", seed=3, max_new_tokens=20, min_tokens_before_end=20)
        np.testing.assert_array_equal(whole.codes[:, :frames], codes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "a.wav"]
