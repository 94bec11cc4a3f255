"""`dualar compare`: how far two files of one model are apart. Owns its table; `dualar.comparison` measures."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualar.cli import common, say_options

if TYPE_CHECKING:
    from dualar.comparison import Comparison

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="The GGUF file that the other is measured by.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another GGUF file of the same model.")],
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts", metavar="FILE", help="Texts to speak, a line each, UTF-8.", show_default="six short sentences"
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", "-s", metavar="N", min=0, max=2**63, help="Of the first text that A speaks.")
    ] = 0,
    voice: say_options.VoiceOption = None,
    speaker: say_options.SpeakerOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")] = False,
    device: common.DeviceOption = "cpu",
    threads: common.ThreadsOption = None,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Measure how far apart two files of one model are, such as a model and what `dualar quantize` made of it.

    A speaks the texts; both are then given A's codes, frame by frame. Told for the main codes, for the further ones and
    for each codebook: the KL divergence of B from A in nats (0: the same; its mean and its largest), and how often both
    find the same code the likeliest; for the codecs the signal-to-noise ratio of B's sound. Both files are in memory.
    """
    with common.reporting(quiet=quiet, verbose=verbose):
        common.check_model_path(first)
        common.check_model_path(second)
        from dualar import comparison
        from dualar.engine import load

        reference = None if voice is None else common.find_voice(voice)
        lines = comparison.DEFAULT_TEXTS if texts is None else _read(texts)
        with load(first, device=device, threads=threads) as a, load(second, device=device, threads=threads) as b:

            def on_text(done: int, total: int) -> None:
                if not quiet and not as_json:
                    common.note(f"text {done} of {total}")

            found = comparison.compare(a, b, lines, seed=seed, on_text=on_text, voice=reference, speaker=speaker)
        if as_json:
            typer.echo(json.dumps(_as_json(found, first, second), indent=1))
        else:
            _table(found)


def _read(path: Path) -> list[str]:
    from dualar.cli.text_input import read_text

    lines = [line.strip() for line in read_text(None, path).splitlines()]
    return [line for line in lines if line]


def _as_json(found: Comparison, first: Path, second: Path) -> dict[str, object]:
    told = {"a": str(first), "b": str(second), **asdict(found)}
    if found.snr_db is not None and math.isinf(found.snr_db):
        told["snr_db"] = "inf"  # JSON has no number for it
    return told


def _table(found: Comparison) -> None:
    typer.echo(f"{found.texts} texts, {found.frames} frames")
    typer.echo(f"{'part':<16}{'KL (nats)':>12}{'largest':>12}{'same top-1':>13}")
    for part in found.parts:
        typer.echo(f"{part.part:<16}{part.kl:>12.5f}{part.worst:>12.4f}{100 * part.agreement:>11.2f} %")
    if found.snr_db is not None:
        same = math.isinf(found.snr_db)
        typer.echo(f"{'codec':<16}" + ("the same sound" if same else f"{found.snr_db:>9.1f} dB SNR"))
