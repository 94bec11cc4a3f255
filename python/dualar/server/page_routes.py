"""The page at `/`, and what it asks besides the API.

Owns its routes and its Content-Security-Policy. Its files are data of the package, read once when the server starts; a
caller's path is only ever looked up among their names.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from dualar.narration.plan import plan
from dualar.server.errors import ApiError
from dualar.server.schemas import parse_json
from dualar.server.service import Service

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HEADERS = {
    # Nothing from elsewhere, nothing inline, in no other page's frame.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_EXAMPLE = "The train to Edinburgh leaves at 9:45, from platform three."


def page_routes(service: Service) -> list[BaseRoute]:
    files = {name: _file(name) for name in _names()}

    async def index(request: Request) -> Response:
        return _answer(request, files["index.html"])

    async def one(request: Request) -> Response:
        found = files.get(request.path_params["name"])
        if found is None:
            raise ApiError(404, "There is no such file of the page.", code="not_found")
        return _answer(request, found)

    async def about(request: Request) -> Response:
        note = f"on {service.engine.device}"
        limit = service.config.max_characters
        return JSONResponse(
            {"model": service.model_name, "note": note, "example": _EXAMPLE[:limit], "max_characters": limit}
        )

    async def check(request: Request) -> Response:
        body = await request.body()
        return JSONResponse(await service.in_thread(_checked, service, body))

    return [
        Route("/", index),
        Route("/page/about", about),
        Route("/page/check", check, methods=["POST"]),
        Route("/page/{name}", one),
    ]


def _names() -> list[str]:
    folder = resources.files("dualar.server") / "page"
    return [entry.name for entry in folder.iterdir() if entry.name[entry.name.rfind(".") :] in _TYPES]


def _file(name: str) -> tuple[bytes, str, str]:
    """Its bytes, their type, and a mark that changes with them."""
    data = (resources.files("dualar.server") / "page" / name).read_bytes()
    kind = _TYPES[name[name.rfind(".") :]] + "; charset=utf-8"
    return data, kind, f'"{hashlib.sha256(data).hexdigest()[:16]}"'


def _answer(request: Request, file: tuple[bytes, str, str]) -> Response:
    data, kind, mark = file
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers={**_HEADERS, "ETag": mark})
    return Response(data, headers={**_HEADERS, "ETag": mark, "Content-Type": kind})


def _checked(service: Service, body: bytes) -> dict[str, Any]:
    """How many pieces a text is spoken in, and whose words' sound is guessed; not for the event loop."""
    text = parse_json(body).get("text")
    if not isinstance(text, str) or len(text) > service.config.max_characters:
        raise ApiError(400, f"[text] expected at most {service.config.max_characters} characters", param="text")
    try:
        pieces = len(plan(text, longest_text=service.parts.family.longest_text).pieces)
    except ValueError:  # nothing to speak
        pieces = 0
    frontend = service.parts.family.frontend
    return {"pieces": pieces, "guessed": [] if frontend is None else frontend.unknown_words(text)}
