"""The trainer of the voice for any English sentence: texts, tokenizer, alignment, batches, the engine's own prompt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dualar
import numpy as np
import pytest
from dualar.gguf import names
from dualar.runtime import open_file
from dualar.text.english import EnglishFrontend
from dualar.text.english.words import PHONEMES
from fixtures.quantizer import saved_quantizer

from training.lexicon import cmu_entries, entries, from_arpabet, is_derived
from training.text import CONSONANTS, INVENTORY, VOWELS, build_tokenizer, spoken_tokens, token_starts
from training.texts import WORDNET, number, year


def test_numbers_are_said_as_the_front_end_says_them() -> None:
    assert [number(n) for n in (7, 85, 300, 7016, 2000001)] == [
        "seven", "eighty-five", "three hundred", "seven thousand sixteen", "two million one",
    ]  # fmt: skip
    assert [year(n) for n in (1905, 2005, 2010, 1900)] == [
        "nineteen oh five", "two thousand five", "twenty ten", "nineteen hundred",
    ]  # fmt: skip


@pytest.mark.skipif(not WORDNET.exists(), reason="needs Debian's wordnet-base")
def test_a_longer_corpus_begins_with_a_shorter_one() -> None:
    from training.texts import LONGEST, sentences

    texts = sentences(600)
    assert sentences(900)[:600] == texts and len(set(texts)) == 600
    assert all(text[-1] in ".?!" for text in texts)
    assert max(len(text.split()) for text in texts) <= LONGEST + 5  # a template's numbers are of several words


def test_the_lexicon_is_made_of_the_lists() -> None:
    gold = {"live": {"DEFAULT": "lˈIv", "VERB": "lˈɪv", "NOUN": "lˈIv"}, "can": {"DEFAULT": "kæn", "None": "kˈæn"}, "ADD": {"DEFAULT": "ˈæd", "NOUN": None}}  # fmt: skip # noqa: E501
    silver = {"water": "wˈɔɾəɹ", "live": "x", "odd": "ö"}
    assert entries(gold, silver) == {"live": ["lˈIv", "VERB=lˈɪv"], "can": ["kæn", "END=kˈæn"], "water": ["wˈɔTəɹ"]}
    said = {
        "JH EH1 R IY0": "ʤˈɛɹi",
        "B ER1 D": "bˈɜɹd",
        "W AO1 T ER0": "wˈɔTəɹ",
        "B AH1 T AH0 N": "bˈʌTᵊn",
        "EY1 JH AH0 Z": "ˈAʤᵻz",
    }
    assert {sounds: from_arpabet(sounds.split()) for sounds in said} == said
    assert cmu_entries("a AH0\na(2) EY1\n;;; note\nx's EH1 K S\n") == {"a": ["ə"]}
    assert is_derived("belongs", {"belong"}) and is_derived("making", {"make"}) and not is_derived("bus", {"bu"})


def test_each_phoneme_is_one_token() -> None:
    tokenizer = dualar.Tokenizer(build_tokenizer(512))
    text = "ðə kwˈɪk bɹˈWn fˌɑks, ʤˈʌmps; ˈOvəɹ — ðə lˈAzi dˈɔɡ…"
    ids = tokenizer.encode_text(text)
    assert tokenizer.decode(ids) == text
    owners = token_starts(text)
    assert len(ids) == owners[-1] + 1 == len(text) - sum(c in "ˈˌ" for c in text)
    assert [tokenizer.decode([i]) for i in ids[:8]] == ["ð", "ə", " ", "k", "w", "ˈɪ", "k", " "]
    assert INVENTORY >= PHONEMES  # whatever the front end says has tokens that were trained
    for phoneme in VOWELS + CONSONANTS:
        assert len(tokenizer.encode_text(phoneme)) == 1
    spoken = EnglishFrontend().speak("Every 5th word, said at once!").phonemes
    assert len(tokenizer.encode_text(spoken)) == token_starts(spoken)[-1] + 1


def test_the_token_that_each_frame_speaks() -> None:
    # silence 2, "a" 2, the stress 1 and "I" 3, silence 2 units of 25 ms; frames of 50 ms
    assert spoken_tokens("tˈI", [2, 2, 1, 3, 2], 0.0, 5, unit=0.025, frame=0.05) == [0, 0, 1, 1, 2]
    assert spoken_tokens("tˈI", [2, 2, 1, 3, 2], 0.05, 4, unit=0.025, frame=0.05) == [0, 1, 1, 2]


def test_batches_are_the_engines_prompts_and_the_codes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="pip install dualar[train]")
    from training.dual_ar import DualAR, DualARConfig
    from training.shards import Spoken
    from training.train_lm import Examples, Prompts, losses

    prompts = Prompts(build_tokenizer(512))
    examples = Examples(prompts, codebook_size=512, noise=0)
    codes = torch.arange(18, dtype=torch.int16).view(6, 3)
    examples.add([Spoken("tˈI", codes, [0, 1, 2])])
    columns, active, target, guide = examples.draw()
    engines = dualar.build_prompt(
        "tˈI", tokenizer=dualar.Tokenizer(build_tokenizer(512)), num_codebooks=6, codebook_size=512,
        semantic_begin_id=prompts.semantic_begin,
    )  # fmt: skip
    length = engines.shape[1]
    assert columns[0, :, :length].tolist() == engines.tolist() and length == len(prompts.ids("tˈI"))
    assert columns[0, 1:, length : length + 3].tolist() == codes.tolist()
    assert columns[0, 0, length : length + 3].tolist() == (codes[0].long() + prompts.semantic_begin).tolist()
    assert active[0].nonzero()[:, 0].tolist() == list(range(length - 1, length + 3))
    assert target[0, :, length - 1 : length + 2].tolist() == codes.tolist() and target[0, 0, length + 2] == 512
    first = len(prompts.head)
    assert guide[0, length - 1 : length + 3].tolist() == [first, first + 1, first + 2, first + 2]
    config = DualARConfig(vocab_size=prompts.vocab_size, semantic_begin_id=prompts.semantic_begin, dim=64, layers=4)
    terms = losses(DualAR(config), prompts, (columns, active, target, guide), fast_share=1)
    assert 5 < terms["main"].item() < 8 and 5 < terms["residual"].item() < 8


def test_a_run_becomes_a_model_file_that_says_any_sentence(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="pip install dualar[train]")
    from dualar.convert.model_file import convert

    from training.codec import Codec, CodecConfig
    from training.dual_ar import DualAR, DualARConfig
    from training.export import write_checkpoint
    from training.train_lm import Prompts

    torch.manual_seed(0)
    tokenizer_json = build_tokenizer(512)
    prompts = Prompts(tokenizer_json)
    language = DualARConfig(
        vocab_size=-(-prompts.vocab_size // 32) * 32, semantic_begin_id=prompts.semantic_begin, dim=64, layers=1,
        feed_forward=64, fast_dim=32, fast_layers=1, fast_feed_forward=64,
    )  # fmt: skip
    codec = Codec(CodecConfig(decoder_dim=64))
    run = tmp_path / "run"
    run.mkdir()
    (run / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    (run / "lm.json").write_text(json.dumps(language.as_dict()))
    torch.save({"model": DualAR(language).state_dict()}, run / "lm.pt")
    torch.save(saved_quantizer(codec, silent_codes=[3, 99]), run / "quantizer.pt")
    write_checkpoint(run, tmp_path / "checkpoint")
    convert(tmp_path / "checkpoint", tmp_path / "voice.gguf", weight_type="f32")
    assert open_file(tmp_path / "voice.gguf").get(names.SILENT_CODES) == [3, 99]
    with dualar.load(tmp_path / "voice.gguf", threads=1) as engine:
        text = "Dr. Lee paid $5."
        ids = engine.build_prompt(text)
        assert isinstance(ids, np.ndarray) and ids[0].tolist() == prompts.ids(engine.spoken(text).phonemes)
        assert engine.synthesize(text, seed=1, max_new_tokens=4).samples.size == 4 * 640


SHARER = """
import sys
from pathlib import Path
import torch
from torch import nn
from training.workers import SharedRun, meet

