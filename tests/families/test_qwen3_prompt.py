"""Prompts of Qwen3-TTS: each layout as the published code makes it, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import numpy.typing as npt
import pytest
from dualar.families.qwen3_layout import Qwen3Layout
from dualar.families.qwen3_prompt import Qwen3Voice, TalkerPrompt, build_talker_prompt
from dualar.families.qwen3_tts import Qwen3Family
from dualar.gguf import qwen3_names as keys
from dualar.text.tokenizer import METADATA_KEY, Tokenizer
from fixtures import qwen3

Arrays = Mapping[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def metadata(qwen3_model: Callable[[str], Path]) -> Callable[[str], dict[str, Any]]:
    return lambda name: dualar._core.ModelFile(str(qwen3_model(name))).metadata


def tokenizer_of(metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer(metadata[METADATA_KEY], required=Qwen3Family.required_tokens)


def text_of(arrays: Arrays, name: str) -> str:
    return arrays[f"{name}_utf8"].tobytes().decode()


def test_tokenizer_cases(metadata: Callable[[str], dict[str, Any]]) -> None:
    tokenizer = tokenizer_of(metadata("tiny"))
    cases = json.loads((qwen3.FOLDER / "text_tokenizer_cases.json").read_text())
    assert len(cases) == 13
    for case in cases:
        assert tokenizer.encode_template(case["text"]) == case["ids"], case["text"]
    # A user's text is spelled out, and otherwise the same.
    plain = [case for case in cases if "<" not in case["text"]]
    assert len(plain) > 8
    for case in plain:
        assert tokenizer.encode_text(case["text"]) == case["ids"], case["text"]
    assert not {400, 401, 402, 403, 404, 405} & set(tokenizer.encode_text("<|im_end|><tts_pad><|im_start|>"))


def embedded(prompt: TalkerPrompt, tensors: Arrays) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The sums that a prompt stands for, and the text vectors under the frames to come, from the checkpoint itself."""
    of = "talker.text_projection.linear_fc"
    text, codec = tensors["talker.model.text_embedding.weight"], tensors["talker.model.codec_embedding.weight"]

    def project(ids: npt.ArrayLike) -> npt.NDArray[Any]:
        x = text[np.asarray(ids, np.int64)].astype(np.float64) @ tensors[f"{of}1.weight"].T + tensors[f"{of}1.bias"]
        gated: npt.NDArray[Any] = x / (1 + np.exp(-x))
        return gated @ tensors[f"{of}2.weight"].T + tensors[f"{of}2.bias"]

    x = np.zeros((prompt.columns.shape[1], codec.shape[1]))
    for t, column in enumerate(prompt.columns.T):
        if column[0] >= 0:
            x[t] += project([column[0]])[0]
        if column[1] >= 0:
            x[t] += codec[column[1]]
        for book, code in enumerate(column[2:]):
            if code >= 0:
                x[t] += tensors[f"talker.code_predictor.model.codec_embedding.{book}.weight"][code]
    if prompt.speaker is not None:
        x[prompt.speaker_column] += prompt.speaker
    return x, project([*prompt.trailing, 403])


@pytest.mark.parametrize("case", qwen3.GENERATIONS, ids=lambda case: case.name)
def test_golden_prompts(case: qwen3.GoldenCase, metadata: Callable[[str], dict[str, Any]]) -> None:
    arrays = case.arrays()
    tensors = qwen3.read_f32(qwen3.FOLDER / case.checkpoint / "model.safetensors")
    found = metadata(case.checkpoint)
    prompt = case.prompt(tokenizer_of(found), Qwen3Layout.read(found, source=case.name))
    x, trailing = embedded(prompt, tensors)
    assert x.shape == arrays["inputs_embeds"].shape
    np.testing.assert_allclose(x, arrays["inputs_embeds"], atol=2e-5)
    np.testing.assert_allclose(trailing[-1], arrays["tts_pad_embed"], atol=2e-5)
    if len(prompt.trailing):
        trailing = trailing[:-1]
    np.testing.assert_allclose(trailing, arrays["trailing_text_hidden"], atol=2e-5)
    if "instruct_ids" in arrays:
        assert prompt.columns[0, : len(arrays["instruct_ids"])].tolist() == arrays["instruct_ids"].tolist()


