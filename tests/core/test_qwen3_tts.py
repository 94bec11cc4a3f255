"""Qwen3-TTS in the core: talker and code predictor against the published code's numbers, in float32 and narrower."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import numpy.typing as npt
import pytest
from dualar import _core
from dualar.config import GenerationConfig, SamplingConfig
from dualar.convert.model_file import convert
from dualar.families.qwen3_layout import Qwen3Layout
from dualar.families.qwen3_prompt import TalkerPrompt
from dualar.families.qwen3_tts import Qwen3Family
from dualar.generation.generate import FrameLoop, generate
from dualar.sampling.chains import probabilities
from dualar.text.tokenizer import METADATA_KEY, Tokenizer
from fixtures import qwen3

LOGITS, HIDDEN = 2e-4, 5e-5  # what is seen is 3e-5 and 1e-5
PATHS = ["cached", "recompute"]


@pytest.fixture(scope="module")
def model(qwen3_model: Callable[[str], Path]) -> Callable[[str], _core.Qwen3TTS]:
    runtime = _core.Runtime(threads=1)
    loaded: dict[str, _core.Qwen3TTS] = {}

    def get(name: str) -> _core.Qwen3TTS:
        if name not in loaded:
            loaded[name] = _core.Qwen3TTS(_core.ModelFile(str(qwen3_model(name))), runtime)
        return loaded[name]

    return get


def prompt_of(case: qwen3.GoldenCase, qwen3_model: Callable[[str], Path]) -> TalkerPrompt:
    metadata = _core.ModelFile(str(qwen3_model(case.checkpoint))).metadata
    tokenizer = Tokenizer(metadata[METADATA_KEY], required=Qwen3Family.required_tokens)
    prompt: TalkerPrompt = case.prompt(tokenizer, Qwen3Layout.read(metadata, source=case.name))
    return prompt


def column(codes: npt.ArrayLike) -> npt.NDArray[np.int32]:
    codes = np.asarray(codes, np.int32)
    return np.concatenate([codes[:1], codes])


def codec_columns(ids: npt.ArrayLike, codebooks: int = 16) -> npt.NDArray[np.int32]:
    """Columns of nothing but ids of the talker's vocabulary."""
    ids = np.asarray(ids, np.int32)
    columns = np.full((1 + codebooks, len(ids)), -1, np.int32)
    columns[1] = ids
    return columns


NO_TEXT = np.zeros(0, np.int32)


# ------------------------------------------------------------------------------------------------------- the talker


@pytest.mark.parametrize("name, golden", [("tiny", "proj"), ("tiny-eq", "eq")])
def test_prefill(name: str, golden: str, tmp_path: Path) -> None:
    # The golden inputs become rows of the embedding table, so that a prompt of their ids is the golden inputs.
    arrays = qwen3.golden(f"talker_prefill_{golden}")
    folder = qwen3.checkpoint_folder(name, tmp_path / "checkpoint")
    tensors = qwen3.read_f32(folder / "model.safetensors")
    table = tensors["talker.model.codec_embedding.weight"].copy()
    table[:37] = arrays["inputs_embeds"]
    qwen3.write_safetensors(folder / "model.safetensors", {**tensors, "talker.model.codec_embedding.weight": table})
    convert(folder, tmp_path / "model.gguf", weight_type="f32")
    model = _core.Qwen3TTS(_core.ModelFile(str(tmp_path / "model.gguf")), _core.Runtime(threads=1))
    session = model.session(max_positions=37)
    session._keep_probes(True)
    out = session.prefill(TalkerPrompt(codec_columns(np.arange(37)), NO_TEXT), all_positions=True, full_vocab=True)
    assert np.abs(out.logits - arrays["logits"]).max() < LOGITS
    assert np.abs(out.hidden - arrays["last_hidden"]).max() < HIDDEN
    for layer in (0, 1):  # the golden has each layer's input
        found = session._probes()[f"decoder.{layer}"].reshape(37, -1)
        assert np.abs(found - arrays["layer_hidden"][layer + 1]).max() < HIDDEN


