"""The routes.

Owns which path is answered by what. Leaves the checks before it to `guard.py`, speech to `speech.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from dualar.server.errors import ApiError
from dualar.server.guard import Guard
from dualar.server.live import LiveSession
from dualar.server.page_routes import page_routes
from dualar.server.schemas import parse_json, speech_call
from dualar.server.service import Service
from dualar.server.speech import SpeechAnswer
from dualar.server.voice_routes import voice_routes


def build_app(service: Service, *, connections: Callable[[], int] = lambda: 0) -> ASGIApp:
    """The whole server as an ASGI application. connections: how many are open now."""
    app = Starlette(
        routes=_routes(service), exception_handlers={HTTPException: _refused, ApiError: _told, Exception: _failed}
    )
    return Guard(app, service.config, connections=connections)


def _routes(service: Service) -> list[BaseRoute]:
    async def speech(request: Request) -> Any:
        body = await request.body()

        def parsed() -> Any:
            return speech_call(parse_json(body), max_characters=service.config.max_characters)

        call = await service.in_thread(parsed)
        service.check_model(call.model)
        return SpeechAnswer(service, call)

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        if service.is_ready:
            return JSONResponse({"status": "ready", "rows": service.thread.active, "of": service.config.rows})
        raise ApiError(503, "The server is starting, or shutting down.", code="not_ready")

    async def metrics(request: Request) -> Response:
        text = await service.in_thread(service.metrics.text)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def live(socket: WebSocket) -> None:
        await LiveSession(service, socket).run()

    return [
        Route("/v1/audio/speech", speech, methods=["POST"]),
        Route("/health", health),
        Route("/ready", ready),
        Route("/metrics", metrics),
        WebSocketRoute("/v1/audio/live", live),
        *_lists(service),
        *voice_routes(service),
        *page_routes(service),
    ]


def _lists(service: Service) -> list[BaseRoute]:
    def model() -> dict[str, Any]:
        return {"id": service.model_name, "object": "model", "created": service.created, "owned_by": "dualar"}

    async def models(request: Request) -> Response:
        # `models` beside `data`: what Open WebUI reads.
        return JSONResponse({"object": "list", "data": [model()], "models": [{"id": service.model_name}]})

    async def one_model(request: Request) -> Response:
        service.check_model(request.path_params["model"])
        voices = [{"name": name} for name in await service.in_thread(service.voices.names)]
        return JSONResponse({**model(), "id": request.path_params["model"], "voices": voices})

    return [
        Route("/v1/models", models),
        Route("/v1/models/{model}", one_model),
        Route("/v1/audio/models", models),
    ]


async def _refused(request: Request, error: Exception) -> Response:
    """What Starlette says itself, 404 and 405 among it, in the shape of all errors."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    text = {404: f"There is nothing at {path}.", 405: f"{request.method} is not for {path}."}
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
    detail = text.get(error.status_code, error.detail)
    return await _told(request, ApiError(error.status_code, detail, code=code, headers=error.headers))


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, status_code=error.status, headers=error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    """A fault of ours; Starlette raises it again for the guard, which logs it."""
    return await _told(request, ApiError(500, "The server failed.", code="internal_error"))
