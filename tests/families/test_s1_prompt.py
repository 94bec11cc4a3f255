"""S1's prompt: turns one after the other, whose speaker they are, and which file takes it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.cli.main import app
from dualar.convert.model_file import convert
from dualar.convert.tiktoken_files import tiktoken_json
from dualar.families.base import Turn
from dualar.families.s1_prompt import build_interleaved_prompt
from dualar.gguf import names
from dualar.text.tokenizer import Tokenizer
from dualar.voices.voice import Reference
from fixtures.gguf_raw import STRING, Key, RawGguf, string
from s2_engine import s2_prompt
from typer.testing import CliRunner

FOLDER = Path(__file__).parents[1] / "fixtures" / "published"
S1 = Tokenizer.from_json(tiktoken_json(FOLDER / "s1-like", vocab_size=640))
N, C, BEGIN = 10, 96, 535
CODES = np.arange(3 * N).reshape(N, 3)
OPEN, END = [531], [524]


def prompt(text: str, **options: Any) -> np.ndarray:
    return build_interleaved_prompt(
        text, tokenizer=S1, num_codebooks=N, codebook_size=C, semantic_begin_id=BEGIN, **options
    )


def turn(speaker: int, text: str) -> list[int]:
    return S1.encode_template(f"<|speaker:{speaker}|>") + S1.encode_text(text)


def spoken(codes: np.ndarray) -> list[int]:
    return [BEGIN + int(code) for code in codes[0]]


def test_text_alone() -> None:
    found = prompt("The kettle is on.")
    assert found[0].tolist() == OPEN + turn(0, "The kettle is on.")
    assert found.dtype == np.int32 and not found[1:].any()


def test_a_voice_and_earlier_turns_are_turns() -> None:
    history = [Turn("Two.", CODES + 1), Turn("<|speaker:2|>Three.", CODES + 2)]
    found = prompt("Four.", reference=Reference(CODES, "One."), history=history)
    want = OPEN + turn(0, "One.") + spoken(CODES) + END
    want += turn(0, "Two.") + spoken(CODES + 1) + END + turn(2, "Three.") + spoken(CODES + 2) + END
    assert found[0].tolist() == want + turn(0, "Four.")
    columns = np.flatnonzero((found[0] >= BEGIN) & (found[0] < BEGIN + C))
    np.testing.assert_array_equal(found[1:, columns], np.hstack([CODES, CODES + 1, CODES + 2]))
    assert not np.delete(found, columns, axis=1)[1:].any()


@pytest.mark.parametrize(
    ("text", "speaker", "words"),
    [
        ("<|speaker:1|>Hi.", 1, "Hi."),
        ("<|speaker:12|> Hi.", 12, " Hi."),
        (" \n<|speaker:1|>Hi.", 1, "Hi."),
        ("<|speaker:1|> <|speaker:3|>Hi.", 3, "Hi."),
        ("<|speaker:x|>Hi.", 0, "<|speaker:x|>Hi."),
        ("<|im_end|>Hi.", 0, "<|im_end|>Hi."),
        ("e\u0301\x00\r\n.", 0, "é\n."),
    ],
)
def test_speakers(text: str, speaker: int, words: str) -> None:
    assert prompt(text)[0].tolist() == OPEN + turn(speaker, words)
    found = prompt("x", reference=Reference(CODES, text))[0].tolist()
    assert found == OPEN + turn(speaker, words) + spoken(CODES) + END + turn(0, "x")


@pytest.mark.parametrize("text", ["Hi.<|speaker:1|>You.", "<|speaker:1|>Hi.<|speaker:1|>You.", "Hi.<|speaker:0|>"])
def test_a_turn_is_one_speakers(text: str) -> None:
    words = r"\[{}\] expected one speaker's turn, .*got <\|speaker:[01]\|> within it"
    with pytest.raises(ValueError, match=words.format("text")):
        prompt(text)
    with pytest.raises(ValueError, match=words.format("reference transcript")):
        prompt("x", reference=Reference(CODES, text))
    with pytest.raises(ValueError, match=words.format("history 1 text")):
        prompt("x", history=[Turn("a", CODES), Turn(text, CODES)])


@pytest.mark.parametrize("text", ["", " \n", "<|speaker:0|>", "<|speaker:0|> "])
def test_nothing_to_speak(text: str) -> None:
    for options in ({}, {"reference": Reference(CODES, text)}, {"history": [Turn(text, CODES)]}):
        with pytest.raises(ValueError, match="expected something to speak"):
            prompt("x" if options else text, **options)


@pytest.mark.parametrize("codes", [CODES[:-1], CODES + C, CODES.astype(float), CODES[:, :0]])
def test_bad_codes(codes: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"\[reference codes\]"):
        prompt("x", reference=Reference(codes, "y"))
    with pytest.raises(ValueError, match=r"\[history 0 codes\]"):
        prompt("x", history=[Turn("y", codes)])


# ------------------------------------------------------------------ which file takes it
@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("s1") / "model.gguf"
    convert(FOLDER / "s1-like", path, weight_type="f32")
    return path


@pytest.fixture
def with_key(model: Path, tmp_path: Path) -> Callable[[str | None], Path]:
    """`with_key("chat")` -> the model's file with another prompt in it; None: with none."""

    def write(value: str | None) -> Path:
        raw = RawGguf.parse(model.read_bytes())
        raw.keys = [key for key in raw.keys if key.name != names.PROMPT.encode()]
        if value is not None:
            raw.keys.append(Key(names.PROMPT.encode(), STRING, string(value)))
        (tmp_path / "x.gguf").write_bytes(raw.write())
        return tmp_path / "x.gguf"

    return write