def build(metadata: dict[str, Any], text: str = "hello world", **options: Any) -> TalkerPrompt:
    layout = Qwen3Layout.read(metadata, source="test")
    return build_talker_prompt(text, tokenizer=tokenizer_of(metadata), layout=layout, **options)


def test_languages_and_dialects(metadata: Callable[[str], dict[str, Any]]) -> None:
    found = metadata("tiny-eq")
    layout = Qwen3Layout.read(found, source="test")
    assert "beijing_dialect" in layout.dialects and "beijing_dialect" not in layout.languages
    assert layout.language_id("Auto", None) is None
    assert layout.language_id("ENGLISH", "dylan") == layout.languages["english"]
    assert layout.language_id("auto", "Dylan") == layout.dialects["beijing_dialect"]
    assert layout.language_id("Chinese", "eric") == layout.dialects["sichuan_dialect"]
    assert layout.language_id("chinese", "vivian") == layout.languages["chinese"]
    with pytest.raises(ValueError, match="beijing_dialect"):
        layout.language_id("beijing_dialect", None)
    with pytest.raises(ValueError, match=r"expected auto or one of chinese.*got 'klingon'"):
        build(found, language="klingon")
    with pytest.raises(ValueError, match=r"expected one of aiden.*got 'nobody'"):
        build(found, speaker="nobody")
    with pytest.raises(ValueError, match="this model has no speakers"):
        build(metadata("tiny"), speaker="ryan")


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"text": "  "}, "only blanks"),
        ({"text": "\ud800"}, "lone surrogate"),
        ({"instruct": ""}, r"\[instruct\] expected something"),
        ({"text_mode": "both"}, "text_mode"),
        ({"voice": Qwen3Voice(np.zeros(63, np.float32))}, r"float \[64\], got float32 \[63\]"),
        ({"voice": Qwen3Voice(np.full(64, np.nan, np.float32))}, "finite"),
        ({"voice": Qwen3Voice(np.zeros(64, np.int32))}, "float"),
        ({"voice": Qwen3Voice(np.zeros(64, np.float32), np.zeros((16, 3), np.int32))}, "or neither"),
        ({"voice": Qwen3Voice(np.zeros(64, np.float32), np.full((16, 3), 128), "hello")}, r"codes in \[0, 128\)"),
        ({"voice": Qwen3Voice(np.zeros(64, np.float32), np.zeros((15, 3), np.int32), "hello")}, "shape"),
        ({"voice": Qwen3Voice(np.zeros(64, np.float32), np.zeros((16, 3), np.int32), " ")}, "transcript"),
        ({"voice": Qwen3Voice(np.zeros(64, np.float32)), "speaker": "ryan"}, "got both"),
    ],
)
def test_refusals(options: dict[str, Any], expected: str, metadata: Callable[[str], dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match=expected):
        build(metadata("tiny"), **options)


def test_a_text_is_never_fused_with_the_template(metadata: Callable[[str], dict[str, Any]]) -> None:
    found = metadata("tiny")
    text = "\n\nhello<|im_end|>"
    prompt = build(found, text, text_mode="first")
    ids = tokenizer_of(found).encode_text(text)
    assert 402 not in ids
    assert prompt.columns[0, 3 + 4 : 3 + 4 + len(ids)].tolist() == ids
    assert prompt.columns[0, :3].tolist() == [401, 271, 198]


def test_damaged_descriptions(metadata: Callable[[str], dict[str, Any]]) -> None:
    good = metadata("tiny-eq")
    for key, value, expected in (
        (keys.CODEC_PAD_ID, ..., "nothing"),
        (keys.CODEC_PAD_ID, "x", "got 'x'"),
        (keys.SPEAKER_IDS, [1], "a name for each of 1"),
        (keys.SPEAKER_IDS, [99999] * len(good[keys.SPEAKER_IDS]), "expected an id from 0 to 1151"),
        (keys.SPEAKER_DIALECTS, ["martian"] * len(good[keys.SPEAKER_IDS]), "martian"),
        (keys.LANGUAGE_NAMES, "english", "expected list"),
    ):
        damaged = {k: v for k, v in good.items() if k != key} | ({} if value is ... else {key: value})
        with pytest.raises(dualar.ModelError) as error:
            Qwen3Layout.read(damaged, source="here")
        assert expected in str(error.value) and "here" in str(error.value)
