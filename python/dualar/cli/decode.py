"""`dualar decode`: a matrix of codes to a WAV file. Owns the reading of the .npy file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualar.cli import common

if TYPE_CHECKING:
    import numpy.typing as npt

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def decode(
    codes: Annotated[
        Path,
        typer.Argument(metavar="CODES", help="A .npy file of integers [codebooks, frames], as `say --codes` writes."),
    ],
    model: common.ModelOption,
    output: common.OutOption,
    subtype: common.SubtypeOption = "PCM_16",
    device: common.DeviceOption = "cpu",
    threads: common.ThreadsOption = None,
    force: common.ForceOption = False,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Decode codes: write the sound that they stand for to a WAV file."""
    with common.reporting(quiet=quiet, verbose=verbose):
        matrix = _read_codes(codes)
        from dualar.audio import check_wav_path, write_wav
        from dualar.codec import Codec

        check_wav_path(output)
        common.check_output(output, force=force)
        codec = Codec.load(model, device=device, threads=threads)
        rate = codec.sample_rate / codec.samples_per_frame
        frames = matrix.shape[-1] if matrix.ndim else 0
        with common.SpeechProgress(
            quiet=quiet, frames_per_second=rate, expected_frames=frames, max_frames=max(frames, 1)
        ) as progress:
            samples = codec.decode(matrix, on_progress=progress.on_decode)
        if samples.shape[0] == 0:
            common.fail(f"{codes} holds no frames; nothing was written.", common.BAD_INPUT)
        write_wav(output, samples, codec.sample_rate, subtype=subtype)
        if not quiet:
            common.note(f"{output}: {samples.shape[0] / codec.sample_rate:.2f} s, {frames} frames")


def _read_codes(path: Path) -> npt.NDArray[Any]:
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError as error:  # a header may promise anything
        raise typer.BadParameter(f"expected a .npy array that fits into memory in {path}: {error}") from error
    except (ValueError, EOFError) as error:  # not .npy, cut short, or holding pickled objects
        raise typer.BadParameter(f"expected a .npy array in {path}: {error}") from error
    if not isinstance(loaded, np.ndarray):  # an .npz archive
        loaded.close()
        raise typer.BadParameter(f"expected one .npy array in {path}, got an archive of several")
    return loaded
