"""What `dualar say` does with a text that is spoken in one go: into one file, or as it is made.

Owns its progress, its interruption and the closing lines. Leaves the options to `say_options.py`, texts of several
pieces to `narrating.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from dualar.cli import common, streaming
from dualar.config import DEFAULT_MAX_NEW_TOKENS

if TYPE_CHECKING:
    from dualar.audio.clip import Audio
    from dualar.cli.output import Output
    from dualar.engine import Engine
    from dualar.generation.frames import Frame, Generation
    from dualar.speech.request import SpeechRequest

# How long speech gets, for the progress bar alone: UTF-8 bytes a second, near 14 for English as for Chinese.
_TEXT_BYTES_PER_SECOND = 14.0


def speak(engine: Engine, request: SpeechRequest, output: Output, *, quiet: bool, keep_partial: bool) -> None:
    """Say a text; ends with exit code 1 where nothing was said, 130 where it was interrupted."""
    made: Audio | Generation
    rate = engine.codec.sample_rate / engine.codec.samples_per_frame
    with (
        _progress(request, rate, quiet=quiet) as progress,
        common.Interruption(noted=keep_partial and not output.streamed) as interruption,
    ):

        def on_frame(frame: Frame) -> bool:
            progress.on_frame(frame)
            return not interruption.happened

        if output.streamed:
            cadence = output.cadence or streaming.read_cadence(streaming.DEFAULT_CADENCE)
            with engine.stream(request, frames_per_chunk=cadence) as chunks:
                streaming.write_chunks(
                    chunks, output.path, subtype=output.subtype, raw=output.raw, player=output.player,
                    on_frame=progress.on_frame,
                )  # fmt: skip
            made = chunks.result
        else:
            made = engine.synthesize(replace(request, on_frame=on_frame), on_decode=progress.on_decode)
    if made.codes.shape[1] == 0:
        if interruption.happened:
            raise KeyboardInterrupt  # nothing was said
        common.fail(
            f"the model ended before its first frame (seed {made.seed}); nothing was written. "
            "Try another --seed, or --min-tokens-before-end 1",
            common.FAILED,
        )
    seconds = _write(made, output, rate)
    if output.subtitles is not None:
        from dualar.narration.timeline import Timeline

        samples = round(seconds * engine.codec.sample_rate)
        timeline = Timeline.of_clip(request.text, samples, engine.codec.sample_rate, words=made.words)
        timeline.cut(samples).save(output.subtitles)
    if not quiet:
        _report(made, output, seconds)
    if interruption.happened:
        raise typer.Exit(common.INTERRUPTED)


def _progress(request: SpeechRequest, rate: float, *, quiet: bool) -> common.SpeechProgress:
    expected = len(request.text.encode("utf-8", "replace")) / _TEXT_BYTES_PER_SECOND * rate
    return common.SpeechProgress(
        quiet=quiet,
        frames_per_second=rate,
        expected_frames=max(int(expected), request.min_tokens_before_end or 0),
        max_frames=DEFAULT_MAX_NEW_TOKENS if request.max_new_tokens is None else request.max_new_tokens,
    )


def _write(made: Audio | Generation, output: Output, rate: float) -> float:
    """Write the codes, and the clip unless it was streamed; returns its seconds."""
    from dualar.generation.frames import Generation

    if output.codes is not None:
        common.write_codes(output.codes, made.codes)
    if isinstance(made, Generation):
        return float(made.codes.shape[1] / rate)
    clip = output.levels.applied(made)
    clip.save(output.path, subtype=output.subtype)
    return clip.duration


def _report(made: Audio | Generation, output: Output, seconds: float) -> None:
    frames = made.codes.shape[1]
    first = "" if made.timings.first_audio_ms is None else f", first sound after {made.timings.first_audio_ms:.0f} ms"
    common.note(
        f"{output.name}: {seconds:.2f} s of speech, {frames} frames, seed {made.seed}, real-time factor "
        f"{made.timings.real_time_factor or 0.0:.2f}{first}"
    )
    if made.finish_reason == "cancelled":
        common.note(f"warning: interrupted after {frames} frames; it is cut short.")
    elif made.finish_reason == "length":
        common.note(f"warning: stopped at {frames} frames, the most allowed (--max-new-tokens); it may be cut short.")
    elif made.finish_reason == "stalled":
        common.note("warning: stopped because the model ran on without end; another --seed may do better.")
    if made.padded_frames:
        common.note(f"warning: the device failed to finish {made.padded_frames} frames; their codes are partly 0.")
