"""`dualar.load` and `Engine`: what a file lacks is said, requests do not see each other, and text becomes samples."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dualar
import gguf
import numpy as np
import pytest
from conftest import Golden
from dualar._native import _core
from dualar.codec.codec import Codec
from dualar.engine import Engine
from dualar.generation.generate import FrameLoop
from s2_engine import s2_model

TEXT = "the quick brown fox"


# ------------------------------------------------------------------ helpers
def copy_gguf(source: Path, target: Path, *, keep: Callable[[str], bool], drop_keys: tuple[str, ...] = ()) -> Path:
    """The file with only the tensors that `keep` names, and without the keys of `drop_keys`."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, arch=reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", *drop_keys):
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub_type)
    for tensor in reader.tensors:
        if keep(tensor.name):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


@pytest.fixture(scope="module")
def tiny(golden: Callable[[str], Golden]) -> Golden:
    return golden("s2-tiny")


@pytest.fixture(scope="module")
def tiny_im_end(tiny: Golden) -> int:
    """An id that is not semantic."""
    reader = gguf.GGUFReader(tiny.gguf)
    return int(reader.fields["fish_speech.semantic_begin_id"].contents()) - 1


# ------------------------------------------------------------------ loading
def test_all_weights_are_ready_once_a_file_is_loaded(
    tiny: Golden, tiny_im_end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first request would wait for what is packed only then."""
    loaded: list[str] = []
    for part in (_core.DualAR, _core.Codec):
        base = next(c for c in part.__mro__ if "load" in vars(c))
        original = vars(base)["load"]

        def load(core: Any, original: Any = original, name: str = base.__name__) -> None:
            loaded.append(name)
            original(core)

        monkeypatch.setattr(base, "load", load)
    with dualar.load(tiny.gguf, im_end_id=tiny_im_end):
        assert sorted(loaded) == ["Codec", "Model"]


# ------------------------------------------------------------------ text to samples
def test_text_becomes_samples(engine: Engine) -> None:
    audio = engine.synthesize(TEXT, seed=1, max_new_tokens=6, min_tokens_before_end=6)
    model, codec = engine.model, engine.codec
    assert audio.codes.shape == (model.num_codebooks, 6) and audio.codes.dtype == np.int32
    assert audio.samples.shape == (6 * codec.samples_per_frame,) and audio.samples.dtype == np.float32
    assert audio.sample_rate == codec.sample_rate and audio.seed == 1
    assert np.isfinite(audio.samples).all() and np.abs(audio.samples).max() <= 1
    assert np.abs(audio.samples).max() > 0
    assert audio.finish_reason in ("end", "length") and audio.padded_frames == 0
    timings = audio.timings
    assert timings.decode_ms is not None and timings.decode_ms > 0
    assert timings.real_time_factor is not None and timings.real_time_factor > 0
    np.testing.assert_array_equal(audio.samples, codec.decode(audio.codes))


def test_same_seed_same_bytes_whatever_ran_between(engine: Engine) -> None:
    first = engine.synthesize(TEXT, seed=11, max_new_tokens=8, min_tokens_before_end=8)
    other = engine.synthesize("something else", seed=12, max_new_tokens=5, min_tokens_before_end=5)
    second = engine.synthesize(TEXT, seed=11, max_new_tokens=8, min_tokens_before_end=8)
    assert first.samples.tobytes() == second.samples.tobytes()
    assert first.codes.tobytes() == second.codes.tobytes()
    assert not np.array_equal(first.codes[:, :5], other.codes)


def test_another_seed_is_another_result_and_a_drawn_seed_repeats(engine: Engine) -> None:
    drawn = engine.synthesize(TEXT, max_new_tokens=8, min_tokens_before_end=8)
    again = engine.synthesize(TEXT, seed=drawn.seed, max_new_tokens=8, min_tokens_before_end=8)
    np.testing.assert_array_equal(drawn.codes, again.codes)
    other = engine.synthesize(TEXT, seed=drawn.seed ^ 1, max_new_tokens=8, min_tokens_before_end=8)
    assert not np.array_equal(drawn.codes, other.codes)


def test_the_text_matters(engine: Engine) -> None:
    greedy = dualar.SamplingConfig.fish(temperature=0.0)
    a, b = (
        engine.synthesize(text, seed=0, sampling=greedy, max_new_tokens=8, min_tokens_before_end=8)
        for text in ("one", "two hundred and nine")
    )
    assert not np.array_equal(a.codes, b.codes)


def test_two_engines_and_both_fast_paths_agree(engine: Engine, toy_model: Path) -> None:
    options: dict[str, Any] = {"seed": 3, "max_new_tokens": 8, "min_tokens_before_end": 8}
    with dualar.load(toy_model, threads=1, fast_ar="recompute") as second:
        np.testing.assert_array_equal(
            engine.synthesize(TEXT, **options).codes, second.synthesize(TEXT, **options).codes
        )


def test_load_options_reach_the_loop(toy_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dualar.speech import verbs

    seen: list[Any] = []

    def spy(*args: Any, **options: Any) -> FrameLoop:
        seen.append((options["fast_ar"], options["kv_type"], options["text_tokens"]))
        return FrameLoop(*args, **options)

    monkeypatch.setattr(verbs, "FrameLoop", spy)
    with dualar.load(toy_model, threads=1, fast_ar="recompute", kv_type="f16") as engine:
        engine.synthesize(TEXT, seed=0, max_new_tokens=1)
        engine.generate(engine.build_prompt(TEXT), seed=0, max_new_tokens=1)
        assert seen == [("recompute", "f16", len(engine.tokenizer.encode_text(TEXT))), ("recompute", "f16", None)]


def test_threads_on_one_engine_do_not_mix(engine: Engine) -> None:
    def codes(seed: int) -> bytes:
        return engine.synthesize(TEXT, seed=seed, max_new_tokens=6, min_tokens_before_end=6).codes.tobytes()

    alone = [codes(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(codes, range(4)))
    assert together == alone and len(set(alone)) == 4


def test_two_sessions_do_not_mix(tiny: Golden, tiny_im_end: int) -> None:
    with np.load(tiny.npz) as arrays:
        prompt = np.ascontiguousarray(arrays["prompt"])
    with dualar.load(tiny.gguf, threads=1, im_end_id=tiny_im_end) as engine:
        model = s2_model(engine)
        columns = [np.ascontiguousarray(prompt[:, t]) for t in range(prompt.shape[1])]
        alone = model.session(max_positions=len(columns))
        alone.prefill(prompt[:, :2].copy())
        expected = [alone.step(column).logits for column in columns[2:]]
        a, b = (model.session(max_positions=len(columns)) for _ in range(2))
        a.prefill(prompt[:, :2].copy())
        b.prefill(prompt[:, 3:4].copy())
        for column, logits in zip(columns[2:], expected, strict=True):
            np.testing.assert_array_equal(a.step(column).logits, logits)
            if b.position < len(columns):
                b.step(columns[0])


def test_on_frame_sees_every_frame_and_can_stop(engine: Engine) -> None:
    seen: list[Any] = []

    def on_frame(frame: dualar.Frame) -> bool:
        seen.append(frame)
        return len(seen) < 3

    audio = engine.synthesize(TEXT, seed=2, max_new_tokens=20, min_tokens_before_end=20, on_frame=on_frame)
    assert audio.finish_reason == "cancelled" and audio.codes.shape[1] == 3
    np.testing.assert_array_equal(np.stack([frame.codes for frame in seen], axis=1), audio.codes)
    assert audio.samples.shape[0] == 3 * engine.codec.samples_per_frame


def test_on_decode_counts_up_to_all_frames(engine: Engine) -> None:
    steps: list[tuple[int, int]] = []
    engine.synthesize(
        TEXT, seed=2, max_new_tokens=20, min_tokens_before_end=20, on_decode=lambda *step: steps.append(step)
    )
    assert steps[-1] == (20, 20) and steps == sorted(set(steps)) and len(steps) > 1


def test_an_exception_in_on_frame_comes_through_and_the_engine_goes_on(engine: Engine) -> None:
    def interrupt(_: dualar.Frame) -> None:
        raise KeyboardInterrupt

    expected = engine.synthesize(TEXT, seed=4, max_new_tokens=4, min_tokens_before_end=4)
    with pytest.raises(KeyboardInterrupt):
        engine.synthesize(TEXT, seed=4, max_new_tokens=4, min_tokens_before_end=4, on_frame=interrupt)
    again = engine.synthesize(TEXT, seed=4, max_new_tokens=4, min_tokens_before_end=4)
    np.testing.assert_array_equal(expected.samples, again.samples)


@pytest.mark.parametrize(
    "options",
    [
        {"seed": -1},
        {"seed": 2**64},
        {"max_new_tokens": 0},
        {"max_new_tokens": 10**8},
        {"min_tokens_before_end": -1},
        {"sampling": "fish"},
    ],
    ids=str,
)
def test_bad_options_are_the_callers_fault(engine: Engine, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^\["):
        engine.synthesize(TEXT, **options)


@pytest.mark.parametrize("text", ["", "   ", "\ud800"], ids=["empty", "blank", "surrogate"])
def test_texts_that_cannot_be_said(engine: Engine, text: str) -> None:
    with pytest.raises(ValueError, match=r"^\["):
        engine.synthesize(text, seed=0, max_new_tokens=2)


# ------------------------------------------------------------------ what a file holds and lacks
def test_an_engine_says_what_it_is(engine: Engine, toy_model: Path) -> None:
    assert isinstance(engine.model, dualar.DualAR) and isinstance(engine.codec, Codec)
    assert isinstance(engine.tokenizer, dualar.Tokenizer)
    assert (engine.path, engine.device, engine.threads) == (str(toy_model), "cpu", 1)
    assert engine.model.im_end_id == engine.tokenizer.im_end_id
    assert toy_model.name in repr(engine)


def test_without_a_tokenizer_the_codec_is_usable(tiny: Golden) -> None:
    with np.load(tiny.npz) as arrays:
        codes, expected = arrays["codec_codes"], arrays["codec_audio"].reshape(-1)
    with dualar.load(tiny.gguf, threads=1) as engine:
        np.testing.assert_allclose(engine.codec.decode(codes), expected, rtol=0, atol=3e-5)
        for use in (lambda: engine.model, lambda: engine.synthesize("x"), lambda: engine.tokenizer):
            with pytest.raises(dualar.ModelError, match="tokenizer="):
                use()


def test_im_end_id_makes_the_model_usable_without_a_tokenizer(tiny: Golden, tiny_im_end: int) -> None:
    with np.load(tiny.npz) as arrays:
        prompt, expected = arrays["prompt"], arrays["greedy_codes"]
    with dualar.load(tiny.gguf, threads=1, im_end_id=tiny_im_end) as engine:
        assert engine.model.im_end_id == tiny_im_end
        greedy = dualar.SamplingConfig.fish(temperature=0.0)
        made = engine.generate(prompt, max_new_tokens=4, min_tokens_before_end=4, sampling=greedy)
        assert made.codes.shape == (expected.shape[0], 4) and made.finish_reason == "length"
        with pytest.raises(dualar.ModelError, match="tokenizer"):
            engine.synthesize("x")


def test_without_codec_tensors_codes_can_be_made_but_not_decoded(toy_model: Path, tmp_path: Path) -> None:
    path = copy_gguf(toy_model, tmp_path / "ar.gguf", keep=lambda name: not name.startswith("c."))
    with dualar.load(path, threads=1) as engine:
        prompt = engine.build_prompt(TEXT)
        assert engine.generate(prompt, seed=0, max_new_tokens=2, min_tokens_before_end=2).codes.shape[1] == 2
        for use in (lambda: engine.codec, lambda: engine.synthesize("x")):
            with pytest.raises(dualar.ModelError, match="codec"):
                use()
    with pytest.raises(dualar.ModelError, match="codec"):
        Codec.load(path)


def test_with_codec_tensors_alone_codes_can_be_decoded(tiny: Golden, tmp_path: Path) -> None:
    path = copy_gguf(tiny.gguf, tmp_path / "codec.gguf", keep=lambda name: name.startswith("c."))
    with dualar.load(path, threads=1) as engine:
        assert engine.codec.decode(np.zeros((engine.codec.num_codebooks, 1), int)).shape[0] > 0
        with pytest.raises(dualar.ModelError, match="codec tensors alone"):
            _ = engine.model


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_bytes(b"not a model")])
def test_what_is_no_model_is_a_model_error(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "x.gguf")
    with pytest.raises(dualar.ModelError, match=r"x\.gguf"):
        dualar.load(tmp_path / "x.gguf")


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 0},
        {"threads": -3},
        {"threads": 1.5},
        {"threads": True},
        {"fast_ar": "fast"},
        {"kv_type": "q8"},
        {"im_end_id": -1},
        {"im_end_id": "3"},
    ],
    ids=str,
)
def test_bad_load_options_are_value_errors(toy_model: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        dualar.load(toy_model, **options)


def test_an_unknown_device_is_the_callers_fault_and_a_missing_one_the_builds(toy_model: Path) -> None:
    with pytest.raises(ValueError, match="abacus"):
        dualar.load(toy_model, device="abacus")
    for device in ("cuda", "metal", "vulkan"):
        if device not in [known.name for known in dualar.devices()]:
            with pytest.raises(dualar.BackendError, match=f"DUALAR_{device.upper()}=ON"):
                dualar.load(toy_model, device=device)


# ------------------------------------------------------------------ codec
@pytest.mark.parametrize("name", ["s2-tiny", "s2-variant", "s2-edge"])
def test_codec_decodes_the_goldens(golden: Callable[[str], Golden], name: str) -> None:
    pair = golden(name)
    with np.load(pair.npz) as arrays:
        codes, expected = arrays["codec_codes"], arrays["codec_audio"].reshape(-1)
    codec = Codec.load(pair.gguf, threads=1)
    assert codec.num_codebooks == len(codec.codebook_sizes) == codes.shape[0]
    np.testing.assert_allclose(codec.decode(codes), expected, rtol=0, atol=3e-5)
    np.testing.assert_array_equal(codec.decode(codes.astype(np.uint16)), codec.decode(np.asfortranarray(codes)))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda c: c[1:], "shape"),
        (lambda c: c[:, 0], "shape"),
        (lambda c: c.astype(float), "float64"),
        (lambda c: c > 0, "bool"),
        (lambda c: np.where(np.arange(c.shape[1]) == 2, -1, c), "got -1 at codebook 0, frame 2"),
    ],
)
def test_bad_codes_are_value_errors(engine: Engine, change: Callable[[Any], Any], text: str) -> None:
    codes = np.zeros((engine.codec.num_codebooks, 4), np.int32)
    with pytest.raises(ValueError, match=text):
        engine.codec.decode(change(codes))


def test_codes_past_the_codebook_mean_its_last_entry(engine: Engine) -> None:
    codec = engine.codec
    last = np.array(codec.codebook_sizes)[:, None] - 1
    expected = codec.decode(last)
    for beyond in (last + 1, np.full_like(last, 2**62)):
        np.testing.assert_array_equal(codec.decode(beyond), expected)
    assert codec.decode(np.zeros((codec.num_codebooks, 0), int)).shape == (0,)


def test_samples_that_are_not_finite_are_an_error(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        def push(self, codes: Any) -> Any:
            samples = np.zeros(codes.shape[1] * engine.codec.samples_per_frame, np.float32)
            samples[3] = np.nan
            return samples

    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(engine.codec._core, name)

        def stream(self, **_: Any) -> Stream:
            return Stream()

    with pytest.raises(dualar.ModelError, match=r"1 of .* NaN or inf"):
        Codec(Broken()).decode(np.zeros((engine.codec.num_codebooks, 1), int))  # type: ignore[arg-type]


# ------------------------------------------------------------------ lifetime
def test_use_after_close_is_an_error(toy_model: Path) -> None:
    with dualar.load(toy_model, threads=1) as engine:
        codec = engine.codec
    for use in (
        lambda: engine.model,
        lambda: engine.codec,
        lambda: engine.tokenizer,
        lambda: engine.synthesize("x"),
        lambda: codec.decode(np.zeros((codec.num_codebooks, 1), int)),
        engine.__enter__,
    ):
        with pytest.raises(ValueError, match="closed"):
            use()
    engine.close()  # again: harmless
    assert "closed" in repr(engine)


def test_close_while_another_thread_works(toy_model: Path) -> None:
    engine = dualar.load(toy_model, threads=1)
    started, results = threading.Event(), []

    def on_frame(_: dualar.Frame) -> None:
        started.set()

    def work() -> None:
        results.append(engine.synthesize(TEXT, seed=0, max_new_tokens=30, min_tokens_before_end=30, on_frame=on_frame))

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(30)
    engine.close()
    thread.join(30)
    assert len(results) == 1 and results[0].codes.shape[1] == 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_is_refused(toy_model: Path) -> None:
    # In a process of its own: pytest's may have threads, and a fork of those warns.
    program = """if True:
        import os, sys, dualar, numpy as np
        engine = dualar.load(sys.argv[1], threads=1)
        codec = dualar.Codec.load(sys.argv[1], threads=1)
        if os.fork() == 0:
            refused = 0
            codes = np.zeros((codec.num_codebooks, 1), int)
            for use in (lambda: engine.synthesize("x"), lambda: engine.model, lambda: codec.decode(codes)):
                try:
                    use()
                except dualar.BackendError as error:
                    refused += "load the model in the child" in str(error)
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
        engine.synthesize("x", seed=0, max_new_tokens=1)
    """
    subprocess.run([sys.executable, "-c", program, str(toy_model)], check=True, timeout=60)
