"""Make the corpus: the sentences of `texts.py` spoken by the teacher, `hibari`, in shards.

    python -m training.data --out DIR [--shards 90] [--every 2 --first 0]

Each shard, DIR/NNNN.npz, has 400 sentences: their sound (int16, 16 kHz, end to end), their phonemes, how long the
teacher speaks each of them, and the analysis of every frame that the codec's codes are made of. A run that was stopped
goes on with the next shard; `--every 2 --first 0` and `--first 1` are the two halves of the work, for two processes.

The teacher's network computes durations and pitch but does not give the durations out: `teacher_model` makes that node
one of its outputs. Leaves codes to `train_codec.py`.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from training.analysis import PITCH_WEIGHT, VOICING_WEIGHT, log_mel
from training.texts import sentences

SAMPLE_RATE = 16000
FRAME = 640  # samples of a code frame
SHARD = 400  # sentences
LEAD, TAIL = int(0.08 * SAMPLE_RATE), int(0.16 * SAMPLE_RATE)  # of the silence that is kept around the speech
SILENCE = 200 / 32768  # below it for good is silence
LONGEST = 11 * SAMPLE_RATE
DURATIONS = "/Clip_output_0"  # the node with each phoneme's duration, in UNIT
UNIT = 0.025  # s
PITCH_RATE = 80  # values of the teacher's pitch in a second

Int16 = npt.NDArray[np.int16]
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Utterance:
    """samples: a whole number of frames. durations: of each character of `phonemes`, and of the silence before the
    first and after the last one, in UNIT. skipped: samples of silence cut at the start. analysis [frames, F]."""

    phonemes: str
    durations: npt.NDArray[np.uint16]
    skipped: int
    samples: Int16
    analysis: npt.NDArray[np.float16]


def teacher_model(path: Path) -> Path:
    """The teacher's network with the durations as its last output, written to `path` if it is not there."""
    import hibari
    import onnx

    if not path.exists():
        model = onnx.load(str(Path(hibari.__file__).parent / "assets" / "hibari.onnx"))
        model.graph.output.append(onnx.helper.make_tensor_value_info(DURATIONS, onnx.TensorProto.FLOAT, None))
        partial = path.with_suffix(f".{os.getpid()}")
        onnx.save(model, str(partial))
        os.replace(partial, path)
    return path


def analyse(samples: Float32, pitch: Float32, skipped: int) -> npt.NDArray[np.float16]:
    """The frames' log-mel envelope, pitch and voicing, as `analysis.py` weighs them. pitch: the teacher's, in Hz,
    PITCH_RATE values a second from `skipped` samples before the first one on; below 60 Hz is unvoiced."""
    mel = log_mel(torch.from_numpy(samples), SAMPLE_RATE).numpy()
    places = (skipped + np.arange(len(samples) // 320) * 320 + 160) / SAMPLE_RATE * PITCH_RATE - 0.5
    known = np.flatnonzero(pitch > 60)
    if len(known):
        octave = np.interp(places, known, np.log2(pitch[known]))
        voiced = np.interp(places, np.arange(len(pitch)), (pitch > 60).astype(np.float64)) > 0.5
    else:
        octave, voiced = np.full(len(places), 7.6), np.zeros(len(places), bool)
    frames = len(samples) // FRAME
    parts = (mel, PITCH_WEIGHT * octave, VOICING_WEIGHT * voiced)
    return np.concatenate([part.reshape(frames, -1) for part in parts], 1).astype(np.float16)


class Teacher:
    """Speaks phonemes: `hibari` on one thread, resampled to 16 kHz."""

    def __init__(self, model: Path) -> None:
        import onnxruntime
        from hibari import Hibari

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.tts = Hibari()
        self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def phonemes(self, text: str) -> str | None:
        """As the teacher's own front end has them; None where it takes the text for several sentences."""
        found: list[str] = self.tts.phonemize(text)
        return "".join(c for c in found[0] if c in self.tts.vocab) if len(found) == 1 else None

    def speak(self, phonemes: str, rng: np.random.Generator) -> Utterance | None:
        """None for what is silent or too long."""
        import soxr
        from hibari import dsp

        ids = np.array([self.tts.ids(phonemes)], np.int64)
        *parts, durations = self.session.run(None, {"ids": ids, "speed": np.ones(1, np.float32)})
        parts = [part[0] for part in parts[:6]]
        pitch = np.array(parts[5], np.float32)
        samples = soxr.resample(dsp.synth(*parts, rng), dsp.SR, SAMPLE_RATE).astype(np.float32)
        loud = np.flatnonzero(np.abs(samples) > SILENCE)
        if len(loud) < SAMPLE_RATE // 10 or len(samples) > LONGEST:
            return None
        start = max(0, loud[0] - LEAD)
        count = (min(len(samples), loud[-1] + TAIL) - start) // FRAME * FRAME
        samples = np.clip(samples[start : start + count], -1, 1)
        return Utterance(phonemes, np.asarray(durations).round().astype(np.uint16).reshape(-1), int(start),
                         (samples * 32767).astype(np.int16), analyse(samples, pitch, int(start)))  # fmt: skip


def write_shard(path: Path, texts: list[str], teacher: Teacher, seed: int) -> float:
    """-> seconds of speech."""
    rng = np.random.default_rng(seed)
    kept: list[tuple[str, Utterance]] = []
    for text in texts:
        phonemes = teacher.phonemes(text)
        said = teacher.speak(phonemes, rng) if phonemes else None
        if said is not None:
            kept.append((text, said))
    content: dict[str, Any] = {
        "texts": np.array([text for text, _ in kept]),
        "phonemes": np.array([said.phonemes for _, said in kept]),
        "durations": np.concatenate([said.durations for _, said in kept]),
        "skipped": np.array([said.skipped for _, said in kept]),
        "frames": np.array([len(said.analysis) for _, said in kept]),
        "samples": np.concatenate([said.samples for _, said in kept]),
        "analysis": np.concatenate([said.analysis for _, said in kept]),
    }
    partial = path.with_suffix(f".{os.getpid()}.npz")
    np.savez(partial, **content)
    os.replace(partial, path)
    return len(content["samples"]) / SAMPLE_RATE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shards", type=int, default=90)
    parser.add_argument("--first", type=int, default=0, help="the first shard that this process makes")
    parser.add_argument("--every", type=int, default=1, help="it makes each so-many-th one")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    teacher = Teacher(teacher_model(options.out / "teacher.onnx"))
    texts = sentences(options.shards * SHARD)
    seconds, started = 0.0, time.process_time()
    for shard in range(options.first, options.shards, options.every):
        path = options.out / f"{shard:04d}.npz"
        if not path.exists():
            seconds += write_shard(path, texts[shard * SHARD : (shard + 1) * SHARD], teacher, shard)
            print(
                f"{path.name}: {seconds / 3600:.2f} hours, {(time.process_time() - started) / 60:.1f} min", flush=True
            )


if __name__ == "__main__":
    main()
