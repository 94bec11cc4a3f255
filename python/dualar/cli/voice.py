"""`dualar voice`: the store of voices. Owns the options and what is printed; the store is `dualar.VoiceStore`'s."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualar.cli import common

if TYPE_CHECKING:
    from dualar.voices.voice import Voice

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Keep voices: add, list, show and remove.\n\nThey lie in the folder that DUALAR_VOICES names, or else in the "
    "user's data folder, a .voice file each.",
)


@app.command()
def add(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What to call it: letters, digits, '-', '_', '.' and spaces.")
    ],
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A recording of it (WAV, FLAC, OGG or MP3), or a voice file (.voice or .s2voice)."
        ),
    ],
    transcript: Annotated[
        str | None,
        typer.Option("--transcript", metavar="TEXT", help="What is said in the recording.", show_default="none"),
    ] = None,
    transcript_file: Annotated[
        Path | None,
        typer.Option(
            "--transcript-file", metavar="FILE", help="Read the transcript from this UTF-8 file.", show_default="none"
        ),
    ] = None,
    no_transcript: Annotated[
        bool,
        typer.Option(
            "--no-transcript",
            help="Keep what a Qwen3-TTS model hears of the speaker, not the recording: where no transcript is at hand.",
        ),
    ] = False,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            envvar="DUALAR_MODEL",
            metavar="FILE",
            help="The model's GGUF file, to encode a recording with, or to check a voice file against its codec.",
            show_default="none",
        ),
    ] = None,
    device: common.DeviceOption = "cpu",
    threads: common.ThreadsOption = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a voice of that name without asking.")] = False,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Add a voice: from a recording and what is said in it, or from a voice file."""
    with common.reporting(quiet=quiet, verbose=verbose):
        from dualar.voices.name import check_voice_name
        from dualar.voices.store import VoiceStore

        name, store = check_voice_name(common.as_utf8(name)), VoiceStore()
        if not source.is_file():
            raise typer.BadParameter(f"{source} is no file. Give a recording or a voice file.")
        if name in store.names() and not force:
            _may_replace(name)
            force = True
        store.check_new(name, force=force)
        if _is_voice(source):
            if no_transcript:
                raise typer.BadParameter(f"--no-transcript is for recordings: {source} is a voice file.")
            voice = _imported(context, source, transcript, transcript_file, model, device=device, threads=threads)
        else:
            if no_transcript and (transcript is not None or transcript_file is not None):
                raise typer.BadParameter("--no-transcript and a transcript exclude each other.")
            words = None if no_transcript else _read_transcript(transcript, transcript_file)
            if model is None:
                raise typer.BadParameter(f"A model is needed to encode {source}: give --model, or set DUALAR_MODEL.")
            common.check_model_path(model)
            voice = _cloned(source, words, model, device=device, threads=threads, quiet=quiet)
        path = store.add(name, voice, force=force)
        if not quiet:
            common.note(f"{name}: {_length(voice)}, in {path}")


@app.command(name="list")
def list_voices(quiet: common.QuietOption = False, verbose: common.VerboseOption = 0) -> None:
    """List the voices by name.

    Exit code 1 where a file among them cannot be used; the others are listed all the same.
    """
    with common.reporting(quiet=quiet, verbose=verbose):
        from dualar.voices.store import VoiceStore

        store = VoiceStore()
        names, failed = store.names(), False
        width = max((len(name) for name in names), default=0)
        for name in names:
            try:
                voice = store.get(name)
            except (ValueError, OSError) as error:
                failed = True
                common.note(f"{name}: {error}")
            else:
                text = _printable(" ".join(voice.transcript.split()))
                shown = text if len(text) <= 60 else text[:57] + "..."
                typer.echo(f"{name:<{width}}  {_length(voice)}  {shown}")
        if not names and not quiet:
            common.note(f"no voices in {store.folder}; `dualar voice add` makes one")
        if failed:
            raise typer.Exit(common.FAILED)


