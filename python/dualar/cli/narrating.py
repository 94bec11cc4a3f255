"""What `dualar say` does with a long text: piece by piece into one file or stream, with a job that can be continued.

Owns the files beside the output, the progress by pieces, and the messages about those that failed. Leaves the options
to `say_options.py`, the pieces to `dualar.narration`.

While a file is made, its finished pieces are kept in OUTPUT.job, and their sound in OUTPUT.part (with --stream in the
output itself). At the end the part becomes the output, and the job goes unless a piece failed.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dualar.cli import common, streaming
from dualar.files import replacing

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.progress import Progress

    from dualar.cli.output import Output
    from dualar.engine import Engine
    from dualar.narration.config import NarrationConfig
    from dualar.narration.plan import NarrationProgress, TextPlan
    from dualar.narration.result import NarrationResult
    from dualar.speech.request import SpeechRequest


@dataclass(frozen=True, kw_only=True)
class Files:
    """Where a long text goes. job: the job's file, None for standard output; continued: whether it is there already."""

    output: Output
    job: Path | None
    continued: bool

    @property
    def growing(self) -> Path | None:
        """The file that has the sound so far; None where the whole is kept in memory, or goes into no file."""
        output = self.output
        if not output.is_file or output.levels.any:
            return None
        return output.path if output.streamed else output.path.with_name(output.path.name + ".part")


def read_pauses(text: str | None) -> Any:
    """ "200" or "sentence=200,turn=400" as `NarrationConfig.pause_ms` has it, or a usage error."""
    try:
        if text is None:
            return {}
        if "=" not in text:
            return float(text)
        pairs = [part.split("=") for part in text.split(",")]
        return {end.strip(): float(pause) for end, pause in pairs}
    except ValueError:
        raise typer.BadParameter(
            f"--pause: expected milliseconds, or some of turn=, paragraph=, sentence=, clause= and word= with commas "
            f"between, got {text!r}."
        ) from None


def job_for(output: Output, continue_from: Path | None, *, force: bool) -> Path | None:
    """The job's file: the one to continue, or a new one beside the output; None where that is no file."""
    if continue_from is not None:
        if not continue_from.is_file():
            raise typer.BadParameter(f"--continue-from: {continue_from} does not exist. Give the .job file of a run.")
        return continue_from
    if not output.is_file:
        return None
    job = output.path.with_name(output.path.name + ".job")
    if job.exists():
        if not force:
            common.fail(
                f"{job} is there from an earlier run: go on with it by --continue-from {job}, or --force a new one.",
                common.BAD_INPUT,
            )
        job.unlink()
    return job


def narrate(
    engine: Engine, request: SpeechRequest, plan: TextPlan, files: Files, *, quiet: bool, keep_partial: bool
) -> None:
    """Say a long text; ends with exit code 1 where a piece failed."""
    from dualar.narration.speak import DEFAULT_CADENCE

    in_memory: list[npt.NDArray[np.float32]] = []
    rate, output = engine.codec.sample_rate, files.output
    after = _samples_there(files, plan.config, rate)
    try:
        with (
            PieceProgress(quiet=quiet) as progress,
            engine.narrate_stream(
                replace(request, on_frame=progress.on_frame), plan=plan, job=files.job, first_sample=after,
                on_piece=progress.on_piece,
                frames_per_chunk=DEFAULT_CADENCE if output.cadence is None else output.cadence,
            ) as chunks,
        ):  # fmt: skip
            if output.levels.any:
                in_memory = [chunk.samples for chunk in chunks]
            else:
                streaming.write_chunks(
                    chunks, files.growing or output.path, subtype=output.subtype, raw=output.raw, after=after,
                    player=output.player,
                )  # fmt: skip
    except (KeyboardInterrupt, RuntimeError, OSError):
        _interrupted(files, keep_partial=keep_partial)
        raise
    result = chunks.result
    if any(piece.codes.shape[1] for piece in result.pieces):
        _finish(files, in_memory, result, rate, quiet=quiet)
        if result.failed:
            _tell_failures(files, result)
            raise typer.Exit(common.FAILED)
        if files.job is not None:
            files.job.unlink()
        return
    _tell_failures(files, result)
    if files.growing is not None and files.growing != output.path:
        files.growing.unlink(missing_ok=True)  # silence
    common.fail(f"no piece of {len(result.pieces)} could be spoken (seed {result.seed}).", common.FAILED)


