"""`dualar wavenet`: the subcommands for WaveNet files. Leaves the making of samples to `dualar.wavenet`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualar.cli import common

if TYPE_CHECKING:
    import numpy.typing as npt

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def wavenet() -> None:
    """Make sound sample by sample with a WaveNet file."""


@app.command()
def generate(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", callback=common.check_model_path, help="A GGUF file of the architecture wavenet."
        ),
    ],
    output: common.OutOption,
    condition: Annotated[
        Path,
        typer.Option(
            "--condition",
            "-c",
            metavar="FILE",
            help="A .npy file of numbers [condition channels, samples]: one column for each sample.",
        ),
    ],
    n: Annotated[
        int | None,
        typer.Option(
            "--n", "-n", metavar="N", min=1, max=2**31 - 1, show_default="a sample for each column", help="Samples."
        ),
    ] = None,
    first: Annotated[
        int | None,
        typer.Option(
            "--first",
            metavar="CLASS",
            min=0,
            max=65535,
            show_default="the class of silence",
            help="The class of the sample before the first one made.",
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            metavar="X",
            min=0.0,
            max=100.0,
            show_default="1",
            help="How freely to choose; 0 takes the likeliest.",
        ),
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the likeliest class each time.")] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            "-s",
            metavar="N",
            min=0,
            max=2**63 - 1,
            show_default="random",
            help="The same seed, the same sound.",
        ),
    ] = None,
    subtype: common.SubtypeOption = "PCM_16",
    threads: common.ThreadsOption = None,
    force: common.ForceOption = False,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Make sound under a condition: write a WAV file."""
    with common.reporting(quiet=quiet, verbose=verbose):
        columns = _read_condition(condition)
        from dualar.audio.wav import check_wav_path, write_wav
        from dualar.wavenet import WaveNet

        check_wav_path(output)
        common.check_output(output, force=force)
        net = WaveNet.load(model, threads=threads)
        count = columns.shape[1] if n is None else n
        start = int(net.classes(0.0)) if first is None else first
        if seed is None:
            import secrets

            seed = secrets.randbits(32)
        classes = net.generate(count, columns, first=start, temperature=temperature, seed=seed, greedy=greedy)
        write_wav(output, net.samples(classes), net.sample_rate, subtype=subtype)
        if not quiet:
            drawn = "greedy" if greedy or temperature == 0 else f"seed {seed}"
            common.note(f"{output}: {count / net.sample_rate:.2f} s, {count} samples, {drawn}")


def _read_condition(path: Path) -> npt.NDArray[Any]:
    """The numbers [H, T >= 1] of a .npy file."""
    loaded = common.read_array(path)
    if loaded.ndim != 2 or loaded.shape[1] == 0:
        raise typer.BadParameter(
            f"expected an array [condition channels, samples] in {path}, got shape {list(loaded.shape)}"
        )
    return loaded
