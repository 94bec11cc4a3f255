"""`dualar decode`: a matrix of codes to a WAV file. Leaves the decoding to `dualar.codec`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualar.cli import common
from dualar.cli.loading_shown import shown_loading

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def decode(
    codes: Annotated[
        Path,
        typer.Argument(metavar="CODES", help="A .npy file of integers [codebooks, frames], as `say --codes` writes."),
    ],
    model: common.ModelOption,
    output: common.OutOption,
    chunk_frames: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Decode chunks of this many frames by themselves, as Qwen3-TTS's published code does with 300: an "
            "approximation. By default the whole is decoded exactly.",
        ),
    ] = None,
    left_context: Annotated[
        int | None, typer.Option(min=0, help="Frames that are decoded again before each chunk; by default 25.")
    ] = None,
    subtype: common.SubtypeOption = "PCM_16",
    device: common.DeviceOption = "cpu",
    threads: common.ThreadsOption = None,
    force: common.ForceOption = False,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Decode codes: write the sound that they stand for to a WAV file."""
    with common.reporting(quiet=quiet, verbose=verbose):
        matrix = common.read_array(codes)
        from dualar.audio.wav import check_wav_path, write_wav
        from dualar.codec.codec import Codec

        check_wav_path(output)
        common.check_output(output, force=force)
        with shown_loading(model, quiet=quiet):
            codec = Codec.load(model, device=device, threads=threads)
        rate = codec.sample_rate / codec.samples_per_frame
        frames = matrix.shape[-1] if matrix.ndim else 0
        with common.SpeechProgress(
            quiet=quiet, frames_per_second=rate, expected_frames=frames, max_frames=max(frames, 1)
        ) as progress:
            samples = codec.decode(
                matrix, chunk_frames=chunk_frames, left_context=left_context, on_progress=progress.on_decode
            )
        if samples.shape[0] == 0:
            common.fail(f"{codes} holds no frames; nothing was written.", common.BAD_INPUT)
        write_wav(output, samples, codec.sample_rate, subtype=subtype)
        if not quiet:
            common.note(f"{output}: {samples.shape[0] / codec.sample_rate:.2f} s, {frames} frames")
