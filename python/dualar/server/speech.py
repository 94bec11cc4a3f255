"""POST /v1/audio/speech: the answer as it is made, as server-sent events, or whole.

Owns the three answers and what becomes of them where the caller goes, reads too slowly, or the speech fails. Leaves
the body's fields to `schemas.py`, and the bytes of the formats to `encoders.py`.

Once the first bytes have been sent, HTTP has no way to say that the rest failed, but to close the connection without
the end of the answer: that is done for speech that was cut, so that no caller takes a part for the whole.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from starlette.types import Message, Receive, Scope, Send

from dualar.server.delivery import Delivery
from dualar.server.encoders import MEDIA_TYPES, encode_whole, encoder
from dualar.server.errors import ApiError, BrokenAnswerError
from dualar.server.schemas import SpeechCall
from dualar.server.service import Service, failure
from dualar.server.utterance import Outcome, Utterance


class SpeechAnswer:
    """The answer to a call, as an ASGI application."""

    def __init__(self, service: Service, call: SpeechCall) -> None:
        self._service = service
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_gone(receive, lambda: self._answer(send))

    async def _answer(self, send: Send) -> None:
        call = self._call
        async with self._service.spoken(call) as (utterance, delivery):
            if not call.stream:
                await self._whole(send, utterance, delivery)
                return
            writer = _Writer(send, self._service.config.reader_seconds)
            try:
                if call.sse:
                    await self._events(writer, utterance, delivery)
                else:
                    await self._stream(writer, utterance, delivery)
            except ApiError as error:
                if writer.begun:
                    raise BrokenAnswerError(str(error)) from error
                raise

    def _headers(self, utterance: Utterance, kind: str, **more: str) -> list[tuple[bytes, bytes]]:
        headers = {"content-type": kind, "x-seed": str(utterance.seed), "cache-control": "no-store", **more}
        return [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]

    async def _whole(self, send: Send, utterance: Utterance, delivery: Delivery) -> None:
        parts = []
        while (samples := await delivery.take()) is not None:
            parts.append(samples)
        outcome = self._checked(delivery)
        kind = self._call.format

        def encode() -> bytes:
            return encode_whole(kind, np.concatenate(parts), utterance.sample_rate)

        data = await self._service.in_thread(encode)
        headers = self._headers(
            utterance, MEDIA_TYPES[kind], content_length=str(len(data)), x_finish_reason=outcome.finish_reason
        )
        writer = _Writer(send, self._service.config.reader_seconds)
        await writer.begin(headers)
        for start in range(0, len(data), 1 << 16):
            await writer.write(data[start : start + (1 << 16)])
        await writer.end()

    async def _stream(self, writer: _Writer, utterance: Utterance, delivery: Delivery) -> None:
        sound = await self._service.in_thread(encoder, self._call.format, utterance.sample_rate)
        headers = self._headers(utterance, MEDIA_TYPES[self._call.format])
        while (samples := await delivery.take()) is not None:
            data = await self._service.in_thread(sound.write, samples)
            if not writer.begun:
                await writer.begin(headers)
            await writer.write(data)
        self._checked(delivery)
        await writer.write(await self._service.in_thread(sound.finish))
        await writer.end()

    async def _events(self, writer: _Writer, utterance: Utterance, delivery: Delivery) -> None:
        sound = await self._service.in_thread(encoder, self._call.format, utterance.sample_rate)
        headers = self._headers(utterance, "text/event-stream; charset=utf-8")
        try:
            while (samples := await delivery.take()) is not None:
                data = await self._service.in_thread(sound.write, samples)
                if not writer.begun:
                    await writer.begin(headers)
                if data:
                    await writer.write(_delta(data, delivery.piece))
            outcome = self._checked(delivery)
            if data := await self._service.in_thread(sound.finish):
                await writer.write(_delta(data, delivery.piece))
            await writer.write(_done(outcome))
        except ApiError as error:
            if not writer.begun:
                raise
            await writer.write(_event({"type": "error", **error.body}))
        await writer.end()

    def _checked(self, delivery: Delivery) -> Outcome:
        """How it ended; ApiError where that was before its time."""
        outcome = delivery.outcome
        assert outcome is not None
        failed = failure(outcome, seeded="seed" in self._call.options)
        if failed is not None:
            raise failed
        return outcome


class _Writer:
    """An answer's bytes on their way to a caller, who may be slow, but not for ever."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self.begun = False

    async def begin(self, headers: list[tuple[bytes, bytes]]) -> None:
        self.begun = True
        await self._sent({"type": "http.response.start", "status": 200, "headers": headers})

    async def write(self, data: bytes) -> None:
        if data:
            await self._sent({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._sent({"type": "http.response.body", "body": b"", "more_body": False})

    async def _sent(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError:
            raise BrokenAnswerError(f"the caller read nothing for {self._seconds:g} s") from None


async def until_gone(receive: Receive, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work, or stop in the middle of it once the caller has gone. The body must have been read."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.ensure_future(work()), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watching.cancel()
        if not working.done():
            working.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
    if not working.cancelled():
        working.result()


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _delta(data: bytes, piece: int) -> bytes:
    """piece: of a long text, counted from 0; not OpenAI's."""
    return _event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode(), "piece": piece})


def _done(outcome: Outcome) -> bytes:
    usage = {
        "input_tokens": outcome.text_tokens,
        "output_tokens": outcome.frames,
        "total_tokens": outcome.text_tokens + outcome.frames,
    }
    done: dict[str, Any] = {"type": "speech.audio.done", "usage": usage, "finish_reason": outcome.finish_reason}
    done["seed"] = str(outcome.seed)
    if outcome.words is not None:
        done["words"] = [asdict(word) for word in outcome.words]
    return _event(done)
