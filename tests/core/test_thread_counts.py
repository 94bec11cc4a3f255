"""Results have the same bits on any number of threads, which the core may change while it runs: the goldens, every
weight type, the tiny Qwen3-TTS, WaveNet and the package's voice, on 1, 2, 3 and 7 threads in every graph."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dualar
import dualar.engine
import numpy as np
import pytest
from dualar import _core
from dualar.default_voice import default_model
from dualar.speech.request import SpeechRequest
from fixtures import qwen3
from fixtures.make_toy_model import write_toy_model
from fixtures.s2_layout import WIDE

from core.test_batch_core import column, prompt_of

THREADS = (1, 2, 3, 7)
PACKED = ("F32", "F16", "Q8_0", "Q4_0", "Q4_K")  # products of our own; those of the others are ggml's
OTHERS = ("BF16", "Q5_K", "Q6_K")
TEXT = "one two"


def runtime(threads: int) -> _core.Runtime:
    """That many threads in every graph, however small, on any machine."""
    return _core.Runtime(threads=threads, _exactly=True)


def same_on_any(compute: Callable[[_core.Runtime], Iterator[Any]]) -> None:
    """`compute` yields arrays; they are bit for bit the same whatever the number of threads."""
    digests = {}
    for threads in THREADS:
        arrays = [np.ascontiguousarray(array) for array in compute(runtime(threads))]
        assert arrays and all(array.size for array in arrays)
        digests[threads] = [(a.shape, a.dtype.str, hashlib.sha256(a.tobytes()).hexdigest()) for a in arrays]
    for threads in THREADS[1:]:
        assert digests[threads] == digests[1], f"{threads} threads"


def autoregression(model: Any, *, long: int, **options: Any) -> Iterator[Any]:
    """Prefill short and long, steps, both Fast-AR paths, and a batch."""
    rng = np.random.default_rng(1)
    sessions = [model.session(max_positions=long + 8, **options) for _ in range(4)]
    outs = [s.prefill(prompt_of(model, rng, T)) for s, T in zip(sessions, (1, 20, 70, long), strict=True)]
    for session, out in zip(sessions, outs, strict=True):
        yield from (out.logits, out.hidden)
        step = session.step(column(model, rng))
        yield from (step.logits, step.hidden)
        codes = rng.integers(0, model.codebook_size, model.num_codebooks - 1)
        yield session.fast_begin(step.hidden, int(codes[0]))
        yield from (session.fast_step(int(code)) for code in codes[1:])
        yield session.fast_decode(step.hidden, codes)
    batch = _core.Batch(model)
    for rows in (sessions, sessions[1:3]):
        logits, hidden = batch.step(rows, np.array([column(model, rng) for _ in rows]))
        codes = rng.integers(0, model.codebook_size, (3, len(rows)))
        yield from (logits, hidden, batch.fast_begin(rows, hidden, codes[0]), batch.fast_step(rows, codes[1]))


def codec_runs(codec: _core.Codec, codes: Any, samples: Any) -> Iterator[Any]:
    """Decoding whole and in pieces, and encoding."""
    yield codec.stream(max_frames=codes.shape[1]).push(codes)
    stream = codec.stream(max_frames=5)
    for first in range(0, codes.shape[1], 5):
        yield stream.push(codes[:, first : first + 5])
    stream = codec.stream(max_frames=1)
    yield from (stream.push(codes[:, t : t + 1]) for t in range(3))
    frame = codec.samples_per_frame
    padded = np.pad(samples, (0, -samples.size % frame))
    yield codec.encoder(max_frames=padded.size // frame).push(padded)


@pytest.mark.parametrize("name", ["s2-tiny", "s2-variant", "s2-edge"])
@pytest.mark.parametrize("kv_type", ["f32", "f16"])
def test_goldens(golden: Any, name: str, kv_type: str) -> None:
    file = _core.ModelFile(str(golden(name).gguf))
    same_on_any(lambda r: autoregression(_core.DualAR(file, r, im_end_id=0), long=150, kv_type=kv_type))


@pytest.mark.parametrize("name", ["s2-tiny", "s2-variant", "s2-edge"])
def test_codecs(golden: Any, name: str) -> None:
    pair = golden(name)
    file, arrays = _core.ModelFile(str(pair.gguf)), np.load(pair.npz)
    codes, samples = arrays["codec_codes"], arrays["codec_wav"].reshape(-1)
    same_on_any(lambda r: codec_runs(_core.Codec(file, r), codes, samples))


@pytest.mark.parametrize("weight_type", PACKED + OTHERS)
def test_weight_types(tmp_path: Path, weight_type: str) -> None:
    path = tmp_path / "wide.gguf"
    write_toy_model(path, geometry=WIDE, weight_type=weight_type, quantize=_core.quantize)
    file = _core.ModelFile(str(path))
    same_on_any(lambda r: autoregression(_core.DualAR(file, r, im_end_id=0), long=90))


def test_a_long_prompt(toy_model: Path) -> None:
    """Past 512 positions, where ggml's attention would split the keys of a single query by threads."""
    file = _core.ModelFile(str(toy_model))
    same_on_any(lambda r: autoregression(_core.DualAR(file, r, im_end_id=0), long=700))


@pytest.mark.parametrize("weight_type", ["f32", "q8_0"])
def test_qwen3_tts(qwen3_model: Callable[..., Path], weight_type: str) -> None:
    file = _core.ModelFile(str(qwen3_model("tiny", weight_type)))
    same_on_any(lambda r: autoregression(_core.Qwen3TTS(file, r), long=100))


def test_qwen3_codec_and_speaker(qwen3_model: Callable[..., Path]) -> None:
    file = _core.ModelFile(str(qwen3_model("tiny")))
    codes = np.ascontiguousarray(qwen3.golden("codec12hz_decode")["codes"].T)
    clip = (np.random.default_rng(0).standard_normal(24000) * 0.1).astype(np.float32)

    def runs(r: _core.Runtime) -> Iterator[Any]:
        yield from codec_runs(_core.Codec(file, r), codes, clip)
        encoder = _core.SpeakerEncoder(file, r)
        yield encoder.embed(np.abs(np.random.default_rng(1).standard_normal((60, encoder.mel_dim))).astype(np.float32))

    same_on_any(runs)


def test_wavenet(golden: Any) -> None:
    pair = golden("wavenet-tiny")
    file, arrays = _core.ModelFile(str(pair.gguf)), np.load(pair.npz)
    classes, condition = arrays["classes"], arrays["condition"]
    classes, condition = classes.reshape(1, -1), condition.reshape(1, -1, classes.size)

    def runs(r: _core.Runtime) -> Iterator[Any]:
        yield _core.WaveNet(file, r).forward(classes, condition)

    same_on_any(runs)


@pytest.mark.skipif(not default_model().is_file(), reason="this build has no voice of its own")
def test_the_packages_voice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, streamed, and in a batch."""

    def runs(r: _core.Runtime) -> Iterator[Any]:
        monkeypatch.setattr(dualar.engine, "open_runtime", lambda **_: r)
        with dualar.load() as engine:
            whole = engine.synthesize(TEXT, seed=3)
            yield from (whole.codes, whole.samples)
            with engine.stream(TEXT, seed=3) as stream:
                yield np.concatenate([chunk.samples for chunk in stream])
            requests = [SpeechRequest(text=text, seed=seed) for seed, text in enumerate((TEXT, "lights off"))]
            for result in sorted(engine.synthesize_batch(requests), key=lambda result: result.index):
                yield from (result.get().codes, result.get().samples)

    same_on_any(runs)