@pytest.mark.parametrize("case", qwen3.GENERATIONS, ids=lambda case: case.name)
def test_forced_generation(
    case: qwen3.GoldenCase, model: Callable[[str], _core.Qwen3TTS], qwen3_model: Callable[[str], Path]
) -> None:
    arrays, prompt = case.arrays(), prompt_of(case, qwen3_model)
    frames = len(arrays["codes"])
    session = model(case.checkpoint).session(max_positions=prompt.shape[1] + frames)
    width = arrays["logits"].shape[1]
    out = session.prefill(prompt, full_vocab=True)
    for frame in range(frames):
        assert np.abs(out.logits[:width] - arrays["logits"][frame]).max() < LOGITS, frame
        assert np.abs(out.hidden - arrays["talker_hidden"][frame]).max() < HIDDEN, frame
        out = session.step(column(arrays["codes"][frame]), full_vocab=True)
    assert np.abs(out.logits[:width] - arrays["logits"][frames]).max() < LOGITS


@pytest.mark.parametrize("fast_ar", PATHS)
@pytest.mark.parametrize("case", qwen3.GENERATIONS, ids=lambda case: case.name)
def test_greedy_generation(
    case: qwen3.GoldenCase, fast_ar: str, model: Callable[[str], _core.Qwen3TTS], qwen3_model: Callable[[str], Path]
) -> None:
    arrays = case.arrays()
    ends = bool(arrays["hit_eos"])
    made = generate(
        model(case.checkpoint),
        prompt_of(case, qwen3_model),
        max_new_tokens=len(arrays["codes"]) + ends,
        min_tokens_before_end=2,
        sampling=SamplingConfig.hf(temperature=0),
        fast_ar=fast_ar,
    )
    assert np.array_equal(made.codes, arrays["codes"].T)
    assert made.finish_reason == ("end" if ends else "length")


def test_only_codes_and_the_end_can_be_emitted(model: Callable[[str], _core.Qwen3TTS]) -> None:
    talker = model("tiny")
    assert talker.main_ids.tolist() == [*range(128), 230]
    prompt = TalkerPrompt(codec_columns([3, 4, 5]), NO_TEXT)
    sliced, whole = (talker.session(max_positions=3).prefill(prompt, full_vocab=full).logits for full in (False, True))
    assert sliced.shape == (129,) and whole.shape == (1152,)
    np.testing.assert_allclose(sliced, whole[talker.main_ids], atol=1e-5)


