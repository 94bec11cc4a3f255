"""How far the word times of the package's voice are from its teacher's own, and what finding them costs.

    python benchmarks/bench_word_times.py --data DATA --run RUN [MODEL] [--sentences 60] [--json]

DATA and RUN are the folders of the voice's training (`training/README.md`). The teacher spoke the sentences of the
first shard, of which the first 200 were not trained on, and said how long each phoneme takes. The model is given the
codes of that sound frame by frame, so that both mean the same sound; the words' starts and ends are then found as
`word_times=True` finds them. The teacher counts a pause, and the silence at the end, to the phoneme in front of it:
such a word ends where its sound, decoded from the codes, was last above SILENCE. Cost: a frame with word times beside
one without, in turn. Owns what is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import dualar
import numpy as np
import numpy.typing as npt
import report
from dualar.families.base import Style
from dualar.generation.word_times import WordPath

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from training.data import SAMPLE_RATE, UNIT
from training.shards import Quantization
from training.text import INVENTORY, PAUSES
from training.train_lm import HELD_BACK

SILENCE = -30.0  # dB beside the sentence's mean power, in windows of 10 ms
LEAST_PAUSE = 0.1  # seconds of silence at a word's end that are a pause and no closure of a stop


@dataclass(frozen=True)
class Said:
    """A sentence that the teacher spoke. words: (start, end) in seconds of each; codes int32 [N, T]."""

    text: str
    phonemes: str
    words: list[tuple[float, float]]
    codes: npt.NDArray[np.int32]


def word_spans(phonemes: str, durations: list[int], skipped: float) -> list[tuple[float, float]]:
    """(start, end) in seconds of each run of phonemes. durations: of the silence before, of each character and of the
    silence after, in UNIT; skipped: seconds cut at the start."""
    ends = [at * UNIT - skipped for at in accumulate(durations)]
    spans: list[tuple[float, float]] = []
    inside = False
    for i, character in enumerate(phonemes):
        spoken = character not in PAUSES
        if spoken and inside:
            spans[-1] = spans[-1][0], ends[i + 1]
        elif spoken:
            spans.append((ends[i], ends[i + 1]))
        inside = spoken
    return spans


def held_back(data: Path, run: Path, count: int) -> list[Said]:
    """Sentences that were not trained on, with the codes that the quantizer gives of the teacher's sound."""
    import torch

    quantization = Quantization.load(run / "quantizer.pt")
    found: list[Said] = []
    frame = character = 0
    with np.load(data / "0000.npz") as content:
        codes = quantization.codes(torch.from_numpy(content["analysis"])).numpy().astype(np.int32)
        durations = content["durations"].tolist()
        each = (content["texts"].tolist(), content["phonemes"].tolist(), content["skipped"], content["frames"])
        for text, phonemes, skipped, frames in list(zip(*each, strict=True))[:HELD_BACK]:
            own = durations[character : character + len(phonemes) + 2]
            if INVENTORY.issuperset(phonemes) and len(found) < count:
                spans = word_spans(phonemes, own, int(skipped) / SAMPLE_RATE)
                found.append(Said(text, phonemes, spans, np.ascontiguousarray(codes[:, frame : frame + int(frames)])))
            frame, character = frame + int(frames), character + len(phonemes) + 2
    return found


def without_silence(
    spans: list[tuple[float, float]], samples: npt.NDArray[np.float32], rate: int
) -> list[tuple[float, float]]:
    """The spans without the pause, or the silence at the end of all, behind a word."""
    window = rate // 100
    power = np.square(samples[: samples.size // window * window].reshape(-1, window)).mean(1)
    loud = np.flatnonzero(power > np.square(samples).mean() * 10 ** (SILENCE / 10)) / 100
    found = []
    for i, (start, end) in enumerate(spans):
        inside = loud[(loud >= start) & (loud < end)]
        last = inside[-1] + 0.01 if inside.size else end
        found.append((start, last if end - last >= LEAST_PAUSE or i == len(spans) - 1 else end))
    return found


def forced_words(engine: dualar.Engine, said: Said) -> list[tuple[float, float]]:
    """The same as the model hears it, given the codes of the teacher's sound."""
    codec, model, parts, codes = engine.codec, engine.model, engine.parts, said.codes
    prompt = parts.family.build_prompt(said.text, model=model, tokenizer=parts.tokenizer, voice=None, style=Style())
    found = parts.family.word_map(said.text, tokenizer=parts.tokenizer, samples_per_frame=codec.samples_per_frame)
    path = WordPath(found)
    session = model.session(max_positions=prompt.shape[1] + codes.shape[1])
    session.watch(*found.span(prompt.shape[1]))
    session.prefill(prompt)  # type: ignore[arg-type]  # a matrix: the package's voice is of the S2 family
    for frame in range(codes.shape[1]):
        path.add(session.alignment())
        session.step(np.concatenate([[model.semantic_begin_id + codes[0, frame]], codes[:, frame]]))
    rate = codec.sample_rate
    return [(word.sample_start / rate, word.sample_end / rate) for word in path.words(ended=True, codes=codes[0])]


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
    parser.add_argument("--data", type=Path, required=True, help="the shards of training/data.py")
    parser.add_argument("--run", type=Path, required=True, help="where the training left quantizer.pt")
    parser.add_argument("--sentences", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report.use_threads(1)
    errors, skipped = [], 0
    began = time.perf_counter()
    with dualar.load(options.model, threads=1) as engine:
        sentences = held_back(options.data, options.run, options.sentences)
        for said in sentences:
            if engine.spoken(said.text).phonemes != said.phonemes:  # the teacher read it otherwise
                skipped += 1
                continue
            found = forced_words(engine, said)
            if len(said.words) != len(found):  # one written word may be several spoken ones
                skipped += 1
                continue
            heard = without_silence(said.words, engine.codec.decode(said.codes), engine.codec.sample_rate)
            errors.append(1e3 * (np.array(found) - np.array(heard)))
        spent = cost(engine, [said.text for said in sentences[:10]])
    told: dict[str, object] = {"sentences": len(errors), "read otherwise": skipped}
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
