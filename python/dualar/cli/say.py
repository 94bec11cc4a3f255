"""`dualar say`: text to a WAV file, or to a player. Owns the request's options and the closing line; leaves the reading
of the text to `text_input.py`, writing as the speech is made to `streaming.py`, long texts to `narrating.py`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dualar import default_voice
from dualar.cli import common, narrating, phonemes_shown, streaming, text_input
from dualar.config import DEFAULT_MAX_NEW_TOKENS, FAMILIES, SamplingConfig

if TYPE_CHECKING:
    from dualar.audio.clip import Audio
    from dualar.generation.frames import Frame, Generation

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
    output: phonemes_shown.OutputOption = None,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", show_default=False, help="What to say; - reads standard input.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Read the text from this UTF-8 file.", show_default="none"),
    ] = None,
    voice: Annotated[
        str | None,
        typer.Option(
            "--voice",
            metavar="NAME|FILE",
            help="The voice to speak with: a name that `dualar voice list` shows, or a .voice or .s2voice file.",
            show_default="the model's choice",
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language", metavar="NAME", help="The language to speak (Qwen3-TTS).", show_default="the model's choice"
        ),
    ] = None,
    speaker: Annotated[
        str | None,
        typer.Option(
            "--speaker", metavar="NAME", help="One of the model's own voices (Qwen3-TTS).", show_default="none"
        ),
    ] = None,
    instruct: Annotated[
        str | None,
        typer.Option("--instruct", metavar="TEXT", help="How to speak, in words (Qwen3-TTS).", show_default="none"),
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
        Literal["fish", "hf", "cosyvoice"] | None,
        typer.Option(
            "--sampler",
            help="The family of rules to choose codes by.",
            show_default="the model's: fish for S2, hf for Qwen3-TTS",
        ),
    ] = None,
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
            help="Frames at most; of a long text, in each piece.",
            show_default="1024, or what the model's context leaves",
        ),
    ] = None,
    min_tokens_before_end: Annotated[
        int | None,
        typer.Option(
            "--min-tokens-before-end",
            metavar="N",
            min=0,
            max=2**31 - 1,
            help="Frames at least; of a long text, in each piece.",
            show_default="0, or 2 for Qwen3-TTS",
        ),
    ] = None,
    pause: narrating.PauseOption = None,
    context: narrating.ContextOption = 768,
    retries: narrating.RetriesOption = 1,
    rows: narrating.RowsOption = 1,
    continue_from: narrating.ContinueOption = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Write the speech as it is made; the file is a whole one at any time.")
    ] = False,
    frames_per_chunk: Annotated[
        str | None,
        typer.Option(
            "--frames-per-chunk",
            metavar="N,N,...",
            show_default=streaming.DEFAULT_CADENCE,
            help="With --stream or -o -: frames written at a time; the last number holds for all the rest.",
        ),
    ] = None,
    stdout_format: Annotated[
        Literal["raw", "wav"] | None,
        typer.Option(
            "--format", show_default="raw", help="Of -o -: samples alone, or with a WAV header of unknown length."
        ),
    ] = None,
    subtype: common.SubtypeOption = "PCM_16",
    trim_silence: Annotated[
        bool, typer.Option("--trim-silence", help="Cut the silence at the end (under -60 dB), but for 0.1 s of it.")
    ] = False,
    peak: Annotated[
        float | None,
        typer.Option(
            "--peak",
            metavar="DB",
            min=-60.0,
            max=0.0,
            show_default="off",
            help="Scale the largest sample to this many dB of full scale; with --loudness, the most it may get to.",
        ),
    ] = None,
    loudness: Annotated[
        float | None,
        typer.Option(
            "--loudness",
            metavar="LUFS",
            min=-70.0,
            max=0.0,
            show_default="off",
            help="Scale to this loudness (BS.1770), such as -23 or -16, as far as the peak allows (-1 dB).",
        ),
    ] = None,
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
            callback=common.check_tokenizer_path,
            metavar="FILE",
            help="A tokenizer.json to read the text with.",
            show_default="in the model's file, beside it, or in its parent folder",
        ),
    ] = None,
    lexicon: phonemes_shown.LexiconOption = None,
    phonemes: phonemes_shown.PhonemesOption = False,
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
    keep_partial: Annotated[
        bool,
        typer.Option("--keep-partial", help="On Ctrl-C, keep what was said so far, as a whole but shorter WAV file."),
    ] = False,
    force: common.ForceOption = False,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Say a text: write speech to a WAV file, or as it is made into a player."""
    with common.reporting(quiet=quiet, verbose=verbose):
        words = text_input.read_text(text, file)
        if phonemes:
            phonemes_shown.show(words, model, lexicon)
            return
        output = phonemes_shown.require_output(output)
        given = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "repetition_penalty": repetition_penalty}
        chosen = {k: v for k, v in given.items() if v is not None}
        sampling = None if sampler is None else SamplingConfig.from_options(sampler, **chosen)
        streamed = stream or output == streaming.STDOUT
        if streamed and (trim_silence or peak is not None or loudness is not None):
            raise typer.BadParameter("--trim-silence, --peak and --loudness need the whole speech: not with a stream.")
        if frames_per_chunk is not None and not streamed:
            raise typer.BadParameter("--frames-per-chunk is for --stream and -o -.")
        if stdout_format is not None and output != streaming.STDOUT:
            raise typer.BadParameter("--format is for -o -; a file is always a WAV.")
        cadence = streaming.read_cadence(frames_per_chunk or streaming.DEFAULT_CADENCE)
        _check_outputs(output, codes, force=force)
        import dualar
        from dualar.families.registry import family_of
        from dualar.narration.plan import plan
        from dualar.runtime import open_file

        config = dualar.NarrationConfig(
            pause_ms=narrating.read_pauses(pause), context_tokens=context, retries=retries, rows=rows
        ).for_model(family_of(open_file(model)).longest_text)
        is_long = continue_from is not None or len(plan(words, config)) > 1
        job = narrating.job_for(output, continue_from, force=force) if is_long else None
        reference = None if voice is None else common.find_voice(voice)  # told before the model is loaded
        if not quiet and model == default_voice.path() and (unknown := default_voice.unknown_words(words)):
            common.note(
                "warning: the package's voice says numbers, times, dates and simple commands, written in words; these "
                f"words it does not know: {', '.join(unknown[:10])}{', …' if len(unknown) > 10 else ''}"
            )

        with dualar.load(
            model,
            device=device,
            threads=threads,
            fast_ar=fast_ar,
            kv_type=kv_type,
            tokenizer=tokenizer,
            im_end_id=im_end_id,
            lexicon=lexicon,
        ) as engine:
            rate = engine.codec.sample_rate / engine.codec.samples_per_frame
            expected = len(words.encode("utf-8", "replace")) / _TEXT_BYTES_PER_SECOND * rate
            if sampling is None:
                sampling = engine.sampling.with_options(**chosen)
            request: dict[str, Any] = {
                "voice": reference,
                "language": language,
                "speaker": speaker,
                "instruct": instruct,
                "seed": seed,
                "sampling": sampling,
                "max_new_tokens": max_new_tokens,
                "min_tokens_before_end": min_tokens_before_end,
            }
            if is_long:
                cadence_given = {} if frames_per_chunk is None else {"frames_per_chunk": cadence}
                levelled = trim_silence or peak is not None or loudness is not None
                level = partial(_levelled, trim_silence=trim_silence, peak=peak, loudness=loudness)
                files = narrating.Files(
                    output=output, codes=codes, job=job, continued=continue_from is not None, subtype=subtype,
                    raw=stdout_format != "wav" and output == streaming.STDOUT, stream=streamed,
                    level=level if levelled else None,
                )  # fmt: skip
                narrating.narrate(
                    engine, words, files, config, quiet=quiet, keep_partial=keep_partial, **request, **cadence_given
                )
                return
            made: Audio | Generation
            with (
                common.SpeechProgress(
                    quiet=quiet,
                    frames_per_second=rate,
                    expected_frames=max(int(expected), min_tokens_before_end or 0),
                    max_frames=DEFAULT_MAX_NEW_TOKENS if max_new_tokens is None else max_new_tokens,
                ) as progress,
                common.Interruption(noted=keep_partial and not streamed) as interruption,
            ):

                def on_frame(frame: Frame) -> bool:
                    progress.on_frame(frame)
                    return not interruption.happened

                if streamed:
                    raw = output == streaming.STDOUT and stdout_format != "wav"
                    with engine.stream(words, frames_per_chunk=cadence, **request) as chunks:
                        streaming.write_chunks(chunks, output, subtype=subtype, raw=raw, on_frame=progress.on_frame)
                    made = chunks.result
                else:
                    made = engine.synthesize(words, on_frame=on_frame, on_decode=progress.on_decode, **request)
        if made.codes.shape[1] == 0 and interruption.happened:
            raise KeyboardInterrupt  # nothing was said
        if made.codes.shape[1] == 0:
            common.fail(
                f"the model ended before its first frame (seed {made.seed}); nothing was written. "
                "Try another --seed, or --min-tokens-before-end 1",
                common.FAILED,
            )
        if codes is not None:
            common.write_codes(codes, made.codes)
        seconds = made.codes.shape[1] / rate
        if not isinstance(made, dualar.Generation):
            made = _levelled(made, trim_silence=trim_silence, peak=peak, loudness=loudness)
            made.save(output, subtype=subtype)
            seconds = made.duration
        if not quiet:
            _report(made, output, seconds)
        if interruption.happened:
            raise typer.Exit(common.INTERRUPTED)


