"""`dualar convert`: a published checkpoint to a model file. Owns its options; the work is `dualar.convert`'s."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from dualar.cli import common

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def convert(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="The checkpoint's folder, with its config.json.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The GGUF file to write.")],
    weight_type: Annotated[
        str,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="What the transformers' matrices are kept in: f32, f16, bf16, q8_0, q6_k, q5_k, q4_k or q4_0.",
        ),
    ] = "f16",
    force: common.ForceOption = False,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Convert a published checkpoint (S2; Qwen3-TTS, 12 Hz) to one GGUF file, its tokenizer inside."""
    with common.reporting(quiet=quiet, verbose=verbose):
        if not checkpoint.is_dir():
            raise typer.BadParameter(f"{checkpoint} is no folder. Give the one that has the checkpoint's config.json.")
        from dualar.convert.model_file import convert as convert_checkpoint
        from dualar.convert.quantize import check_type

        check_type(weight_type)
        common.check_output(output, force=force)
        with _progress(shown=not quiet) as on_progress:
            done = convert_checkpoint(checkpoint, output, weight_type=weight_type, on_progress=on_progress)
        if quiet:
            return
        common.note(f"{output}: {done.architecture}, {len(done.tensors)} tensors, {common.amount(done.nbytes)}")
        if done.finer:
            names = ", ".join(done.finer[:3]) + (" ..." if len(done.finer) > 3 else "")
            common.note(
                f"{len(done.finer)} tensors have rows that {weight_type} cannot hold, and a finer type: {names}"
            )


@contextlib.contextmanager
def _progress(*, shown: bool) -> Iterator[Callable[[int, int], object] | None]:
    """A bar of bytes written, where there is a terminal."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("converting"), BarColumn(), DownloadColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("converting", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
