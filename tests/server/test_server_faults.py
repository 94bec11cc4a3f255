"""What users of other speech servers reported, each provoked here; and the limits, keys and origins of this one."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from dualar.audio.wav import encode_wav
from server_process import HTTP, WAIT, ServerProcess, server

from server.test_server import error_of

KEY = "a secret with blanks"
TEXT = "turn off the light"


@pytest.fixture(scope="module")
def strict(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The toy model, which can clone voices, with a key, a site that may call, and small limits."""
    folder = tmp_path_factory.mktemp("voices")
    options = [
        "-m", str(toy_model), "--voices", str(folder), "--cors", "https://page.example", "--max-body", "20000",
        "--max-upload", "200000", "--max-upload-seconds", "2", "--max-characters", "200", "--request-seconds", "20",
    ]  # fmt: skip
    with server(*options, environment={"DUALAR_API_KEY": KEY}, key=KEY) as run:
        yield run


@pytest.fixture(scope="module")
def running() -> Iterator[ServerProcess]:
    with server("--rows", "4", "--queue", "100") as run:
        yield run


def ask(run: ServerProcess, method: str, path: str, **options: Any) -> httpx.Response:
    headers = {**run.headers, **options.pop("headers", {})}
    return HTTP.request(method, run.url + path, headers=headers, **options)


def recording(seconds: float = 0.5, rate: int = 16000) -> bytes:
    time_axis = np.arange(int(seconds * rate)) / rate
    return encode_wav((0.3 * np.sin(2 * np.pi * 220 * time_axis)).astype(np.float32), rate)


def upload(run: ServerProcess, name: str, sound: bytes | None = None, **fields: Any) -> httpx.Response:
    files = {"audio_sample": ("../../etc/passwd", recording() if sound is None else sound, "audio/wav")}
    return ask(run, "POST", "/v1/audio/voices", data={"name": name, "transcript": "hello there", **fields}, files=files)


