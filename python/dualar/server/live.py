"""WS /v1/audio/live: text in as it is written, sound out as it is made.

Owns the messages. The caller sends JSON objects: `{"type": "start", ...}` once, with the fields of a request for speech
but its input (the format is pcm); `{"type": "text", "text": ..., "interrupt": false}` for each bit of text; `flush`, to
speak what has no end of a sentence yet; `stop`, to be silent at once and forget what was not said; `end`, to be told
`ended` once all was said. The server answers with `ready`, and for each piece `speaking`, its samples as binary
messages (s16le, mono, `sample_rate` of `ready`) and `spoken`; `stopped` after `stop`, when no more samples of what came
before it follow; `error` for what could not be said.

Each piece is spoken with those before it as context, where the model takes any. Leaves cutting the text to
`text_feed.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from dualar.families.base import Turn
from dualar.server.encoders import PCM_RATE, encoder
from dualar.server.errors import ApiError
from dualar.server.schemas import SpeechCall, parse_json, speech_call
from dualar.server.service import Service, failure
from dualar.server.text_feed import TextFeed

_MOST_TURNS = 16  # of what was said, kept as context
_MOST_PIECES = 256  # that wait to be said


class LiveSession:
    """One connection: a task that reads, and one that speaks."""

    def __init__(self, service: Service, socket: WebSocket) -> None:
        self._service = service
        self._socket = socket
        self._call: SpeechCall | None = None
        self._feed = TextFeed(longest=service.parts.family.longest_text, max_characters=service.config.max_characters)
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue(_MOST_PIECES)
        self._history: list[Turn] = []
        self._speaking: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()

    async def run(self) -> None:
        """Until the caller goes, or says end and has heard all."""
        protocols = self._socket.scope.get("subprotocols", [])
        await self._socket.accept(subprotocol="dualar" if "dualar" in protocols else None)
        speaker = asyncio.ensure_future(self._speak())
        reader = asyncio.ensure_future(self._read())
        try:
            await asyncio.wait({speaker, reader}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (speaker, reader):
                task.cancel()
            await asyncio.gather(speaker, reader, return_exceptions=True)
            await self._silence()
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            if self._socket.application_state == WebSocketState.CONNECTED:
                await self._socket.close()

    async def _read(self) -> None:
        while True:
            try:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                await self._take(await self._parsed(message))
            except ApiError as error:
                await self._tell(type="error", **error.body)
            except WebSocketDisconnect:
                return

    async def _parsed(self, message: Any) -> dict[str, Any]:
        text = message.get("text")
        if text is None or len(text) > self._service.config.max_body_bytes:
            raise ApiError(400, "expected a JSON object as a text message", code="invalid_json")
        return await self._service.in_thread(parse_json, text.encode("utf-8", "surrogatepass"))

    async def _take(self, body: dict[str, Any]) -> None:
        kind = body.pop("type", None)
        if kind == "start":
            await self._start(body)
        elif kind == "text":
            text, interrupt = body.get("text"), body.get("interrupt", False)
            if not isinstance(text, str) or not isinstance(interrupt, bool) or set(body) - {"text", "interrupt"}:
                raise ApiError(400, '[text] expected {"type", "text", "interrupt"}', param="text", code="invalid_value")
            if interrupt:
                await self._stop()
            await self._say(await self._service.in_thread(self._feed.add, text))
        elif kind in ("flush", "end", "stop"):
            if kind == "stop":
                await self._stop()
                return
            await self._say(await self._service.in_thread(self._feed.flush))
            if kind == "end":
                await self._put(None)
        else:
            raise ApiError(400, f"[type] unknown: {str(kind)[:40]!r}", param="type", code="invalid_value")

    async def _start(self, body: dict[str, Any]) -> None:
        self._call = self._checked(body)
        self._history.clear()
        await self._tell(type="ready", format="pcm", sample_rate=PCM_RATE)

    def _checked(self, body: dict[str, Any]) -> SpeechCall:
        if body.get("response_format", "pcm") != "pcm":
            raise ApiError(400, "[response_format] expected pcm", param="response_format", code="invalid_value")
        call = speech_call(
            {**body, "input": "x", "response_format": "pcm"}, max_characters=self._service.config.max_characters
        )
        self._service.check_model(call.model)
        return call

    async def _say(self, pieces: list[str]) -> None:
        for piece in pieces:
            await self._put(piece)

    async def _put(self, piece: str | None) -> None:
        try:
            self._pieces.put_nowait(piece)
        except asyncio.QueueFull:
            raise ApiError(429, f"{_MOST_PIECES} sentences wait to be said", code="rate_limit_exceeded") from None

    async def _stop(self) -> None:
        self._feed.clear()
        while not self._pieces.empty():
            self._pieces.get_nowait()
        await self._silence()
        await self._tell(type="stopped")

    async def _silence(self) -> None:
        """End the piece that is being said; its row leaves within a frame."""
        speaking = self._speaking
        if speaking is not None and not speaking.done():
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)

    async def _speak(self) -> None:
        """Say the pieces, one after the other."""
        while (piece := await self._pieces.get()) is not None:
            self._speaking = asyncio.ensure_future(self._one(piece))
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._speaking)
            if (current := asyncio.current_task()) is not None and current.cancelling():
                return
        await self._tell(type="ended")

    async def _one(self, text: str) -> None:
        if self._call is None:
            self._call = self._checked({})
        call = replace(self._call, text=text)
        try:
            async with self._service.spoken(call, tuple(self._history)) as (utterance, delivery):
                await self._tell(type="speaking", text=text, seed=str(utterance.seed))
                sound = await self._service.in_thread(encoder, "pcm", utterance.sample_rate)
                while (samples := await delivery.take()) is not None:
                    await self._send_bytes(await self._service.in_thread(sound.write, samples))
                await self._send_bytes(await self._service.in_thread(sound.finish))
                outcome = delivery.outcome
                assert outcome is not None
                if (failed := failure(outcome, seeded=True)) is not None:
                    raise failed
                if utterance.turn is not None:
                    self._history = [*self._history[1 - _MOST_TURNS :], utterance.turn]
                await self._tell(type="spoken", finish_reason=outcome.finish_reason, frames=outcome.frames)
        except ApiError as error:
            await self._tell(type="error", text=text, **error.body)
        except (WebSocketDisconnect, RuntimeError):
            return  # the caller has gone: the reader sees it too

    async def _tell(self, **message: Any) -> None:
        async with self._sending:
            await self._timed(self._socket.send_text(json.dumps(message)))

    async def _send_bytes(self, data: bytes) -> None:
        if data:
            async with self._sending:
                await self._timed(self._socket.send_bytes(data))

    async def _timed(self, sending: Any) -> None:
        try:
            async with asyncio.timeout(self._service.config.reader_seconds):
                await sending
        except TimeoutError:
            raise WebSocketDisconnect(1008, "the caller read nothing") from None