def _check_outputs(output: Path, codes: Path | None, *, force: bool) -> None:
    from dualar.audio.wav import check_wav_path

    if output == streaming.STDOUT:
        streaming.check_stdout()
    else:
        check_wav_path(output)
        common.check_output(output, force=force)
    if codes is not None:
        common.check_codes_output(codes, force=force)


def _levelled(audio: Audio, *, trim_silence: bool, peak: float | None, loudness: float | None) -> Audio:
    if trim_silence:
        audio = audio.trim_silence()
    if loudness is not None:
        return audio.normalize_loudness(loudness, peak_db=-1.0 if peak is None else peak)
    return audio if peak is None else audio.normalize_peak(peak)


def _report(made: Audio | Generation, output: Path, seconds: float) -> None:
    frames = made.codes.shape[1]
    first = "" if made.timings.first_audio_ms is None else f", first sound after {made.timings.first_audio_ms:.0f} ms"
    common.note(
        f"{'standard output' if output == streaming.STDOUT else output}: {seconds:.2f} s of speech, {frames} frames, "
        f"seed {made.seed}, real-time factor {made.timings.real_time_factor or 0.0:.2f}{first}"
    )
    if made.finish_reason == "cancelled":
        common.note(f"warning: interrupted after {frames} frames; it is cut short.")
    elif made.finish_reason == "length":
        common.note(f"warning: stopped at {frames} frames, the most allowed (--max-new-tokens); it may be cut short.")
    elif made.finish_reason == "stalled":
        common.note("warning: stopped because the model ran on without end; another --seed may do better.")
    if made.padded_frames:
        common.note(f"warning: the device failed to finish {made.padded_frames} frames; their codes are partly 0.")
