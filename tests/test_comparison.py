"""How far two files of one model are apart: the measures against their formulas, and `dualar compare`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import dualar
import numpy as np
import pytest
from cli.test_cli import run
from dualar.comparison import DEFAULT_TEXTS, compare
from dualar.convert.requantize import prepare
from dualar.runtime import open_file
from scipy.special import log_softmax


@pytest.fixture(scope="module")
def smaller(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("smaller") / "q4_0.gguf"
    prepare(open_file(toy_model), weight_type="q4_0").write(path)
    return path


def test_a_model_is_no_way_from_itself(engine: dualar.Engine) -> None:
    found = compare(engine, engine, ["hello", "there"])
    assert found.texts == 2 and found.frames > 0 and found.snr_db == math.inf
    assert {part.kl for part in found.parts} == {part.worst for part in found.parts} == {0.0}
    assert {part.agreement for part in found.parts} == {1.0}
    books = engine.model.num_codebooks
    assert [part.part for part in found.parts] == [
        "main codes", "further codes", *(f"codebook {book}" for book in range(1, books)),
    ]  # fmt: skip
    assert [part.choices for part in found.parts] == [
        found.frames + 2, found.frames * (books - 1), *[found.frames] * (books - 1),
    ]  # fmt: skip


def test_the_measures_are_those_of_the_formulas(engine: dualar.Engine, smaller: Path) -> None:
    text, seed = "hello there", 4
    with dualar.load(smaller, threads=1) as other:
        found = compare(engine, other, [text], seed=seed)
        prompt = np.asarray(engine.build_prompt(text))
        codes = engine.generate(prompt, seed=seed).codes
        main, second = [], []
        for one in (engine, other):
            session = one.model.session(max_positions=prompt.shape[1] + codes.shape[1])
            out = [session.prefill(prompt)]
            for column in codes.T:
                out.append(session.step(np.concatenate([one.model.semantic_begin_id + column[:1], column])))
            main.append(log_softmax(np.stack([step.logits for step in out]).astype(float), axis=1))
            logits = [one.model.fast_decode(step.hidden, codes[:2, t]) for t, step in enumerate(out[:-1])]
            second.append(log_softmax(np.stack(logits).astype(float), axis=1))
        sound, less = engine.codec.decode(codes), other.codec.decode(codes)
    for part, (p, q) in ((found.parts[0], main), (found.parts[3], second)):
        kl = (np.exp(p) * (p - q)).sum(axis=1)
        assert part.kl == pytest.approx(kl.mean(), rel=1e-3) and part.worst == pytest.approx(kl.max(), rel=1e-3)
        assert part.agreement == (p.argmax(axis=1) == q.argmax(axis=1)).mean()
        assert part.kl > 0
    assert found.parts[3].part == "codebook 2"
    noise = np.square(sound.astype(float) - less).sum()
    assert found.snr_db == pytest.approx(10 * math.log10(np.square(sound.astype(float)).sum() / noise), abs=1e-6)


def test_qwen3_files_are_compared_too(qwen3_model: Callable[..., Path]) -> None:
    plain, small = qwen3_model("tiny-eq"), qwen3_model("tiny-eq", "q8_0")
    with dualar.load(plain, threads=1) as a, dualar.load(small, threads=1) as b:
        found = compare(a, b, ["hello"], speaker="ryan")
    assert 0 < found.parts[0].kl < 1


def test_what_is_refused(engine: dualar.Engine, golden: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match="at least one text"):
        compare(engine, engine, [])
    path = golden("s2-edge").gguf  # type: ignore[attr-defined]
    with dualar.load(path, im_end_id=4) as other, pytest.raises(ValueError, match="expected two files of one model"):
        compare(engine, other)


def test_the_command(toy_model: Path, smaller: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("hello\n\nthere \n")
    result = run("compare", toy_model, smaller, "--texts", tmp_path / "texts", "-t", "1")
    assert result.exit_code == 0 and "2 texts" in result.stdout and "main codes" in result.stdout
    assert "dB SNR" in result.stdout and "text 2 of 2" in result.stderr
    told = json.loads(run("compare", toy_model, smaller, "--texts", tmp_path / "texts", "--json", "-t", "1").stdout)
    assert told["texts"] == 2 and told["parts"][0]["part"] == "main codes" and told["snr_db"] > 10
    same = run("compare", toy_model, toy_model, "--texts", tmp_path / "texts", "--json", "-t", "1")
    assert json.loads(same.stdout)["snr_db"] == "inf"
    assert run("compare", toy_model, tmp_path / "none").exit_code == 2
    assert len(DEFAULT_TEXTS) == 6
