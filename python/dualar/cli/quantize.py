"""`dualar quantize`: a model file to a smaller one. Owns its options; the work is `dualar.convert.requantize`'s."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualar.cli import common
from dualar.cli.convert import show_progress
from dualar.cli.parts import types_by_part

if TYPE_CHECKING:
    from dualar.convert.requantize import Quantization

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def quantize(
    model: Annotated[Path, typer.Argument(metavar="IN", help="The GGUF file to read: F32, F16, BF16 or Q8_0.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The GGUF file to write.")],
    weight_type: Annotated[
        str,
        typer.Option(
            "--type", metavar="TYPE", help="For the matrices: q8_0, q6_k, q5_k, q4_k or q4_0; also f16, bf16 and f32."
        ),
    ] = "q8_0",
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="PATTERN=TYPE",
            show_default="none",
            help="Another type for the tensors whose names fit, such as 'fast_*=q8_0'. May be given several times; the "
            "first that fits counts.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be written, and write nothing.")] = False,
    force: common.ForceOption = False,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Make a model file smaller.

    The matrices of the transformers get --type, the Fast-AR's too; where rows do not fit its blocks, q8_0 or f16. What
    costs little and counts much stays finer: the first and the last layer of the Slow-AR, the tables and the head are
    q8_0, the codec and the speaker encoder f16; norms, biases and scales stay as they are. Nothing is made wider than
    it was. The new file keeps all metadata, and how it was made (`dualar info`). `dualar compare IN OUT`
    measures what was lost.
    """
    with common.reporting(quiet=quiet, verbose=verbose):
        common.check_model_path(model)
        from dualar.convert.requantize import prepare
        from dualar.runtime import open_file

        if not dry_run:
            if output.exists() and output.samefile(model):
                raise typer.BadParameter("expected another file to write than the one that is read.")
            common.check_output(output, force=force)
        file = open_file(model)
        quantization = prepare(file, weight_type=weight_type, keep=_patterns(keep or []))
        if not quiet:
            _describe(quantization, file.nbytes, dry_run=dry_run)
        if dry_run:
            return
        with show_progress("quantizing", shown=not quiet) as on_progress:
            quantization.write(output, on_progress=on_progress)
        if not quiet:
            common.note(f"{output}: written, {common.amount(quantization.nbytes)}")


def _patterns(given: list[str]) -> dict[str, str]:
    patterns: dict[str, str] = {}
    for text in given:
        pattern, equals, kind = text.rpartition("=")
        if not equals or not pattern or not kind:
            raise typer.BadParameter(f"--keep: expected PATTERN=TYPE, such as 'fast_*=q8_0', got {text!r}.")
        patterns.setdefault(pattern, kind)
    return patterns


def _describe(quantization: Quantization, before: int, *, dry_run: bool) -> None:
    """What is written: what a dry run is asked for, a note otherwise."""
    from dualar.families.registry import kind_of

    size = f"{common.amount(before)} become {common.amount(quantization.nbytes)}"
    lines = [f"{quantization.architecture}: {len(quantization.tensors)} tensors, {size}"]
    tensors = ((tensor.name, tensor.kind, tensor.shape) for tensor in quantization.tensors)
    lines += [f"{part:<23}{types}" for part, types in types_by_part(kind_of(quantization.architecture), tensors)]
    changes = Counter(quantization.changed.values())
    told = ", ".join(f"{count} from {old} to {new}" for (old, new), count in changes.most_common())
    lines.append(f"{'Changed':<23}{told or 'nothing'}")
    for line in lines:
        typer.echo(line, err=not dry_run)
