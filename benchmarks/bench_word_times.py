"""How far the word times of the package's voice are from flite's own, and what finding them costs.

    python benchmarks/bench_word_times.py [MODEL] [--phrases 60] [--json]

flite, whose voice `slt` the package's was trained on, speaks each held-out phrase and says when each phone begins. Its
recording is encoded, and the model is given these codes frame by frame, so that both mean the same sound; the words'
starts and ends are then found as `word_times=True` finds them. Cost: a frame with word times beside one without, in
turn. Needs `flite` and `pip install dualar[test]`. Owns what is measured; leaves the phones of flite to
`training/align.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import dualar
import numpy as np
import report
from dualar.families.base import Style
from dualar.generation.word_times import WordPath

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from training.align import assign_words, lexicon, phones, units
from training.data import LEAD, SAMPLE_RATE, speak
from training.domain import held_out


def source_words(text: str) -> list[tuple[float, float]]:
    """(start, end) in seconds of each word of the text, as flite says, in the recording that `speak` makes."""
    listed = [unit for unit in units(text) if unit != ","]
    known = lexicon(listed)
    loud = [entry for entry in phones(text) if entry[0] != "pau"]
    owners = assign_words([p for p, _, _ in loud], [(p, i) for i, word in enumerate(listed) for p in known[word]])
    begin = loud[0][1] - LEAD / SAMPLE_RATE
    spans: dict[int, tuple[float, float]] = {}
    for owner, (_, start, end) in zip(owners, loud, strict=True):
        spans[owner] = spans.get(owner, (start - begin, 0.0))[0], end - begin
    return [spans[i] for i in sorted(spans)]


def forced_words(engine: dualar.Engine, text: str) -> list[tuple[float, float]]:
    """The same as the model hears it, given the codes of flite's recording."""
    codec, model, parts = engine.codec, engine.model, engine.parts
    samples = speak(text).astype(np.float32) / 32768
    codes = codec.encode(samples, sample_rate=SAMPLE_RATE)
    prompt = parts.family.build_prompt(text, model=model, tokenizer=parts.tokenizer, voice=None, style=Style())
    found = parts.family.word_map(text, tokenizer=parts.tokenizer, samples_per_frame=codec.samples_per_frame)
    path = WordPath(found)
    session = model.session(max_positions=prompt.shape[1] + codes.shape[1])
    session.watch(*found.span(prompt.shape[1]))
    session.prefill(prompt)  # type: ignore[arg-type]  # a matrix: the package's voice is of the S2 family
    for frame in range(codes.shape[1]):
        path.add(session.alignment())
        session.step(np.concatenate([[model.semantic_begin_id + codes[0, frame]], codes[:, frame]]))
    rate = codec.sample_rate
    return [(word.sample_start / rate, word.sample_end / rate) for word in path.words(ended=True)]


def cost(engine: dualar.Engine, texts: list[str]) -> dict[str, float]:
    """Milliseconds of a frame without and with word times, each the median over the texts, in turn."""
    spent: dict[bool, list[float]] = {False: [], True: []}
    for text in texts:
        for asked in (False, True, True, False):
            made = engine.synthesize(text, seed=1, word_times=asked)
            spent[asked].append(made.timings.ms_per_frame)
    without, asked_for = (float(np.median(spent[asked])) for asked in (False, True))
    return {"without": round(without, 4), "with": round(asked_for, 4), "more": round(asked_for / without - 1, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="a GGUF file; default: the voice in the package")
    parser.add_argument("--phrases", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report.use_threads(1)
    errors, skipped = [], 0
    began = time.perf_counter()
    with dualar.load(options.model, threads=1) as engine:
        phrases = held_out()[: options.phrases]
        for text in phrases:
            wanted, found = source_words(text), forced_words(engine, text)
            if len(wanted) != len(found):
                skipped += 1
                continue
            errors.append(1e3 * (np.array(found) - np.array(wanted)))
        spent = cost(engine, phrases[:10])
    told: dict[str, object] = {"phrases": len(errors), "phrases with another number of words": skipped}
    joined = np.concatenate(errors)
    for name, part in (("starts", joined[:, 0]), ("ends", joined[:, 1]), ("both", joined.ravel())):
        median, most, worst = (round(float(q)) for q in np.quantile(np.abs(part), (0.5, 0.95, 1)))
        bias = round(float(np.median(part)))
        told[name] = {"words": len(part), "median ms": median, "95 % ms": most, "worst ms": worst, "bias ms": bias,
                      "within 120 ms": round(float((np.abs(part) <= 120).mean()), 4)}  # fmt: skip
    told["ms a frame"] = spent
    if options.json:
        print(json.dumps(told, indent=2))
        return
    print(report.describe(threads=1, warmups=0, extra={"model": str(options.model or "the package's")}))
    for name, value in told.items():
        print(f"{name}: {value}")
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
