"""`dualar serve`: OpenAI's speech API by its own client and by plain HTTP, against what the engine says itself."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import dualar
import httpx
import numpy as np
import openai
import pytest
import soundfile
from dualar.audio.wav import encode_wav, pcm_bytes
from dualar.server.encoders import MEDIA_TYPES, PCM_RATE, encode_whole, encoder
from dualar.server.utterance import LIVE_CADENCE
from server_process import HTTP, WAIT, ServerProcess, server

TEXT = "turn off the light in the kitchen at seven thirty"
LONG = "turn off the light. " * 20
FORMATS = ("mp3", "opus", "flac", "wav", "pcm")


@pytest.fixture(scope="module")
def running() -> Iterator[ServerProcess]:
    with server("--rows", "4", "--queue", "8", "--reader-seconds", "5") as run:
        yield run


@pytest.fixture(scope="module")
def voice() -> Iterator[dualar.Engine]:
    with dualar.load(threads=1) as engine:
        yield engine


@pytest.fixture
def client(running: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0, timeout=WAIT) as made:
        yield made


def decoded(data: bytes, kind: str, *, samples: int = 0) -> tuple[np.ndarray, int]:
    """Samples of a stream, which does not say its length: FLAC's, where libsndfile insists, is filled in."""
    if kind == "pcm":
        return np.frombuffer(data, "<i2").astype(np.float32) / 32767, PCM_RATE
    if kind == "flac":  # RFC 9639, 8.2: the number of samples is 36 bits, the last of them in bytes 22 to 25
        data = data[:22] + samples.to_bytes(4, "big") + data[26:]
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        parts = []
        while len(part := file.read(4096, dtype="float32")):
            parts.append(part)
        return np.concatenate(parts), file.samplerate


def streamed(engine: dualar.Engine, text: str, seed: int) -> np.ndarray:
    with engine.stream(text, seed=seed, frames_per_chunk=LIVE_CADENCE) as chunks:
        return np.concatenate([chunk.samples for chunk in chunks])


def post(run: ServerProcess, **body: Any) -> httpx.Response:
    return HTTP.post(run.url + "/v1/audio/speech", json={"input": TEXT, **body})


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert set(answer.json()) == {"error"} and set(error) == {"message", "type", "param", "code"}
    assert error["message"] and error["type"]
    assert answer.headers["x-request-id"].startswith("req_")
    return error


# ------------------------------------------------------------------ what is said
def test_a_whole_answer_is_the_file_that_the_engine_makes(running: ServerProcess, voice: dualar.Engine) -> None:
    audio = voice.synthesize(TEXT, seed=5)
    answer = post(running, response_format="wav", seed=5, stream=False)
    assert answer.content == encode_wav(audio.samples, audio.sample_rate)
    assert answer.headers["x-seed"] == "5" and answer.headers["x-finish-reason"] == "end"
    assert int(answer.headers["content-length"]) == len(answer.content)


def test_a_long_text_is_the_file_that_the_engine_makes(running: ServerProcess, voice: dualar.Engine) -> None:
    assert voice.plan(LONG).is_long
    whole = encode_wav(voice.narrate(LONG, seed=3).samples, voice.codec.sample_rate)
    assert post(running, input=LONG, response_format="wav", seed=3, stream=False).content == whole
    assert post(running, input=LONG, response_format="wav", seed=3).content[44:] == whole[44:]


def test_a_stream_has_the_samples_of_the_engines_stream(running: ServerProcess, voice: dualar.Engine) -> None:
    data = post(running, response_format="wav", seed=5).content
    assert data[44:] == pcm_bytes(streamed(voice, TEXT, 5), "PCM_16")
    assert data[4:8] == data[40:44] == b"\xff" * 4 and data.count(b"RIFF") == 1


