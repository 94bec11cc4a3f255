"""The parts of a frame, to be timed, and what is told of their times.

Owns which calls stand for a frame of each part, how many bytes they read at least, the bars of `dualar bench
--compare`, and the one line of `dualar info`. Leaves timing in turns to `bench.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualar._native import ModelFile
    from dualar.engine import Engine

CODEC_FRAMES = 8  # decoded at once while the codec is timed
_POSITIONS = 128  # in the cache while a Slow-AR step is timed
_TRIES = 3  # of each part, for one line
_WIDTH = 40  # of a bar, in characters


def frame_parts(engine: Engine) -> dict[str, Callable[[], object]]:
    """A call for each part that the file has: "slow_ar" and "fast_ar" take one frame, "codec" CODEC_FRAMES."""
    return {**_model_parts(engine), **_codec_parts(engine)}


def frame_seconds(engine: Engine) -> float | None:
    """How long a frame sounds; None for a file without a codec."""
    from dualar import ModelError

    try:
        codec = engine.codec
    except ModelError:
        return None
    return float(codec.samples_per_frame / codec.sample_rate)


def least_bytes(engine: Engine, file: ModelFile) -> dict[str, int]:
    """Bytes of weights that a frame of the Slow-AR and of the Fast-AR reads at least: those of their layers. The
    Fast-AR's are read for each codebook but the first; heads and tables are left out."""
    from dualar import ModelError
    from dualar.convert.quantize import BLOCKS

    try:
        model = engine.model
    except ModelError:
        return {}
    fast, slow = engine.parts.family.model_parts
    read = {fast: 0, slow: 0}
    for name, kind, shape in file.tensors():
        part = engine.parts.family.part_of(name)
        if part in read and "layers." in name:
            values, size = BLOCKS[kind]
            read[part] += prod(shape) * size // values
    found = {"slow_ar": read[slow]}
    if model.has_fast_ar and model.num_codebooks > 1:
        found["fast_ar"] = read[fast] * (model.num_codebooks - 1)
    return found


def picture(found: dict[str, Any]) -> str:
    """Bars of the times of a frame, from what `dualar bench --json` prints. The full blocks of a bar are what reading
    the weights from memory takes at least, where that is known; weights that a cache keeps are read sooner. The last
    line is how long the frame sounds."""
    rows = [
        (title, found[f"{part}_ms_per_frame"], found.get(f"{part}_least_ms"))
        for title, part in (("Slow-AR", "slow_ar"), ("Fast-AR", "fast_ar"), ("Codec", "codec"))
        if found[f"{part}_ms_per_frame"] is not None
    ]
    rows.append(("Together", found["ms_per_frame"], None))
    if found["frame_ms"] is not None:
        rows.append(("Sounds for", found["frame_ms"], None))
    longest = max(ms for _, ms, _ in rows)
    lines = []
    for title, ms, least in rows:
        size = max(1, round(_WIDTH * ms / longest))
        full = size if least is None else min(size, round(_WIDTH * least / longest))
        bar = "\u2588" * full + "\u2591" * (size - full)
        told = f"{ms:.2f} ms"
        if least is not None:
            told += f", of which {least:.2f} to read weights" if least < ms else ", as fast as memory gives its weights"
        lines.append(f"{title:<11}{bar:<{_WIDTH}} {told}")
    return "\n".join(lines)


def verdict(engine: Engine) -> str | None:
    """Whether this machine makes speech faster than it is heard, in a line; None for a file that cannot speak. Takes as
    long as some frames do."""
    parts, sounds = frame_parts(engine), frame_seconds(engine)
    if sounds is None or "slow_ar" not in parts:
        return None
    spent = 0.0
    for name, run in parts.items():
        run()
        taken = []
        for _ in range(_TRIES):
            began = time.perf_counter()
            run()
            taken.append(time.perf_counter() - began)
        spent += min(taken) / (CODEC_FRAMES if name == "codec" else 1)
    factor = spent / sounds
    pace = "faster" if factor < 1 else "slower"
    count = f"{engine.threads} thread" + ("" if engine.threads == 1 else "s")
    return (
        f"{pace} than speech on this machine: {factor:.2g} s for a second of it, one text at a time, on {count} "
        "(a few frames, timed now; `dualar bench` measures)"
    )


def _model_parts(engine: Engine) -> dict[str, Callable[[], object]]:
    import numpy as np

    from dualar import ModelError

    try:
        model = engine.model
    except ModelError:  # codec tensors alone
        return {}
    positions = min(_POSITIONS, model.context_length - 1)
    if positions < 1:
        raise ValueError(f"[bench] expected a context of at least 2 positions, got {model.context_length}")
    session: Any = model.session(max_positions=positions + 1)
    column = np.zeros(1 + model.num_codebooks, np.int32)
    column[0] = model.semantic_begin_id
    session.prefill(engine.parts.family.blank_prompt(model, positions))
    hidden = np.zeros(model.hidden_size, np.float32)

    def slow() -> None:
        session.step(column)
        session.truncate(positions)

    def fast() -> None:
        session.fast_begin(hidden, 0)
        for _ in range(model.num_codebooks - 2):
            session.fast_step(0)

    runs: dict[str, Callable[[], object]] = {"slow_ar": slow}
    if model.has_fast_ar and model.num_codebooks > 1:
        runs["fast_ar"] = fast
    return runs


def _codec_parts(engine: Engine) -> dict[str, Callable[[], object]]:
    import numpy as np

    from dualar import ModelError

    try:
        codec = engine.codec
    except ModelError:
        return {}
    frames = np.zeros((codec.num_codebooks, CODEC_FRAMES), np.int32)
    return {"codec": lambda: codec.decode(frames)}
