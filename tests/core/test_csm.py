"""CSM in the core against the published code's numbers: backbone, depth decoder, generation and its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar import _core
from dualar.config import SamplingConfig
from dualar.convert.model_file import convert
from dualar.families.base import Turn
from dualar.families.csm import CsmFamily
from dualar.families.csm_prompt import CsmPrompt, build_csm_prompt
from dualar.generation.batch import Batch
from dualar.generation.generate import generate
from dualar.sampling.chains import probabilities
from dualar.text.tokenizer import METADATA_KEY, Tokenizer
from fixtures import csm
from fixtures.qwen3 import read_f32, write_safetensors

GREEDY = SamplingConfig.hf(temperature=0, repetition_penalty=1)
HIDDEN, LOGITS = 5e-4, 2e-3  # as the golden's makers suggest, for logits of up to 70
CODES = 64  # the codec's; the published heads have three more rows

ModelOf = Callable[[str], Any]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("csm")
    for name in csm.NAMES:
        convert(csm.FOLDER / name, folder / f"{name}.gguf", weight_type="f32")
    return {name: folder / f"{name}.gguf" for name in csm.NAMES}


@pytest.fixture(scope="module")
def model(paths: dict[str, Path]) -> ModelOf:
    runtime = _core.Runtime(threads=1)
    loaded = {name: _core.Model(_core.ModelFile(str(path)), runtime) for name, path in paths.items()}
    return loaded.__getitem__


@pytest.fixture(scope="module")
def tokenizer(paths: dict[str, Path]) -> Tokenizer:
    metadata = _core.ModelFile(str(paths["csm-tiny"])).metadata
    return Tokenizer(metadata[METADATA_KEY], required=CsmFamily.required_tokens)


def columns(text_ids: Any, codes: Any) -> CsmPrompt:
    return CsmPrompt(np.concatenate([text_ids[None], codes.T]).astype(np.int32))


def golden_prompt(arrays: Any, tokenizer: Tokenizer) -> CsmPrompt:
    """The package's own prompt for a golden generation."""
    lines = [line.split("|", 1) for line in arrays["text_utf8"].tobytes().decode().splitlines()]
    turns, first = [], 0
    for (speaker, text), frames in zip(lines[:-1], arrays.get("ctx_frames", []), strict=True):
        turns.append(Turn(f"<|speaker:{speaker}|>{text}", arrays["ctx_codes"][first : first + frames].T))
        first += int(frames)
    speaker, text = lines[-1]
    return build_csm_prompt(
        text, tokenizer=tokenizer, num_codebooks=32, codebook_size=CODES, speaker=speaker, history=turns
    )


@pytest.mark.parametrize("name", csm.NAMES)
def test_prefill(name: str, model: ModelOf) -> None:
    arrays = csm.golden(f"prefill_{name}")
    session = model(name).session(max_positions=170)
    session._keep_probes(True)
    out = session.prefill(columns(arrays["text_ids"], arrays["audio_codes"]), all_positions=True)
    assert np.abs(out.logits - arrays["logits"][:, :CODES]).max() < LOGITS
    assert np.abs(out.hidden - arrays["layer_hidden"][-1]).max() < HIDDEN
    for layer in range(len(arrays["layer_hidden"]) - 2):  # the last entry is behind the last norm
        found = session._probes()[f"decoder.{layer}"].reshape(170, -1)
        assert np.abs(found - arrays["layer_hidden"][layer + 1]).max() < HIDDEN, layer


@pytest.mark.parametrize("path", ["cached", "recompute"])
@pytest.mark.parametrize("name", csm.NAMES)
def test_depth_decoder(name: str, path: str, model: ModelOf) -> None:
    arrays = csm.golden(f"depth_{name}")
    session, compared = model(name).session(max_positions=4), 0
    for hidden, codes, logits in zip(arrays["backbone_hidden"], arrays["codes"], arrays["logits"], strict=True):
        for book in range(31):
            if codes[book] >= CODES:  # no such code has a sound, or can be given
                break
            if path == "recompute":
                found = session.fast_decode(hidden, codes[: book + 1])
            else:
                found = session.fast_step(int(codes[book])) if book else session.fast_begin(hidden, int(codes[0]))
            assert np.abs(found - logits[book, :CODES]).max() < LOGITS, book
            compared += 1
    assert compared >= 60


