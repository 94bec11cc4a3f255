"""`dualar convert`: a published checkpoint to a model file. Owns its options; the work is `dualar.convert`'s."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualar.cli import common
from dualar.cli.parts import types_by_part

if TYPE_CHECKING:
    from dualar.convert.model_file import Conversion

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def convert(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="The checkpoint's folder, with its config.json.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The GGUF file to write. Not needed with --dry-run."),
    ] = None,
    weight_type: Annotated[
        str,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="What the transformers' matrices are kept in: f32, f16, bf16, q8_0, q6_k, q5_k, q4_k or q4_0.",
        ),
    ] = "f16",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the checkpoint, tell what would be written, and write nothing.")
    ] = False,
    force: common.ForceOption = False,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Convert a published checkpoint (S2, S1; Qwen3-TTS, 12 Hz; CSM) to one GGUF file, its tokenizer inside.

    Before writing, it prints what will be written: parts, types and size, and the tensors that have no use.
    """
    with common.reporting(quiet=quiet, verbose=verbose):
        if not checkpoint.is_dir():
            raise typer.BadParameter(f"{checkpoint} is no folder. Give the one that has the checkpoint's config.json.")
        from dualar.convert.model_file import prepare
        from dualar.convert.quantize import check_type

        check_type(weight_type)
        if output is None and not dry_run:
            raise typer.BadParameter("expected --output FILE, the file to write (or --dry-run).")
        if output is not None:
            common.check_output(output, force=force)
        conversion = prepare(checkpoint, weight_type=weight_type)
        if not quiet:
            _describe(conversion, weight_type, dry_run=dry_run, everything=verbose > 0)
        if output is None or dry_run:
            return
        with show_progress("converting", shown=not quiet) as on_progress:
            conversion.write(output, on_progress=on_progress)
        if not quiet:
            common.note(f"{output}: written, {common.amount(conversion.nbytes)}")


def _describe(conversion: Conversion, weight_type: str, *, dry_run: bool, everything: bool) -> None:
    """What a conversion writes: what a dry run is asked for, a note otherwise."""
    from dualar.families.registry import kind_of

    size = f"{len(conversion.tensors)} tensors, {common.amount(conversion.nbytes)}"
    lines = [f"{conversion.architecture}: {size}"]
    tensors = ((tensor.name, tensor.kind, tensor.shape) for tensor in conversion.tensors)
    lines += [f"{part:<23}{types}" for part, types in types_by_part(kind_of(conversion.architecture), tensors)]
    if finer := conversion.finer:
        named = _named(finer, everything=everything)
        lines.append(f"{'In a finer type':<23}{len(finer)}, whose rows {weight_type} cannot hold: {named}")
    if unused := conversion.left_out:
        named = _named(unused, everything=everything)
        lines.append(f"{'Left out':<23}{len(unused)} that a model file has no use for: {named}")
    for line in lines:
        typer.echo(line, err=not dry_run)


def _named(names: Sequence[str], *, everything: bool) -> str:
    from dualar.convert.published import shown

    some = names if everything else names[:3]
    return ", ".join(map(shown, some)) + (" ... (-v lists all)" if len(names) > len(some) else "")


@contextlib.contextmanager
def show_progress(work: str, *, shown: bool) -> Iterator[Callable[[int, int], object] | None]:
    """A bar of bytes written, where there is a terminal."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(work), BarColumn(), DownloadColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(work, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
