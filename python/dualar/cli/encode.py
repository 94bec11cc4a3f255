"""`dualar encode`: a sound file to a matrix of codes. Leaves reading to `dualar.audio`, encoding to `dualar.codec`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualar.cli import common
from dualar.cli.loading_shown import shown_loading

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def encode(
    audio: Annotated[
        Path,
        typer.Argument(
            metavar="AUDIO", help="A sound file: WAV, FLAC, OGG or MP3, of any rate and number of channels."
        ),
    ],
    model: common.ModelOption,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The codes to write, int32 [codebooks, frames]; ends in .npy."
        ),
    ],
    device: common.DeviceOption = "cpu",
    threads: common.ThreadsOption = None,
    force: common.ForceOption = False,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Encode sound: write the codes that stand for it to a .npy file."""
    with common.reporting(quiet=quiet, verbose=verbose):
        if not audio.is_file() and not audio.is_fifo():
            raise typer.BadParameter(f"{audio} is no file. Give a sound file.")
        common.check_codes_output(output, force=force)
        from dualar.audio.read import read_audio
        from dualar.codec.codec import Codec

        samples, rate = read_audio(audio)
        with shown_loading(model, quiet=quiet):
            codec = Codec.load(model, device=device, threads=threads)
        frames_per_second = codec.sample_rate / codec.samples_per_frame
        frames = max(1, round(samples.shape[0] / rate * frames_per_second))
        with common.SpeechProgress(
            quiet=quiet, frames_per_second=frames_per_second, expected_frames=frames, max_frames=frames
        ) as progress:
            codes = codec.encode(samples, sample_rate=rate, on_progress=progress.on_encode)
        common.write_codes(output, codes)
        if not quiet:
            common.note(f"{output}: {codes.shape[1]} frames of {codes.shape[0]} codes, {samples.shape[0] / rate:.2f} s")