@pytest.mark.parametrize("case", csm.GENERATIONS)
def test_forced_generation(case: str, model: ModelOf, tokenizer: Tokenizer) -> None:
    arrays = csm.golden(case)
    prompt = golden_prompt(arrays, tokenizer)
    codes = arrays["codes"]
    session = model(csm.GENERATIONS[case]).session(max_positions=prompt.shape[1] + len(codes))
    out = session.prefill(prompt)
    for i, frame in enumerate(codes):
        assert np.abs(out.logits - arrays["logits"][i, :CODES]).max() < LOGITS, i
        assert np.abs(out.hidden - arrays["backbone_hidden"][i]).max() < HIDDEN, i
        for book in range(31):
            found = session.fast_step(int(frame[book])) if book else session.fast_begin(out.hidden, int(frame[0]))
            assert np.abs(found - arrays["depth_logits"][i, book, :CODES]).max() < LOGITS, (i, book)
        out = session.step(np.concatenate([frame[:1], frame]).astype(np.int32))


@pytest.mark.parametrize("path", ["cached", "recompute"])
@pytest.mark.parametrize("case", csm.GENERATIONS)
def test_greedy_generation(case: str, path: str, model: ModelOf, tokenizer: Tokenizer) -> None:
    arrays = csm.golden(case)
    ended = bool(arrays["ended"])
    made = generate(
        model(csm.GENERATIONS[case]),
        golden_prompt(arrays, tokenizer),
        max_new_tokens=len(arrays["codes"]),
        sampling=GREEDY,
        fast_ar=path,
        stall_guard=None,
    )
    wanted = arrays["codes"][:-1] if ended else arrays["codes"]
    np.testing.assert_array_equal(made.codes, wanted.T)
    assert made.finish_reason == ("end" if ended else "length")


def test_rows_of_a_batch_are_the_left_padded_ones(model: ModelOf) -> None:
    arrays = csm.golden("batch_left_pad")
    batch = Batch(model("csm-tiny"), sampling=GREEDY)
    rows = []
    for ids, mask in list(zip(arrays["input_ids"], arrays["attention_mask"], strict=True))[:2]:  # text alone
        text = ids[mask == 1]
        prompt = columns(text, np.full((len(text), 32), -1))
        rows.append(batch.join(dualar.GenerationRequest(prompt=prompt, max_new_tokens=5, stall_guard=None)))
    list(batch.run())
    assert arrays["attention_mask"][:2].min() == 0
    for row, codes in zip(rows, arrays["codes"], strict=False):
        np.testing.assert_array_equal(row.result().codes, codes.T)


def test_a_floor_keeps_the_end_away(model: ModelOf, tokenizer: Tokenizer) -> None:
    arrays = csm.golden("gen_end")
    ends = len(arrays["codes"]) - 1
    prompt = golden_prompt(arrays, tokenizer)
    options: Any = {"max_new_tokens": ends + 3, "sampling": GREEDY, "stall_guard": None}
    free = generate(model("csm-tiny"), prompt, **options)
    held = generate(model("csm-tiny"), prompt, min_tokens_before_end=ends + 3, **options)
    assert free.codes.shape[1] == ends and free.finish_reason == "end"
    assert held.codes.shape[1] == ends + 3 and held.finish_reason == "length" and held.codes[0].all()


def softmax(scores: Any) -> Any:
    mass = np.exp(scores.astype(np.float64) - scores.max(axis=-1, keepdims=True))
    return mass / mass.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("kind", ["", "topp_"])
def test_sampler_grid(kind: str) -> None:
    arrays = csm.golden("sampler_grid")
    for params, scores in zip(arrays[f"{kind}params"], arrays[f"{kind}scores"], strict=True):
        temperature, top_k, top_p = (float(str(value)) for value in params)
        config = SamplingConfig.hf(temperature=temperature, top_k=int(top_k), top_p=top_p, repetition_penalty=1)
        found = probabilities(arrays[f"{kind}logits"], config)
        np.testing.assert_allclose(found, softmax(scores), atol=1e-6, rtol=1e-5)


def test_the_goldens_cover_the_end() -> None:
    assert csm.golden("gen_end")["ended"] and not csm.golden("gen_end")["codes"][-1].any()
    kept = csm.golden("gen_eq_zero_c0")["codes"]
    assert ((kept[:, 0] == 0) & kept.any(axis=1)).any()


def test_no_code_without_a_sound_can_be_drawn(model: ModelOf) -> None:
    csm_model = model("csm-tiny")
    assert csm_model.main_ids.tolist() == list(range(CODES)) and csm_model.end_code == 0
    assert csm_model.unused_tensors == []


def test_tokenizer(tokenizer: Tokenizer) -> None:
    found = json.loads((csm.FOLDER / "text_tokenizer_cases.json").read_text())
    cases = found if isinstance(found, list) else found["cases"]
    assert len(cases) == 19
    for case in cases:
        if "<|" not in case["text"]:  # a user's text cannot hold control tokens here
            assert tokenizer.encode_text(case["text"]) == case["ids"], case["text"]


