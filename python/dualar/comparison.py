"""How far two files of one model are apart: what a quantized one lost, part by part.

Owns `compare` and its measures. Leaves the files, the prompts and the computing to the engines.

Both files are given the same prompts and, frame by frame, the same codes (which the first one made), so that every
difference is one of a single step and none grows out of an earlier choice. KL(A || B), in nats, is the sum over the
codes of p_A (log p_A - log p_B), of the untempered softmax; top-1 agreement is how often both find the same code the
likeliest. The codecs decode these codes too: SNR is the energy of A's sound over that of the difference, in dB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from dualar._native import _core
from dualar.engine import Engine
from dualar.speech.request import StyleOptions

Float32 = npt.NDArray[np.float32]

DEFAULT_TEXTS = (
    "Seven three nine, turn on the kitchen light.",
    "It is half past four on Monday.",
    "Set the timer to twenty five minutes.",
    "Good morning, the meeting is on the third of May.",
    "Play the next song, please.",
    "Turn off the fan at ten fifteen.",
)
"""What is compared unless texts are given: sentences that the package's voice knows too."""


@dataclass(frozen=True, kw_only=True)
class PartComparison:
    """One kind of code. kl: mean over the choices, in nats; worst: the largest; agreement: share of equal top-1."""

    part: str
    choices: int
    kl: float
    worst: float
    agreement: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What `compare` finds.

    frames: how many were made, of all texts. parts: the main codes, all further ones together, then each codebook by
    itself. snr_db: of the codecs' sound; None where a file has no codec, inf where the sound is the same.
    """

    texts: int
    frames: int
    parts: tuple[PartComparison, ...]
    snr_db: float | None


@dataclass
class _Choices:
    kl: list[float] = field(default_factory=list)
    same: int = 0

    def add(self, a: Float32, b: Float32, where: str) -> None:
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            raise _core.ModelError(f"[compare] expected finite logits of {where}, got NaN or an infinity")
        p, q = _log_softmax(a), _log_softmax(b)
        self.kl.append(max(0.0, float((np.exp(p) * (p - q)).sum())))
        self.same += int(np.argmax(a)) == int(np.argmax(b))

    def told(self, part: str) -> PartComparison:
        count = len(self.kl)
        return PartComparison(
            part=part, choices=count, kl=math.fsum(self.kl) / count, worst=max(self.kl), agreement=self.same / count
        )


def compare(
    a: Engine,
    b: Engine,
    texts: Sequence[str] = DEFAULT_TEXTS,
    *,
    seed: int = 0,
    on_text: Callable[[int, int], object] | None = None,
    **style: Unpack[StyleOptions],
) -> Comparison:
    """Measure how far B is from A on these texts, the i-th spoken by A with the seed `seed` + i.

    style: as for `Engine.build_prompt`. on_text is called with (texts done, of all). Errors: ValueError for no texts,
    texts that the models do not take, and files that are not of one model (another family, number of codebooks or set
    of codes); ModelError for logits that are not finite.
    """
    if not texts:
        raise ValueError("[compare] expected at least one text, got none")
    _require_same_kind(a, b)
    books = a.model.num_codebooks
    choices = [_Choices() for _ in range(books)]
    frames, energy, error = 0, 0.0, 0.0
    has_codecs = a.parts.found_codec is not None and b.parts.found_codec is not None
    for number, text in enumerate(texts):
        prompt = a.build_prompt(text, **style)
        codes = a.generate(prompt, seed=seed + number).codes
        _force(a, b, prompt, b.build_prompt(text, **style), codes, choices)
        frames += codes.shape[1]
        if has_codecs and codes.shape[1]:
            sound = a.codec.decode(codes).astype(np.float64)
            difference = sound - b.codec.decode(codes)
            energy, error = energy + float(sound @ sound), error + float(difference @ difference)
        if on_text is not None:
            on_text(number + 1, len(texts))
    parts = [choices[0].told("main codes")]
    further = [choice for choice in choices[1:] if choice.kl]
    if further:
        together = _Choices([kl for one in further for kl in one.kl], sum(one.same for one in further))
        parts.append(together.told("further codes"))
        parts += [one.told(f"codebook {book}") for book, one in enumerate(further, 1)]
    snr = None if not has_codecs or energy == 0 else math.inf if error == 0 else 10 * math.log10(energy / error)
    return Comparison(texts=len(texts), frames=frames, parts=tuple(parts), snr_db=snr)


def _require_same_kind(a: Engine, b: Engine) -> None:
    said = []
    for engine in (a, b):
        model = engine.model
        ids = model.main_ids
        said.append(
            f"{type(model).__name__} with {model.num_codebooks} codebooks of {model.codebook_size} and main tokens "
            f"{int(ids[0])} to {int(ids[-2])} and {int(ids[-1])}"
        )
    if said[0] != said[1]:
        raise ValueError(f"[compare] expected two files of one model, got {said[0]}, and {said[1]}")


def _force(
    a: Engine, b: Engine, prompt_a: Any, prompt_b: Any, codes: npt.NDArray[np.int32], choices: list[_Choices]
) -> None:
    """Give both models the codes frame by frame, and note how far apart each choice is."""
    sessions = [
        engine.model.session(max_positions=prompt.shape[1] + codes.shape[1] + 1, kv_type=engine.parts.kv_type)
        for engine, prompt in ((a, prompt_a), (b, prompt_b))
    ]
    out = [session.prefill(prompt) for session, prompt in zip(sessions, (prompt_a, prompt_b), strict=True)]
    begin = a.model.semantic_begin_id
    for frame in range(codes.shape[1] + 1):
        choices[0].add(out[0].logits, out[1].logits, f"frame {frame}")
        if frame == codes.shape[1]:
            return
        column = codes[:, frame]
        for book in range(1, len(column) if a.model.has_fast_ar else 1):
            if book == 1:
                logits = [
                    session.fast_begin(step.hidden, int(column[0])) for session, step in zip(sessions, out, strict=True)
                ]
            else:
                logits = [session.fast_step(int(column[book - 1])) for session in sessions]
            choices[book].add(logits[0], logits[1], f"frame {frame}, codebook {book}")
        full = np.concatenate([[begin + column[0]], column]).astype(np.int32)
        out = [session.step(full) for session in sessions]


def _log_softmax(logits: Float32) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - float(logits.max())
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))
