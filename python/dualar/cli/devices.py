"""`dualar devices`: what this build can compute on."""

from __future__ import annotations

import typer

from dualar.cli import common

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def devices(quiet: common.QuietOption = False, verbose: common.VerboseOption = 0) -> None:
    """List the devices that this build can use.

    The first column is what --device takes.
    """
    with common.reporting(quiet=quiet, verbose=verbose):
        import dualar
        from dualar._native import _core

        for device in dualar.devices():
            memory = f"{common.amount(device.memory_total)} memory" if device.memory_total else ""
            if device.kind == "cpu":
                threads = f"{dualar.default_threads()} threads by default"
                memory = ", ".join(filter(None, (memory, threads, f"{_core.cpu_kernels()} kernels")))
            typer.echo("  ".join(filter(None, (f"{device.name:<10}{device.kind:<6}", device.description, memory))))
