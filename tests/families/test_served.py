"""Every family speaks through `dualar serve` what its engine speaks: whole, streamed and among others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dualar.audio.wav import encode_wav, pcm_bytes
from dualar.server.app import build_app
from dualar.server.config import ServerConfig
from dualar.server.service import Service
from dualar.server.utterance import LIVE_CADENCE
from dualar.voices.store import VoiceStore
from starlette.testclient import TestClient

from families.conftest import Case

TEXT = "hello there"


@pytest.fixture
def asked(case: Case, tmp_path: Path) -> tuple[Any, dict[str, Any], ServerConfig]:
    """(the engine's options, a request's fields for the same, the server's options)"""
    options = {name: value for name, value in case.options.items() if name != "sampling"}
    fields = {"input": TEXT, "response_format": "wav", "seed": 5, "max_new_tokens": 9, "min_tokens_before_end": 4}
    if "speaker" in options:
        fields["voice"] = options["speaker"]
    if "voice" in options:
        VoiceStore(tmp_path).add("anna", options["voice"])
        fields["voice"] = "anna"
    return options, fields, ServerConfig(rows=2, voices=tmp_path if case.maker.has_voices else None)


def test_the_server_speaks_what_the_engine_speaks(case: Case, asked: tuple[Any, dict[str, Any], ServerConfig]) -> None:
    options, fields, config = asked
    engine = case.engine
    audio = engine.synthesize(TEXT, seed=5, **options)
    with engine.stream(TEXT, seed=5, frames_per_chunk=LIVE_CADENCE, **options) as chunks:
        streamed = np.concatenate([chunk.samples for chunk in chunks])
    service = Service(engine, config)
    try:
        client = TestClient(build_app(service, connections=lambda: 0), base_url="http://127.0.0.1")
        whole = client.post("/v1/audio/speech", json={**fields, "stream": False})
        assert whole.status_code == 200, whole.text
        assert whole.content == encode_wav(audio.samples, audio.sample_rate)
        assert whole.headers["x-finish-reason"] == audio.finish_reason
        live = client.post("/v1/audio/speech", json=fields)
        assert live.content[44:] == pcm_bytes(streamed, "PCM_16")
    finally:
        service.close()