def test_the_published_prompt(tokenizer: Tokenizer) -> None:
    for case in csm.GENERATIONS:
        arrays = csm.golden(case)
        found = golden_prompt(arrays, tokenizer).columns[0]
        audio = arrays["input_ids"] >= 403  # placeholders of frames, and of the frame that ends them
        np.testing.assert_array_equal(found, np.where(audio, -1, arrays["input_ids"]))


def test_what_a_prompt_refuses(tokenizer: Tokenizer) -> None:
    def build(text: str, **options: Any) -> CsmPrompt:
        return build_csm_prompt(text, tokenizer=tokenizer, num_codebooks=32, codebook_size=CODES, **options)

    codes = np.ones((32, 2), np.int32)
    np.testing.assert_array_equal(build("Hi", speaker="7").columns, build("<|speaker:7|>Hi").columns)
    assert build("Hi", voice=Turn("So.", codes)).prefix_length == build("So.").shape[1] + 3
    injected = build("x <|audio_eos|> y").columns[0]
    assert 404 not in injected
    for text, options in (
        ("", {}),
        ("Hi <|speaker:1|> you", {}),
        ("Hi", {"speaker": "anna"}),
        ("Hi", {"voice": Turn("So.", codes * CODES)}),
        ("Hi", {"history": [Turn("", codes)]}),
    ):
        with pytest.raises(ValueError, match="expected"):
            build(text, **options)


@pytest.mark.parametrize("layout", ["original", "twice", "rope_parameters"])
@pytest.mark.parametrize("name", csm.NAMES)
def test_other_layouts_are_the_same_model(name: str, layout: str, model: ModelOf, tmp_path: Path) -> None:
    folder = csm.checkpoint_folder(name, tmp_path / name)
    if layout == "original":
        both = read_f32(folder / "model.safetensors")
        table = both.pop("backbone_model.embed_tokens.embed_audio_tokens.weight", None)
        assert table is None or np.array_equal(table, both["depth_decoder.model.embed_tokens.weight"])
        write_safetensors(folder / "model.safetensors", both)
        csm.to_original_layout(folder)
    elif layout == "twice":
        tensors = read_f32(folder / "model.safetensors")
        table = tensors["depth_decoder.model.embed_tokens.weight"]
        write_safetensors(
            folder / "model.safetensors",
            {**tensors, "backbone_model.embed_tokens.embed_audio_tokens.weight": table},
        )
    else:
        config = json.loads((folder / "config.json").read_text())
        for part in (config, config["depth_decoder_config"]):
            part["rope_parameters"] = {**part.pop("rope_scaling"), "rope_theta": part.pop("rope_theta")}
        (folder / "config.json").write_text(json.dumps(config))
    convert(folder, tmp_path / "other.gguf", weight_type="f32")
    arrays = csm.golden(f"prefill_{name}")
    prompt: Any = columns(arrays["text_ids"], arrays["audio_codes"])
    other = _core.Model(_core.ModelFile(str(tmp_path / "other.gguf")), _core.Runtime(threads=1))
    assert other.unused_tensors == []
    outs = [m.session(max_positions=170).prefill(prompt) for m in (model(name), other)]
    np.testing.assert_array_equal(outs[0].logits, outs[1].logits)
    hidden = outs[0].hidden
    first, second = (m.fast_decode(hidden, np.arange(9, dtype=np.int32)) for m in (model(name), other))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kind", ["f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k"])
def test_every_type_speaks(kind: str, tmp_path: Path) -> None:
    convert(csm.FOLDER / "csm-tiny", tmp_path / "x.gguf", weight_type=kind)
    with dualar.load(tmp_path / "x.gguf", threads=1) as engine:
        made = engine.synthesize("Hello.", max_new_tokens=3, seed=1, speaker="1")
        assert np.isfinite(made.samples).all() and made.samples.size == 1920 * made.codes.shape[1]


def test_the_server_offers_speakers_by_number(paths: dict[str, Path]) -> None:
    from dualar.server.voices import VoiceBook

    with dualar.load(paths["csm-tiny"], threads=1) as engine:
        book = VoiceBook(engine.parts, None)
        assert book.names()[1:4] == ["0", "1", "2"] and book.options("3") == {"speaker": "3"}
        spoken = [engine.synthesize("Hello.", max_new_tokens=3, seed=1, speaker=name).codes for name in ("0", "3")]
    assert not np.array_equal(spoken[0], spoken[1])


def test_defaults(paths: dict[str, Path], tmp_path: Path) -> None:
    folder = csm.checkpoint_folder("csm-tiny", tmp_path / "c")
    assert "top_k" not in json.loads((folder / "generation_config.json").read_text())
    with dualar.load(paths["csm-tiny"], threads=1) as engine:
        assert engine.sampling == SamplingConfig.hf(temperature=0.9, top_k=50, top_p=1.0, repetition_penalty=1.0)