folder, rank, workers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
model = nn.Linear(3, 2)
if workers > 1:
    meet(folder / "meet", rank, workers)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
run = SharedRun(folder / f"run{workers}.pt", {"": model}, minutes=1, optimizers=[optimizer])
inputs = torch.randn(2, 3)
while run.going_on() and run.step < 3:
    run.spent = 0.0
    mine = inputs[rank : rank + 1] if workers > 1 else inputs
    loss = model(mine).square().mean()
    run.update(loss, {})
print(torch.cat([p.detach().flatten() for p in model.parameters()]).tolist(), run.leads)
"""


def test_workers_that_share_a_run_have_the_weights_of_one(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="pip install dualar[train]")
    root = Path(__file__).parents[1]
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SHARER, str(tmp_path), str(rank), str(workers)],
            env=environment, stdout=subprocess.PIPE, text=True,
        )
        for rank, workers in ((0, 2), (1, 2), (0, 1))
    ]  # fmt: skip
    said = [process.communicate(timeout=120)[0].splitlines()[-1] for process in started]
    weights = [json.loads(line.rpartition(" ")[0]) for line in said]
    assert [line.rpartition(" ")[2] for line in said] == ["True", "False", "True"]
    assert weights[0] == weights[1]
    np.testing.assert_allclose(weights[0], weights[2], rtol=1e-5, atol=1e-6)
