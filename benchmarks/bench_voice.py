"""How well the voice of training/ speaks: word errors of a free recogniser on phrases it was never trained on.

    python benchmarks/bench_voice.py [MODEL] [--seeds 1 2 3] [--phrases 60] [--json]

Beside the voice, the same recogniser hears the source (flite's own recording of each phrase, where `flite` is
installed) and the codec alone (that recording encoded and decoded). Also told: how many utterances end by themselves,
their length against the source's, peaks, and the real-time factor. Needs `pip install dualar[test]`. Owns what is
measured; leaves the phrases to `training/domain.py` and the recogniser to `training/recognise.py`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import dualar
import numpy as np
import numpy.typing as npt
import report

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from training.data import SAMPLE_RATE, speak
from training.domain import held_out, training_sentences
from training.recognise import Recogniser, bigram_model, error_rate

Float32 = npt.NDArray[np.float32]


@dataclass
class Heard:
    """Of one speaker: each phrase with the words heard, and what is told of the sound."""

    name: str
    pairs: list[tuple[str, list[str]]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    ended: int = 0
    peak: float = 0.0
    finite: bool = True
    factors: list[float] = field(default_factory=list)

    def add(self, recogniser: Recogniser, text: str, samples: Float32) -> None:
        self.pairs.append((text, recogniser.words(samples)))
        self.seconds.append(len(samples) / SAMPLE_RATE)
        self.peak = max(self.peak, float(np.abs(samples).max()))
        self.finite = self.finite and bool(np.isfinite(samples).all())

    def summary(self, source: Heard | None) -> dict[str, object]:
        """For people and for --json."""
        told: dict[str, object] = {
            "speaker": self.name,
            "word error rate": round(100 * error_rate(self.pairs), 1),
            "peak": round(self.peak, 2),
            "finite": self.finite,
        }
        if self.factors:
            told["ended"] = f"{self.ended} of {len(self.pairs)}"
            low, middle, high = (round(float(q), 3) for q in np.quantile(self.factors, (0.25, 0.5, 0.75)))
            told["real-time factor"] = f"{middle} ({low}-{high})"
        if source is not None and self is not source:
            lengths = np.tile(source.seconds, len(self.seconds) // len(source.seconds))
            ratios = np.array(self.seconds) / lengths
            told["length beside the source"] = round(sum(self.seconds) / float(lengths.sum()), 2)
            told["within 30 %"] = f"{int((abs(ratios - 1) <= 0.3).sum())} of {len(ratios)}"
        return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="a GGUF file; default: the voice in the package")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--phrases", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    phrases = held_out()[: options.phrases]
    report.use_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "domain.arpa"
        model.write_text(bigram_model(training_sentences(3000)))
        recogniser = Recogniser(model)
    heard: list[Heard] = []
    source = None
    with dualar.load(options.model, threads=options.threads) as engine:
        if shutil.which("flite") is not None:
            source, alone = Heard("source (flite slt)"), Heard("codec alone")
            for text in phrases:
                samples = speak(text).astype(np.float32) / 32768
                source.add(recogniser, text, samples)
                codes = engine.codec.encode(samples, sample_rate=SAMPLE_RATE)
                alone.add(recogniser, text, engine.codec.decode(codes))
            heard += [source, alone]
        voice = Heard(f"voice, seeds {' '.join(map(str, options.seeds))}")
        for seed in options.seeds:
            for text in phrases:
                audio = engine.synthesize(text, seed=seed)
                voice.add(recogniser, text, audio.samples)
                voice.ended += audio.finish_reason == "end"
                if audio.timings.real_time_factor is not None:
                    voice.factors.append(audio.timings.real_time_factor)
        heard.append(voice)
    told = [one.summary(source) for one in heard]
    if options.json:
        print(json.dumps(told, indent=2))
        return
    print(report.describe(threads=options.threads, warmups=0, extra={"model": str(options.model or "the package's")}))
    for line in told:
        print(", ".join(f"{key}: {value}" for key, value in line.items()))


if __name__ == "__main__":
    main()
