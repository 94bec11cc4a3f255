"""Speed of Qwen3-TTS's autoregression: the talker's step and both paths of the code predictor, and how far these two
differ.

    python benchmarks/bench_qwen3.py [--type q8_0 f16] [--context 128] [--frames 200]

The models have random weights at the published 0.6B geometry, made on first use and then kept. Owns that geometry and
what is measured; leaves timing and printing to `report.py`, the file's layout to `dualar.convert`.
"""

from __future__ import annotations

import argparse
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import models
import numpy as np
import numpy.typing as npt
import report
from dualar import SamplingConfig, _core
from dualar.convert import qwen3_tts
from dualar.convert.gguf_writer import Tensor, write_gguf
from dualar.convert.plan import PIECE, Planned, Storage
from dualar.convert.quantize import to_bytes, type_of
from dualar.convert.settings import Settings
from dualar.families.qwen3_prompt import TalkerPrompt
from dualar.generation.steps import core_sampler
from dualar.gguf import qwen3_names

STEP, CACHED, RECOMPUTE = "talker step", "predictor frame, cached", "predictor frame, recompute"

_STACK = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
    "num_code_groups": 16,
}
CONFIG: dict[str, Any] = {
    "model_type": "qwen3_tts",
    "tokenizer_type": "qwen3_tts_tokenizer_12hz",
    "tts_model_type": "custom_voice",
    "tts_model_size": "0b6",
    "tts_pad_token_id": 151671,
    "tts_bos_token_id": 151672,
    "tts_eos_token_id": 151673,
    "talker_config": {
        **_STACK,
        "num_hidden_layers": 28,
        "vocab_size": 3072,
        "text_vocab_size": 151936,
        "text_hidden_size": 2048,
        "max_position_embeddings": 32768,
        "rope_scaling": {},
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_think_id": 2154,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
        "codec_language_id": {"english": 2050},
        "spk_id": {"ryan": 3061},
        "code_predictor_config": {**_STACK, "num_hidden_layers": 5, "vocab_size": 2048},
    },
}


POOL = np.random.default_rng(0).standard_normal(2 * PIECE, np.float32)
"""Normal numbers, of which each piece of a matrix is a part."""


def pieces(planned: Planned, kind: str) -> Iterator[npt.NDArray[np.uint8]]:
    """A tensor's bytes, some rows after the other: random values, the same for one name each time.

    Deviation 1 / sqrt(fan-in), so that a product keeps its input's scale; 2.5 times that for heads, 1 for tables.
    """
    rng = np.random.default_rng(zlib.crc32(planned.target.encode()))
    if len(planned.shape) == 1:
        noise = rng.standard_normal(planned.shape, np.float32) / np.float32(10)
        yield to_bytes(np.float32(1) + noise if "norm" in planned.target else noise, kind, name=planned.target)
        return
    rows, columns = planned.shape
    gain = 2.5 if planned.target in (qwen3_names.OUTPUT, qwen3_names.PREDICTOR_OUTPUT) else 1.0
    deviation = np.float32(1.0 if planned.storage is Storage.TABLE else gain / np.sqrt(columns))
    step = PIECE // columns
    for first in range(0, rows, step):
        size = min(step, rows - first) * columns
        start = int(rng.integers(POOL.size - size))
        values: npt.NDArray[np.float32] = POOL[start : start + size].reshape(-1, columns) * deviation
        yield to_bytes(values, kind, name=planned.target)


def random_tensors(plan: list[Planned], weight_type: str) -> list[Tensor]:
    """The planned tensors with random values, made when they are written."""

    def tensor(planned: Planned) -> Tensor:
        kind = type_of(planned.storage, planned.shape, weight_type)
        return Tensor(planned.target, planned.shape, kind, lambda: pieces(planned, kind))

    return [tensor(planned) for planned in plan]


def ensure(weight_type: str, *, folder: Path) -> Path:
    """The path of the model, made if it is not there."""
    path = folder / f"qwen3-tts-0.6b-{weight_type}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        metadata, plan = qwen3_tts.describe(Settings(CONFIG, source="the published geometry"))
        print(f"making {path}", flush=True)
        partial = folder / f"{path.name}.{os.getpid()}.partial"
        try:
            write_gguf(partial, metadata, random_tensors(plan, weight_type))
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def prompt_of(positions: int) -> TalkerPrompt:
    """A prompt of text and codec ids, with text to come."""
    rng = np.random.default_rng(positions)
    columns = np.full((17, positions), -1, np.int32)
    columns[0], columns[1] = rng.integers(150000, size=positions), rng.integers(2048, size=positions)
    return TalkerPrompt(columns, rng.integers(150000, size=100).astype(np.int32))


