"""The Wyoming protocol, by which Home Assistant and its like speak to local services.

Owns `WyomingDoor`: describe, synthesize, and the synthesize that streams its text. Its text comes in bits that may be
cut within a word; a plain `synthesize` with the whole text follows them for older servers, and is not said again.
Leaves events to the wyoming package, but for reading them: here what a caller announces is limited.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_write_event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.ping import Ping, Pong
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped

from dualar import __version__
from dualar.audio.wav import pcm_bytes
from dualar.server.errors import ApiError
from dualar.server.schemas import SpeechCall
from dualar.server.service import Service, failure
from dualar.server.text_feed import TextFeed

_log = logging.getLogger("dualar.server")
_WIDTH = 2  # bytes of a sample
_MOST_LINE = 1 << 16
_MOST_PIECES = 256


class WyomingDoor:
    """Listens on an address of its own."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._server: asyncio.Server | None = None
        self._callers: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> int:
        """Listen; the port, which may be given as 0. OSError where that cannot be."""
        self._server = await asyncio.start_server(self._called, host, port, limit=_MOST_LINE)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self, seconds: float) -> None:
        """Take no more callers, give those that are heard so long, then end them."""
        if self._server is not None:
            self._server.close()
        if self._callers:
            await asyncio.wait(self._callers, timeout=seconds)
        for caller in self._callers:
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)

    async def _called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._callers) >= self._service.config.max_connections:
            writer.close()
            return
        self._callers.add(task)
        try:
            await _Caller(self._service, reader, writer).run()
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _log.info("Wyoming: a caller sent what is no event: %s", error)
        finally:
            self._callers.discard(task)
            writer.close()


class _Caller:
    """One connection."""

    def __init__(self, service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._service = service
        self._reader, self._writer = reader, writer
        self._feed: TextFeed | None = None  # while text is streamed
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self._speaking: asyncio.Task[None] | None = None
        self._begun = False  # audio of the answer so far

    async def run(self) -> None:
        try:
            while (event := await self._read()) is not None:
                await self._take(event)
        finally:
            if self._speaking is not None:
                self._speaking.cancel()
                await asyncio.gather(self._speaking, return_exceptions=True)

    async def _read(self) -> Event | None:
        """The next event; None at the end. ValueError for what is none, or too long."""
        line = await self._reader.readline()
        if not line:
            return None
        header = json.loads(line)
        most = self._service.config.max_body_bytes
        sizes = [header.get(name) or 0 for name in ("data_length", "payload_length")]
        if not all(isinstance(size, int) and 0 <= size <= most for size in sizes):
            raise ValueError(f"expected lengths of at most {most}, got {sizes}")
        data = dict(header.get("data") or {})
        if sizes[0]:
            data.update(json.loads(await self._reader.readexactly(sizes[0])))
        if sizes[1]:
            await self._reader.readexactly(sizes[1])
        return Event(type=str(header["type"]), data=data)

    async def _take(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self._write(await self._service.in_thread(self._info))
        elif Ping.is_type(event.type):
            await self._write(Pong(text=Ping.from_event(event).text))
        elif Synthesize.is_type(event.type):
            if self._feed is None:  # else the whole of what is being streamed
                asked = Synthesize.from_event(event)
                await self._begin([_text(asked.text)], asked.voice)
        elif SynthesizeStart.is_type(event.type):
            await self._start(SynthesizeStart.from_event(event))
        elif SynthesizeChunk.is_type(event.type) and self._feed is not None:
            await self._told(lambda feed: feed.add(_text(SynthesizeChunk.from_event(event).text)))
        elif SynthesizeStop.is_type(event.type) and self._feed is not None:
            await self._told(TextFeed.flush)
            self._feed = None
            await self._pieces.put(None)

    async def _start(self, asked: SynthesizeStart) -> None:
        config = self._service.config
        self._feed = TextFeed(longest=self._service.parts.family.longest_text, max_characters=config.max_characters)
        await self._begin(None, asked.voice)

    async def _begin(self, pieces: list[str] | None, voice: Any) -> None:
        """Speak in a task of its own, so that a caller who goes is seen; after what is spoken already."""
        if self._speaking is not None:
            await self._speaking
        self._pieces = asyncio.Queue(_MOST_PIECES)
        self._speaking = asyncio.ensure_future(self._speak(pieces, voice))

    async def _told(self, work: Callable[[TextFeed], list[str]]) -> None:
        assert self._feed is not None
        try:
            for piece in await self._service.in_thread(work, self._feed):
                await self._pieces.put(piece)
        except ApiError as error:
            await self._write(Error(text=str(error), code=error.code))

    async def _speak(self, pieces: list[str] | None, voice: Any) -> None:
        """Say these pieces, or those that come; one audio-start and one audio-stop around all of it."""
        self._begun = False
        try:
            for whole in pieces or ():
                await self._said(whole, voice)
            while pieces is None and (piece := await self._pieces.get()) is not None:
                await self._said(piece, voice)
            if self._begun:
                await self._write(AudioStop())
            if pieces is None:
                await self._write(SynthesizeStopped())
        except (ConnectionError, TimeoutError):
            self._writer.close()  # which ends the reading too

    async def _said(self, text: str, voice: Any) -> None:
        """One piece, or an error event in its place."""
        try:
            await self._one(text, voice)
        except ApiError as error:
            await self._write(Error(text=str(error), code=error.code))

    async def _one(self, text: str, voice: Any) -> None:
        config = self._service.config
        if len(text) > config.max_characters:
            raise ApiError(400, f"expected at most {config.max_characters} characters, got {len(text)}")
        named = None if voice is None else voice.speaker or voice.name
        async with self._service.spoken(SpeechCall(text=text, voice=named)) as (utterance, delivery):
            rate = utterance.sample_rate
            while (samples := await delivery.take()) is not None:
                if not self._begun:
                    self._begun = True
                    await self._write(AudioStart(rate=rate, width=_WIDTH, channels=1))
                data = await self._service.in_thread(pcm_bytes, samples, "PCM_16")
                await self._write(AudioChunk(rate=rate, width=_WIDTH, channels=1, audio=data))
            assert delivery.outcome is not None
            if (failed := failure(delivery.outcome, seeded=False)) is not None:
                raise failed

    async def _write(self, event: Eventable) -> None:
        async with asyncio.timeout(self._service.config.reader_seconds):
            await async_write_event(event.event(), self._writer)

    def _info(self) -> Info:
        by = Attribution(name="dualar", url="")
        frontend = self._service.parts.family.frontend
        languages = (
            list(frontend.languages)
            if frontend is not None
            else ["en", "zh", "de", "es", "fr", "it", "ja", "ko", "pt", "ru"]
        )
        voices = [
            TtsVoice(
                name=name, attribution=by, installed=True, description=name, version=__version__, languages=languages
            )
            for name in self._service.voices.names()
        ]
        program = TtsProgram(
            name="dualar", attribution=by, installed=True, description=self._service.model_name, version=__version__,
            voices=voices, supports_synthesize_streaming=True,
        )  # fmt: skip
        return Info(tts=[program])


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, got {type(value).__name__}")
    return value
