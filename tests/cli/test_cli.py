"""The command line: text to WAV, codes to WAV, what is printed and where, exit codes, what an interruption leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import dualar
import gguf
import numpy as np
import pytest
import soundfile
from dualar.cli.main import COMMANDS, app
from dualar.cli.speed import least_bytes, picture
from dualar.runtime import open_file
from fixtures.gguf_raw import RawGguf, Tensor, string
from typer.testing import CliRunner, Result

SHORT = ["--max-new-tokens", "4", "--min-tokens-before-end", "4", "--threads", "1"]


def run(*args: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin, prog_name="dualar")


@pytest.fixture(autouse=True)
def no_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUALAR_MODEL", raising=False)


def run_python(*args: str | Path, **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, *map(str, args)]
    return subprocess.run(command, capture_output=True, check=False, timeout=120, **options)  # type: ignore[call-overload,no-any-return]


# ------------------------------------------------------------------ say
def test_say_writes_a_wav_and_says_so_on_stderr(toy_model: Path, tmp_path: Path) -> None:
    out, codes = tmp_path / "out.wav", tmp_path / "out.npy"
    result = run("say", "hello there", "-m", toy_model, "-o", out, "--codes", codes, "--seed", "5", *SHORT)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "4 frames" in result.stderr and "seed 5" in result.stderr and "out.wav" in result.stderr
    with dualar.load(toy_model, threads=1) as engine:
        audio = engine.synthesize("hello there", seed=5, max_new_tokens=4, min_tokens_before_end=4)
    np.testing.assert_array_equal(np.load(codes), audio.codes)
    audio.save(tmp_path / "expected.wav")
    assert out.read_bytes() == (tmp_path / "expected.wav").read_bytes()
    assert soundfile.info(out).frames == audio.samples.shape[0] > 0


def test_say_with_one_seed_gives_one_file(toy_model: Path, tmp_path: Path) -> None:
    files = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        out = tmp_path / f"{name}.wav"
        assert run("say", "hello", "-m", toy_model, "-o", out, "-s", seed, *SHORT).exit_code == 0
        files.append(out.read_bytes())
    assert files[0] == files[1] != files[2]


def test_text_comes_from_an_argument_a_file_or_stdin(toy_model: Path, tmp_path: Path) -> None:
    text = "ça va — 早上好"
    source = tmp_path / "text.txt"
    source.write_text(text, encoding="utf-8-sig")  # a byte order mark is no text
    common: list[str | Path] = ["-m", toy_model, "--seed", "1", *SHORT]
    cases: tuple[tuple[str, list[str | Path], str | None], ...] = (
        ("a", [text], None),
        ("b", ["--file", source], None),
        ("c", ["-"], text),
        ("d", ["--", text], None),
    )
    for name, args, stdin in cases:
        result = run("say", "-o", tmp_path / f"{name}.wav", *common, *args, stdin=stdin)
        assert result.exit_code == 0, result.output
    assert len({(tmp_path / f"{name}.wav").read_bytes() for name in "abcd"}) == 1


def test_options_reach_the_engine(toy_model: Path, tmp_path: Path) -> None:
    expected = {
        (): dualar.SamplingConfig.fish(),
        ("--temperature", "0"): dualar.SamplingConfig.fish(temperature=0.0),
        ("--top-k", "1"): dualar.SamplingConfig.fish(top_k=1),
        ("--top-p", "0.4"): dualar.SamplingConfig.fish(top_p=0.4),
        ("--sampler", "hf", "--repetition-penalty", "1.5"): dualar.SamplingConfig.hf(repetition_penalty=1.5),
        ("--sampler", "cosyvoice"): dualar.SamplingConfig.cosyvoice(),
    }
    seen = []
    with dualar.load(toy_model, threads=1) as engine:
        for i, (options, sampling) in enumerate(expected.items()):
            codes = tmp_path / f"{i}.npy"
            result = run(
                "say", "hello", "-m", toy_model, "-o", tmp_path / f"{i}.wav", "--codes", codes, "-s", "9", *SHORT,
                *options,
            )  # fmt: skip
            assert result.exit_code == 0, result.output
            audio = engine.synthesize("hello", seed=9, sampling=sampling, max_new_tokens=4, min_tokens_before_end=4)
            np.testing.assert_array_equal(np.load(codes), audio.codes, err_msg=str(options))
            seen.append(audio.codes.tobytes())
    assert len(set(seen)) >= len(seen) - 1  # top_k 1 is greedy


def test_the_model_may_come_from_the_environment(
    toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALAR_MODEL", str(toy_model))
    assert run("say", "hello", "-o", tmp_path / "a.wav", *SHORT).exit_code == 0
    assert run("info").exit_code == 0


def test_a_cut_speech_is_said_to_be(toy_model: Path, tmp_path: Path) -> None:
    result = run("say", "hello", "-m", toy_model, "-o", tmp_path / "a.wav", *SHORT)
    assert "--max-new-tokens" in result.stderr


def test_quiet_prints_nothing(toy_model: Path, tmp_path: Path) -> None:
    result = run("say", "hello", "-m", toy_model, "-o", tmp_path / "a.wav", "-q", *SHORT)
    assert (result.exit_code, result.output) == (0, "")


def test_no_frame_is_a_failure_and_no_file(toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = dualar.Engine.synthesize

    def ended_at_once(self: dualar.Engine, text: str, **options: object) -> dualar.Audio:
        audio = real(self, text, seed=8, max_new_tokens=1)
        return dualar.Audio(audio.samples[:0], audio.sample_rate, audio.codes[:, :0], "end", audio.seed, audio.timings)

    monkeypatch.setattr(dualar.Engine, "synthesize", ended_at_once)
    result = run("say", "hello", "-m", toy_model, "-o", tmp_path / "a.wav", "--codes", tmp_path / "a.npy")
    assert result.exit_code == 1 and "seed 8" in result.stderr and "--min-tokens-before-end" in result.stderr
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ output files
def test_an_existing_output_needs_force(toy_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.wav"
    out.write_bytes(b"mine")
    result = run("say", "hello", "-m", toy_model, "-o", out, *SHORT)
    assert result.exit_code == 2 and "--force" in result.stderr
    assert out.read_bytes() == b"mine"
    assert run("say", "hello", "-m", toy_model, "-o", out, "--force", *SHORT).exit_code == 0
    assert soundfile.info(out).frames > 0


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["-o", "nowhere/a.wav"], "nowhere"),
        (["-o", "."], "."),
        (["-o", "a.mp3"], r"\.wav"),
        (["-o", "a.wav", "--codes", "a.txt"], r"\.npy"),
    ],
)
def test_outputs_that_cannot_be_are_bad_input(
    toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("say", "hello", "-m", toy_model, *args, *SHORT)
    assert result.exit_code == 2 and re.search(text, result.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_a_failure(toy_model: Path) -> None:
    result = run("say", "hello", "-m", toy_model, "-o", "/dev/full", *SHORT)
    assert result.exit_code == 1 and "/dev/full" in result.stderr and "space" in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_an_interruption_exits_130_and_leaves_nothing(toy_model: Path, tmp_path: Path) -> None:
    # Ctrl-C in the middle of the frames, made certain by sending it from the third one.
    program = """if True:
        import os, signal, sys, dualar
        from dualar.cli import common, main
        real = common.SpeechProgress.on_frame
        def on_frame(self, frame):
            real(self, frame)
            if frame.index == 2:
                os.kill(os.getpid(), signal.SIGINT)
        common.SpeechProgress.on_frame = on_frame
        main()
    """
    (tmp_path / "codes.npy").write_bytes(b"old")
    done = run_python(
        "-c", program, "say", "hello", "-m", toy_model, "-o", tmp_path / "a.wav", "--codes", tmp_path / "codes.npy",
        "--force", "--max-new-tokens", "200", "--min-tokens-before-end", "200",
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert b"interrupted" in done.stderr and b"Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["codes.npy"]
    assert (tmp_path / "codes.npy").read_bytes() == b"old"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_an_interruption_while_waiting_for_stdin_exits_130(toy_model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dualar", "say", "-", "-m", str(toy_model), "-o", str(tmp_path / "a.wav")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        for _ in range(10):  # the first may come before Python listens: then the exit code is the signal's
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            if process.poll() is not None:
                break
        _, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode in (130, -signal.SIGINT), stderr
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["sya", "hello"], "'say'"),
        (["benhc", "x"], "'bench'"),
        (["info", "toy.gguf", "--second", "3"], "--seconds"),
        (["bench", "nowhere.gguf"], "does not exist"),
        (["say", "hello", "--sed", "1"], "--seed"),
        (["say", "hello", "--seed", "-1"], "--seed"),
        (["say", "hello", "--temperature", "hot"], "--temperature"),
        (["say", "hello", "--top-p", "1.5"], "--top-p"),
        (["say", "hello", "--threads", "0"], "--threads"),
        (["say", "hello", "--kv-type", "q8"], "auto"),
        (["say", "hello", "--fast-ar", "slow"], "recompute"),
        (["say", "hello", "--sampler", "dice"], "fish"),
        (["say", "hello", "--repetition-penalty", "1.1"], "repetition_penalty"),
        (["say", "hello", "--max-new-tokens", "2", "--min-tokens-before-end", "3"], "min_tokens_before_end"),
        (["say", "hello", "--max-new-tokens", "1000000000"], "1000000000"),
        (["say"], "--file"),
        (["say", "hello", "--file", "text.txt"], "both"),
        (["say", "--file", "nowhere.txt"], r"nowhere\.txt"),
        (["say", "--file", "latin1.txt"], "0xe7"),
        (["say", ""], "no text"),
        (["say", "  "], "blank"),
        (["say", "<|speaker:0|>"], "speaker"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_exits_2_and_names_the_fault(
    toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALAR_MODEL", str(toy_model))
    (tmp_path / "latin1.txt").write_bytes("ça".encode("latin-1"))
    output = ["-o", "a.wav"] if args[0] == "say" else []
    result = run(*args, *output)
    assert result.exit_code == 2, result.output
    assert re.search(text, result.stderr), result.stderr
    assert "Traceback" not in result.stderr and not (tmp_path / "a.wav").exists()


def test_a_missing_model_is_bad_input_and_a_damaged_one_a_failure(tmp_path: Path) -> None:
    for model in (tmp_path / "no.gguf", tmp_path):
        result = run("say", "hello", "-o", tmp_path / "a.wav", "-m", model)
        assert result.exit_code == 2 and "--model" in result.stderr
    (tmp_path / "bad.gguf").write_bytes(b"GGUF, but not really")
    result = run("say", "hello", "-o", tmp_path / "a.wav", "-m", tmp_path / "bad.gguf")
    assert result.exit_code == 1 and "bad.gguf" in result.stderr and "Traceback" not in result.stderr


def test_an_unknown_device_is_bad_input(toy_model: Path, tmp_path: Path) -> None:
    result = run("say", "hello", "-o", tmp_path / "a.wav", "-m", toy_model, "--device", "abacus")
    assert result.exit_code == 2 and "abacus" in result.stderr


def test_very_verbose_shows_where_an_error_arose(toy_model: Path, tmp_path: Path) -> None:
    result = run("say", " ", "-o", tmp_path / "a.wav", "-m", toy_model, "-vv")
    assert result.exit_code == 2 and "Traceback" in result.stderr


# ------------------------------------------------------------------ decode, info, devices, the program
def test_decode_gives_what_say_gave(toy_model: Path, tmp_path: Path) -> None:
    said, codes, decoded = tmp_path / "said.wav", tmp_path / "codes.npy", tmp_path / "decoded.wav"
    assert run("say", "hello", "-m", toy_model, "-o", said, "--codes", codes, *SHORT).exit_code == 0
    result = run("decode", codes, "-m", toy_model, "-o", decoded, "--threads", "1")
    assert result.exit_code == 0 and result.stdout == "" and "4 frames" in result.stderr
    assert decoded.read_bytes() == said.read_bytes()


def test_decode_in_chunks(toy_model: Path, tmp_path: Path) -> None:
    codes, whole, chunked = tmp_path / "codes.npy", tmp_path / "whole.wav", tmp_path / "chunked.wav"
    np.save(codes, np.arange(30).reshape(3, 10).T % 7)
    assert run("decode", codes, "-m", toy_model, "-o", whole).exit_code == 0
    chunks = ("--chunk-frames", "2", "--left-context", "0")
    assert run("decode", codes, "-m", toy_model, "-o", chunked, *chunks).exit_code == 0
    assert len(chunked.read_bytes()) == len(whole.read_bytes()) and chunked.read_bytes() != whole.read_bytes()
    alone = run("decode", codes, "-m", toy_model, "-o", tmp_path / "x.wav", "--left-context", "3")
    assert alone.exit_code == 2 and "chunk_frames" in alone.output


@pytest.mark.parametrize(
    "array", [np.zeros((3, 2), int), np.zeros(4, int), np.zeros((10, 2)), np.array(["x"]), np.array([{}])], ids=repr
)
def test_bad_codes_are_bad_input(toy_model: Path, tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "codes.npy", array, allow_pickle=True)
    result = run("decode", tmp_path / "codes.npy", "-m", toy_model, "-o", tmp_path / "a.wav")
    assert result.exit_code == 2, result.output
    assert not (tmp_path / "a.wav").exists()


@pytest.mark.parametrize("content", [None, b"", b"\x93NUMPY", b"RIFF....WAVE"])
def test_what_is_no_array_is_bad_input(toy_model: Path, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "codes.npy").write_bytes(content)
    result = run("decode", tmp_path / "codes.npy", "-m", toy_model, "-o", tmp_path / "a.wav")
    assert result.exit_code == 2 and "codes.npy" in result.stderr


def test_info_tells_what_a_file_holds(toy_model: Path) -> None:
    result = run("info", toy_model, "--seconds", "2")
    assert result.exit_code == 0, result.output
    for word in ("fish-speech", "Slow-AR", "Fast-AR", "Codec", "F32", "Tokenizer", "cache for 2 s"):
        assert word in result.stdout
    assert result.stderr == ""


def test_info_names_what_is_missing(golden: object, tmp_path: Path) -> None:
    result = run("info", golden("s2-tiny").gguf)  # type: ignore[operator]
    assert result.exit_code == 0 and "not found" in result.stdout and "tokenizer" in result.stderr
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    assert run("info", tmp_path / "bad.gguf").exit_code == 1


def test_info_tells_all_it_can_of_a_damaged_file(toy_model: Path, tmp_path: Path) -> None:
    raw = RawGguf.parse(toy_model.read_bytes())
    raw.tensors = [t for t in raw.tensors if t.name not in (b"norm.weight", b"c.decoder.model.0.conv.bias")]
    raw.set("fish_speech.codec.latent_dim", 8, string("\x1b[2J" + "x" * 1000))
    raw.set("tokenizer.huggingface.json", 8, string("{"))
    (tmp_path / "bad.gguf").write_bytes(raw.write())
    result = run("info", tmp_path / "bad.gguf")
    assert result.exit_code == 1 and "Traceback" not in result.stderr
    for word in ("fish-speech", "3 layers, width 64, 4 heads", "Codec types", "cannot be used", "in F32"):
        assert word in result.stdout, result.stdout
    assert "\x1b" not in result.stdout and "x" * 100 not in result.stdout
    raw.keys = [key for key in raw.keys if not key.name.startswith((b"tokenizer", b"fish_speech.codec.latent"))]
    raw.set(
        "tokenizer.huggingface.json", 8, RawGguf.parse(toy_model.read_bytes()).key("tokenizer.huggingface.json").value
    )
    raw.set_uint("fish_speech.codec.latent_dim", 32)
    (tmp_path / "bad.gguf").write_bytes(raw.write())
    result = run("info", tmp_path / "bad.gguf")
    assert result.exit_code == 1 and "649 tokens" in result.stdout
    for name in ("norm.weight: expected (64), missing", "c.decoder.model.0.conv.bias: expected (64), missing"):
        assert name in result.stderr


def test_info_names_unused_tensors(toy_model: Path, tmp_path: Path) -> None:
    raw = RawGguf.parse(toy_model.read_bytes())
    raw.tensors += [Tensor(b"extra.%d" % i, [4], 0, bytes(16)) for i in range(5)]
    (tmp_path / "more.gguf").write_bytes(raw.write())
    result = run("info", tmp_path / "more.gguf")
    assert result.exit_code == 0 and "extra.0, extra.1, extra.2 ..." in result.stdout
    assert "extra.4" in run("info", tmp_path / "more.gguf", "-v").stdout


def test_bench_measures_every_part(toy_model: Path) -> None:
    result = run("bench", toy_model, "--json", "--seconds", "0.1", "--threads", "1")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["threads"], found["device"], found["model"]) == (1, "cpu", str(toy_model))
    parts = [found[f"{part}_ms_per_frame"] for part in ("slow_ar", "fast_ar", "codec")]
    assert min(parts) > 0 and found["ms_per_frame"] == pytest.approx(sum(parts))
    assert found["frame_ms"] == pytest.approx(1e3 * 2048 / 44100)
    assert found["real_time_factor"] == pytest.approx(sum(parts) / found["frame_ms"])
    assert found["memory_read_gb_per_s"] > 0.1 and found["gemm_gflop_per_s"] > 0.1 and found["rounds"] >= 3
    table = run("bench", toy_model, "--seconds", "0.1", "-q")
    assert table.exit_code == 0 and table.stderr == ""
    for word in ("Slow-AR", "Fast-AR", "Codec", "Real-time factor", "GB/s", "GFLOP/s"):
        assert word in table.stdout


def test_bench_draws_its_times() -> None:
    found = {
        "slow_ar_ms_per_frame": 20.0, "slow_ar_least_ms": 10.0, "fast_ar_ms_per_frame": 5.0, "fast_ar_least_ms": 6.0,
        "codec_ms_per_frame": 15.0, "ms_per_frame": 40.0, "frame_ms": 80.0,
    }  # fmt: skip
    lines = picture(found).splitlines()
    assert lines[-1].startswith("Sounds for ")
    blocks = [(line.count("\u2588"), line.count("\u2591")) for line in lines]
    assert blocks == [(5, 5), (2, 0), (8, 0), (20, 0), (40, 0)]
    assert lines[0].endswith("20.00 ms, of which 10.00 to read weights")
    assert lines[1].endswith("5.00 ms, as fast as memory gives its weights")
    alone = picture({**found, "slow_ar_ms_per_frame": None, "fast_ar_ms_per_frame": None, "frame_ms": None})
    assert [line.split()[0] for line in alone.splitlines()] == ["Codec", "Together"]


def test_bench_compares_with_what_the_machine_allows(toy_model: Path) -> None:
    shown = run("bench", toy_model, "--compare", "--seconds", "0.1", "-q").stdout
    assert shown.count("\u2588") > 40 and "to read weights" in shown
    with dualar.load(toy_model, threads=1) as engine:
        file = open_file(toy_model)
        read = least_bytes(engine, file)
        model = engine.model
    layers = {True: 0, False: 0}
    for tensor in gguf.GGUFReader(toy_model).tensors:
        if "layers." in tensor.name and not tensor.name.startswith("c."):
            layers[tensor.name.startswith("fast_")] += int(tensor.n_bytes)
    assert read == {"slow_ar": layers[False], "fast_ar": layers[True] * (model.num_codebooks - 1)}


def test_info_says_whether_speech_is_made_in_time(toy_model: Path) -> None:
    shown = run("info", toy_model).stdout
    found = re.search(r"^Speed +(faster|slower) than speech on this machine: (\S+) s for a second of it", shown, re.M)
    assert found is not None and (float(found.group(2)) < 1) == (found.group(1) == "faster")


def test_bench_of_a_file_without_tokenizer_or_parts(golden: object, tmp_path: Path) -> None:
    gguf = golden("s2-tiny").gguf  # type: ignore[operator]
    found = json.loads(run("bench", gguf, "--json", "--seconds", "0.1", "-q").stdout)
    assert found["real_time_factor"] > 0
    raw = RawGguf.parse(gguf.read_bytes())
    for codec in (True, False):
        part = RawGguf(raw.keys, [t for t in raw.tensors if t.name.startswith(b"c.") == codec])
        (tmp_path / "part.gguf").write_bytes(part.write())
        found = json.loads(run("bench", tmp_path / "part.gguf", "--json", "--seconds", "0.1", "-q").stdout)
        assert (found["codec_ms_per_frame"] is None, found["slow_ar_ms_per_frame"] is None) == (not codec, codec)
        assert found["real_time_factor"] is None and found["ms_per_frame"] > 0
        assert "not in this file" in run("bench", tmp_path / "part.gguf", "--seconds", "0.1").stdout


@pytest.mark.parametrize(("words", "expected"), [("dualar s", "say"), ("dualar say --keep", "--keep-partial")])
def test_shell_completion(words: str, expected: str) -> None:
    environment = {**os.environ, "_DUALAR_COMPLETE": "complete_bash", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(words.count(" "))
    done = run_python("-m", "dualar", env=environment)
    assert done.returncode == 0 and expected in done.stdout.decode().split()


def test_devices_lists_the_cpu() -> None:
    result = run("devices")
    assert result.exit_code == 0 and re.search(r"^cpu\s", result.stdout, re.M)
    assert re.search(r"\d threads by default, (avx512|avx2|neon_dot|neon|plain) kernels$", result.stdout, re.M)


def test_version_and_help() -> None:
    assert run("--version").stdout == f"dualar {dualar.__version__}\n"
    overview = run("--help").stdout
    for name in COMMANDS:
        page = run(name, "--help")
        assert page.exit_code == 0 and name in overview
        options = re.split(r"\n  (?=-)", page.stdout.split("Options:")[1])[1:]
        for option in options:  # each one explains itself
            assert re.search(r"[A-Za-z]{2,} [A-Za-z]{2,}.*\.", option.split("  ", 1)[-1], re.S), option
    assert "DUALAR_MODEL" in run("say", "--help").stdout


def test_the_program_runs_as_a_module_and_without_a_terminal_prints_no_escapes(toy_model: Path, tmp_path: Path) -> None:
    done = run_python("-m", "dualar", "say", "hello", "-m", toy_model, "-o", tmp_path / "größe.wav", *SHORT)
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stderr and done.stdout == b""
    assert (tmp_path / "größe.wav").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX file names")
def test_names_and_text_survive_the_c_locale(toy_model: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C"}
    out = tmp_path / "größe 音.wav"
    done = run_python("-m", "dualar", "say", "早上好", "-m", toy_model, "-o", out, *SHORT, env=environment)
    assert done.returncode == 0, done.stderr
    assert out.exists()
    assert run_python("-m", "dualar", "say", os.fsdecode(b"\xff"), "-m", toy_model, "-o", out, "-f").returncode == 2


# ------------------------------------------------------------------ imports
def test_importing_dualar_is_light_and_its_names_are_there() -> None:
    program = """if True:
        import sys, dualar
        heavy = {"tokenizers", "soundfile", "soxr", "typer", "rich", "dualar._core"} & set(sys.modules)
        assert not heavy, heavy
        for name in dualar.__all__:
            assert getattr(dualar, name) is not None
            assert name in dir(dualar)
        heavy = {"tokenizers", "soundfile", "soxr", "typer", "rich"} & set(sys.modules)
        assert not heavy, heavy
        try:
            dualar.nonsense
        except AttributeError as error:
            assert "nonsense" in str(error)
        else:
            raise AssertionError
    """
    done = run_python("-c", program)
    assert done.returncode == 0, done.stderr


def test_help_does_not_load_the_core() -> None:
    program = """if True:
        import sys
        from dualar.cli import main
        sys.argv = ["dualar", "say", "--help"]
        try:
            main()
        except SystemExit:
            pass
        assert not {"dualar._core", "tokenizers", "numpy"} & set(sys.modules)
    """
    done = run_python("-c", program)
    assert done.returncode == 0, done.stderr


def test_the_log_of_ggml_goes_to_logging() -> None:
    program = """if True:
        import logging, sys
        logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(name)s %(message)s", level=logging.DEBUG)
        import dualar
        sinks = []
        import importlib
        core = importlib.import_module("dualar._core")
        core.set_log_sink = sinks.append
        dualar.devices()
        sinks[0](logging.WARNING, "careful\\n")
        sinks[0](logging.DEBUG, "\\n")
        assert len(sinks) == 1
    """
    done = run_python("-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().split("\n")[-2:] == ["WARNING dualar.ggml careful", ""]


@pytest.mark.parametrize(
    "words",
    [("say", "seven", "-o", "out.wav"), ("decode", "x.npy", "-o", "x.wav"), ("encode", "x.wav", "-o", "x.npy"),
     ("info",), ("bench",)],
)  # fmt: skip
def test_a_build_without_a_voice_tells_what_to_do(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dualar.default_voice.FILE_NAME", "none.gguf")
    result = run(*words)
    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    assert "no voice of its own" in said and "DUALAR_MODEL" in said


def test_loading_without_a_voice_tells_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dualar.default_voice.FILE_NAME", "none.gguf")
    with pytest.raises(FileNotFoundError, match="no voice of its own"):
        dualar.load()
