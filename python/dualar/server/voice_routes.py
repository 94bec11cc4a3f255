"""The routes that list, add and delete voices.

Owns the form of an upload and its limits. Leaves which names there are to `voices.py`, cloning to the engine.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import AsyncIterator

import numpy as np
import numpy.typing as npt
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from dualar._native import ModelError
from dualar.server.errors import ApiError, of_value_error
from dualar.server.service import Service
from dualar.voices.name import check_voice_name

_FIELDS = ("name", "audio_sample", "transcript")
_MOST_CHANNELS = 8
_MOST_RATE = 384_000
_BLOCK = 1 << 16  # samples of all channels that are decoded at a time
_MOST_WAITING = 4  # uploads at once


def voice_routes(service: Service) -> list[BaseRoute]:
    waiting = 0

    async def listed(request: Request) -> Response:
        service.check_model(request.query_params.get("model"))
        names = await service.in_thread(service.voices.names)
        if request.query_params.get("legacy") == "true":
            return JSONResponse({"voices": names})
        data = [{"id": name, "name": name, "object": "audio.voice"} for name in names]
        return JSONResponse({"object": "list", "data": data, "voices": data, "can_add": service.voices.can_add})

    async def one(request: Request) -> Response:
        name = _checked_name(request.path_params["name"], "id")
        if name not in await service.in_thread(service.voices.names):
            raise _unknown(name)
        return JSONResponse({"id": name, "name": name, "object": "audio.voice"})

    async def added(request: Request) -> Response:
        nonlocal waiting
        if waiting >= _MOST_WAITING:
            raise ApiError(
                429, f"{waiting} recordings are being worked on. Try again later.", code="rate_limit_exceeded",
                headers={"Retry-After": "5"},
            )  # fmt: skip
        waiting += 1
        try:
            service.voices.store  # noqa: B018  # told before the upload is read
            async with _form(request) as form:
                name, sound, transcript = await _fields(form)
            await service.cloned(_add, service, name, sound, transcript)
        finally:
            waiting -= 1
        return JSONResponse({"object": "audio.voice", "id": name, "name": name, "created_at": int(time.time())})

    async def deleted(request: Request) -> Response:
        store, name = service.voices.store, _checked_name(request.path_params["name"], "id")

        def remove() -> None:
            if name not in store.names():
                raise _unknown(name)
            with contextlib.suppress(ValueError):  # another caller was quicker
                store.remove(name)

        await service.in_thread(remove)
        return JSONResponse({"object": "audio.voice.deleted", "id": name, "deleted": True})

    return [
        Route("/v1/audio/voices", listed, methods=["GET"]),
        Route("/v1/audio/voices", added, methods=["POST"]),
        Route("/v1/audio/voices/{name:path}", one, methods=["GET"]),
        Route("/v1/audio/voices/{name:path}", deleted, methods=["DELETE"]),
    ]


@contextlib.asynccontextmanager
async def _form(request: Request) -> AsyncIterator[FormData]:
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise ApiError(400, "expected multipart/form-data", code="invalid_form")
    async with request.form(max_files=1, max_fields=8, max_part_size=1 << 15) as form:
        yield form


async def _fields(form: FormData) -> tuple[str, bytes, str | None]:
    for field in form:
        if field not in _FIELDS:
            raise ApiError(
                400, f"[{field[:64]}] expected one of {', '.join(_FIELDS)}", param=field[:64], code="unknown_parameter"
            )
    name, sound, transcript = (form.get(field) for field in _FIELDS)
    if not isinstance(name, str):
        raise ApiError(400, "[name] expected a name", param="name", code="missing_required_parameter")
    if not isinstance(sound, UploadFile):  # a path or a URL is a text: it is not opened
        raise ApiError(
            400, "[audio_sample] expected a sound file", param="audio_sample", code="missing_required_parameter"
        )
    if not isinstance(transcript, str | None):
        raise ApiError(400, "[transcript] expected a text", param="transcript", code="invalid_value")
    return _checked_name(name, "name"), await sound.read(), transcript or None


def _add(service: Service, name: str, sound: bytes, transcript: str | None) -> None:
    """Not for the event loop."""
    if name in service.voices.names():
        raise ApiError(409, f"[name] expected a new name, got {name!r}", param="name", code="voice_exists")
    samples, rate = _decoded(sound, service.config.max_upload_seconds)
    try:
        voice = service.engine.clone(samples, transcript, sample_rate=rate)
        service.voices.store.add(name, voice)
    except ValueError as error:
        where = of_value_error(error)
        param = "transcript" if "transcript" in str(error) else "name" if where.param == "voice" else "audio_sample"
        raise ApiError(400, str(error), param=param, code="invalid_value") from error
    except ModelError as error:  # it has no encoder
        raise ApiError(400, str(error), code="voices_unsupported") from error


def _decoded(sound: bytes, seconds: float) -> tuple[npt.NDArray[np.float32], int]:
    """Samples float32 [n], no more than so many seconds, whatever the file says of itself; and their rate."""
    import soundfile

    def refused(problem: str, status: int = 400) -> ApiError:
        return ApiError(status, f"[audio_sample] {problem}", param="audio_sample", code="invalid_audio")

    try:
        with soundfile.SoundFile(io.BytesIO(sound)) as file:
            rate, channels = int(file.samplerate), int(file.channels)
            if rate > _MOST_RATE or channels > _MOST_CHANNELS:
                raise refused(f"expected at most {_MOST_RATE} Hz and {_MOST_CHANNELS} channels, got {rate}, {channels}")
            parts, count = [], 0
            while len(part := file.read(_BLOCK // channels, dtype="float32", always_2d=True)):
                parts.append(part.mean(axis=1, dtype=np.float32))
                count += len(part)
                if count > seconds * rate:
                    raise refused(f"expected at most {seconds:g} s of sound, got more", 413)
    except soundfile.LibsndfileError as error:
        raise refused(f"expected WAV, FLAC, OGG or MP3, got what cannot be read: {error}") from error
    if count == 0:
        raise refused("expected sound, got no samples")
    return np.concatenate(parts), rate


def _checked_name(name: str, param: str) -> str:
    try:
        return check_voice_name(name)
    except ValueError as error:
        raise ApiError(400, str(error), param=param, code="invalid_voice") from error


def _unknown(name: str) -> ApiError:
    return ApiError(404, f"[voice] there is no {name!r}", param="id", code="voice_not_found")
