"""What stands between the network and every route: who may ask, how much may come in, and how errors look.

Owns the checks on Host, Origin and keys, the limits on bodies and connections, CORS, `X-Request-Id`, and the sending of
`ApiError`. A plain ASGI application around another one: the middleware class of Starlette hides that a caller has gone.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import secrets
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dualar.server.config import ServerConfig
from dualar.server.errors import ApiError, BrokenAnswerError

_log = logging.getLogger("dualar.server")

# Asked without a key: liveness, the page itself, and the two lists that Open WebUI asks for without one.
_OPEN_PATHS = {"/", "/health", "/ready", "/v1/audio/models", "/v1/audio/voices"}
_UPLOAD_PATH = "/v1/audio/voices"
_FORM_BYTES = 1 << 16  # of an upload, beside the sound
_KEY_PROTOCOL = "openai-insecure-api-key."  # how a page hands a key to a WebSocket, as OpenAI's realtime API has it
_CORS_HEADERS = {
    "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}


class Guard:
    """The application that checks, and then asks `app`."""

    def __init__(self, app: ASGIApp, config: ServerConfig, *, connections: Callable[[], int]) -> None:
        """connections: how many are open now."""
        self._app = app
        self._config = config
        self._connections = connections
        self._key = None if config.api_key is None else config.api_key.encode()
        self._only_loopback = is_loopback(config.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            self._check_host(headers)
            self._check_origin(headers)
            protocols = scope.get("subprotocols", [])
            key = next((p.removeprefix(_KEY_PROTOCOL) for p in protocols if p.startswith(_KEY_PROTOCOL)), None)
            self._check_key(headers, key)
        except ApiError as error:
            _log.info("%s %s: %s", "WS", scope["path"], error)
            await receive()  # websocket.connect
            await send({"type": "websocket.close", "code": 1008, "reason": str(error)[:100]})
            return
        await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, begun = Headers(scope=scope), False
        name = "req_" + secrets.token_hex(12)
        scope.setdefault("state", {})["request_id"] = name
        origin = headers.get("origin")

        async def sent(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._add_headers(MutableHeaders(scope=message), name, origin)
            await send(message)

        try:
            self._check(scope, headers)
            if scope["method"] == "OPTIONS" and origin is not None:
                await _send_plain(sent, 204, _CORS_HEADERS if origin in self._config.cors else {})
                return
            limit = self._config.max_body_bytes
            if scope["path"] == _UPLOAD_PATH:
                limit = self._config.max_upload_bytes + _FORM_BYTES
            await self._app(scope, _limited(receive, headers, limit), sent)
        except ApiError as error:
            if begun:
                _log.error("%s: after the answer began: %s", name, error)
                return
            await send_error(sent, error)
        except BrokenAnswerError as error:
            _log.warning("%s: cut off: %s", name, error)
        except Exception:
            _log.exception("%s: %s %s", name, scope["method"], scope["path"])
            if not begun:
                await send_error(sent, ApiError(500, f"The server failed ({name}).", code="internal_error"))

    def _check(self, scope: Scope, headers: Headers) -> None:
        if self._connections() > self._config.max_connections:
            raise ApiError(
                503, f"expected at most {self._config.max_connections} open connections, got one more",
                code="too_many_connections", headers={"Retry-After": "1", "Connection": "close"},
            )  # fmt: skip
        self._check_host(headers)
        if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            self._check_origin(headers)
        path = scope["path"]
        is_open = scope["method"] in ("GET", "HEAD") and (path in _OPEN_PATHS or path.startswith("/page/"))
        if not is_open and scope["method"] != "OPTIONS":
            self._check_key(headers, None)

    def _check_host(self, headers: Headers) -> None:
        """On a loopback address only a loopback name: else any web page could ask, by a name that it has point here."""
        if self._only_loopback and not is_loopback(_host_of(headers.get("host", ""))):
            raise ApiError(
                403, f"expected a loopback name in the Host header, got {headers.get('host', '')[:100]!r}",
                code="host_not_allowed",
            )  # fmt: skip

    def _check_origin(self, headers: Headers) -> None:
        """What changes or costs something is not for other sites' pages, unless they are named."""
        origin = headers.get("origin")
        if origin is None or origin in self._config.cors or urlsplit(origin).netloc == headers.get("host"):
            return
        raise ApiError(
            403, f"expected a page of this server, or one that --cors names, got {origin[:100]!r}",
            code="origin_not_allowed",
        )  # fmt: skip

    def _check_key(self, headers: Headers, key: str | None) -> None:
        if self._key is None:
            return
        scheme, _, value = headers.get("authorization", "").partition(" ")
        given = value.strip() if scheme.lower() == "bearer" else key or ""
        if not hmac.compare_digest(given.encode("latin-1", "replace"), self._key):
            raise ApiError(
                401, "expected the server's key as `Authorization: Bearer KEY`" + ("" if given else ", got none"),
                code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"},
            )  # fmt: skip

    def _add_headers(self, headers: MutableHeaders, name: str, origin: str | None) -> None:
        headers["x-request-id"] = name
        headers["x-content-type-options"] = "nosniff"
        if self._config.cors:
            headers.append("vary", "Origin")
        if origin is not None and origin in self._config.cors:
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = "x-request-id, x-seed, x-finish-reason, retry-after"


def is_loopback(host: str) -> bool:
    """Whether a name or an address means the machine itself."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_of(header: str) -> str:
    """The name in a Host header, without the port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _limited(receive: Receive, headers: Headers, limit: int) -> Receive:
    """`receive`, with ApiError 413 as soon as a body is longer than that, by its length or as it comes."""
    length = headers.get("content-length", "")
    taken = int(length) if length.isascii() and length.isdigit() else 0

    def check() -> None:
        if taken > limit:
            raise ApiError(
                413, f"expected a body of at most {limit} bytes, got {taken} or more", code="body_too_large",
                headers={"Connection": "close"},
            )  # fmt: skip

    check()
    taken = 0

    async def received() -> Message:
        nonlocal taken
        message = await receive()
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            check()
        return message

    return received


async def send_error(send: Send, error: ApiError) -> None:
    """The answer that an error is."""
    await _send_plain(send, error.status, {"content-type": "application/json", **error.headers}, error.body)


async def _send_plain(send: Send, status: int, headers: dict[str, str], body: object = None) -> None:
    data = b"" if body is None else json.dumps(body).encode()
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    if status != 204:
        pairs.append((b"content-length", str(len(data)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": data})
