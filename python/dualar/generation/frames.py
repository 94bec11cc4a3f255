"""What a request for codes gives: frames, the whole generation, and how long it took.

Owns the result types. Leaves the rules that end a request to `rules.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dualar.text.places import TimedWord

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
FinishReason = Literal["end", "length", "cancelled", "stalled"]


@dataclass(frozen=True, eq=False)
class Frame:
    """One frame: its index, its main token's id, and codes int32 [N], the semantic code first."""

    index: int
    token: int
    codes: Int32


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Milliseconds of wall time. loop_ms and ms_per_frame do not count the time spent in `on_frame`.

    ms_per_frame is loop_ms over the number of frames, 0 without frames. decode_ms (the codec's time) and
    real_time_factor (prefill, loop and decoding over the audio's duration) are None where only codes were made.
    first_audio_ms: of a stream, from the call to the first samples; else None.
    """

    prefill_ms: float
    loop_ms: float
    ms_per_frame: float
    decode_ms: float | None = None
    real_time_factor: float | None = None
    first_audio_ms: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Generation:
    """The result of a request for codes: codes int32 [N, n_frames] and why they end there.

    finish_reason: "end" (the model ended the speech), "length" (max_new_tokens frames were made), "cancelled" (by
    `on_frame`, `cancel` or `close`), "stalled" (by the stall guard). seed: the one that was used. padded_frames: how
    many frames have zeros in place of codes because a Fast-AR computation failed. words: when each word of the text is
    spoken, where the request asked for it; else None.
    """

    codes: Int32
    finish_reason: FinishReason
    seed: int
    padded_frames: int
    timings: Timings
    words: tuple[TimedWord, ...] | None = None