def test_sampler_defaults(model: Callable[[str], _core.Qwen3TTS]) -> None:
    arrays = qwen3.golden("talker_sampler_defaults")
    temperature, top_k, top_p, penalty, min_new = arrays["params"].tolist()
    assert (temperature, top_k, top_p, penalty, min_new) == (pytest.approx(0.9), 50, 1, pytest.approx(1.05), 2)
    config, ids = SamplingConfig.hf(), model("tiny").main_ids
    tokens = arrays["tokens"]

    def softmax(scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
        mass: npt.NDArray[np.float64] = np.exp(scores.astype(np.float64) - scores.max())
        return mass / float(mass.sum())

    for step, (logits, scores) in enumerate(zip(arrays["logits"], arrays["scores"], strict=True)):
        row = logits[ids].copy()
        if step < min_new:
            row[-1] = -np.inf
        got = np.zeros(1152)
        got[ids] = probabilities(row[None], config, tokens[None, :step].astype(np.int32))[0]
        np.testing.assert_allclose(got, softmax(scores), atol=1e-6)
    for logits, scores in zip(arrays["cp_logits"], arrays["cp_scores"], strict=True):
        for book in range(15):
            np.testing.assert_allclose(probabilities(logits[book][None], config)[0], softmax(scores[book]), atol=1e-6)


# ------------------------------------------------------------------------------------------------ the code predictor


@pytest.mark.parametrize("name, golden", [("tiny", "proj"), ("tiny-eq", "eq")])
@pytest.mark.parametrize("fast_ar", PATHS)
def test_predictor(name: str, golden: str, fast_ar: str, model: Callable[[str], _core.Qwen3TTS]) -> None:
    arrays = qwen3.golden(f"talker_code_predictor_{golden}")
    session = model(name).session(max_positions=1)
    right = 0
    for hidden, code0, codes, wanted in zip(
        *(arrays[k] for k in ("past_hidden", "code0", "codes", "logits")), strict=True
    ):
        prefix = [int(code0)]
        for book in range(15):
            if fast_ar == "recompute":
                logits = session.fast_decode(hidden, np.asarray(prefix))
            elif book == 0:
                logits = session.fast_begin(hidden, prefix[0])
            else:
                logits = session.fast_step(prefix[-1])
            assert np.abs(logits - wanted[book]).max() < LOGITS
            prefix.append(int(logits.argmax()))
            right += prefix[-1] == codes[book]
        assert prefix[1:] == codes.tolist()
    assert right == 33 * 15 == 495


@pytest.mark.parametrize("weight_type", ["f32", "q8_0"])
def test_both_paths_agree_on_sampled_frames(weight_type: str, qwen3_model: Callable[..., Path]) -> None:
    model = _core.Qwen3TTS(_core.ModelFile(str(qwen3_model("tiny", weight_type))), _core.Runtime(threads=1))
    prompt = TalkerPrompt(codec_columns([228, 229]), np.arange(20, dtype=np.int32))
    runs = [
        generate(
            model,
            prompt,
            max_new_tokens=200,
            min_tokens_before_end=200,
            sampling=SamplingConfig.hf(),
            seed=3,
            stall_guard=None,
            fast_ar=path,
        )
        for path in PATHS
    ]
    assert runs[0].codes.shape == (16, 200)
    assert np.array_equal(runs[0].codes, runs[1].codes)
    assert len(np.unique(runs[0].codes)) > 100


# -------------------------------------------------------------------------------------------------- overflow and types


@pytest.mark.parametrize("weight_type", ["f32", "f16", "bf16", "q8_0"])
def test_activations_beyond_half_precision(weight_type: str, tmp_path: Path) -> None:
    # In both stacks a channel of every feed-forward's input is made large, so that the activations before the second
    # matrix pass 65504, the largest number of F16, while the weights stay small.
    folder = qwen3.checkpoint_folder("tiny-eq", tmp_path / "checkpoint")
    tensors = qwen3.read_f32(folder / "model.safetensors")
    for name, values in tensors.items():
        if name.startswith("talker.") and name.endswith(("mlp.gate_proj.weight", "mlp.up_proj.weight")):
            tensors[name] = values * 1000
        elif name.startswith("talker.") and name.endswith("post_attention_layernorm.weight"):
            tensors[name] = values * 10
        elif name.startswith("talker.") and name.endswith("model.norm.weight"):
            tensors[name] = values * 1e5
    qwen3.write_safetensors(folder / "model.safetensors", tensors)
    convert(folder, tmp_path / "model.gguf", weight_type=weight_type)
    model = _core.Qwen3TTS(_core.ModelFile(str(tmp_path / "model.gguf")), _core.Runtime(threads=1))
    session = model.session(max_positions=8)
    session._keep_probes(True)
    for full_vocab in (False, True):
        session.reset()
        prompt = TalkerPrompt(codec_columns([228, 229, 5, 6]), np.array([7, 8, 9], np.int32))
        out = session.prefill(prompt, full_vocab=full_vocab)
        largest = max(float(np.abs(values).max()) for values in session._probes().values())
        assert largest > 1e6, "the test has no large activations"
        for _ in range(2):
            assert np.isfinite(out.logits).all() and np.isfinite(out.hidden).all()
            assert np.abs(out.hidden).max() > 65504
            for logits in (
                session.fast_begin(out.hidden, 3),
                session.fast_step(4),
                session.fast_decode(out.hidden, np.array([3, 4])),
            ):
                assert np.isfinite(logits).all()
            out = session.step(np.full(17, 3, np.int32), full_vocab=full_vocab)


@pytest.mark.parametrize("weight_type, tolerance", [("f16", 0.05), ("bf16", 0.4), ("q8_0", 0.4)])
def test_narrow_weights_stay_close(weight_type: str, tolerance: float, qwen3_model: Callable[..., Path]) -> None:
    arrays = qwen3.GENERATIONS[4].arrays()
    model = _core.Qwen3TTS(_core.ModelFile(str(qwen3_model("tiny-eq", weight_type))), _core.Runtime(threads=1))
    prompt = prompt_of(qwen3.GENERATIONS[4], qwen3_model)
    out = model.session(max_positions=prompt.shape[1]).prefill(prompt, full_vocab=True)
    assert np.abs(out.logits - arrays["logits"][0]).max() < tolerance * np.abs(arrays["logits"][0]).std()


# --------------------------------------------------------------------------------------------------------- sessions


def test_sessions_do_not_mix_and_truncate_goes_back(
    model: Callable[[str], _core.Qwen3TTS], qwen3_model: Callable[[str], Path]
) -> None:
    talker = model("tiny")
    first, second = (prompt_of(case, qwen3_model) for case in qwen3.GENERATIONS[:2])
    a, b = talker.session(max_positions=64), talker.session(max_positions=64)
    codes = np.arange(16, dtype=np.int32)
    a.prefill(first)
    b.prefill(second)
    want = [a.step(column(codes)).logits, a.step(column(codes + 1)).logits]
    a.truncate(first.shape[1])
    b.step(column(codes))
    assert np.array_equal(a.step(column(codes)).logits, want[0])  # the text under the frame is the first again
    assert np.array_equal(a.step(column(codes + 1)).logits, want[1])
    a.reset()
    a.prefill(first)
    assert np.array_equal(a.step(column(codes)).logits, want[0])


def test_prefill_in_pieces_is_the_whole(model: Callable[[str], _core.Qwen3TTS]) -> None:
    talker = model("tiny")
    rng = np.random.default_rng(0)
    columns = codec_columns(rng.integers(0, 128, 700))
    columns[0] = rng.integers(-1, 400, 700)
    columns[2:, 300:] = rng.integers(-1, 128, (15, 400))
    trailing = rng.integers(0, 400, 600).astype(np.int32)
    whole, parts = talker.session(max_positions=701), talker.session(max_positions=701)
    want = whole.prefill(TalkerPrompt(columns, trailing)).logits
    parts.prefill(TalkerPrompt(columns[:, :123], trailing))
    got = parts.prefill(TalkerPrompt(np.ascontiguousarray(columns[:, 123:]), trailing)).logits
    np.testing.assert_allclose(got, want, atol=LOGITS)
    frame = column(np.arange(16))
    np.testing.assert_allclose(parts.step(frame).logits, whole.step(frame).logits, atol=LOGITS)


@pytest.mark.parametrize(
    "call, expected",
    [
        (lambda s: s.prefill(np.zeros((17, 2), np.int32)), "expected a TalkerPrompt, got ndarray"),
        (lambda s: s.prefill(TalkerPrompt(codec_columns([]), NO_TEXT)), "at least one column"),
        (lambda s: s.prefill(TalkerPrompt(np.zeros((16, 2), np.int32), NO_TEXT)), "expected 17 rows"),
        (
            lambda s: s.prefill(TalkerPrompt(codec_columns([1152]), NO_TEXT)),
            "ids from -1 to 1151, got 1152 in column 0",
        ),
        (lambda s: s.prefill(TalkerPrompt(codec_columns([1, -2]), NO_TEXT)), "got -2 in column 1"),
        (
            lambda s: s.prefill(TalkerPrompt(np.full((17, 1), 512, np.int32), NO_TEXT)),
            "text ids from -1 to 511, got 512",
        ),
        (lambda s: s.prefill(TalkerPrompt(np.full((17, 1), 128, np.int32), NO_TEXT)), "codes from -1 to 127, got 128"),
        (lambda s: s.prefill(TalkerPrompt(codec_columns([1]), np.array([512]))), "got 512 in trailing 0"),
        (lambda s: s.prefill(TalkerPrompt(codec_columns([1]), np.array([-1]))), "got -1 in trailing 0"),
        (lambda s: s.prefill(TalkerPrompt(codec_columns([1]), NO_TEXT, np.zeros(3, np.float32))), "expected 64 values"),
        (lambda s: s.prefill(TalkerPrompt(codec_columns([1]), NO_TEXT, np.full(64, np.inf, np.float32))), "finite"),
        (
            lambda s: s.prefill(TalkerPrompt(codec_columns([1]), NO_TEXT, np.zeros(64, np.float32), 1)),
            "speaker's column",
        ),
        (lambda s: s.prefill(TalkerPrompt(codec_columns(np.zeros(9)), NO_TEXT)), "at most 8 columns"),
        (lambda s: s.step(np.zeros(17, np.int32)), "expected a prompt first"),
        (lambda s: s.step(np.zeros(16, np.int32)), "expected 17 rows"),
        (lambda s: s.fast_step(0), "expected fast_begin first"),
        (lambda s: s.fast_begin(np.zeros(63, np.float32), 0), "expected 64 values"),
        (lambda s: s.fast_begin(np.zeros(64, np.float32), 128), "expected 0 to 127, got 128"),
        (lambda s: s.fast_decode(np.zeros(64, np.float32), np.zeros(16, np.int32)), "expected 1 to 15 codes, got 16"),
        (lambda s: s.truncate(1), "expected 0 to 0 positions, got 1"),
    ],
)
def test_bad_calls(call: Callable[[Any], object], expected: str, model: Callable[[str], _core.Qwen3TTS]) -> None:
    session = model("tiny").session(max_positions=8)
    with pytest.raises(ValueError) as error:
        call(session)
    assert expected in str(error.value)
    session.prefill(TalkerPrompt(codec_columns([1]), NO_TEXT))  # nothing is broken
    with pytest.raises(ValueError, match="expected the main id to be the frame's first code, got 1 and 2"):
        session.step(np.array([1, *[2] * 16], np.int32))
    session.step(np.ones(17, np.int32))
    session.truncate(0)
    with pytest.raises(ValueError, match="expected a prompt first"):
        session.step(np.ones(17, np.int32))


def test_the_loop_checks_the_prompt_before_it_computes(model: Callable[[str], _core.Qwen3TTS]) -> None:
    talker = model("tiny")
    for prompt in (
        np.zeros((17, 2), np.int32),
        TalkerPrompt(codec_columns([5000]), NO_TEXT),
        TalkerPrompt(codec_columns([1]), np.array([512], np.int32)),
        TalkerPrompt(codec_columns([1]), NO_TEXT, np.zeros(2, np.float32)),
    ):
        with pytest.raises(ValueError, match="prompt"):
            FrameLoop(talker, prompt, GenerationConfig(max_new_tokens=1))


def test_bad_files(qwen3_model: Callable[[str], Path], golden: Callable[[str], Any]) -> None:
    runtime = _core.Runtime(threads=1)
    with pytest.raises(dualar.ModelError, match='expected "qwen3-tts", got "fish-speech"'):
        _core.Qwen3TTS(_core.ModelFile(str(golden("s2-tiny").gguf)), runtime)
    with pytest.raises(dualar.ModelError, match='expected "fish-speech", got "qwen3-tts"'):
        _core.DualAR(_core.ModelFile(str(qwen3_model("tiny"))), runtime, im_end_id=0)
