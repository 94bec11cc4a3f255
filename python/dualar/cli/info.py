"""`dualar info`: what a model file holds, what it lacks, and the memory it needs.

Owns the page that it prints; leaves checking a file to the loaders, whose errors it prints as they are.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualar.cli import common
from dualar.cli.parts import types_by_part
from dualar.gguf import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dualar._native import ModelFile
    from dualar.engine import Engine
    from dualar.families.base import Rows

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def info(
    model: common.ModelArgument,
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
        from dualar.convert.requantize import RECIPE_KEY
        from dualar.engine import load
        from dualar.families.registry import kind_of
        from dualar.runtime import open_file

        file = open_file(model)
        _line("File", f"{file.path} ({common.amount(file.nbytes)})")
        architecture = file.get(names.ARCHITECTURE_KEY)
        _line("Architecture", _word(architecture) or "not named")
        kind = kind_of(architecture)
        for title, geometry in [] if kind is None else _geometry(file, kind.geometry):
            _line(title, geometry)
        for title, types in types_by_part(kind, file.tensors()):
            _line(f"{title} types", types)
        if (recipe := file.get(RECIPE_KEY)) is not None:
            _line("Quantized", _word(recipe))
        if kind is not None:
            _line("Tokenizer", _tokenizer(file, kind.required_tokens))
        with load(model) as engine:  # its errors list every tensor that is missing or misshapen
            _loaded(file, engine, seconds, verbose)


def _line(title: str, text: str) -> None:
    typer.echo(f"{title:<23}{text}")


def _word(value: object) -> str:
    """A metadata value for a line: cut where it is long, nothing unprintable. The file may be wrong."""
    most = 60
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        value, most = ", ".join(value), 200
    text = str(value) if value is not None else ""
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= most else text[: most - 3] + "..."


def _geometry(file: ModelFile, rows: Rows) -> list[tuple[str, str]]:
    """What the metadata says of each part; only what is there, since the file may be wrong."""
    lines = []
    for title, keys in rows:
        values = ((words, file.get(key)) for key, words in keys.items())
        text = ", ".join(words.format(_word(value)) for words, value in values if value is not None and value != [])
        if text:
            lines.append((title, text))
    return lines


def _tokenizer(file: ModelFile, required: Sequence[str]) -> str:
    from dualar import ModelError
    from dualar.text.tokenizer import METADATA_KEY, Tokenizer

    try:
        found = Tokenizer.find_or_none(file.path, metadata_value=file.get(METADATA_KEY), required=required)
    except ModelError as error:
        return f"cannot be used: {_word(error)}"
    return "not found" if found is None else f"{found.source}, {found.vocab_size} tokens"


def _loaded(file: ModelFile, engine: Engine, seconds: float, verbose: int) -> None:
    from dualar import ModelError

    problems: list[str] = []

    def part(get: Any) -> Any:
        try:
            return get()
        except ModelError as error:
            problems.append(str(error))
            return None

    from dualar.cli.speed import verdict

    model, codec = part(lambda: engine.model), part(lambda: engine.codec)
    rate = 0.0
    if codec is not None:
        rate = codec.sample_rate / codec.samples_per_frame
        _line("Frames", f"{rate:.2f} a second, of {codec.samples_per_frame} samples")
    if model is not None:
        frames = ceil(seconds * rate) if rate else model.context_length
        positions = min(frames, model.context_length)
        what = f"{frames / rate:.0f} s of speech ({frames} frames)" if rate else f"{frames} frames"
        _line(
            "Memory",
            f"{common.amount(file.nbytes)} weights, {common.amount(model.kv_bytes(positions))} cache for {what}",
        )
        tokenizer = part(lambda: engine.tokenizer)
        if tokenizer is not None and (prompt := engine.parts.family.prompt_name(tokenizer)):
            _line("Prompt", prompt)
        family = engine.parts.family
        if not family.takes_voice:
            _line("Voice", "its own alone; the pieces of a long text do not see one another")
        elif rate and model.context_length > 1 and family.keeps_prefixes:
            second = rate * (model.kv_bytes(2) - model.kv_bytes(1))
            limit = engine.prefix_cache.limit
            _line(
                "Prefix cache",
                f"{common.amount(second)} for a second of a voice's recording, {common.amount(limit)} at most",
            )
        if (speed := verdict(engine)) is not None:
            _line("Speed", speed)
        if frames > model.context_length:
            _line("", f"{frames} frames are more than the model's context of {model.context_length}")
    unused = [*(model.unused_tensors if model else ()), *(codec.unused_tensors if codec else ())]
    _line("Unused tensors", _listed(unused, everything=verbose > 0))
    for problem in problems:
        common.note(f"missing: {problem}")


def _listed(names: list[str], *, everything: bool) -> str:
    """How many names there are, and the first of them, or all."""
    if not names:
        return "none"
    shown = names if everything else names[:3]
    rest = "" if len(shown) == len(names) else " ... (-v lists all)"
    return f"{len(names)}: {', '.join(shown)}{rest}"
