"""`dualar serve`: a server that programs call as they call OpenAI's speech API.

Owns the command and its options. Leaves serving to `dualar.server`, which needs the extra of that name.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from dualar.cli import common
from dualar.cli.loading_shown import shown_loading

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_NEEDED = ("starlette", "uvicorn", "wsproto", "multipart", "prometheus_client", "wyoming")

HostOption = Annotated[str, typer.Option("--host", metavar="NAME", help="The address to listen on.")]
PortOption = Annotated[int, typer.Option("--port", "-p", metavar="N", min=0, max=65535, help="Its port; 0 is any.")]
RowsOption = Annotated[
    int, typer.Option("--rows", min=1, max=256, metavar="N", help="Requests that are spoken at once.")
]
QueueOption = Annotated[
    int, typer.Option("--queue", min=0, max=100000, metavar="N", help="Requests that may wait; one more is refused.")
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--api-key", metavar="KEY", envvar="DUALAR_API_KEY", show_envvar=True, show_default="none",
        help="What callers must show. Better in the variable: other users of the machine see a command's options.",
    ),
]  # fmt: skip
CorsOption = Annotated[
    list[str] | None,
    typer.Option("--cors", metavar="ORIGIN", show_default="none", help="A site whose pages may call; may be repeated."),
]
VoicesOption = Annotated[
    Path | None,
    typer.Option(
        "--voices", metavar="DIR", show_default="none",
        help="The folder of the voices that can be asked for, and that callers may add to.",
    ),
]  # fmt: skip
WyomingOption = Annotated[
    str | None,
    typer.Option(
        "--wyoming", metavar="HOST:PORT", show_default="none",
        help="Also listen here for Home Assistant's Wyoming protocol, which knows no keys.",
    ),
]  # fmt: skip
CharactersOption = Annotated[
    int,
    typer.Option(
        "--max-characters", min=1, max=10_000_000, metavar="N", help="Characters of a request's text, at most."
    ),
]
BodyOption = Annotated[
    int, typer.Option("--max-body", min=1024, metavar="BYTES", help="Bytes of a request's body, at most.")
]
UploadOption = Annotated[
    int, typer.Option("--max-upload", min=1024, metavar="BYTES", help="Bytes of a voice's recording, at most.")
]
UploadSecondsOption = Annotated[
    float, typer.Option("--max-upload-seconds", min=1.0, metavar="S", help="Seconds of a voice's recording, at most.")
]
ConnectionsOption = Annotated[
    int, typer.Option("--max-connections", min=1, metavar="N", help="Connections open at once, at most.")
]
RequestSecondsOption = Annotated[
    float, typer.Option("--request-seconds", min=0.1, metavar="S", help="From asking to the last byte.")
]
ReaderSecondsOption = Annotated[
    float, typer.Option("--reader-seconds", min=0.1, metavar="S", help="Until a caller that reads nothing is dropped.")
]
ShutdownSecondsOption = Annotated[
    float, typer.Option("--shutdown-seconds", min=0.0, metavar="S", help="What requests have to finish at the end.")
]


@app.command()
def serve(
    model: common.ModelOption,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8080,
    rows: RowsOption = 8,
    queue: QueueOption = 32,
    api_key: KeyOption = None,
    cors: CorsOption = None,
    voices: VoicesOption = None,
    wyoming: WyomingOption = None,
    max_characters: CharactersOption = 4096,
    max_body: BodyOption = 1 << 20,
    max_upload: UploadOption = 10 << 20,
    max_upload_seconds: UploadSecondsOption = 60.0,
    max_connections: ConnectionsOption = 256,
    request_seconds: RequestSecondsOption = 600.0,
    reader_seconds: ReaderSecondsOption = 30.0,
    shutdown_seconds: ShutdownSecondsOption = 30.0,
    device: common.DeviceOption = "cpu",
    threads: common.ThreadsOption = None,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Serve speech over HTTP, as OpenAI's API has it.

    Without a model it serves the voice in the package; without --threads it leaves one core to the network.
    Ctrl-C or SIGTERM: requests that run finish, then it ends.
    """
    with common.reporting(quiet=quiet, verbose=verbose):
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            common.fail(f"`dualar serve` needs {', '.join(missing)}: pip install 'dualar[server]'", common.FAILED)
        import dualar
        from dualar.engine import Engine
        from dualar.server.config import ServerConfig
        from dualar.server.guard import is_loopback
        from dualar.server.run import serve as run

        config = ServerConfig(
            host=host, port=port, rows=rows, queue=queue, api_key=api_key or None, cors=tuple(cors or ()),
            voices=voices, wyoming=_address(wyoming),
            max_characters=max_characters, max_body_bytes=max_body, max_upload_bytes=max_upload,
            max_upload_seconds=max_upload_seconds, max_connections=max_connections, request_seconds=request_seconds,
            reader_seconds=reader_seconds, shutdown_seconds=shutdown_seconds,
        )  # fmt: skip
        if not is_loopback(host) and config.api_key is None and not quiet:
            common.note(f"warning: anybody who reaches {host} may use this server; --api-key asks for a key")
        if threads is None:
            # A core is left to the network and to encoding: threads that wait for one another would wait for these too.
            threads = max(1, dualar.default_threads() - 1)
        with shown_loading(model, quiet=quiet):
            engine = Engine(model, device=device, threads=threads)
        with engine:
            run(engine, config, on_ready=lambda url: common.note(f"serving {model.name} on {url}"))


def _address(text: str | None) -> tuple[str, int] | None:
    """HOST:PORT, or a usage error."""
    if text is None:
        return None
    host, _, port = text.removeprefix("tcp://").rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(f"--wyoming: expected HOST:PORT, got {text!r}.")
    return host.strip("[]"), int(port)
