"""The WebSocket and the Wyoming door: text as it is written, sound as it is made."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.audio.wav import pcm_bytes
from dualar.server.errors import ApiError
from dualar.server.text_feed import TextFeed
from dualar.server.utterance import LIVE_CADENCE
from server_process import HTTP, WAIT, ServerProcess, server
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event, Eventable
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeVoice

KEY = "key-of-the-doors"
SENTENCES = ["Turn off the light.", "Play some music.", "It is seven."]


@pytest.fixture(scope="module")
def running() -> Iterator[ServerProcess]:
    with server("--api-key", KEY, "--wyoming", "127.0.0.1:0", "--rows", "2", key=KEY) as run:
        yield run


@pytest.fixture(scope="module")
def voice() -> Iterator[dualar.Engine]:
    with dualar.load(threads=1) as engine:
        yield engine


def bounded(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(WAIT):
            await work()

    asyncio.run(run())


# ------------------------------------------------------------------ text in bits
def test_sentences_come_once_they_have_ended() -> None:
    feed = TextFeed(longest=None, max_characters=100)
    text, got = "Turn off the li" + "ght. Then pl" + "ay music! And", []
    for letter in text:
        got += feed.add(letter)
    assert got == ["Turn off the light.", "Then play music!"]
    assert feed.flush() == ["And"] and feed.flush() == []


def test_what_is_no_word_is_not_given_out() -> None:
    feed = TextFeed(longest=None, max_characters=100)
    assert feed.add("... ") + feed.add(" \n\n ") + feed.flush() == []
    assert feed.add("One. Two. ") == ["One."]
    feed.clear()
    assert feed.flush() == []
    with pytest.raises(ApiError, match="at most 100"):
        feed.add("a" * 101)


# ------------------------------------------------------------------ the WebSocket
@asynccontextmanager
async def live(run: ServerProcess, **options: Any) -> AsyncIterator[ClientConnection]:
    url = f"ws://{run.host}/v1/audio/live"
    async with connect(url, additional_headers=run.headers, **options) as socket:
        yield socket


async def until(socket: ClientConnection, kind: str) -> tuple[list[dict[str, Any]], bytes]:
    """The messages up to one of this type, and the sound among them."""
    messages: list[dict[str, Any]] = []
    sound = b""
    while not messages or messages[-1]["type"] != kind:
        message = await socket.recv()
        if isinstance(message, bytes):
            sound += message
        else:
            messages.append(json.loads(message))
            assert messages[-1]["type"] != "error" or kind == "error", message
    return messages, sound


def test_text_in_bits_is_spoken_sentence_by_sentence(running: ServerProcess) -> None:
    async def work() -> None:
        async with live(running) as socket:
            await socket.send(json.dumps({"type": "start", "voice": "default", "seed": 4}))
            assert json.loads(await socket.recv()) == {"type": "ready", "format": "pcm", "sample_rate": 24000}
            for bit in re.findall(".{1,7}", " ".join(SENTENCES)):  # cut within words
                await socket.send(json.dumps({"type": "text", "text": bit}))
            await socket.send(json.dumps({"type": "end"}))
            messages, sound = await until(socket, "ended")
            assert [m["text"] for m in messages if m["type"] == "speaking"] == SENTENCES
            assert [m["finish_reason"] for m in messages if m["type"] == "spoken"] == ["end"] * 3
            assert {m["seed"] for m in messages if m["type"] == "speaking"} == {"4"}
        wanted = b"".join(
            HTTP.post(
                running.url + "/v1/audio/speech", headers=running.headers,
                json={"input": sentence, "response_format": "pcm", "seed": 4},
            ).content
            for sentence in SENTENCES
        )  # fmt: skip
        assert sound == wanted

    bounded(work)


def test_a_new_text_cuts_off_what_is_spoken(running: ServerProcess) -> None:
    async def work() -> None:
        async with live(running) as socket:
            await socket.send(json.dumps({"type": "text", "text": "turn off the light in the kitchen. " * 20}))
            await until(socket, "speaking")
            await socket.send(json.dumps({"type": "text", "text": "it is seven.", "interrupt": True}))
            await until(socket, "stopped")
            await socket.send(json.dumps({"type": "end"}))
            messages, _ = await until(socket, "ended")
            assert [m["text"] for m in messages if m["type"] == "speaking"] == ["it is seven."]

    bounded(work)
    running.wait_idle()


def test_a_caller_that_goes_in_the_middle_frees_its_row(running: ServerProcess) -> None:
    async def work() -> None:
        socket = await connect(f"ws://{running.host}/v1/audio/live", additional_headers=running.headers)
        await socket.send(json.dumps({"type": "text", "text": "turn off the light. " * 50}))
        await until(socket, "speaking")
        socket.transport.abort()

    bounded(work)
    running.wait_idle()


@pytest.mark.parametrize(
    "message",
    ["nonsense", "[]", b"\0", '{"type": "sing"}', '{"type": "text"}', '{"type": "start", "voice": "nobody2", "x": 1}',
     '{"type": "start", "response_format": "mp3"}', '{"type": "text", "text": 3}', '{"a":' * 5000],
)  # fmt: skip
def test_messages_that_are_none_are_answered_by_an_error(running: ServerProcess, message: str | bytes) -> None:
    async def work() -> None:
        async with live(running) as socket:
            await socket.send(message)
            (error,), _ = await until(socket, "error")
            assert set(error["error"]) == {"message", "type", "param", "code"}
            await socket.send('{"type": "end"}')
            await until(socket, "ended")

    bounded(work)


def test_who_may_open_a_websocket(running: ServerProcess) -> None:
    url = f"ws://{running.host}/v1/audio/live"

    async def refused(**options: Any) -> None:
        with pytest.raises((ConnectionClosed, OSError, Exception)) as raised:
            async with connect(url, **options) as socket:
                await socket.recv()
        assert not isinstance(raised.value, AssertionError)

    async def work() -> None:
        await refused()
        await refused(additional_headers={"Authorization": "Bearer wrong"})
        await refused(additional_headers={**running.headers, "Origin": "https://evil.example"})
        protocols: list[Any] = ["dualar", f"openai-insecure-api-key.{KEY}"]
        async with connect(url, subprotocols=protocols, additional_headers={"Origin": running.url}) as socket:
            assert socket.subprotocol == "dualar"
            await socket.send('{"type": "end"}')
            await until(socket, "ended")

    bounded(work)


# ------------------------------------------------------------------ Wyoming
def wyoming_port(run: ServerProcess) -> int:
    found = re.search(r"Wyoming on 127\.0\.0\.1:(\d+)", "\n".join(run.lines))
    assert found is not None
    return int(found.group(1))


@asynccontextmanager
async def wyoming(run: ServerProcess) -> AsyncIterator[AsyncTcpClient]:
    async with AsyncTcpClient("127.0.0.1", wyoming_port(run)) as client:
        yield client


async def answers(client: AsyncTcpClient, asked: list[Eventable], last: str) -> list[Event]:
    for question in asked:
        await client.write_event(question.event())
    got: list[Event] = []
    while not got or got[-1].type != last:
        event = await client.read_event()
        assert event is not None
        got.append(event)
    return got


def sound_of(events: list[Event]) -> bytes:
    return b"".join(AudioChunk.from_event(event).audio for event in events if AudioChunk.is_type(event.type))


def test_wyoming_describes_itself(running: ServerProcess) -> None:
    async def work() -> None:
        async with wyoming(running) as client:
            (event,) = await answers(client, [Describe()], "info")
            (program,) = Info.from_event(event).tts
            assert program.supports_synthesize_streaming
            assert [(voice.name, voice.languages) for voice in program.voices] == [("default", ["en"])]
            (pong,) = await answers(client, [Ping(text="x")], "pong")
            assert Pong.from_event(pong).text == "x"

    bounded(work)


def test_wyoming_synthesizes(running: ServerProcess, voice: dualar.Engine) -> None:
    async def work() -> None:
        async with wyoming(running) as client:
            for _ in range(2):  # one connection may ask again
                asked = Synthesize(text=SENTENCES[0], voice=SynthesizeVoice(name="default"))
                events = await answers(client, [asked], "audio-stop")
                start = AudioStart.from_event(events[0])
                assert (start.rate, start.width, start.channels) == (voice.codec.sample_rate, 2, 1)
                assert sum(AudioStop.is_type(event.type) for event in events) == 1
                assert len(sound_of(events)) % (2 * voice.codec.samples_per_frame) == 0 < len(sound_of(events))

    bounded(work)


def test_wyoming_streams_text_cut_within_words_and_says_it_once(running: ServerProcess) -> None:
    whole = " ".join(SENTENCES)

    async def work() -> None:
        async with wyoming(running) as client:
            bits: list[Eventable] = [SynthesizeChunk(text=bit) for bit in re.findall(".{1,5}", whole)]
            # The whole text at the end is for servers that know no chunks.
            asked = [SynthesizeStart(), *bits, Synthesize(text=whole), SynthesizeStop()]
            events = await answers(client, asked, "synthesize-stopped")
            kinds = [event.type for event in events if event.type != "audio-chunk"]
            assert kinds == ["audio-start", "audio-stop", "synthesize-stopped"]
            once = len(sound_of(events)) / 2 / 16000
            assert 1.0 < once < 12.0  # three short sentences, and not six
            await answers(client, [Describe()], "info")

    bounded(work)


def test_wyoming_errors(running: ServerProcess) -> None:
    async def work() -> None:
        async with wyoming(running) as client:
            for asked in (Synthesize(text="hello", voice=SynthesizeVoice(name="../x")), Synthesize(text=" ")):
                events = await answers(client, [asked], "error")
                assert Error.from_event(events[-1]).text
            assert sound_of(await answers(client, [Synthesize(text=SENTENCES[0])], "audio-stop"))
        for raw in (b"nonsense\n", b"[]\n", b'{"type": "describe", "data_length": 1000000000000}\n', b"x" * 100_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", wyoming_port(running))
            writer.write(raw)
            assert await reader.read() == b""  # closed, and nobody else harmed
            writer.close()

    bounded(work)
    running.wait_idle()


def test_a_wyoming_caller_that_goes_frees_its_row(running: ServerProcess) -> None:
    async def work() -> None:
        async with wyoming(running) as client:
            await client.write_event(Synthesize(text="turn off the light. " * 100).event())
            await asyncio.sleep(0.2)

    bounded(work)
    running.wait_idle()


def test_a_stream_of_the_engine_is_what_both_say(running: ServerProcess, voice: dualar.Engine) -> None:
    with voice.stream(SENTENCES[0], seed=4, frames_per_chunk=LIVE_CADENCE) as chunks:
        wanted = np.concatenate([chunk.samples for chunk in chunks])
    body = {"input": SENTENCES[0], "seed": 4, "response_format": "wav"}
    said = HTTP.post(running.url + "/v1/audio/speech", json=body, headers=running.headers)
    assert said.content[44:] == pcm_bytes(wanted, "PCM_16")