def test_requests_among_others_are_what_they_are_alone(running: ServerProcess) -> None:
    alone = {seed: post(running, response_format="wav", seed=seed).content for seed in range(6)}
    got: dict[int, bytes] = {}

    def ask(seed: int) -> None:
        got[seed] = post(running, response_format="wav", seed=seed, input=TEXT).content

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert got == alone


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("kind", FORMATS)
def test_formats_sound_alike(running: ServerProcess, kind: str, whole: bool) -> None:
    wanted, rate = decoded(post(running, response_format="wav", seed=5).content, "wav")
    answer = post(running, response_format=kind, seed=5, stream=not whole)
    assert answer.headers["content-type"] == MEDIA_TYPES[kind]
    samples, got_rate = decoded(answer.content, kind, samples=wanted.size)
    wanted = dualar.audio.read.mix_and_resample(wanted, rate, got_rate)
    if kind == "mp3" and not whole:  # a stream's header does not say how long the encoder's silence at both ends is
        assert wanted.size <= samples.size <= wanted.size + 4 * 1152
        lag = int(np.argmax(np.correlate(samples[: wanted.size // 2], wanted[: wanted.size // 4], "valid")))
        samples = samples[lag : lag + wanted.size]
    assert abs(samples.size - wanted.size) <= 2
    size = min(samples.size, wanted.size)
    for part in (slice(None, size), slice(size - got_rate // 20, size)):  # all of it, and the last 50 ms
        rest = np.sqrt(np.mean((samples[part] - wanted[part]) ** 2))
        assert rest < 0.02, (kind, part)
    loud = np.corrcoef(samples[:size], wanted[:size])[0, 1]
    assert loud > 0.95


def test_the_first_bytes_come_before_the_speech_is_made(running: ServerProcess) -> None:
    for kind in FORMATS:
        began = time.perf_counter()
        with HTTP.stream(
            "POST", running.url + "/v1/audio/speech", json={"input": LONG, "response_format": kind}
        ) as answer:
            chunks = answer.iter_raw()
            first = next(chunks)
            first_s = time.perf_counter() - began
            rest = b"".join(chunks)
            whole_s = time.perf_counter() - began
        assert first and rest
        assert first_s < whole_s / 2, kind


@pytest.mark.parametrize("kind", ["flac", "mp3"])
@pytest.mark.parametrize("rate", [16000, 24000, 44100])
def test_a_stream_is_the_whole_file_but_for_its_header(kind: str, rate: int) -> None:
    samples = (0.3 * np.sin(np.arange(rate) * 0.05)).astype(np.float32)
    sound = encoder(kind, rate)
    stream = b"".join(sound.write(part) for part in np.array_split(samples, 7)) + sound.finish()
    whole = encode_whole(kind, samples, rate)
    if kind == "flac":
        assert len(stream) == len(whole) and stream[42:] == whole[42:]  # RFC 9639: "fLaC", and STREAMINFO
    else:
        assert stream == whole[len(whole) - len(stream) :]
        assert b"Info" in whole[: len(whole) - len(stream)] and b"Info" not in stream and stream[0] == 0xFF


@pytest.mark.parametrize("rate", [8000, 12345, 44100])
def test_every_rate_of_a_codec_has_all_formats(rate: int) -> None:
    samples = (0.3 * np.sin(np.arange(rate) * 0.05)).astype(np.float32)
    for kind in FORMATS:
        got, got_rate = decoded(encode_whole(kind, samples, rate), kind, samples=rate)
        assert abs(got.size / got_rate - 1) < 0.01, kind


def test_curl(running: ServerProcess) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("needs curl")
    body = json.dumps({"input": TEXT, "response_format": "pcm", "seed": 9})
    url = running.url + "/v1/audio/speech"
    asked = [curl, "-sS", "--max-time", "30", url, "-H", "Content-Type: application/json", "-d", body]
    assert (
        subprocess.run(asked, capture_output=True, check=True).stdout
        == post(running, response_format="pcm", seed=9).content
    )


# ------------------------------------------------------------------ OpenAI's client
@pytest.mark.parametrize("kind", FORMATS)
def test_the_openai_client(client: openai.OpenAI, running: ServerProcess, kind: Any) -> None:
    wanted = post(running, response_format=kind, seed=9).content
    asked: dict[str, Any] = {"model": "tts-1", "voice": "alloy", "input": TEXT, "response_format": kind}
    whole = client.audio.speech.create(**asked, extra_body={"seed": 9}).content
    with client.audio.speech.with_streaming_response.create(**asked, extra_body={"seed": 9}) as answer:
        parts = b"".join(answer.iter_bytes())
    if kind == "opus":  # its pages have a random number in them, by which a player tells one stream from another
        whole, parts, wanted = (decoded(data, kind)[0].tobytes() for data in (whole, parts, wanted))
    assert whole == parts == wanted


def test_the_openai_clients_events(client: openai.OpenAI, running: ServerProcess) -> None:
    wanted = post(running, response_format="pcm", seed=9).content
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="marin", input=TEXT, response_format="pcm", stream_format="sse",
        extra_body={"seed": 9},
    ) as answer:  # fmt: skip
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == wanted
    assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}
    done = events[-1]
    usage = done["usage"]
    assert (done["type"], done["finish_reason"], done["seed"]) == ("speech.audio.done", "end", "9")
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > usage["input_tokens"] > 0


def test_events_tell_when_words_are_heard(running: ServerProcess, voice: dualar.Engine) -> None:
    if not voice.model.alignment_heads:
        pytest.skip("this build's voice names no alignment heads")
    for text in (TEXT, LONG):
        answer = post(running, input=text, response_format="pcm", stream_format="sse", seed=9, word_times=True)
        events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]
        if voice.plan(text).is_long:
            wanted = voice.narrate(text, seed=9, word_times=True).timeline.words
        else:
            wanted = voice.synthesize(text, seed=9, word_times=True).words or ()
        assert wanted and events[-1]["words"] == [dataclasses.asdict(word) for word in wanted]
        assert all("words" not in event for event in events[:-1])
    refused = post(running, response_format="wav", word_times=True)
    assert refused.status_code == 400 and "[word_times] expected stream_format sse" in refused.text
    assert post(running, stream_format="sse", word_times=3).status_code == 400


def test_the_openai_clients_lists_and_errors(client: openai.OpenAI) -> None:
    listed = client.models.list().data
    assert [model.id for model in listed] == ["english-heart"]
    assert client.models.retrieve("english-heart").owned_by == "dualar"
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("gpt-9")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        client.audio.speech.create(model="tts-1", voice="alloy", input=TEXT, speed=1.5)
    assert refused.value.param == "speed" and refused.value.request_id


def test_voices_are_listed_in_the_shapes_that_clients_read(running: ServerProcess) -> None:
    base = running.url + "/v1"
    voices = HTTP.get(base + "/audio/voices").json()
    assert voices["object"] == "list" and voices["data"] == voices["voices"]
    assert [(voice["id"], voice["name"]) for voice in voices["voices"]] == [("default", "default")]
    assert HTTP.get(base + "/audio/voices?legacy=true").json() == {"voices": ["default"]}
    assert HTTP.get(base + "/audio/voices", params={"model": "english-heart"}).json() == voices
    assert HTTP.get(base + "/audio/models").json()["models"] == [{"id": "english-heart"}]


# ------------------------------------------------------------------ what is refused
BAD: list[tuple[dict[str, Any], str | None]] = [
    ({"input": ""}, "input"),
    ({"input": " \n "}, "input"),
    ({"input": None}, "input"),
    ({"input": ["a"]}, "input"),
    ({"input": 3}, "input"),
    ({"input": "a" * 4097}, "input"),
    ({"voice": ""}, "voice"),
    ({"voice": "nobody"}, "voice"),
    ({"voice": {"id": "nobody"}}, "voice"),
    ({"voice": {"id": "default", "more": 1}}, "voice"),
    ({"voice": 3}, "voice"),
    ({"response_format": "ogg"}, "response_format"),
    ({"response_format": 1}, "response_format"),
    ({"stream_format": "json"}, "stream_format"),
    ({"stream": 1}, "stream"),
    ({"stream": False, "stream_format": "sse"}, "stream"),
    ({"speed": 0.1}, "speed"),
    ({"speed": 2}, "speed"),
    ({"speed": "fast"}, "speed"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**64}, "seed"),
    ({"seed": 1.5}, "seed"),
    ({"seed": True}, "seed"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"repetition_penalty": 1.1}, "sampler"),
    ({"sampler": "beam"}, "sampler"),
    ({"max_new_tokens": 0}, "max_new_tokens"),
    ({"max_new_tokens": 10**6}, None),
    ({"instructions": "whisper"}, "instructions"),
    ({"language": "english"}, "language"),
    ({"background": "rain"}, "background"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "param"), BAD, ids=lambda value: str(value)[:30])
def test_a_field_that_cannot_be_honoured_is_named(
    running: ServerProcess, body: dict[str, Any], param: str | None
) -> None:
    answer = post(running, **body)
    assert answer.status_code == 400, answer.text
    assert error_of(answer)["param"] == param


@pytest.mark.parametrize(
    "body",
    [b"", b"nonsense", b"[]", b'"text"', b"[" * 10_000, b'{"a":' * 10_000, b"\xff\xfe", b'{"input": "\\ud800"}'],
)
def test_what_is_no_request_is_refused(running: ServerProcess, body: bytes) -> None:
    answer = HTTP.post(running.url + "/v1/audio/speech", content=body)
    assert answer.status_code == 400
    assert error_of(answer)["type"] == "invalid_request_error"


def test_other_paths_and_methods_are_errors_of_the_same_shape(running: ServerProcess) -> None:
    assert error_of(HTTP.get(running.url + "/v2/nothing"))["code"] == "not_found"
    for method, path in (("GET", "/v1/audio/speech"), ("PUT", "/v1/audio/speech"), ("DELETE", "/health")):
        answer = HTTP.request(method, running.url + path)
        assert answer.status_code == 405 and error_of(answer)["code"] == "method_not_allowed"


# ------------------------------------------------------------------ many callers
def test_a_full_queue_is_429_before_any_work_and_health_answers(running: ServerProcess) -> None:
    statuses: list[int] = []
    retry: list[str] = []

    def ask() -> None:
        answer = post(running, input=LONG, response_format="wav", stream=False)
        statuses.append(answer.status_code)
        if answer.status_code == 429:
            assert error_of(answer)["type"] == "rate_limit_error"
            retry.append(answer.headers["retry-after"])

    threads = [threading.Thread(target=ask) for _ in range(40)]
    for thread in threads:
        thread.start()
    assert HTTP.get(running.url + "/health").json() == {"status": "ok"}
    for thread in threads:
        thread.join(WAIT)
    assert set(statuses) == {200, 429} and statuses.count(200) >= 12
    assert retry and all(value.isdigit() and int(value) >= 1 for value in retry)
    running.wait_idle()


@pytest.mark.parametrize("whole", [False, True])
def test_callers_that_leave_free_their_rows(running: ServerProcess, whole: bool) -> None:
    body = json.dumps({"input": "turn off the light. " * 200, "response_format": "mp3", "stream": not whole})
    made = running.metric("dualar_audio_seconds_total")
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    host, port = running.host.split(":")
    for i in range(12):
        with socket.create_connection((host, int(port)), timeout=WAIT) as caller:
            caller.sendall((head + body).encode())
            if i % 2:
                time.sleep(0.05)
    running.wait_idle()
    # The whole of each would be some four minutes.
    assert running.metric("dualar_audio_seconds_total") - made < 12 * 60
    assert post(running, response_format="wav").status_code == 200


def test_a_slow_reader_holds_back_only_itself_and_is_dropped(running: ServerProcess) -> None:
    slow = {"input": "turn off the light. " * 200, "response_format": "wav"}
    with HTTP.stream("POST", running.url + "/v1/audio/speech", json=slow) as answer:
        next(answer.iter_raw())
        assert post(running, response_format="wav").status_code == 200
        end = time.monotonic() + WAIT
        while running.metric("dualar_rows"):  # it reads nothing more for --reader-seconds
            assert time.monotonic() < end
            time.sleep(0.1)
    assert post(running, response_format="wav").status_code == 200


def test_sigterm_lets_requests_finish_and_ends_with_0() -> None:
    with server("--rows", "2") as run:
        got: list[httpx.Response] = []
        asked = {"input": LONG, "response_format": "wav", "stream": False}
        asking = threading.Thread(target=lambda: got.append(post(run, **asked)))
        asking.start()
        end = time.monotonic() + WAIT
        while not run.metric("dualar_rows"):
            assert time.monotonic() < end
        os.kill(run.process.pid, signal.SIGTERM)
        asking.join(WAIT)
        assert got and got[0].status_code == 200
        assert run.process.wait(WAIT) == 0


def test_readiness(running: ServerProcess) -> None:
    assert HTTP.get(running.url + "/ready").json()["status"] == "ready"
    metrics = HTTP.get(running.url + "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    for name in ("dualar_requests_total", "dualar_time_to_first_audio_seconds_bucket", "dualar_resident_bytes"):
        assert name in metrics.text
