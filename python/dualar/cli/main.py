"""The program `dualar`: its list of subcommands, `--version`, and the loading of a subcommand's module on first use.

Leaves each subcommand to the module of its name, and what they share to `common.py`.
"""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
import typer.core
import typer.main

COMMANDS = (
    "say", "serve", "voice", "encode", "decode", "convert", "quantize", "compare", "wavenet", "info", "bench",
    "devices",
)  # fmt: skip


class _LazyGroup(typer.core.TyperGroup):
    """Subcommands by name, each module imported when it is asked for. (Any: click's types moved between versions.)"""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            module = importlib.import_module(f"dualar.cli.{cmd_name}")
            command = typer.main.get_command(module.app)
            command.name = cmd_name
            self.commands[cmd_name] = command
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS:  # the near names are looked for among the loaded ones
            for name in COMMANDS:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


def _print_version(value: bool) -> None:
    if value:
        from dualar._version import __version__

        typer.echo(f"dualar {__version__}")
        raise typer.Exit()


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help and errors: easy to read in a log, and no bracket is taken for markup
)


@app.callback()
def dualar(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Dual-autoregressive speech models on your own machine.

    Exit codes: 0 done, 1 failed (a damaged model, a device, a full disk), 2 bad input, 130 interrupted.
    """
