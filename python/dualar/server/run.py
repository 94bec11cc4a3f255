"""The server as a process: its socket, its signals, and its end.

Owns the order of starting and stopping. SIGTERM or SIGINT: no new requests, those that run finish within
`shutdown_seconds`, then the end; a second signal ends at once. Leaves HTTP to uvicorn.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn

from dualar.engine import Engine
from dualar.server.app import build_app
from dualar.server.config import ServerConfig
from dualar.server.service import Service
from dualar.server.wyoming_door import WyomingDoor


class _Server(uvicorn.Server):
    """uvicorn's, which would send the signal to itself again at the end: that is no exit code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 for any that is free. OSError where the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(1024)
    except OSError as error:
        raise OSError(error.errno, f"[serve] cannot listen on {host}:{port}: {error.strerror or error}") from error
    return found


def serve(engine: Engine, config: ServerConfig, *, on_ready: Callable[[str], object] = lambda url: None) -> None:
    """Serve until a signal comes. on_ready is called with the address once /ready says so."""
    listening = listen(config.host, config.port)
    service = Service(engine, config)
    try:
        asyncio.run(_serve(service, listening, on_ready))
    finally:
        service.close()
        listening.close()


async def _serve(service: Service, listening: socket.socket, on_ready: Callable[[str], object]) -> None:
    config = service.config
    server: _Server

    def connections() -> int:
        return len(server.server_state.connections)

    app = build_app(service, connections=connections)
    server = _Server(
        uvicorn.Config(
            app, ws="wsproto", http="h11", log_config=None, access_log=False, lifespan="off", server_header=False,
            timeout_graceful_shutdown=max(1, round(config.shutdown_seconds)),
        )
    )  # fmt: skip
    host, port = listening.getsockname()[:2]
    running = asyncio.ensure_future(server.serve(sockets=[listening]))
    while not ((server.started and service.thread.is_warm) or running.done()):
        await asyncio.sleep(0.01)
    door = None
    try:
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        if config.wyoming is not None:
            door = WyomingDoor(service)
            at = await door.open(*config.wyoming)
            address += f", Wyoming on {config.wyoming[0]}:{at}"
        if not running.done():
            on_ready(address)
        await running
    finally:
        service.closing = True
        server.should_exit = True
        if door is not None:
            await door.close(config.shutdown_seconds)
        await running