def _samples_there(files: Files, config: NarrationConfig, rate: int) -> int:
    """How many samples of an earlier run are in the growing file, up to the end of a finished piece."""
    from dualar.audio.wav import written_samples
    from dualar.narration.job import settled_samples

    if not files.continued or files.growing is None or files.job is None:
        return 0
    there = written_samples(files.growing, rate, files.output.subtype)
    return max((end for end in settled_samples(files.job, retries=config.retries) if end <= there), default=0)


def _finish(
    files: Files, in_memory: list[npt.NDArray[np.float32]], result: NarrationResult, rate: int, *, quiet: bool
) -> None:
    """Write the sound and the codes to the files that were asked for."""
    output = files.output
    timeline = result.timeline
    if output.levels.any:
        timeline = timeline.cut(_save_levelled(output, in_memory, result))
    elif files.growing is not None and files.growing != output.path:
        os.replace(files.growing, output.path)
    if output.codes is not None:
        common.write_codes(output.codes, result.codes)
    if output.subtitles is not None:
        timeline.save(output.subtitles)
    if not quiet:
        _report(files, result, rate)


def _tell_failures(files: Files, result: NarrationResult) -> None:
    for piece in result.failed:
        common.note(
            f"warning: piece {piece.index + 1} of {len(result.pieces)} was left out, after {piece.attempts} "
            f"{'attempt' if piece.attempts == 1 else 'attempts'} ({piece.error}): {piece.text.strip()!r}"
        )
    if files.job is not None:
        common.note(
            f"{files.job} keeps the others: --continue-from it, with more --retries and --force, tries again "
            "what was left out."
        )


def _interrupted(files: Files, *, keep_partial: bool) -> None:
    growing = files.growing
    if keep_partial and growing is not None and growing != files.output.path and growing.exists():
        with open(growing, "rb") as said, replacing(files.output.path) as file:
            shutil.copyfileobj(said, file)
        common.note(f"{files.output.path}: what was said so far")
    if files.job is not None and files.job.exists():
        common.note(f"what is finished is kept: say the same again with --continue-from {files.job}")


def _save_levelled(output: Output, in_memory: list[npt.NDArray[np.float32]], result: NarrationResult) -> int:
    """Write the file; returns how many samples it has."""
    import numpy as np

    from dualar.narration.result import Narration

    given = {field.name: getattr(result, field.name) for field in fields(result)}
    clip = output.levels.applied(Narration(samples=np.concatenate(in_memory), **given).audio)
    clip.save(output.path, subtype=output.subtype)
    return int(clip.samples.size)


def _report(files: Files, result: NarrationResult, rate: int) -> None:
    last = result.pieces[-1]
    factor, first = result.timings.real_time_factor, result.timings.first_audio_ms
    common.note(
        f"{files.output.name}: {(last.sample_start + last.sample_count) / rate:.2f} s of speech, "
        f"{len(result.pieces)} pieces, {result.codes.shape[1]} frames, seed {result.seed}"
        + ("" if factor is None else f", real-time factor {factor:.2f}")
        + (f", first sound after {first:.0f} ms" if files.output.streamed and first is not None else "")
    )
    if padded := sum(piece.padded_frames for piece in result.pieces):
        common.note(f"warning: the device failed to finish {padded} frames; their codes are partly 0.")


class PieceProgress:
    """A bar of pieces with the time left on a terminal; a line for each piece where there is none."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Progress | None = None
        self._frames = 0
        self._seconds: float | None = None  # the estimate of the time left, made at the time `_since`
        self._since = 0.0

    def __enter__(self) -> PieceProgress:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[left]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("first piece", total=None, left="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def on_frame(self, frame: object) -> None:
        """For `on_frame`."""
        if self._bar is not None:
            self._frames += 1
            self._bar.update(self._task, left=f"{self._frames} frames{self._left()}")

    def on_piece(self, progress: NarrationProgress) -> None:
        """For `on_piece`."""
        self._seconds, self._since = progress.seconds_left, time.perf_counter()
        if self._bar is not None:
            name = f"piece {min(progress.done + 1, progress.total)} of {progress.total}"
            self._bar.update(self._task, description=name, completed=progress.done, total=progress.total)
        elif not self._quiet:
            said = "left out" if progress.piece.error is not None else f"{progress.piece.codes.shape[1]} frames"
            common.note(f"piece {progress.done} of {progress.total}: {said}{self._left()}")

    def _left(self) -> str:
        if self._seconds is None:
            return ""
        left = round(max(0.0, self._seconds - (time.perf_counter() - self._since)))
        return f", about {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