@app.command()
def show(
    voice: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A voice's name, or a .voice or .s2voice file.")],
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Show what is known of a voice."""
    with common.reporting(quiet=quiet, verbose=verbose):
        found = common.find_voice(voice)
        for title, value in (
            ("Name", found.name or "none"),
            ("Length", _length(found)),
            ("Codec", f"{found.num_codebooks} codebooks of up to {found.codebook_size}, {found.sample_rate} Hz"),
            ("Fingerprint", found.fingerprint or "none"),
            ("Speaker", "none" if found.speaker is None else f"a vector of {found.speaker.size} numbers"),
            ("Transcript", _printable(found.transcript)),
        ):
            typer.echo(f"{title:<13}{value}")


@app.command()
def remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The voices' names.")],
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Remove voices. All or, where a name is unknown, none."""
    with common.reporting(quiet=quiet, verbose=verbose):
        from dualar.voices.store import VoiceStore

        store = VoiceStore()
        found = dict.fromkeys(store.find(common.as_utf8(name)) for name in names)  # once each
        for name in found:
            store.remove(name)
            if not quiet:
                common.note(f"removed {name}")


def _may_replace(name: str) -> None:
    import sys

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        common.fail(f"there is a voice {name}; pass --force to replace it.", common.BAD_INPUT)
    if not typer.confirm(f"There is a voice {name}. Replace it?", err=True):
        common.fail(f"the voice {name} was left as it is.", common.BAD_INPUT)


def _is_voice(source: Path) -> bool:
    """By content, as loading does; a name that promises a voice is also one, so that the error speaks of voices."""
    from dualar.voices.formats import MAGICS, SUFFIXES

    with open(source, "rb") as file:
        return file.read(8) in MAGICS or source.suffix.lower() in SUFFIXES


def _imported(
    context: Any, source: Path, transcript: str | None, transcript_file: Path | None, model: Path | None, **options: Any
) -> Voice:
    """A voice file's voice, checked against the model's codec where a model was named on the command line."""
    from dualar.voices.find import require_codec
    from dualar.voices.voice import Voice

    given = {
        name
        for name in ("model", "device", "threads")
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }
    if transcript is not None or transcript_file is not None:
        raise typer.BadParameter(f"{source} is a voice file, which has its transcript: give none.")
    if "model" not in given and given:
        raise typer.BadParameter(f"--{min(given)} is for encoding or with --model: {source} is a voice file.")
    voice = Voice.load(source)
    if "model" in given and model is not None:
        from dualar.codec.codec import Codec

        require_codec(voice, Codec.load(common.check_model_path(model), **options), source=str(model))
    return voice


def _cloned(source: Path, words: str | None, model: Path, *, quiet: bool, **options: Any) -> Voice:
    from dualar.audio.read import read_audio
    from dualar.loading import load_cloner
    from dualar.voices.clone import clone_voice

    samples, rate = read_audio(source)
    codec, speaker_encoder = load_cloner(model, **options)
    frames_per_second = codec.sample_rate / codec.samples_per_frame
    frames = max(1, round(samples.shape[0] / rate * frames_per_second))
    with common.SpeechProgress(
        quiet=quiet, frames_per_second=frames_per_second, expected_frames=frames, max_frames=frames
    ) as progress:
        return clone_voice(
            codec, samples, words, speaker_encoder=speaker_encoder, sample_rate=rate, on_progress=progress.on_encode
        )


def _read_transcript(text: str | None, file: Path | None) -> str:
    from dualar.text.words import require_words

    if (text is None) == (file is None):
        raise typer.BadParameter("Say once what is said in the recording: with --transcript or --transcript-file.")
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8-sig").rstrip("\r\n")
        except OSError as error:
            raise typer.BadParameter(f"cannot read {file}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise typer.BadParameter(f"expected UTF-8 text in {file}, got other bytes: {error}") from error
    assert text is not None
    words = common.as_utf8(text) if file is None else text
    require_words("transcript", words)
    return words


def _printable(text: str) -> str:
    """The text without characters that control a terminal: a voice's file may come from anywhere."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def _length(voice: Voice) -> str:
    if voice.frames == 0:
        return "a speaker's vector"
    seconds = "" if voice.duration is None else f"{voice.duration:.2f} s, "
    return f"{seconds}{voice.frames} frames"
