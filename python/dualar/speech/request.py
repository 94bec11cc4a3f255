"""`SpeechRequest`: everything that one request for speech says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dualar.config import DEFAULT_STALL_GUARD, SamplingConfig, StallGuard
from dualar.generation.frames import Frame

if TYPE_CHECKING:
    from dualar.engine import VoiceLike


@dataclass(frozen=True, kw_only=True, eq=False)
class SpeechRequest:
    """One request of `Engine.synthesize_batch`: a text, and options as for `Engine.synthesize`."""

    text: str
    voice: VoiceLike | None = None
    language: str | None = None
    speaker: str | None = None
    instruct: str | None = None
    max_new_tokens: int | None = None
    min_tokens_before_end: int | None = None
    sampling: SamplingConfig | None = None
    seed: int | None = None
    on_frame: Callable[[Frame], object] | None = None
    stall_guard: StallGuard | None = DEFAULT_STALL_GUARD
