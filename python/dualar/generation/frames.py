"""What a request for codes gives: frames, the whole generation, and how long it took.

Owns the result types. Leaves the rules that end a request to `rules.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

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
    """Milliseconds of wall time. The loop's are without what a consumer of the frames (`on_frame`) took.

    decode_ms (the codec's) and real_time_factor (all of it over the audio's duration) are None for codes alone;
    ms_per_frame is 0 where there is no frame. first_audio_ms is a stream's: from the call to its first samples.
    """

    prefill_ms: float
    loop_ms: float
    ms_per_frame: float
    decode_ms: float | None = None
    real_time_factor: float | None = None
    first_audio_ms: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Generation:
    """What a run gave: codes int32 [N, n_frames] and why it ended.

    finish_reason: "end" (the model ended the speech), "length" (max_new_tokens frames), "cancelled" (`on_frame` or
    `close`), "stalled" (the stall guard). padded_frames: how many have zeros because a Fast-AR computation failed.
    """

    codes: Int32
    finish_reason: FinishReason
    seed: int
    padded_frames: int
    timings: Timings
