"""Make the corpus: the domain's sentences spoken by Debian's `flite`, voice `slt`.

    python -m training.data --out DIR [--count 7000]

Writes DIR/train.pcm (int16, all utterances end to end, 16 kHz), DIR/train.json (texts, and where each begins), the same
for the held-out phrases, and DIR/align.json (which word is spoken when, as `align.py` has it). A run that was stopped
goes on. Leaves codes to `train_codec.py`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

from training.align import align, lexicon
from training.domain import held_out, training_sentences, words

SAMPLE_RATE = 16000
LEAD, TAIL = int(0.08 * SAMPLE_RATE), int(0.16 * SAMPLE_RATE)  # of the silence that is kept around the speech
SILENCE = 200  # of 32767: below it for good is silence

Int16 = npt.NDArray[np.int16]


def speak(text: str, *, voice: str = "slt") -> Int16:
    """`text` by flite, int16 [n] at 16 kHz, its silence cut to LEAD and TAIL."""
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        subprocess.run(["flite", "-voice", voice, "-t", text, "-o", file.name], check=True)
        samples, rate = soundfile.read(file.name, dtype="int16")
    if rate != SAMPLE_RATE:
        raise ValueError(f"[flite] expected {SAMPLE_RATE} Hz, got {rate}")
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > SILENCE)
    return samples[max(0, loud[0] - LEAD) : loud[-1] + TAIL]


def write_corpus(folder: Path, name: str, texts: list[str]) -> None:
    """Speak `texts` into `name`.pcm and `name`.json; what an earlier run has spoken is kept."""
    index, sound = folder / f"{name}.json", folder / f"{name}.pcm"
    starts = [0]
    if index.exists():
        content = json.loads(index.read_text())
        if content["texts"] != texts[: len(content["texts"])]:
            raise ValueError(f"[{index}] expected the first of these texts, got others: use another folder")
        starts = content["starts"]
    started, first = time.monotonic(), len(starts) - 1
    with sound.open("r+b" if first else "wb") as file:
        file.seek(2 * starts[-1])
        for i, text in enumerate(texts[first:], first + 1):
            clip = speak(text)
            file.write(clip.tobytes())
            starts.append(starts[-1] + len(clip))
            if i % 500 == 0 or i == len(texts):
                file.flush()
                index.write_text(json.dumps({"texts": texts[:i], "starts": starts}))
                seconds = time.monotonic() - started
                print(
                    f"{name}: {i} of {len(texts)} utterances, {starts[-1] / SAMPLE_RATE:.0f} s of speech, "
                    f"took {seconds:.0f} s",
                    flush=True,
                )


class Corpus:
    """What `write_corpus` wrote: `texts`, and `audio(i)` -> float32 [n] in -1..1."""

    def __init__(self, folder: Path, name: str = "train") -> None:
        content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
        self.texts: list[str] = content["texts"]
        self.starts: list[int] = content["starts"]
        self._samples = np.memmap(folder / f"{name}.pcm", np.int16, "r")

    def __len__(self) -> int:
        return len(self.texts)

    def audio(self, i: int) -> npt.NDArray[np.float32]:
        return self._samples[self.starts[i] : self.starts[i + 1]].astype(np.float32) / 32768


def write_alignment(folder: Path) -> None:
    """Write align.json for the training corpus; what an earlier run has aligned is kept."""
    corpus, path = Corpus(folder), folder / "align.json"
    result: list[list[int]] = json.loads(path.read_text()) if path.exists() else []
    known, started = lexicon(words()), time.monotonic()
    for i in range(len(result), len(corpus)):
        seconds = (corpus.starts[i + 1] - corpus.starts[i]) / SAMPLE_RATE
        result.append(align(corpus.texts[i], seconds, LEAD / SAMPLE_RATE, known))
        if len(result) % 1000 == 0 or len(result) == len(corpus):
            path.write_text(json.dumps(result))
            print(f"{len(result)} utterances aligned, took {time.monotonic() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=7000)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    write_corpus(options.out, "held_out", held_out())
    write_corpus(options.out, "train", training_sentences(options.count))
    write_alignment(options.out)


if __name__ == "__main__":
    main()
