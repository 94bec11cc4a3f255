"""The options of `dualar say`, each with its help.

Owns their names, ranges and texts. Leaves what they do to `say.py` and the modules behind it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dualar.cli import common, streaming
from dualar.config import FAMILIES


def _sampler_defaults(name: str) -> str:
    """An option's default for each sampler that has it, for the help."""
    values = ((sampler, getattr(kind, name, None)) for sampler, kind in FAMILIES.items())
    return ", ".join(f"{sampler} {value:g}" for sampler, value in values if value is not None)


TextArgument = Annotated[
    str | None, typer.Argument(metavar="TEXT", show_default=False, help="What to say; - reads standard input.")
]
FileOption = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="Read the text from this UTF-8 file.", show_default="none"),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="The WAV file to write, mono; ends in .wav. - is standard output, as with --stream.",
        show_default="none: the speech is played",
    ),
]
VoiceOption = Annotated[
    str | None,
    typer.Option(
        "--voice",
        metavar="NAME|FILE",
        help="The voice to speak with: a name that `dualar voice list` shows, or a .voice or .s2voice file.",
        show_default="the model's choice",
    ),
]
LanguageOption = Annotated[
    str | None,
    typer.Option(
        "--language", metavar="NAME", help="The language to speak (Qwen3-TTS).", show_default="the model's choice"
    ),
]
SpeakerOption = Annotated[
    str | None,
    typer.Option("--speaker", metavar="NAME", help="One of the model's own voices (Qwen3-TTS).", show_default="none"),
]
InstructOption = Annotated[
    str | None,
    typer.Option("--instruct", metavar="TEXT", help="How to speak, in words (Qwen3-TTS).", show_default="none"),
]
CodesOption = Annotated[
    Path | None,
    typer.Option(
        "--codes",
        metavar="FILE",
        help="Also write the codes, int32 [codebooks, frames], ends in .npy.",
        show_default="none",
    ),
]
SubtitlesOption = Annotated[
    Path | None,
    typer.Option(
        "--subtitles",
        metavar="FILE",
        help="Also write when each sentence is heard: a name that ends in .srt, .vtt or .json.",
        show_default="none",
    ),
]
SeedOption = Annotated[
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
]
SamplerOption = Annotated[
    Literal["fish", "hf", "cosyvoice"] | None,
    typer.Option(
        "--sampler",
        help="The rules by which codes are chosen.",
        show_default="the model's: fish for S2, hf for Qwen3-TTS",
    ),
]
TemperatureOption = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        metavar="X",
        min=0.0,
        max=100.0,
        show_default=_sampler_defaults("temperature"),
        help="How freely to choose; 0 takes the likeliest.",
    ),
]
TopPOption = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        metavar="X",
        min=0.0,
        max=1.0,
        show_default=_sampler_defaults("top_p"),
        help="Choose within this mass of the likeliest; 1 is all.",
    ),
]
TopKOption = Annotated[
    int | None,
    typer.Option(
        "--top-k",
        metavar="N",
        min=0,
        max=2**31 - 1,
        show_default=_sampler_defaults("top_k"),
        help="Choose among this many of the likeliest; 0 is all.",
    ),
]
RepetitionPenaltyOption = Annotated[
    float | None,
    typer.Option(
        "--repetition-penalty",
        metavar="X",
        min=0.01,
        max=100.0,
        show_default=_sampler_defaults("repetition_penalty"),
        help="Make codes that were used less likely (hf only); 1 is off.",
    ),
]
MaxNewTokensOption = Annotated[
    int | None,
    typer.Option(
        "--max-new-tokens",
        metavar="N",
        min=1,
        max=2**31 - 1,
        help="Frames at most; of a long text, in each piece.",
        show_default="1024, or what the model's context leaves",
    ),
]
MinTokensBeforeEndOption = Annotated[
    int | None,
    typer.Option(
        "--min-tokens-before-end",
        metavar="N",
        min=0,
        max=2**31 - 1,
        help="Frames at least; of a long text, in each piece.",
        show_default="0, or 2 for Qwen3-TTS",
    ),
]
StreamOption = Annotated[
    bool, typer.Option("--stream", help="Write the speech as it is made; the file is a whole one at any time.")
]
FramesPerChunkOption = Annotated[
    str | None,
    typer.Option(
        "--frames-per-chunk",
        metavar="N,N,...",
        show_default=streaming.DEFAULT_CADENCE,
        help="With --stream or -o -: frames written at a time; the last number holds for all the rest.",
    ),
]
StdoutFormatOption = Annotated[
    Literal["raw", "wav"] | None,
    typer.Option(
        "--format", show_default="raw", help="Of -o -: samples alone, or with a WAV header of unknown length."
    ),
]
TrimSilenceOption = Annotated[
    bool, typer.Option("--trim-silence", help="Cut the silence at the end (under -60 dB), but for 0.1 s of it.")
]
PeakOption = Annotated[
    float | None,
    typer.Option(
        "--peak",
        metavar="DB",
        min=-60.0,
        max=0.0,
        show_default="off",
        help="Scale the largest sample to this many dB of full scale; with --loudness, the most it may get to.",
    ),
]
LoudnessOption = Annotated[
    float | None,
    typer.Option(
        "--loudness",
        metavar="LUFS",
        min=-70.0,
        max=0.0,
        show_default="off",
        help="Scale to this loudness (BS.1770), such as -23 or -16, as far as the peak allows (-1 dB).",
    ),
]
FastArOption = Annotated[
    Literal["cached", "recompute"],
    typer.Option("--fast-ar", help="How to fill in a frame: cached is quick, recompute the check of it."),
]
KvTypeOption = Annotated[
    Literal["auto", "f32", "f16"],
    typer.Option("--kv-type", help="Precision of the attention cache; auto is f32 for F32 weights, else f16."),
]
TokenizerOption = Annotated[
    Path | None,
    typer.Option(
        "--tokenizer",
        callback=common.check_tokenizer_path,
        metavar="FILE",
        help="A tokenizer.json to read the text with.",
        show_default="in the model's file, beside it, or in its parent folder",
    ),
]
ImEndIdOption = Annotated[
    int | None,
    typer.Option(
        "--im-end-id",
        metavar="N",
        min=0,
        max=2**31 - 1,
        help="The token that ends speech.",
        show_default="the tokenizer's <|im_end|>",
    ),
]
KeepPartialOption = Annotated[
    bool,
    typer.Option("--keep-partial", help="On Ctrl-C, keep what was said so far, as a whole but shorter WAV file."),
]
PauseOption = Annotated[
    str | None,
    typer.Option(
        "--pause",
        metavar="MS",
        show_default="turn=250,paragraph=500,sentence=150,clause=0,word=0",
        help="Silence between the pieces of a long text: one number, or some of these by what a piece ends with.",
    ),
]
ContextOption = Annotated[
    int,
    typer.Option(
        "--context",
        metavar="N",
        min=0,
        max=2**31 - 1,
        help="Of a long text: how much of what was said before (tokens and frames) the model sees with each piece.",
    ),
]
RetriesOption = Annotated[
    int,
    typer.Option(
        "--retries",
        metavar="N",
        min=0,
        max=100,
        help="Of a long text: how often a piece that fails is tried again, each time with another seed.",
    ),
]
RowsOption = Annotated[
    int,
    typer.Option(
        "--rows",
        metavar="N",
        min=1,
        max=256,
        help="Of a long text: how many pieces are made at once. Above 1 the whole is done sooner, and each piece has "
        "the first one as context in place of those before it.",
    ),
]
ContinueOption = Annotated[
    Path | None,
    typer.Option(
        "--continue-from",
        metavar="FILE",
        show_default="none",
        help="Go on with a long text that was interrupted: its .job file. Text and options as before.",
    ),
]