def opening(path: Path) -> str:
    with dualar.load(path, threads=1) as engine:
        return engine.tokenizer.decode(s2_prompt(engine, "Hi.")[0].tolist())


def named(path: Path) -> str:
    result = CliRunner().invoke(app, ["info", str(path)])
    assert result.exit_code == 0, result.output
    return next(line for line in result.stdout.splitlines() if line.startswith("Prompt "))


def test_the_file_tells(model: Path, with_key: Callable[[str | None], Path]) -> None:
    assert opening(model) == "<|interleave|><|speaker:0|>Hi."
    assert "S1" in named(model)
    path = with_key(None)  # as other converters leave it: the tokenizer tells
    assert opening(path) == "<|interleave|><|speaker:0|>Hi." and "S1" in named(path)
    path = with_key("chat")
    assert opening(path).startswith("<|im_start|>system\n") and "S2" in named(path)
    with pytest.raises(dualar.ModelError, match=r"\[dualar\.prompt\] expected chat or interleave in .*, got 'x'"):
        dualar.load(with_key("x"), threads=1)


def test_published_s2_is_a_chat(tmp_path: Path) -> None:
    convert(FOLDER / "s2-like", tmp_path / "x.gguf", weight_type="f32")
    assert dualar._core.ModelFile(str(tmp_path / "x.gguf")).get(names.PROMPT) == "chat"
    assert "S2" in named(tmp_path / "x.gguf")


def test_s2_saved_again_flat_is_a_chat(tmp_path: Path) -> None:
    """What the published code saves of an S2 model has S1's config, and S2's tokenizer."""
    folder = shutil.copytree(FOLDER / "s2-like", tmp_path / "s2")
    nested = json.loads((folder / "config.json").read_text())
    text, audio = nested["text_config"], nested["audio_decoder_config"]
    config = {**text, "model_type": "dual_ar", "scale_codebook_embeddings": True, "norm_fastlayer_input": True}
    config |= {"codebook_size": audio["vocab_size"], "num_codebooks": audio["num_codebooks"]}
    config |= {"n_fast_layer": audio["n_layer"], "fast_attention_qk_norm": False}
    (folder / "config.json").write_text(json.dumps(config))
    convert(folder, tmp_path / "flat.gguf", weight_type="f32")
    convert(FOLDER / "s2-like", tmp_path / "nested.gguf", weight_type="f32")
    assert (tmp_path / "flat.gguf").read_bytes() == (tmp_path / "nested.gguf").read_bytes()


def test_a_tokenizer_without_the_opening(with_key: Callable[[str | None], Path]) -> None:
    tokenizer = json.loads(tiktoken_json(FOLDER / "s1-like", vocab_size=640))
    tokenizer["added_tokens"][11]["content"] = "<|outerleave|>"
    path = with_key("interleave")
    (path.parent / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(dualar.ModelError, match=r"expected the control token <\|interleave\|>"):
        dualar.load(path, threads=1)


# ------------------------------------------------------------------ long texts
@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[Any]:
    with dualar.load(model, threads=1) as loaded:
        yield loaded


class Asked:
    """What an engine's family is asked to build."""

    def __init__(self, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.prompts: list[tuple[str, list[str]]] = []
        build = engine.parts.family.build_prompt

        def watched(text: str, **options: Any) -> Any:
            self.prompts.append((text, [turn.text for turn in options["history"]]))
            return build(text, **options)

        monkeypatch.setattr(engine.parts.family, "build_prompt", watched)


TEXT = "Before. <|speaker:1|>The kettle is on. Do we have milk? <|speaker:0|>None. <|speaker:1|>So be it."
SAID = ["Before.", "<|speaker:1|>The kettle is on. Do we have milk?", "<|speaker:0|>None.", "<|speaker:1|>So be it."]
ENDING = dualar.SamplingConfig.fish(temperature=1.5, top_p=1.0, top_k=0)  # a model of random weights ends by chance


@pytest.mark.parametrize("rows", [1, 3])
def test_a_long_text_is_spoken_turn_by_turn(engine: Any, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    asked = Asked(engine, monkeypatch)
    config = dualar.NarrationConfig(piece_size=20, rows=rows, context_tokens=2000)
    told = engine.narrate(TEXT, config=config, max_new_tokens=1000, sampling=ENDING, seed=1, stall_guard=None)
    assert "".join(piece.text for piece in told.pieces) == TEXT and not told.failed
    assert [text for text, history in asked.prompts if not history][: len(SAID)] == SAID
    for i, said in enumerate(SAID[1:], 1):
        assert (said, SAID[:i] if rows == 1 else SAID[:1]) in asked.prompts


def test_several_speakers_at_once_are_refused(engine: Any) -> None:
    with pytest.raises(ValueError, match="use narrate"):
        engine.synthesize(TEXT)
    with pytest.raises(ValueError, match=r"\[instruct\] expected none"):
        engine.synthesize("Hi.", instruct="softly")
