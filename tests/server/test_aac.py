"""AAC with PyAV, and the refusal without it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import dualar
import numpy as np
import pytest
from dualar.audio.read import mix_and_resample
from dualar.server.app import build_app
from dualar.server.config import ServerConfig
from dualar.server.encoders import PCM_RATE
from dualar.server.service import Service
from starlette.testclient import TestClient

BODY = {"input": "Turn off the light in the kitchen.", "response_format": "aac", "seed": 5}
FRAME = 1024  # samples of an AAC frame


@pytest.fixture(scope="module")
def voice() -> Iterator[dualar.Engine]:
    with dualar.load(threads=1) as engine:
        yield engine


@pytest.fixture
def client(voice: dualar.Engine) -> Iterator[TestClient]:
    service = Service(voice, ServerConfig())
    yield TestClient(build_app(service, connections=lambda: 0), base_url="http://127.0.0.1")
    service.close()


@pytest.mark.parametrize("stream", [True, False])
def test_aac_sounds_as_the_engine_speaks(client: TestClient, voice: dualar.Engine, stream: bool) -> None:
    av = pytest.importorskip("av", reason="pip install 'dualar[aac]'")
    answer = client.post("/v1/audio/speech", json={**BODY, "stream": stream})
    assert answer.status_code == 200 and answer.headers["content-type"] == "audio/aac"
    with av.open(io.BytesIO(answer.content), format="aac") as container:
        frames = [frame.to_ndarray()[0] for frame in container.decode(audio=0)]
        assert container.streams.audio[0].rate == PCM_RATE
    samples = np.concatenate(frames)
    audio = voice.synthesize(BODY["input"], seed=5)  # type: ignore[arg-type]
    wanted = mix_and_resample(audio.samples, audio.sample_rate, PCM_RATE)
    assert wanted.size <= samples.size <= wanted.size + 4 * FRAME  # silence of the encoder's at both ends
    lag = int(np.argmax(np.correlate(samples[: wanted.size // 2], wanted[: wanted.size // 4], "valid")))
    assert lag <= 3 * FRAME
    heard = samples[lag : lag + wanted.size]
    assert np.corrcoef(heard, wanted[: heard.size])[0, 1] > 0.95


def test_without_its_library_it_is_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    answer = client.post("/v1/audio/speech", json=BODY)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"] == "response_format"
    assert "pip install 'dualar[aac]'" in error["message"]
