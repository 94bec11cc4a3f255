"""Two tiny checkpoints in the layouts of S2 Pro and S1-mini, converted, against the numbers of the published code.

Weights in float32. The published code's own sound in float32 is up to 7e-5 from float64, hence that tolerance.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.convert.model_file import convert
from dualar.convert.tiktoken_files import tiktoken_json
from dualar.gguf import names
from dualar.text.tokenizer import Tokenizer
from dualar.text.tokenizer_json import byte_symbols

FOLDER = Path(__file__).parents[1] / "fixtures" / "published"
AR: dict[str, Any] = {"atol": 5e-5, "rtol": 0}
AUDIO: dict[str, Any] = {"atol": 2e-4, "rtol": 0}


@dataclass(frozen=True)
class Case:
    """A checkpoint, converted and loaded, and what the published code makes of it."""

    name: str
    engine: Any
    arrays: dict[str, np.ndarray]

    def json(self, key: str) -> Any:
        return json.loads(str(self.arrays[key]))

    def voice(self, transcript: str) -> dualar.Voice:
        codec, model = self.engine.codec, self.engine.model
        return dualar.Voice(
            codes=self.arrays["reference_codes"],
            transcript=transcript,
            sample_rate=codec.sample_rate,
            codebook_size=model.codebook_size,
        )


@pytest.fixture(scope="module", params=["s2-like", "s1-like"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    path = tmp_path_factory.mktemp("published") / "model.gguf"
    convert(FOLDER / request.param, path, weight_type="f32")
    with np.load(FOLDER / f"{request.param}.npz") as arrays, dualar.load(path, threads=1) as engine:
        yield Case(request.param, engine, dict(arrays))


def test_config(case: Case) -> None:
    file = dualar._core.ModelFile(case.engine.path)
    config = case.json("config")
    for key, name in (
        (names.VOCAB_SIZE, "vocab_size"),
        (names.BLOCK_COUNT, "n_layer"),
        (names.HEAD_COUNT, "n_head"),
        (names.HEAD_COUNT_KV, "n_local_heads"),
        (names.KEY_LENGTH, "head_dim"),
        (names.EMBEDDING_LENGTH, "dim"),
        (names.FEED_FORWARD_LENGTH, "intermediate_size"),
        (names.ROPE_FREQ_BASE, "rope_base"),
        (names.RMS_EPSILON, "norm_eps"),
        (names.CONTEXT_LENGTH, "max_seq_len"),
        (names.TIE_WORD_EMBEDDINGS, "tie_word_embeddings"),
        (names.QKV_BIAS, "attention_qkv_bias"),
        (names.O_BIAS, "attention_o_bias"),
        (names.QK_NORM, "attention_qk_norm"),
        (names.CODEBOOK_SIZE, "codebook_size"),
        (names.NUM_CODEBOOKS, "num_codebooks"),
        (names.SEMANTIC_BEGIN_ID, "semantic_begin_id"),
        (names.SEMANTIC_END_ID, "semantic_end_id"),
        (names.SCALE_CODEBOOK_EMBEDDINGS, "scale_codebook_embeddings"),
        (names.NORM_FASTLAYER_INPUT, "norm_fastlayer_input"),
        (names.FAST_BLOCK_COUNT, "n_fast_layer"),
        (names.FAST_EMBEDDING_LENGTH, "fast_dim"),
        (names.FAST_HEAD_COUNT, "fast_n_head"),
        (names.FAST_HEAD_COUNT_KV, "fast_n_local_heads"),
        (names.FAST_HEAD_DIM, "fast_head_dim"),
        (names.FAST_FEED_FORWARD_LENGTH, "fast_intermediate_size"),
        (names.FAST_QKV_BIAS, "fast_attention_qkv_bias"),
        (names.FAST_QK_NORM, "fast_attention_qk_norm"),
        (names.FAST_O_BIAS, "fast_attention_o_bias"),
    ):
        assert file.get(key) == pytest.approx(config[name]), key


def test_logits_and_hidden(case: Case) -> None:
    arrays, model = case.arrays, case.engine.model
    session = model.session(max_positions=arrays["prompt"].shape[1] + arrays["forced"].shape[1])
    last = len(arrays["prefill_logits"])
    found = session.prefill(arrays["prompt"], all_positions=True, full_vocab=True)
    np.testing.assert_allclose(found.logits[-last:], arrays["prefill_logits"], **AR)
    np.testing.assert_allclose(found.hidden[-last:], arrays["prefill_hidden"], **AR)
    hidden = found.hidden[-1]
    for t, codes in enumerate(arrays["forced"].T):
        for j, want in enumerate(arrays["fast_logits"][t]):
            np.testing.assert_allclose(model.fast_decode(hidden, codes[: j + 1]), want, **AR)
        column = np.concatenate([[model.semantic_begin_id + codes[0]], codes]).astype(np.int32)
        found = session.step(column, full_vocab=True)
        np.testing.assert_allclose(found.logits, arrays["step_logits"][t], **AR)
        np.testing.assert_allclose(found.hidden, arrays["step_hidden"][t], **AR)
        hidden = found.hidden


def test_greedy_codes(case: Case) -> None:
    want = case.arrays["greedy"]
    sampling = dualar.SamplingConfig.fish(temperature=0)
    found = case.engine.generate(case.arrays["prompt"], max_new_tokens=40, sampling=sampling)
    np.testing.assert_array_equal(found.codes, want)
    assert (found.finish_reason == "end") == bool(case.arrays["greedy_ended"])


def test_codec(case: Case) -> None:
    arrays, codec = case.arrays, case.engine.codec
    np.testing.assert_allclose(codec.decode(arrays["codec_codes"]), arrays["codec_audio"], **AUDIO)
    found = codec.encode(arrays["codec_wav"], sample_rate=codec.sample_rate)
    np.testing.assert_array_equal(found, arrays["codec_encoded"])


def test_ids_of_texts(case: Case) -> None:
    tokenizer, spelled_out = case.engine.tokenizer, 0
    assert tokenizer.im_end_id == int(case.arrays["im_end"])
    for text, ids in case.json("texts"):
        found = tokenizer.encode_text(text)
        if tokenizer.control_ids.intersection(ids):  # a user's text never makes those here
            assert not tokenizer.control_ids.intersection(found) and tokenizer.decode(found) == text
            spelled_out += 1
        else:
            assert found == ids, text
    assert spelled_out == (6 if case.name == "s2-like" else 0)
    for text, ids in case.json("texts_special"):
        assert tokenizer.encode_template(text) == ids, text


def test_prompts(case: Case) -> None:
    cases = {"prompt": ["The kettle is on.", "What Anna says."]}
    if case.name == "s2-like":
        cases |= {f"prompt_{i}": found for i, found in enumerate(case.json("prompt_cases"))}
    for key, (text, transcript) in cases.items():
        found = case.engine.build_prompt(text, voice=None if transcript is None else case.voice(transcript))
        np.testing.assert_array_equal(found, case.arrays[key], err_msg=key)


def test_from_text_to_codes(case: Case) -> None:
    """With the voice in the prompt, whose beginning is computed apart and kept."""
    sampling = dualar.SamplingConfig.fish(temperature=0)
    options: Any = {"voice": case.voice("What Anna says."), "sampling": sampling, "max_new_tokens": 40}
    for _ in range(2):
        found = case.engine.synthesize("The kettle is on.", stall_guard=None, **options)
        np.testing.assert_array_equal(found.codes, case.arrays["greedy"])
    assert [entry.uses for entry in case.engine.prefix_cache.entries] == [2]


# ---------------------------------------------------------------------------------------------- S1-mini's tokenizer
def tiktoken_ids(piece: bytes, ranks: dict[bytes, int]) -> list[int]:
    """What tiktoken makes of a piece: the whole, else neighbours of lowest rank joined, the first of equals first."""
    if piece in ranks:
        return [ranks[piece]]
    parts = [piece[i : i + 1] for i in range(len(piece))]
    while True:
        joined = [(ranks[a + b], i) for i, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in ranks]
        if not joined:
            return [ranks[part] for part in parts]
        _, at = min(joined)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def test_the_merges_are_tiktokens() -> None:
    """Pieces of random letters, most of which are in no corpus, so that every merge is met."""
    import base64

    import tokenizers

    lines = (FOLDER / "s1-like" / "tokenizer.tiktoken").read_text().split("\n")
    ranks = {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in lines if line}
    inner = tokenizers.Tokenizer.from_str(tiktoken_json(FOLDER / "s1-like", vocab_size=640)).model
    symbols, rng = byte_symbols(), random.Random(0)
    longer = [token for token in ranks if len(token) > 1]
    for _ in range(3000):
        piece = b"".join(rng.choice(longer)[: rng.randint(1, 4)] for _ in range(rng.randint(1, 8)))
        found = [token.id for token in inner.tokenize("".join(symbols[byte] for byte in piece))]
        assert found == tiktoken_ids(piece, ranks), piece


@pytest.fixture
def files(tmp_path: Path) -> Callable[[str, str], Path]:
    """`files("tokenizer.tiktoken", content)` -> a folder of the tokenizer's files, one of them changed."""

    def write(name: str, content: str) -> Path:
        for file in ("tokenizer.tiktoken", "special_tokens.json"):
            shutil.copy(FOLDER / "s1-like" / file, tmp_path / file)
        (tmp_path / name).write_text(content, encoding="utf-8")
        return tmp_path

    return write


