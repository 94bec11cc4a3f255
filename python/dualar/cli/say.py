"""`dualar say`: text to a WAV file. Owns the reading of the text, the request's options and the closing line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dualar.cli import common
from dualar.config import DEFAULT_MAX_NEW_TOKENS, FAMILIES, SamplingConfig

if TYPE_CHECKING:
    from dualar.audio import Audio

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

# How long speech gets, for the progress bar alone: UTF-8 bytes a second, near 14 for English as for Chinese.
_TEXT_BYTES_PER_SECOND = 14.0


def _family_defaults(name: str) -> str:
    """An option's default in each family that has it, for the help."""
    values = ((family, getattr(kind, name, None)) for family, kind in FAMILIES.items())
    return ", ".join(f"{family} {value:g}" for family, value in values if value is not None)


@app.command()
def say(
    model: common.ModelOption,
    output: common.OutOption,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", show_default=False, help="What to say; - reads standard input.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Read the text from this UTF-8 file.", show_default="none"),
    ] = None,
    codes: Annotated[
        Path | None,
        typer.Option(
            "--codes",
            metavar="FILE",
            help="Also write the codes, int32 [codebooks, frames], ends in .npy.",
            show_default="none",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            "-s",
            metavar="N",
            min=0,
            max=2**64 - 1,
            help="The same seed, the same speech.",
            show_default="random",
        ),
    ] = None,
    sampler: Annotated[
        Literal["fish", "hf", "cosyvoice"], typer.Option("--sampler", help="The family of rules to choose codes by.")
    ] = "fish",
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            metavar="X",
            min=0.0,
            max=100.0,
            show_default=_family_defaults("temperature"),
            help="How freely to choose; 0 takes the likeliest.",
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p",
            metavar="X",
            min=0.0,
            max=1.0,
            show_default=_family_defaults("top_p"),
            help="Choose within this mass of the likeliest; 1 is all.",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k",
            metavar="N",
            min=0,
            max=2**31 - 1,
            show_default=_family_defaults("top_k"),
            help="Choose among this many of the likeliest; 0 is all.",
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(
            "--repetition-penalty",
            metavar="X",
            min=0.01,
            max=100.0,
            show_default=_family_defaults("repetition_penalty"),
            help="Make codes that were used less likely (hf only); 1 is off.",
        ),
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-new-tokens",
            metavar="N",
            min=1,
            max=2**31 - 1,
            help="Frames at most.",
            show_default="1024, or what the model's context leaves",
        ),
    ] = None,
    min_tokens_before_end: Annotated[
        int, typer.Option("--min-tokens-before-end", metavar="N", min=0, max=2**31 - 1, help="Frames at least.")
    ] = 0,
    device: common.DeviceOption = "cpu",
    threads: common.ThreadsOption = None,
    fast_ar: Annotated[
        Literal["cached", "recompute"],
        typer.Option("--fast-ar", help="How to fill in a frame: cached is quick, recompute the check of it."),
    ] = "cached",
    kv_type: Annotated[
        Literal["auto", "f32", "f16"],
        typer.Option("--kv-type", help="Precision of the attention cache; auto is f32 for F32 weights, else f16."),
    ] = "auto",
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer",
            metavar="FILE",
            help="A tokenizer.json to read the text with.",
            show_default="in the model's file, beside it, or in its parent folder",
        ),
    ] = None,
    im_end_id: Annotated[
        int | None,
        typer.Option(
            "--im-end-id",
            metavar="N",
            min=0,
            max=2**31 - 1,
            help="The token that ends speech.",
            show_default="the tokenizer's <|im_end|>",
        ),
    ] = None,
    force: common.ForceOption = False,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Say a text: write speech to a WAV file."""
    with common.reporting(quiet=quiet, verbose=verbose):
        words = _read_text(text, file)
        given = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "repetition_penalty": repetition_penalty}
        sampling = SamplingConfig.from_options(sampler, **{k: v for k, v in given.items() if v is not None})
        _check_outputs(output, codes, force=force)
        import dualar

        with dualar.load(
            model,
            device=device,
            threads=threads,
            fast_ar=fast_ar,
            kv_type=kv_type,
            tokenizer=tokenizer,
            im_end_id=im_end_id,
        ) as engine:
            rate = engine.codec.sample_rate / engine.codec.samples_per_frame
            expected = len(words.encode("utf-8", "replace")) / _TEXT_BYTES_PER_SECOND * rate
            with common.SpeechProgress(
                quiet=quiet,
                frames_per_second=rate,
                expected_frames=max(int(expected), min_tokens_before_end),
                max_frames=DEFAULT_MAX_NEW_TOKENS if max_new_tokens is None else max_new_tokens,
            ) as progress:
                audio = engine.synthesize(
                    words,
                    seed=seed,
                    sampling=sampling,
                    max_new_tokens=max_new_tokens,
                    min_tokens_before_end=min_tokens_before_end,
                    on_frame=progress.on_frame,
                    on_decode=progress.on_decode,
                )
        if audio.samples.shape[0] == 0:
            common.fail(
                f"the model ended before its first frame (seed {audio.seed}); nothing was written. "
                "Try another --seed, or --min-tokens-before-end 1",
                common.FAILED,
            )
        _write(audio, output, codes)
        if not quiet:
            _report(audio, output)


def _read_text(text: str | None, file: Path | None) -> str:
    """The text, from the one place that was named; a usage error for none or two, or for bytes that are not UTF-8."""
    if (text is None) == (file is None):
        raise typer.BadParameter(
            "Give the text once: as TEXT, as - for standard input, or with --file."
            + (" TEXT and --file were both given." if text is not None else "")
        )
    if file is None and text != "-":
        assert text is not None
        return text
    try:
        data = sys.stdin.buffer.read() if file is None else file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file or 'standard input'}: {error.strerror or error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(
            f"expected UTF-8 text in {file or 'standard input'}, got byte 0x{data[error.start]:02x} at {error.start}"
        ) from error


def _check_outputs(output: Path, codes: Path | None, *, force: bool) -> None:
    from dualar.audio import check_wav_path

    check_wav_path(output)
    common.check_output(output, force=force)
    if codes is not None:
        if codes.suffix.lower() != ".npy":
            raise ValueError(f"[say] expected --codes to end in .npy, got {str(codes)!r}")
        common.check_output(codes, force=force)


def _write(audio: Audio, output: Path, codes: Path | None) -> None:
    if codes is not None:
        import io

        import numpy as np

        from dualar.audio import write_file

        buffer = io.BytesIO()
        np.save(buffer, audio.codes, allow_pickle=False)
        write_file(codes, buffer.getvalue())
    audio.save(output)


def _report(audio: Audio, output: Path) -> None:
    frames = audio.codes.shape[1]
    common.note(
        f"{output}: {audio.duration:.2f} s of speech, {frames} frames, seed {audio.seed}, "
        f"real-time factor {audio.timings.real_time_factor or 0.0:.2f}"
    )
    if audio.finish_reason == "length":
        common.note(f"warning: stopped at {frames} frames, the most allowed (--max-new-tokens); it may be cut short.")
    elif audio.finish_reason == "stalled":
        common.note("warning: stopped because the model ran on without end; another --seed may do better.")
    if audio.padded_frames:
        common.note(f"warning: the device failed to finish {audio.padded_frames} frames; their codes are partly 0.")