def frame_calls(
    session: _core.Session, prompt: Any, codes: npt.NDArray[np.int32]
) -> tuple[Callable[[], object], Callable[[], object], npt.NDArray[np.float32]]:
    """(a step behind the prompt, all further codes of a frame, the hidden state that these begin with)."""
    hidden = session.prefill(prompt).hidden
    if not np.isfinite(hidden).all():
        raise ValueError("[bench] expected a finite hidden state from the prefill, got NaN or inf")
    context, column = session.position, np.concatenate([codes[:1], codes])

    def step() -> None:
        session.step(column)
        session.truncate(context)

    def cached() -> None:
        session.fast_begin(hidden, int(codes[0]))
        for code in codes[1:-1]:
            session.fast_step(int(code))

    return step, cached, hidden


def parts(model: _core.Qwen3TTS, context: int) -> dict[str, Callable[[], object]]:
    """The parts of a frame behind so many positions."""
    session = model.session(max_positions=context + 1)
    codes = np.random.default_rng(1).integers(model.codebook_size, size=model.num_codebooks).astype(np.int32)
    step, cached, hidden = frame_calls(session, prompt_of(context), codes)

    def recompute() -> None:
        for book in range(1, len(codes)):
            session.fast_decode(hidden, codes[:book])

    return {STEP: step, CACHED: cached, RECOMPUTE: recompute}


def difference(model: _core.Qwen3TTS, frames: int) -> tuple[float, float, int]:
    """Of sampled frames, run through both paths: the largest difference of a logit, the largest logit, and how many
    codes the two would choose otherwise, greedily."""
    session, batch = model.session(max_positions=32 + frames), _core.Batch(model)
    main, residual = (core_sampler(SamplingConfig.hf(), residual=residual) for residual in (False, True))
    out = session.prefill(prompt_of(32))
    logits, hidden = out.logits[None], out.hidden[None]
    drawn: list[int] = []
    made: list[tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]] = []
    for step in range(frames):
        logits[0, -1] = -np.inf  # it does not end
        history = np.array(drawn, np.int32)
        drawn.append(main.draw(logits[0], seed=1, step=step, stream=0, history=history))
        codes, _, _ = batch.fast_frames([session], hidden, np.array(drawn[-1:], np.int32), [(residual, 1, step)])
        made.append((hidden[0], codes[0]))
        logits, hidden = batch.step([session], np.concatenate([codes[:, :1], codes], axis=1))
    largest = most = 0.0
    others = 0
    for given, codes in made:
        cached = session.fast_begin(given, int(codes[0]))
        for book in range(1, len(codes)):
            whole = session.fast_decode(given, codes[:book])
            largest = max(largest, float(np.abs(whole - cached).max()))
            most = max(most, float(np.abs(whole).max()))
            others += int(whole.argmax() != cached.argmax())
            if book < len(codes) - 1:
                cached = session.fast_step(int(codes[book]))
    return largest, most, others


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    p = argparse.ArgumentParser(description="Measure Qwen3-TTS's talker and code predictor.")
    p.add_argument("--type", nargs="+", default=["q8_0", "f16"], help="weight types (%(default)s)")
    p.add_argument("--context", type=int, default=128, help="positions before a step (%(default)s)")
    p.add_argument("--frames", type=int, default=0, help="compare the two paths on so many frames (%(default)s: none)")
    report.add_timing_options(p, rounds=9)
    models.add_folder_option(p)
    o = p.parse_args(arguments)
    report.use_threads(o.threads)
    loaded = {}
    for kind in o.type:
        file = _core.ModelFile(str(ensure(kind, folder=o.folder)))
        loaded[kind] = _core.Qwen3TTS(file, _core.Runtime(threads=o.threads))
    print(report.describe(threads=o.threads, warmups=o.warmups), flush=True)
    runs = {f"{kind}: {name}": run for kind in o.type for name, run in parts(loaded[kind], o.context).items()}
    seconds = report.interleave(runs, rounds=o.rounds, warmups=o.warmups, rest=o.rest)
    report.section(f"One frame, behind {o.context} positions, ms")
    print(report.table(report.TIMING_HEADER, [report.timing_row(n, v) for n, v in seconds.items()]))
    if o.frames:
        report.section(f"The two paths of the predictor on {o.frames} sampled frames")
        for kind in o.type:
            largest, most, others = difference(loaded[kind], o.frames)
            print(f"{kind}: largest difference of a logit {largest:.3g} (logits up to {most:.3g}), "
                  f"{others} of {o.frames * 15} greedy choices differ")  # fmt: skip


if __name__ == "__main__":
    main()
