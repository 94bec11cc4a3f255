"""What a server does before it is ready: the model speaks once, unheard."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import dualar
import pytest
from dualar.generation.batch import Batch
from dualar.server.app import build_app
from dualar.server.config import ServerConfig
from dualar.server.engine_thread import EngineThread
from dualar.server.service import Service
from server_process import WAIT
from starlette.testclient import TestClient


@pytest.fixture(scope="module")
def voice() -> Iterator[dualar.Engine]:
    with dualar.load(threads=1) as engine:
        yield engine


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not done():
        assert time.monotonic() < end
        time.sleep(0.005)


def client(service: Service) -> TestClient:
    return TestClient(build_app(service, connections=lambda: 0), base_url="http://127.0.0.1")


def test_ready_once_the_model_has_spoken(voice: dualar.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, steps = threading.Event(), []
    step = Batch.step

    def watched(self: Batch) -> object:
        go_on.wait(WAIT)
        steps.append(self.rows)
        return step(self)

    monkeypatch.setattr(Batch, "step", watched)
    service = Service(voice, ServerConfig(rows=3))
    try:
        ask = client(service)
        assert ask.get("/health").status_code == 200
        waiting = ask.get("/ready")
        assert waiting.status_code == 503 and waiting.json()["error"]["code"] == "not_ready"
        go_on.set()
        until(lambda: service.thread.is_warm)
        assert ask.get("/ready").json() == {"status": "ready", "rows": 0, "of": 3}
        assert 1 in steps and 3 in steps  # alone, and in all rows
        assert "dualar_step_seconds_total 0.0" in ask.get("/metrics").text  # nobody's request
    finally:
        go_on.set()
        service.close()


def test_a_model_that_cannot_speak_yet_is_served(
    voice: dualar.Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(self: EngineThread) -> None:
        raise dualar.BackendError("[backend] no room")

    monkeypatch.setattr(EngineThread, "_warm", failing)
    with caplog.at_level(logging.ERROR):
        service = Service(voice, ServerConfig())
        try:
            until(lambda: service.is_ready)
        finally:
            service.close()
    assert "did not speak" in caplog.text


def test_a_server_that_ends_at_once(voice: dualar.Engine) -> None:
    for _ in range(5):
        Service(voice, ServerConfig(rows=2)).close()
