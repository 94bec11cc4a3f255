"""WaveNet files that are wrong, arguments that are wrong, weight types, and `dualar wavenet generate`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
import soundfile
from dualar.cli.main import app
from fixtures.wavenet_file import Shape, random_tensors, write, write_wavenet
from reference.gguf_weights import Weights
from reference.wavenet import WaveNet as Reference
from typer.testing import CliRunner, Result

SHAPE = Shape()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wavenet(tmp_path_factory.mktemp("wavenet") / "small.gguf", SHAPE)


@pytest.fixture(scope="module")
def net(model: Path) -> dualar.WaveNet:
    return dualar.WaveNet.load(model, threads=1)


# ------------------------------------------------------------------ files
def test_what_a_file_says(net: dualar.WaveNet) -> None:
    assert (net.channels, net.condition_channels, net.skip_channels) == (8, 3, 8)
    assert (net.quantization_levels, net.kernel_size, net.dilations) == (16, 2, [1, 2, 4])
    assert (net.sample_rate, net.receptive_field, net.unused_tensors) == (16000, 8, [])


def load(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> dualar.WaveNet:
    metadata, tensors = SHAPE.metadata(), random_tensors(SHAPE)
    change(metadata, tensors)
    return dualar.WaveNet.load(write(path, metadata, tensors), threads=1)


@pytest.mark.parametrize("key", [key for key in SHAPE.metadata() if key != "general.architecture"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    with pytest.raises(dualar.ModelError, match=key.replace(".", r"\.")):
        load(tmp_path / "x.gguf", lambda keys, _: keys.pop(key))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("general.architecture", "fish-speech"),
        ("wavenet.channels", 0),
        ("wavenet.channels", 2**31),
        ("wavenet.channels", "eight"),
        ("wavenet.quantization_levels", 1),
        ("wavenet.kernel_size", 0),
        ("wavenet.dilations", [1, 0, 4]),
        ("wavenet.dilations", [1, 2, -4]),
        ("wavenet.dilations", [2**20] * 600),  # more than is remembered for anyone
        ("wavenet.dilations", [1.5, 2.0, 4.0]),
        ("wavenet.dilations", 3),
        ("wavenet.sample_rate", 0),
    ],
)
def test_a_bad_value_is_named(tmp_path: Path, key: str, value: Any) -> None:
    metadata = SHAPE.metadata() | {key: value}
    kernel = {"wavenet.kernel_size": 1000} if isinstance(value, list) and len(value) == 600 else {}
    with pytest.raises(dualar.ModelError, match=key.replace(".", r"\.")):
        dualar.WaveNet.load(write(tmp_path / "x.gguf", metadata | kernel, random_tensors(SHAPE)), threads=1)


def test_all_missing_and_misshapen_tensors_are_listed(tmp_path: Path) -> None:
    def damage(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        del tensors["blocks.1.cond.weight"], tensors["head.1.bias"]
        tensors["embedding.weight"] = tensors["embedding.weight"][:15]
        tensors["blocks.0.conv.weight"] = tensors["blocks.0.conv.weight"].transpose(1, 0, 2).copy()
        tensors["blocks.2.residual.bias"] = np.zeros(9, np.float32)
        tensors["head.0.weight"] = np.zeros((8, 8), np.int32)

    with pytest.raises(dualar.ModelError) as caught:
        load(tmp_path / "x.gguf", damage)
    for text in (
        "6 tensor",
        "blocks.1.cond.weight: expected (16, 3, 1), missing",
        "head.1.bias: expected (16), missing",
        "embedding.weight: expected (16, 8), got (15, 8)",
        "blocks.0.conv.weight: expected (16, 8, 2), got (8, 16, 2)",
        "blocks.2.residual.bias: expected (8), got (9)",
        "head.0.weight: expected",
    ):
        assert text in str(caught.value)


def test_more_dilations_than_blocks(tmp_path: Path) -> None:
    with pytest.raises(dualar.ModelError, match=r"blocks\.3\.conv\.weight: .* missing"):
        load(tmp_path / "x.gguf", lambda keys, _: keys.update({"wavenet.dilations": [1, 2, 4, 8]}))


def test_unused_tensors_are_told(tmp_path: Path) -> None:
    loaded = load(tmp_path / "x.gguf", lambda _, tensors: tensors.update({"blocks.3.more": np.zeros(3, np.float32)}))
    assert loaded.unused_tensors == ["blocks.3.more"]


def test_other_files_are_refused(tmp_path: Path, toy_model: Path, model: Path) -> None:
    with pytest.raises(dualar.ModelError, match='expected "wavenet", got "fish-speech"'):
        dualar.WaveNet.load(toy_model)
    with pytest.raises(dualar.ModelError, match="nothing-here"):
        dualar.WaveNet.load(tmp_path / "nothing-here.gguf")
    cut = tmp_path / "cut.gguf"
    for size in (0, 3, 40, 700, model.stat().st_size - 40):
        cut.write_bytes(model.read_bytes()[:size])
        with pytest.raises(dualar.ModelError):
            dualar.WaveNet.load(cut)
    for threads in (0, -1, 513, 1.5):
        with pytest.raises(ValueError, match="threads"):
            dualar.WaveNet.load(model, threads=threads)  # type: ignore[arg-type]


def test_f16_weights(tmp_path: Path) -> None:
    def halve(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        for name in tensors:
            if name.endswith("weight"):
                tensors[name] = tensors[name].astype(np.float16)

    loaded = load(tmp_path / "x.gguf", halve)
    rng = np.random.default_rng(0)
    classes, condition = rng.integers(0, 16, (2, 30)), rng.standard_normal((2, 3, 30))
    want = Reference(Weights(tmp_path / "x.gguf")).forward(classes, condition)
    np.testing.assert_allclose(loaded.forward(classes, condition), want, atol=1e-4, rtol=1e-5)
    state = loaded.initial_state(2)
    for t in range(30):
        np.testing.assert_allclose(
            loaded.step(classes[:, t], condition[:, :, t], state), want[..., t], atol=1e-4, rtol=1e-5
        )


def test_damaged_weights_are_not_drawn_from(tmp_path: Path) -> None:
    loaded = load(tmp_path / "x.gguf", lambda _, tensors: tensors["blocks.1.conv.bias"].fill(np.nan))
    choices: tuple[dict[str, Any], ...] = ({"greedy": True}, {"seed": 1})
    for options in choices:
        with pytest.raises(dualar.ModelError, match="finite"):
            loaded.generate(3, np.zeros((3, 3)), first=0, **options)


# ------------------------------------------------------------------ arguments
ZEROS = np.zeros((1, 3, 5))


@pytest.mark.parametrize(
    ("classes", "condition", "says"),
    [
        (np.zeros((1, 5)), ZEROS, "classes.*integers"),
        (np.zeros(5, int), ZEROS, "classes.*2 dimension"),
        (np.full((1, 5), 16), ZEROS, "classes.*0 to 15, got 16"),
        (np.full((1, 5), -1), ZEROS, "classes.*0 to 15, got -1"),
        (np.full((1, 5), 2**40), ZEROS, "classes"),
        (np.zeros((1, 5), int), ZEROS[:, :2], r"condition.*\(1, 3, 5\)"),
        (np.zeros((1, 4), int), ZEROS, r"condition.*\(1, 3, 4\)"),
        (np.zeros((2, 5), int), ZEROS, r"condition.*\(2, 3, 5\)"),
        (np.zeros((1, 5), int), ZEROS[0], "condition.*3 dimensions"),
        (np.zeros((1, 5), int), np.full((1, 3, 5), "a"), "condition.*numbers"),
        (np.zeros((1, 5), int), ZEROS * 1j, "condition.*numbers"),
        (np.zeros((1, 5), int), ZEROS + np.nan, "condition.*finite"),
        (np.zeros((1, 5), int), ZEROS + 1e300, "condition.*finite"),
    ],
)
def test_bad_sequences(net: dualar.WaveNet, classes: np.ndarray, condition: np.ndarray, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        net.forward(classes, condition)
    with pytest.raises(ValueError, match=says):
        net.prime(classes, condition)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n": 6}, "at least n = 6"),
        ({"n": -1}, "whole number"),
        ({"n": 2.0}, "whole number"),
        ({"first": 16}, "0 to 15"),
        ({"first": [0, 0]}, "condition"),
        ({"first": 0.5}, "first.*integers"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 0.5, "greedy": True}, "both"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"seed": [1, 2]}, "seed"),
    ],
)
def test_bad_generation(net: dualar.WaveNet, options: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"n": 5, "condition": ZEROS, "first": 0}
    with pytest.raises(ValueError, match=says):
        net.generate(**(given | options))


def test_bad_batches(net: dualar.WaveNet) -> None:
    for batch in (0, -1, 65537, 2**62, 2**70, 1.0, True, None):
        with pytest.raises(ValueError, match="batch"):
            net.initial_state(batch)  # type: ignore[arg-type]


def test_a_batch_is_bounded_by_its_memory(tmp_path: Path) -> None:
    shape = Shape(channels=64, dilations=[2**17] * 4)
    large = dualar.WaveNet.load(write_wavenet(tmp_path / "large.gguf", shape), threads=1)
    with pytest.raises(ValueError, match=r"batch\] expected 1 to 6\d sequences, got 65"):
        large.initial_state(65)


def test_nothing_is_something(net: dualar.WaveNet) -> None:
    assert net.forward(np.zeros((2, 0), int), np.zeros((2, 3, 0))).shape == (2, 16, 0)
    assert net.generate(0, np.zeros((2, 3, 0)), first=1).shape == (2, 0)
    assert net.generate(0, np.zeros((3, 7)), first=1).shape == (0,)
    assert net.prime(np.zeros((2, 0), int), np.zeros((2, 3, 0))).position == 0


# ------------------------------------------------------------------ command line
def run(*args: str | Path) -> Result:
    return CliRunner().invoke(app, ["wavenet", "generate", *map(str, args)], prog_name="dualar")


@pytest.fixture
def condition(tmp_path: Path) -> Path:
    path = tmp_path / "condition.npy"
    np.save(path, np.random.default_rng(0).standard_normal((3, 40)))
    return path


def test_generate_writes_a_wav(net: dualar.WaveNet, model: Path, condition: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"n": 40, "condition": np.load(condition), "first": 8}
    cases: tuple[tuple[str, list[str], dict[str, Any]], ...] = (
        ("a", ["--seed", "4"], {"seed": 4}),
        ("b", ["--seed", "4", "--temperature", "0.5"], {"seed": 4, "temperature": 0.5}),
        ("c", ["--greedy"], {"greedy": True}),
        ("d", ["--temperature", "0"], {"greedy": True}),
        ("e", ["--greedy", "--first", "3", "--n", "12"], {"greedy": True, "first": 3, "n": 12}),
    )
    for name, args, options in cases:
        out = tmp_path / f"{name}.wav"
        result = run(model, "-o", out, "-c", condition, "--threads", "1", *args)
        assert result.exit_code == 0, result.output
        want = net.samples(net.generate(**(given | options)))
        samples, rate = soundfile.read(out, dtype="float32")
        assert rate == 16000 and f"{len(want)} samples" in result.stderr and result.stdout == ""
        # libsndfile reads a 16-bit 32767, which stands for 1, as 32767 / 32768.
        np.testing.assert_allclose(samples * (32768 / 32767), want, atol=0.51 / 32767, rtol=0)
    assert (tmp_path / "a.wav").read_bytes() != (tmp_path / "b.wav").read_bytes()


def test_generate_tells_the_seed_that_it_drew(model: Path, condition: Path, tmp_path: Path) -> None:
    result = run(model, "-o", tmp_path / "a.wav", "-c", condition)
    assert result.exit_code == 0, result.output
    seed = result.stderr.split("seed ")[1].split()[0]
    assert run(model, "-o", tmp_path / "b.wav", "-c", condition, "-s", seed, "-q").exit_code == 0
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()
    assert run(model, "-o", tmp_path / "a.wav", "-c", condition).exit_code == 2  # exists
    assert run(model, "-o", tmp_path / "c.wav", "-c", condition, "-s", seed, "--subtype", "FLOAT").exit_code == 0
    assert soundfile.info(tmp_path / "c.wav").subtype == "FLOAT"


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--n", "41"], 2, "at least n = 41"),
        (["--first", "16"], 2, "0 to 15"),
        (["--greedy", "--temperature", "1"], 2, "both"),
        (["-c", "missing.npy"], 2, "missing.npy"),
        (["-c", "text.npy"], 2, "text.npy"),
        (["-c", "flat.npy"], 2, "condition channels, samples"),
        (["-c", "wide.npy"], 2, "condition"),
        (["-o", "out.mp3"], 2, ".wav"),
    ],
)
def test_generate_refuses(
    model: Path, condition: Path, tmp_path: Path, args: list[str], code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.npy").write_text("not an array")
    np.save("flat.npy", np.zeros(40))
    np.save("wide.npy", np.zeros((4, 40)))
    result = run(model, "-o", "out.wav", "-c", condition, *args)
    assert result.exit_code == code, result.output
    assert says in " ".join(result.output.split())
    assert not list(tmp_path.glob("*.wav")) and not list(tmp_path.glob("*.mp3"))


def test_generate_refuses_another_model(toy_model: Path, condition: Path, tmp_path: Path) -> None:
    result = run(toy_model, "-o", tmp_path / "out.wav", "-c", condition)
    assert result.exit_code == 1 and "wavenet" in result.stderr