# ------------------------------------------------------------------ voices
def test_voices_are_added_used_and_deleted(strict: ServerProcess) -> None:
    added = upload(strict, "Anna")
    assert added.status_code == 200, added.text
    assert (added.json()["id"], added.json()["object"]) == ("Anna", "audio.voice")
    assert error_of(upload(strict, "Anna"))["code"] == "voice_exists"
    names = [voice["id"] for voice in HTTP.get(strict.url + "/v1/audio/voices").json()["voices"]]
    assert names == ["default", "Anna"]
    body = {"input": "hello", "voice": {"id": "Anna"}, "max_new_tokens": 4, "min_tokens_before_end": 4, "seed": 1}
    said = ask(strict, "POST", "/v1/audio/speech", json=body)
    assert said.status_code == 200, said.text
    assert ask(strict, "DELETE", "/v1/audio/voices/Anna").json()["deleted"] is True
    assert ask(strict, "DELETE", "/v1/audio/voices/Anna").status_code == 404
    assert ask(strict, "POST", "/v1/audio/speech", json=body).status_code == 400


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a\0b", "..\\x", "..", ".", "CON", "a" * 65, "~root", ""])
def test_a_voice_that_is_no_name_is_refused_everywhere(strict: ServerProcess, name: str) -> None:
    quoted = "".join(f"%{byte:02x}" for byte in name.encode())
    answers = [
        ask(strict, "POST", "/v1/audio/speech", json={"input": "hello", "voice": name}),
        upload(strict, name),
        *([ask(strict, verb, f"/v1/audio/voices/{quoted}") for verb in ("GET", "DELETE")] if name else []),
    ]
    for answer in answers:
        assert answer.status_code == 400, answer.text
        assert "passwd:" not in error_of(answer)["message"]


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
def test_dots_in_a_path_lead_nowhere(strict: ServerProcess, verb: str) -> None:
    for path in ("%2e%2e/", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%5cx"):
        with socket.create_connection(strict.url.removeprefix("http://").split(":"), timeout=WAIT) as raw:  # type: ignore[arg-type]
            lines = f"{verb} /v1/audio/voices/{path} HTTP/1.1", "Host: localhost", "Connection: close"
            key = b"Authorization: " + f"Bearer {KEY}".encode()
            raw.sendall("\r\n".join(lines).encode() + b"\r\n" + key + b"\r\n\r\n")
            answer = b"".join(iter(lambda: raw.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 400") and b"root:" not in answer


def test_a_url_as_a_recording_is_not_fetched(strict: ServerProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.3)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/a.wav"
        for fields in ({"audio_sample": url}, {"audio_sample": "/etc/passwd"}, {"ref_audio": url}):
            answer = ask(strict, "POST", "/v1/audio/voices", data={"name": "x", **fields}, files={"a": b""})
            assert answer.status_code == 400
        assert ask(strict, "POST", "/v1/audio/speech", json={"input": "a", "ref_audio": url}).status_code == 400
        assert ask(strict, "POST", "/v1/audio/speech", json={"input": "a", "voice": url}).status_code == 400
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.parametrize(
    ("sound", "status"),
    [(b"", 400), (b"nonsense", 400), (recording(3.0, 8000), 413), (encode_wav(np.zeros(0, np.float32), 16000), 400)],
)
def test_uploads_that_are_no_recording_or_too_long(strict: ServerProcess, sound: bytes, status: int) -> None:
    answer = upload(strict, "Berta", sound)
    assert answer.status_code == status, answer.text
    assert error_of(answer)["param"] == "audio_sample"


def test_an_upload_without_a_length_is_refused_while_it_comes(strict: ServerProcess) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'--b\r\nContent-Disposition: form-data; name="audio_sample"; filename="a"\r\n\r\n'
        for _ in range(1 << 14):  # a gigabyte
            sent += 1 << 16
            yield bytes(1 << 16)

    headers = {**strict.headers, "Content-Type": "multipart/form-data; boundary=b"}
    try:
        answer = HTTP.post(strict.url + "/v1/audio/voices", content=endless(), headers=headers)
        assert answer.status_code == 413
    except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        pass  # the server closed the connection while we were sending
    assert sent < 64 << 20


def test_voices_need_their_option(running: ServerProcess) -> None:
    for answer in (upload(running, "x"), ask(running, "DELETE", "/v1/audio/voices/x")):
        assert answer.status_code == 403 and error_of(answer)["code"] == "voices_disabled"


# ------------------------------------------------------------------ limits
def test_too_much_text_and_too_large_a_body(strict: ServerProcess) -> None:
    answer = ask(strict, "POST", "/v1/audio/speech", json={"input": "a" * 201})
    assert answer.status_code == 400 and "201" in error_of(answer)["message"]
    answer = ask(strict, "POST", "/v1/audio/speech", json={"input": "a" * 5_000_000})
    assert answer.status_code == 413 and "20000" in error_of(answer)["message"]
    chunks = (b"a" * 1000 for _ in range(100))
    answer = ask(strict, "POST", "/v1/audio/speech", content=chunks)
    assert answer.status_code == 413


def test_a_request_that_takes_too_long_ends() -> None:
    with server("--request-seconds", "0.3", "--rows", "1") as run:
        body = {"input": "turn off the light. " * 200, "response_format": "wav", "stream": False}
        answer = HTTP.post(run.url + "/v1/audio/speech", json=body)
        assert answer.status_code == 504 and error_of(answer)["code"] == "timeout"
        with pytest.raises(httpx.RemoteProtocolError):  # cut off where the end would be a lie
            HTTP.post(run.url + "/v1/audio/speech", json={**body, "stream": True})
        run.wait_idle()


def test_too_many_connections() -> None:
    with server("--max-connections", "5") as run:
        host, port = run.host.split(":")
        open_ones = [socket.create_connection((host, int(port)), timeout=WAIT) for _ in range(8)]
        with httpx.Client(timeout=WAIT) as http:
            answer = http.get(run.url + "/health")
        assert answer.status_code == 503 and error_of(answer)["code"] == "too_many_connections"
        for one in open_ones:
            one.close()
        end = time.monotonic() + WAIT
        while HTTP.get(run.url + "/health").status_code != 200:
            assert time.monotonic() < end


def test_a_cut_is_never_a_silent_200(running: ServerProcess) -> None:
    """Greedy codes run on for ever with this seed's text? The budget of frames is what ends it in any case."""
    body = {"input": TEXT, "response_format": "wav", "max_new_tokens": 3, "stream": False}
    asked = HTTP.post(running.url + "/v1/audio/speech", json=body)
    assert asked.status_code == 200 and asked.headers["x-finish-reason"] == "length"
    lines = HTTP.post(running.url + "/v1/audio/speech", json={**body, "stream": True, "stream_format": "sse"}).text
    assert json.loads(lines.strip().splitlines()[-1].removeprefix("data: "))["finish_reason"] == "length"


# ------------------------------------------------------------------ who may ask
def test_keys(strict: ServerProcess) -> None:
    for path in ("/v1/models", "/metrics"):
        for key in ("", "Bearer", "Bearer wrong", "Basic " + KEY):
            answer = HTTP.get(strict.url + path, headers={"Authorization": key} if key else {})
            assert answer.status_code == 401 and error_of(answer)["code"] == "invalid_api_key"
        assert ask(strict, "GET", path).status_code == 200
    answer = HTTP.post(strict.url + "/v1/audio/speech", json={"input": "hello"})
    assert answer.status_code == 401
    for path in ("/health", "/ready", "/v1/audio/voices", "/v1/audio/models"):  # Open WebUI asks these without one
        assert HTTP.get(strict.url + path).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::2]:80", "localhost.evil"])
def test_a_strange_host_is_refused_on_loopback(strict: ServerProcess, host: str) -> None:
    answer = ask(strict, "GET", "/health", headers={"Host": host})
    assert answer.status_code == 403 and error_of(answer)["code"] == "host_not_allowed"


@pytest.mark.parametrize("host", ["localhost:1", "LOCALHOST", "127.0.0.1", "[::1]:80"])
def test_loopback_names_are_taken(strict: ServerProcess, host: str) -> None:
    assert ask(strict, "GET", "/health", headers={"Host": host}).status_code == 200


def test_other_sites_pages(strict: ServerProcess) -> None:
    body = {"input": "hello", "max_new_tokens": 2, "response_format": "pcm"}
    for origin in ("https://evil.example", "null", "https://page.example.evil"):
        answer = ask(strict, "POST", "/v1/audio/speech", json=body, headers={"Origin": origin})
        assert answer.status_code == 403 and error_of(answer)["code"] == "origin_not_allowed"
        assert "access-control-allow-origin" not in answer.headers
        preflight = HTTP.options(strict.url + "/v1/audio/speech", headers={"Origin": origin})
        assert "access-control-allow-origin" not in preflight.headers
    answer = ask(strict, "POST", "/v1/audio/speech", json=body, headers={"Origin": "https://page.example"})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://page.example"
    assert "access-control-allow-credentials" not in answer.headers and answer.headers["vary"] == "Origin"
    preflight = HTTP.options(strict.url + "/v1/audio/speech", headers={"Origin": "https://page.example"})
    assert preflight.status_code == 204 and "authorization" in preflight.headers["access-control-allow-headers"]
    assert ask(strict, "POST", "/v1/audio/speech", json=body, headers={"Origin": strict.url}).status_code == 200


# ------------------------------------------------------------------ load
def test_health_answers_during_any_load(running: ServerProcess) -> None:
    body = {"input": "turn off the light. " * 60, "response_format": "mp3", "stream": False}
    asking = [threading.Thread(target=lambda: HTTP.post(running.url + "/v1/audio/speech", json=body)) for _ in range(4)]
    for thread in asking:
        thread.start()
    answers = 0
    while any(thread.is_alive() for thread in asking):
        assert HTTP.get(running.url + "/health").status_code == 200
        answers += 1
        time.sleep(0.05)
    assert answers > 10


def test_a_hundred_callers_that_leave(running: ServerProcess) -> None:
    body = json.dumps({"input": "turn off the light. " * 200, "response_format": "opus"}).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    host, port = running.host.split(":")
    files = len(os.listdir(f"/proc/{running.process.pid}/fd"))
    for _ in range(4):
        callers = [socket.create_connection((host, int(port)), timeout=WAIT) for _ in range(25)]
        for caller in callers:
            caller.sendall(head + body)
        time.sleep(0.3)
        for caller in callers:
            caller.close()
    running.wait_idle()
    assert HTTP.post(running.url + "/v1/audio/speech", json={"input": TEXT}).status_code == 200
    assert len(os.listdir(f"/proc/{running.process.pid}/fd")) <= files + 2
