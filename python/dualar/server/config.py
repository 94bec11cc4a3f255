"""What a server allows: its address, its limits, and who may ask.

Owns the options and their defaults; leaves enforcing each to the module that meets it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """rows: requests that are computed at once. queue: requests that may wait for one of these rows.

    api_key: what callers must show, None for no key. cors: origins of web pages that may call. voices: the folder of
    the voices that can be asked for, and added; None for the model's own alone. wyoming: (host, port) of the Wyoming
    door. max_*: the most of each, in characters, bytes, seconds or connections. request_seconds: from asking to the
    last byte. reader_seconds: how long a caller may read nothing while sound waits for it. ahead_seconds: sound made
    ahead of a caller's reading, before its row stands still. shutdown_seconds: what running requests have to finish.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    rows: int = 8
    queue: int = 32
    api_key: str | None = None
    cors: tuple[str, ...] = ()
    voices: Path | None = None
    wyoming: tuple[str, int] | None = None
    max_characters: int = 4096
    max_body_bytes: int = 1 << 20
    max_upload_bytes: int = 10 << 20
    max_upload_seconds: float = 60.0
    max_connections: int = 256
    request_seconds: float = 600.0
    reader_seconds: float = 30.0
    ahead_seconds: float = 10.0
    shutdown_seconds: float = 30.0
