"""`dualar info`: what a model file holds, what it lacks, and the memory it needs.

Owns the page it prints; leaves the judgement of a file to the loaders, whose complaint it prints as it is.
"""

from __future__ import annotations

from collections import defaultdict
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualar.cli import common

if TYPE_CHECKING:
    from dualar._core import ModelFile
    from dualar.engine import Engine

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_PARTS = {"Slow-AR": "", "Fast-AR": "fast_", "Codec": "c."}


@app.command()
def info(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", envvar="DUALAR_MODEL", callback=common.check_model_path, help="The model's GGUF file."
        ),
    ],
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="X", min=0.1, max=3600.0, help="Tell the memory for this much speech.")
    ] = 30.0,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Show what a model file holds and lacks.

    Parts, sizes, types, tokenizer and the memory needed. Exit code 1 where the file cannot be used.
    """
    with common.reporting(quiet=quiet, verbose=verbose):
        from dualar.engine import load, open_file

        file = open_file(model)
        _line("File", f"{file.path} ({common.amount(file.nbytes)})")
        _line("Architecture", file.architecture or "not named")
        for title, geometry in _geometry(file):
            _line(title, geometry)
        for title, types in _types(file):
            _line(f"{title} types", types)
        with load(model) as engine:  # its errors list every tensor that is missing or misshapen
            _loaded(file, engine, seconds, verbose)


def _line(title: str, text: str) -> None:
    typer.echo(f"{title:<16}{text}")


def _geometry(file: ModelFile) -> list[tuple[str, str]]:
    """What the metadata says of each part; only what is there, since the file may be wrong."""

    def described(prefix: str, **names: str) -> str:
        values = ((words, file.get(prefix + key)) for key, words in names.items())
        return ", ".join(words.format(value) for words, value in values if value is not None)

    lines = [
        (
            "Slow-AR",
            described(
                "fish-speech.",
                block_count="{} layers",
                embedding_length="width {}",
                **{"attention.head_count": "{} heads", "attention.head_count_kv": "{} key/value heads"},
                feed_forward_length="feed-forward {}",
                vocab_size="vocabulary {}",
                context_length="context {}",
            ),
        ),
        (
            "Fast-AR",
            described(
                "fish_speech.",
                fast_block_count="{} layers",
                fast_embedding_length="width {}",
                fast_head_count="{} heads",
                fast_head_count_kv="{} key/value heads",
                fast_feed_forward_length="feed-forward {}",
            ),
        ),
        ("Codebooks", described("fish_speech.", num_codebooks="{}", codebook_size="of {} entries")),
    ]
    return [(title, text) for title, text in lines if text]


def _types(file: ModelFile) -> list[tuple[str, str]]:
    """For each part, its parameters by ggml type, most first."""
    parts: dict[str, dict[str, int]] = {name: defaultdict(int) for name in _PARTS}
    for name, type_name, shape in file.tensors():
        part = "Codec" if name.startswith("c.") else "Fast-AR" if name.startswith("fast_") else "Slow-AR"
        parts[part][type_name] += prod(shape)
    lines = []
    for part, types in parts.items():
        if types:
            ranked = sorted(types.items(), key=lambda item: -item[1])
            lines.append((part, ", ".join(f"{common.count(size)} in {name.upper()}" for name, size in ranked)))
    return lines


def _loaded(file: ModelFile, engine: Engine, seconds: float, verbose: int) -> None:
    from dualar import ModelError

    problems: list[str] = []

    def part(get: Any) -> Any:
        try:
            return get()
        except ModelError as error:
            problems.append(str(error))
            return None

    model, codec = part(lambda: engine.model), part(lambda: engine.codec)
    rate = 0.0
    if codec is not None:
        rate = codec.sample_rate / codec.samples_per_frame
        _line("Codec", f"{codec.sample_rate} Hz, {codec.samples_per_frame} samples a frame, {rate:.2f} frames a second")
    try:
        _line("Tokenizer", engine.tokenizer.source)
    except ModelError:  # without one the model cannot be used either: that complaint is in `problems`
        _line("Tokenizer", "not found")
    if model is not None:
        frames = ceil(seconds * rate) if rate else model.context_length
        positions = min(frames, model.context_length)
        what = f"{frames / rate:.0f} s of speech ({frames} frames)" if rate else f"{frames} frames"
        _line(
            "Memory",
            f"{common.amount(file.nbytes)} weights, {common.amount(model.kv_bytes(positions))} cache for {what}",
        )
        if frames > model.context_length:
            _line("", f"{frames} frames are more than the model's context of {model.context_length}")
    unused = [*(model.unused_tensors if model else ()), *(codec.unused_tensors if codec else ())]
    _line("Unused tensors", _listed(unused, everything=verbose > 0))
    for problem in problems:
        common.note(f"missing: {problem}")


def _listed(names: list[str], *, everything: bool) -> str:
    """How many names, and the first of them; this version leaves a codec's encoder unused, which has hundreds."""
    if not names:
        return "none"
    shown = names if everything else names[:3]
    rest = "" if len(shown) == len(names) else " ... (-v lists all)"
    return f"{len(names)}: {', '.join(shown)}{rest}"
