"""What all doors of a server share: the engine's thread, the threads for other work, the voices, the counters.

Owns `Service` and the life of one request: let in, made ready, spoken, over. Leaves the protocols to `speech.py`,
`live.py` and `wyoming_door.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from dualar.engine import Engine
from dualar.families.base import Turn
from dualar.server.config import ServerConfig
from dualar.server.delivery import Delivery
from dualar.server.engine_thread import EngineThread
from dualar.server.errors import ApiError, of_value_error
from dualar.server.metrics import Metrics, resident_bytes
from dualar.server.schemas import OPENAI_MODELS, SpeechCall
from dualar.server.utterance import Outcome, Utterance
from dualar.server.voices import VoiceBook
from dualar.speech.request import SpeechRequest

T = TypeVar("T")

_HELPERS = 4  # threads that read files, build prompts and encode


class Service:
    """One engine and all who call it. Made before the event loop runs; close it after."""

    def __init__(self, engine: Engine, config: ServerConfig) -> None:
        self.config = config
        self.engine = engine
        self.parts = engine.parts
        self.parts.codec, self.parts.model  # noqa: B018  # told now where the file lacks one
        self.model_name = Path(engine.path).stem
        self.created = int(time.time())
        self.metrics = Metrics()
        self.voices = VoiceBook(self.parts, config.voices)
        self.thread = EngineThread(self.parts, rows=config.rows, queue=config.queue, metrics=self.metrics)
        self.closing = False
        self._helpers = ThreadPoolExecutor(_HELPERS, thread_name_prefix="dualar-helper")
        self._cloner = ThreadPoolExecutor(1, thread_name_prefix="dualar-cloner")
        watch = self.metrics.watch
        watch("dualar_rows", "Requests that are being spoken", lambda: float(self.thread.active))
        watch("dualar_queue", "Requests that wait", lambda: float(max(0, self.thread.places - self.thread.active)))
        watch("dualar_resident_bytes", "Memory of the process", resident_bytes)

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken, and the first of them is spoken as quickly as any other."""
        return self.thread.is_alive and self.thread.is_warm and not self.closing

    def close(self) -> None:
        self.thread.close()
        self._helpers.shutdown(wait=True, cancel_futures=True)
        self._cloner.shutdown(wait=True, cancel_futures=True)

    async def in_thread(self, work: Callable[..., T], *given: Any) -> T:
        """What `work` gives, run off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._helpers, work, *given)

    async def cloned(self, work: Callable[..., T], *given: Any) -> T:
        """The same for what takes long: one at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._cloner, work, *given)

    def check_model(self, name: str | None) -> None:
        """ApiError 404 for another model than the one that is served."""
        if name not in (None, "", self.model_name, *OPENAI_MODELS):
            raise ApiError(
                404, f"[model] expected {self.model_name}, got {name!r}", param="model", code="model_not_found"
            )

    def utterance(self, call: SpeechCall, history: Sequence[Turn] = ()) -> Utterance:
        """A call made ready; not for the event loop. ApiError for what the model or the voices do not have."""
        try:
            request = SpeechRequest(
                text=call.text, sampling=call.sampling_config(self.parts.sampling), **call.options,
                **self.voices.options(call.voice),
            )  # fmt: skip
            return Utterance(self.parts, request, whole=not call.stream, history=history)
        except ValueError as error:
            raise of_value_error(error) from error

    @contextlib.asynccontextmanager
    async def spoken(self, call: SpeechCall, history: Sequence[Turn] = ()) -> AsyncIterator[tuple[Utterance, Delivery]]:
        """The call on its way to be spoken; left early, it is cancelled. ApiError 429 where there is no place."""
        config = self.config
        place = self._enter()
        rate = self.parts.codec.sample_rate
        ahead = int(config.ahead_seconds * rate) if call.stream else None
        delivery = Delivery(ahead=ahead, seconds=config.request_seconds)
        how = "cancelled"
        try:
            utterance = await self.in_thread(self.utterance, call, history)
            self.thread.submit(utterance, delivery)
            yield utterance, delivery
            how = "done"
            spent = time.perf_counter() - delivery.asked_at
            self.metrics.heard(first_audio_s=delivery.first_audio_s, spent_s=spent, audio_s=delivery.samples / rate)
        except ApiError as error:
            how = "refused" if error.status < 500 else "failed"
            raise
        except Exception:
            how = "failed"
            raise
        finally:
            delivery.cancel()
            place.leave()
            self.metrics.ended(how)

    def _enter(self) -> Any:
        try:
            if self.closing:
                raise ApiError(503, "The server is shutting down.", code="shutting_down")
            return self.thread.enter()
        except ApiError:
            self.metrics.ended("rejected")
            raise


def failure(outcome: Outcome, *, seeded: bool) -> ApiError | None:
    """What to answer for speech that was not said to its end; None where it was. seeded: the caller chose the seed."""
    if outcome.complete:
        return None
    problem = {
        "stalled": "the model ran on without end and was stopped",
        "length": "the model reached the most frames of a request before its end",
        "incomplete": "a piece of the text could not be spoken",
    }.get(outcome.finish_reason, "the model ended before its first frame")
    # With another seed it may well be said: OpenAI's clients try again unless they are told not to.
    headers = {"X-Should-Retry": "false"} if seeded else {}
    return ApiError(
        500, f"[speech] {problem} after {outcome.frames} frames (seed {outcome.seed}); try another seed",
        code=outcome.finish_reason if outcome.finish_reason != "end" else "empty", headers=headers,
    )  # fmt: skip