def test_lines_that_mean_nothing(files: Callable[[str, str], Path]) -> None:
    content = (FOLDER / "s1-like" / "tokenizer.tiktoken").read_text()
    want = Tokenizer.from_json(tiktoken_json(FOLDER / "s1-like", vocab_size=640))
    folder = files(
        "tokenizer.tiktoken", "\ufeff" + content.replace("AQ== 1\n", "AQ== 1\n= 9999\n\n").replace("\n", "\r\n")
    )
    found = Tokenizer.from_json(tiktoken_json(folder, vocab_size=640))
    assert found.encode_text("The kettle, 漢字!") == want.encode_text("The kettle, 漢字!")
    assert found.vocab_size == want.vocab_size


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("A=== 1", "a token in base64 and a rank"),
        ("AQ== one", "a token in base64 and a rank"),
        ("AQ==", "a token in base64 and a rank"),
        ("AQ== 1 2", "a token in base64 and a rank"),
        ("AQ== -1", "a rank from 0 on"),
        ("AQ== 99999999999", "a rank from 0 on"),
        ("AQ== 0", "each rank once"),
        ("AA== 1", "each rank once"),
        ("A" * 4000 + " 1", "1 to 1024 bytes"),
        ("!" * 2_000_000 + " 1", "characters"),
    ],
)
def test_damaged_ranks(line: str, words: str, files: Callable[[str, str], Path]) -> None:
    content = (FOLDER / "s1-like" / "tokenizer.tiktoken").read_text()
    folder = files("tokenizer.tiktoken", content.replace("AQ== 1", line))
    with pytest.raises(dualar.ModelError, match=f"tokenizer.tiktoken, line 2: .*{words}") as error:
        tiktoken_json(folder, vocab_size=640)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"<|pad|>": 522', '"<|pad|>": 523', "expected id 522 for '<|pad|>'.*got 523"),
        ('"<|pad|>": 522', '"<|pad|>": "522"', "expected id 522 for '<|pad|>'"),
        ('"<|pad|>": 522,', "", "expected id 522 for '<|im_start|>'"),
        ("{", "[", "JSON"),
    ],
)
def test_special_ids_that_do_not_follow(old: str, new: str, words: str, files: Callable[[str, str], Path]) -> None:
    content = (FOLDER / "s1-like" / "special_tokens.json").read_text()
    with pytest.raises(dualar.ModelError, match=words):
        tiktoken_json(files("special_tokens.json", content.replace(old, new, 1)), vocab_size=640)


def test_more_ids_than_the_model_has(files: Callable[[str, str], Path]) -> None:
    with pytest.raises(dualar.ModelError, match=r"from 0 to 629, .*got 630"):
        tiktoken_json(FOLDER / "s1-like", vocab_size=630)
    with pytest.raises(dualar.ModelError, match="got none"):
        tiktoken_json(files("tokenizer.tiktoken", "\n"), vocab_size=640)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDER / "s1-like", tmp_path / "x")
    (folder / "tokenizer.tiktoken").unlink()
    with pytest.raises(dualar.ModelError, match=r"tokenizer\.json, or tokenizer\.tiktoken and special_tokens\.json"):
        convert(folder, tmp_path / "x.gguf")
    shutil.copy(FOLDER / "s1-like" / "tokenizer.tiktoken", folder)
    (folder / "special_tokens.json").unlink()
    with pytest.raises(dualar.ModelError, match=r"special_tokens\.json"):
        convert(folder, tmp_path / "x.gguf")
